//! A desk asked by a program that has no runtime and waits for every answer: helpers with one thread, and programs in the desk.
//!
//! The requests are written and the answers read by the same code as everywhere; it runs on a runtime without threads, which lives
//! as long as the question.

use crate::{Client, Connect, Direct, Error, Result};
use http::HeaderMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// A socket that is connected already: good for one request.
pub struct Socket {
    stream: Mutex<Option<UnixStream>>,
    secret: Option<String>,
}

impl Connect for Socket {
    type Stream = tokio::net::UnixStream;

    async fn connect(&self) -> io::Result<Self::Stream> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or_else(|| io::Error::other("a second request on a connection for one"))?;
        stream.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(stream)
    }

    fn open(&self, headers: &mut HeaderMap) {
        crate::headers::open(headers, self.secret.as_deref());
    }
}

/// Asks the desk at the other end of a socket for one thing.
pub fn ask<V>(
    stream: UnixStream,
    secret: Option<&str>,
    question: impl AsyncFnOnce(Client<Direct<Socket>>) -> Result<V>,
) -> Result<V> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Connect)?;
    let socket = Socket { stream: Mutex::new(Some(stream)), secret: secret.map(str::to_owned) };
    runtime.block_on(question(Client::new(Direct(socket))))
}
