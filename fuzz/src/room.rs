//! A directory for one input, for targets that read and write files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Removed with everything in it at the end.
pub(crate) struct Room(PathBuf);

impl Room {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // In memory, where there is a place for that: disks are slow at making and removing thousands of small files.
        let shared = Path::new("/dev/shm");
        let place = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let path = place.join(format!("hotdesk-fuzz-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Runs something on a thread that has this as its root directory: whatever an archive does, it does it here.
    #[allow(dead_code, reason = "not all targets need it")]
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let outcome = std::thread::scope(|scope| {
            let work = || {
                // SAFETY: files that are open stay shared with all threads.
                unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }.unwrap();
                rustix::process::chroot(&self.0).expect("this needs root, for a root directory of its own");
                rustix::process::chdir("/").unwrap();
                work()
            };
            scope.spawn(work).join()
        });
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
