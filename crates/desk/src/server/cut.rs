//! Connections that can be ended from outside, at once, whatever the task that serves them is doing.
//!
//! A desk that is saved with its memory must not hold an end of anything whose other end is elsewhere. Asking the
//! tasks would not do: one that waits for a slow program does not look at its client for minutes.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// All connections that are open. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Scissors(Arc<Mutex<BTreeMap<u64, Arc<dyn Thread>>>>);

/// What can be cut.
trait Thread: Send + Sync {
    fn cut(&self);
}

/// A stream that [`Scissors::cut_all`] ends.
pub(super) struct Cuttable<S: 'static> {
    id: u64,
    end: Arc<Mutex<End<S>>>,
    all: Scissors,
}

struct End<S> {
    stream: Option<S>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Scissors {
    pub(super) fn watch<S: Send + 'static>(&self, stream: S) -> Cuttable<S> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let end = Arc::new(Mutex::new(End { stream: Some(stream), reader: None, writer: None }));
        self.lock().insert(id, end.clone());
        Cuttable { id, end, all: self.clone() }
    }

    /// Closes every connection. When this returns, none is open.
    pub(crate) fn cut_all(&self) -> usize {
        let all: Vec<_> = std::mem::take(&mut *self.lock()).into_values().collect();
        all.iter().for_each(|thread| thread.cut());
        all.len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<dyn Thread>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.all.lock().remove(&self.id);
    }
}

impl<S: Unpin> Cuttable<S> {
    fn end(&self) -> MutexGuard<'_, End<S>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T>(
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
        self.write(cx, |stream, cx| stream.poll_write(cx, data))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.write(cx, |stream, cx| stream.poll_write_vectored(cx, data))
    }

    fn is_write_vectored(&self) -> bool {
        self.end().stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_cut_ends_both_sides_and_wakes_who_waits() {
        let scissors = Scissors::default();
        let (here, mut there) = tokio::io::duplex(64);
        let mut here = scissors.watch(here);
        here.write_all(b"hello").await.unwrap();
        let mut text = [0; 5];
        there.read_exact(&mut text).await.unwrap();
        let waiting = tokio::spawn(async move {
            let read = here.read(&mut [0; 8]).await;
            let write = here.write(b"x").await;
            (read.is_err(), write.is_err())
        });
        tokio::task::yield_now().await;
        assert_eq!(scissors.cut_all(), 1);
        assert_eq!(there.read(&mut text).await.unwrap(), 0, "the other side sees the end at once");
        assert_eq!(waiting.await.unwrap(), (true, true));
        assert_eq!(scissors.cut_all(), 0);
    }

    #[tokio::test]
    async fn what_ended_by_itself_is_forgotten() {
        let scissors = Scissors::default();
        drop(scissors.watch(tokio::io::duplex(8).0));
        assert_eq!(scissors.cut_all(), 0);
    }
}
