//! Memory that the X server writes pictures into.

use super::memory::Memory;
use crate::error::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::{AsFd, OwnedFd};
use x11rb::connection::Connection;
use x11rb::protocol::shm::{self, Seg};
use x11rb::rust_connection::RustConnection;

/// Shared memory, attached to the X server by its file descriptor: that also works where the server lives in another IPC namespace.
pub(crate) struct Segment {
    memory: Memory,
    pub(crate) id: Seg,
}

impl Segment {
    /// Makes and attaches a segment. The X server keeps its own mapping until the connection ends or [`Segment::detach`] is called.
    pub(crate) fn attach(connection: &RustConnection, length: usize) -> Result<Self> {
        let failed = |e| Error::internal(format!("{length} bytes of shared memory: {e}"));
        let file = memfd(length).map_err(failed)?;
        // SAFETY: the file has this length and is sealed. The X server writes to it only while a request to do so is on its way, and the one
        // who sends these waits for the reply before it looks at the bytes.
        let memory = unsafe { Memory::of_file(file.as_fd(), length).map_err(failed)? };
        let id = connection.generate_id()?;
        shm::attach_fd(connection, id, file, false)?.check()?;
        Ok(Self { memory, id })
    }

    pub(crate) fn detach(self, connection: &RustConnection) {
        // If that fails the connection is broken, and the server has let go of the memory already.
        let _ = shm::detach(connection, self.id);
    }

    /// What the X server has written. `&mut self` keeps this apart from requests that let it write.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        &self.memory
    }
}

fn memfd(length: usize) -> rustix::io::Result<OwnedFd> {
    let file = memfd_create("hotdesk-screen", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, length as u64)?;
    // Nobody can cut the file under our feet, which would end this process with SIGBUS.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}
