//! Memory that the X server writes pictures into.

use crate::error::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use x11rb::protocol::shm::{self, Seg};
use x11rb::rust_connection::RustConnection;

/// Shared memory, attached to the X server by its file descriptor: that also works where the server lives in another IPC namespace.
pub(crate) struct Segment {
    address: NonNull<u8>,
    length: usize,
    pub(crate) id: Seg,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Segment {}

impl Segment {
    /// Makes and attaches a segment. The X server keeps its own mapping until the connection ends or [`Segment::detach`] is called.
    pub(crate) fn attach(connection: &RustConnection, length: usize) -> Result<Self> {
        let file = memfd(length).map_err(|e| Error::internal(format!("{length} bytes of shared memory: {e}")))?;
        // SAFETY: a fresh mapping at an address that the kernel chooses; the file has this length and is sealed against shrinking.
        let address = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
                .map_err(|e| Error::internal(format!("mapping {length} bytes of shared memory: {e}")))?
        };
        let address = NonNull::new(address.cast()).ok_or_else(|| Error::internal("shared memory was mapped at address 0"))?;
        let mut segment = Self { address, length, id: 0 };
        segment.id = x11rb::connection::Connection::generate_id(connection)?;
        shm::attach_fd(connection, segment.id, file, false)?.check()?;
        Ok(segment)
    }

    pub(crate) fn detach(self, connection: &RustConnection) {
        // If that fails the connection is broken, and the server has let go of the memory already.
        let _ = shm::detach(connection, self.id);
    }

    /// What the X server has written. `&mut self` keeps this apart from requests that let it write.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        // SAFETY: the mapping is `length` bytes long and lives as long as `self`. The X server writes to it only while a request to do so
        // is on its way, and the one who sends these waits for the reply before it looks here.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.length) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by `attach` with this length; no slice of it outlives `self`.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.length) };
    }
}

fn memfd(length: usize) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("hotdesk-screen", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, length as u64)?;
    // Nobody can cut the file under our feet, which would end this process with SIGBUS.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}
