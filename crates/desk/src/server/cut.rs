//! Everybody who is connected, and how to send them away.
//!
//! A desk that is saved with its memory must not hold an end of anything whose other end is elsewhere. Requests under way may
//! end; whatever is left is cut off, whether the task that serves it is looking or not: one that waits for a slow program
//! does not look at its client for minutes.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// All connections of a desk's server. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Crowd(Arc<Inner>);

#[derive(Default)]
struct Inner {
    open: Mutex<BTreeMap<u64, Arc<dyn Thread>>>,
    /// How many speak HTTP; those that became something else, such as a WebSocket, do not.
    serving: watch::Sender<usize>,
    leave: Mutex<CancellationToken>,
}

/// Names a connection, in the extensions of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection(u64);

/// What can be cut.
trait Thread: Send + Sync {
    fn cut(&self);
}

/// A stream that can be cut.
pub(super) struct Cuttable<S: 'static> {
    id: u64,
    end: Arc<Mutex<End<S>>>,
    crowd: Crowd,
}

impl<S> hotdesk_serve::Break for Cuttable<S> {}

struct End<S> {
    stream: Option<S>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Counts a connection as long as it speaks HTTP.
pub(super) struct Serving(Crowd);

impl Crowd {
    pub(super) fn enter<S: Send + 'static>(&self, stream: S) -> (Connection, Cuttable<S>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let end = Arc::new(Mutex::new(End { stream: Some(stream), reader: None, writer: None }));
        self.open().insert(id, end.clone());
        (Connection(id), Cuttable { id, end, crowd: self.clone() })
    }

    /// Counts one more, and gives what tells it to end after its request.
    pub(super) fn serve(&self) -> (Serving, CancellationToken) {
        self.0.serving.send_modify(|count| *count += 1);
        (Serving(self.clone()), self.0.leave.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Ends all connections but one, which ends after its request: those that serve a request get so long to end it.
    /// Whoever comes later may stay. How many had to be cut.
    pub(crate) async fn send_away(&self, but: Option<Connection>, patience: Duration) -> usize {
        let leave = std::mem::take(&mut *self.0.leave.lock().unwrap_or_else(PoisonError::into_inner));
        leave.cancel();
        let most = usize::from(but.is_some());
        let mut serving = self.0.serving.subscribe();
        let _ = tokio::time::timeout(patience, serving.wait_for(|count| *count <= most)).await;
        let mut away = std::mem::take(&mut *self.open());
        if let Some(Connection(id)) = but
            && let Some(stays) = away.remove(&id)
        {
            self.open().insert(id, stays);
        }
        away.values().for_each(|thread| thread.cut());
        away.len()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Thread>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.0.serving.send_modify(|count| *count -= 1);
    }
}

impl<S: Send> Thread for Mutex<End<S>> {
    fn cut(&self) {
        let (stream, wakers) = {
            let mut end = self.lock().unwrap_or_else(PoisonError::into_inner);
            (end.stream.take(), [end.reader.take(), end.writer.take()])
        };
        drop(stream);
        // Whoever waits for the stream would wait for ever.
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl<S> Drop for Cuttable<S> {
    fn drop(&mut self) {
        self.crowd.open().remove(&self.id);
    }
}

impl<S: Unpin> Cuttable<S> {
    fn end(&self) -> MutexGuard<'_, End<S>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_writer<T>(
        &self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let end = &mut *self.end();
        let Some(stream) = &mut end.stream else { return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())) };
        let result = write(Pin::new(stream), cx);
        remember(&mut end.writer, result.is_pending(), cx);
        result
    }
}

fn remember(slot: &mut Option<Waker>, pending: bool, cx: &Context<'_>) {
    if pending && !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *slot = Some(cx.waker().clone());
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let end = &mut *self.end();
        let Some(stream) = &mut end.stream else { return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())) };
        let result = Pin::new(stream).poll_read(cx, buffer);
        remember(&mut end.reader, result.is_pending(), cx);
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cuttable<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.with_writer(cx, |stream, cx| stream.poll_write(cx, data))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.with_writer(cx, |stream, cx| stream.poll_write_vectored(cx, data))
    }

    fn is_write_vectored(&self) -> bool {
        self.end().stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_writer(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_writer(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_cut_ends_both_sides_and_wakes_who_waits() {
        let crowd = Crowd::default();
        let (here, mut there) = tokio::io::duplex(64);
        let (_, mut here) = crowd.enter(here);
        here.write_all(b"hello").await.unwrap();
        let mut text = [0; 5];
        there.read_exact(&mut text).await.unwrap();
        let waiting = tokio::spawn(async move {
            let read = here.read(&mut [0; 8]).await;
            let write = here.write(b"x").await;
            (read.is_err(), write.is_err())
        });
        tokio::task::yield_now().await;
        let (near, _far) = tokio::io::duplex(8);
        let (own, mut stays) = crowd.enter(near);
        assert_eq!(crowd.send_away(Some(own), Duration::ZERO).await, 1);
        assert_eq!(there.read(&mut text).await.unwrap(), 0, "the other side sees the end at once");
        assert_eq!(waiting.await.unwrap(), (true, true));
        stays.write_all(b"x").await.unwrap();
        drop(stays);
        assert_eq!(crowd.send_away(None, Duration::ZERO).await, 0, "what ended by itself is forgotten");
    }

    #[tokio::test]
    async fn requests_under_way_may_end() {
        let crowd = Crowd::default();
        let (serving, leave) = crowd.serve();
        let sent = tokio::spawn({
            let crowd = crowd.clone();
            async move { crowd.send_away(None, Duration::from_secs(60)).await }
        });
        leave.cancelled().await;
        assert!(!crowd.serve().1.is_cancelled(), "who comes later may stay");
        drop(serving);
        assert_eq!(sent.await.unwrap(), 0);
    }
}
