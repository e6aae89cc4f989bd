//! Large memory that goes back to the system the moment it is not needed.
//!
//! A picture is 8 MB. Allocators keep such blocks for later, each thread its own, and soon a small server is a large one.

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Bytes in pages of their own, zero at first.
pub(crate) struct Memory {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread; shared references only read.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Memory {
    /// Private memory. When there is none, the process ends, as with any other allocation.
    pub(crate) fn new(length: usize) -> Self {
        // All of it is going to be written: one call is cheaper than thousands of page faults.
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), length.max(1), ACCESS, flags) };
        match mapped.ok().and_then(|address| NonNull::new(address.cast())) {
            Some(address) => Self { address, length },
            None => handle_alloc_error(Layout::from_size_align(length, 1).unwrap_or(Layout::new::<u8>())),
        }
    }

    /// A file's bytes, shared with whoever else maps it.
    ///
    /// # Safety
    /// The file has this length and can't shrink, and nobody writes to it while a reference to the bytes lives.
    pub(crate) unsafe fn of_file(file: BorrowedFd<'_>, length: usize) -> rustix::io::Result<Self> {
        // SAFETY: a fresh mapping at an address that the kernel chooses; the caller vouches for the file.
        let address = unsafe { mmap(std::ptr::null_mut(), length.max(1), ACCESS, MapFlags::SHARED, file, 0)? };
        let address = NonNull::new(address.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { address, length })
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is at least `length` bytes long and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.length) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.length) }
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.length);
        copy.copy_from_slice(self);
        copy
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped with this length when it was made; no slice of it outlives `self`.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.length.max(1)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_apart() {
        let mut first = Memory::new(10_000);
        assert!(first.iter().all(|b| *b == 0));
        let copy = first.clone();
        first[9_999] = 7;
        assert_eq!((first[9_999], copy[9_999], copy.len()), (7, 0, 10_000));
        assert!(Memory::new(0).is_empty());
    }
}
