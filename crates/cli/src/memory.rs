//! How much memory the allocator holds on to.

use nix::libc;

/// Larger blocks are mapped one by one and so go back to the system at once. Pictures are of this size;
/// kept in the heap they leave holes that never close.
const MAPPED_FROM: libc::c_int = 2 * 1024 * 1024;

/// Every arena keeps what its threads once needed, and there are not more cores at work than this.
const ARENAS: libc::c_int = 2;

/// Called first, while there is one thread and next to nothing is allocated.
pub(crate) fn tame() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both options only change thresholds, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}
