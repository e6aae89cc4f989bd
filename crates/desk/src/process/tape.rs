//! Output that is kept for a while: written once, read by any number of clients, each at its own pace.
//!
//! Nobody waits for a reader: a writer that is faster than it overwrites the oldest bytes, and the
//! reader is told how many it missed. So neither slow nor stopped readers cost memory. A patient tape's writer
//! waits for those who read it, and overwrites only while nobody does.

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The largest piece in which output is handed on.
const PIECE: usize = 32 << 10;
/// What a piece costs besides its bytes.
const OVERHEAD: usize = 64;
/// How long a patient tape's writer waits for the first reader.
const FIRST_READER: Duration = Duration::from_secs(5);

/// Where output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Stdout,
    Stderr,
}

/// A tape that is written to. Cheap to clone.
#[derive(Clone)]
pub struct Tape {
    shared: Arc<Shared>,
}

struct Shared {
    kept: Mutex<Kept>,
    limit: usize,
    changed: watch::Sender<()>,
    /// Until when the first reader is waited for; none: nobody is ever waited for.
    patience: Option<Instant>,
    /// Says that a reader came, went on or left.
    read: watch::Sender<()>,
}

#[derive(Default)]
struct Kept {
    pieces: VecDeque<Piece>,
    cost: usize,
    end: u64,
    finished: bool,
    /// Where each reader is, by its number.
    readers: std::collections::BTreeMap<u64, u64>,
    /// How many came so far.
    came: u64,
}

struct Piece {
    source: Source,
    offset: u64,
    data: Vec<u8>,
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Data {
        source: Source,
        /// Of its first byte, counted over both sources.
        offset: u64,
        bytes: Bytes,
    },
    /// So many bytes were overwritten before they were read.
    Lost(u64),
}

impl Tape {
    /// A tape that keeps about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self::with(limit, None)
    }

    /// The same, whose writer waits for its readers.
    pub fn patient(limit: usize) -> Self {
        Self::with(limit, Some(Instant::now() + FIRST_READER))
    }

    fn with(limit: usize, patience: Option<Instant>) -> Self {
        let (changed, read) = (watch::channel(()).0, watch::channel(()).0);
        Self { shared: Arc::new(Shared { kept: Mutex::default(), limit, changed, patience, read }) }
    }

    /// Writes when there is room: at once, but on a patient tape only when no reader would miss anything.
    pub async fn write_with_patience(&self, source: Source, data: &[u8]) {
        if let Some(first) = self.shared.patience {
            let mut read = self.shared.read.subscribe();
            loop {
                read.borrow_and_update();
                match self.shared.must_wait(data.len()) {
                    Wait::No => break,
                    Wait::ForReaders => drop(read.changed().await),
                    Wait::ForTheFirst => {
                        if Instant::now() >= first || tokio::time::timeout_at(first, read.changed()).await.is_err() {
                            break;
                        }
                    }
                }
            }
        }
        self.write(source, data);
    }

    pub fn write(&self, source: Source, mut data: &[u8]) {
        let mut kept = self.shared.kept();
        while !data.is_empty() {
            let offset = kept.end;
            let room = match kept.pieces.back() {
                Some(last) if last.source == source => PIECE - last.data.len(),
                _ => 0,
            };
            let count = if room > 0 { room.min(data.len()) } else { PIECE.min(data.len()) };
            let (now, rest) = data.split_at(count);
            match kept.pieces.back_mut() {
                Some(last) if room > 0 => last.data.extend_from_slice(now),
                _ => {
                    kept.pieces.push_back(Piece { source, offset, data: now.to_vec() });
                    kept.cost += OVERHEAD;
                }
            }
            kept.cost += count;
            kept.end += count as u64;
            data = rest;
            while kept.cost > self.shared.limit && kept.pieces.len() > 1 {
                let gone = kept.pieces.pop_front().map_or(0, |piece| piece.data.len() + OVERHEAD);
                kept.cost = kept.cost.saturating_sub(gone);
            }
        }
        drop(kept);
        self.shared.changed.send_replace(());
    }

    /// Nothing more will be written.
    pub fn finish(&self) {
        self.shared.kept().finished = true;
        self.shared.changed.send_replace(());
    }

    /// Whether it was made for a reader who has not come yet.
    pub fn awaits_its_reader(&self) -> bool {
        self.shared.patience.is_some() && self.shared.kept().came == 0
    }

    /// How many bytes were written.
    pub fn written(&self) -> u64 {
        self.shared.kept().end
    }

    /// A reader that starts at the byte `from`, or at the oldest that is kept.
    pub fn read(&self, from: u64) -> Reader {
        let mut kept = self.shared.kept();
        kept.came += 1;
        let number = kept.came;
        kept.readers.insert(number, from);
        drop(kept);
        self.shared.read.send_replace(());
        Reader { changed: self.shared.changed.subscribe(), shared: self.shared.clone(), offset: from, number }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so many bytes more would overwrite what somebody has not read yet.
    fn must_wait(&self, more: usize) -> Wait {
        let kept = self.kept();
        let slowest = kept.readers.values().min();
        let unread = kept.end.saturating_sub(slowest.copied().unwrap_or(0));
        match slowest {
            _ if unread == 0 || usize::try_from(unread).unwrap_or(usize::MAX) + more <= self.limit / 2 => Wait::No,
            Some(_) => Wait::ForReaders,
            None if kept.came == 0 => Wait::ForTheFirst,
            None => Wait::No,
        }
    }
}

/// What a patient writer waits for.
enum Wait {
    No,
    ForReaders,
    ForTheFirst,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.kept().readers.remove(&self.number);
        self.shared.read.send_replace(());
    }
}

/// One who reads a tape.
pub struct Reader {
    shared: Arc<Shared>,
    changed: watch::Receiver<()>,
    offset: u64,
    number: u64,
}

impl Reader {
    /// What comes next, waited for; `None` at the end of a finished tape. Can be cancelled without loss.
    pub async fn next(&mut self) -> Option<Next> {
        loop {
            self.changed.borrow_and_update();
            if let Some(next) = self.try_next() {
                return Some(next);
            }
            if self.shared.kept().finished {
                // Written and finished between the two looks.
                return self.try_next();
            }
            self.changed.changed().await.ok()?;
        }
    }

    /// What is there already.
    pub fn try_next(&mut self) -> Option<Next> {
        let next = self.take();
        if next.is_some() {
            self.shared.kept().readers.insert(self.number, self.offset);
            self.shared.read.send_replace(());
        }
        next
    }

    fn take(&mut self) -> Option<Next> {
        let kept = self.shared.kept();
        let first = kept.pieces.front()?.offset;
        if self.offset < first {
            let lost = first - self.offset;
            self.offset = first;
            return Some(Next::Lost(lost));
        }
        if self.offset >= kept.end {
            return None;
        }
        let index = kept.pieces.partition_point(|piece| piece.offset <= self.offset).checked_sub(1)?;
        let piece = kept.pieces.get(index)?;
        let skip = usize::try_from(self.offset - piece.offset).ok()?;
        let bytes = Bytes::copy_from_slice(piece.data.get(skip..)?);
        let (source, offset) = (piece.source, self.offset);
        self.offset += bytes.len() as u64;
        Some(Next::Data { source, offset, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Source::{Stderr, Stdout};

    fn data(source: Source, offset: u64, bytes: &'static [u8]) -> Option<Next> {
        Some(Next::Data { source, offset, bytes: Bytes::from_static(bytes) })
    }

    #[tokio::test]
    async fn readers_see_all_in_order_whenever_they_come() {
        let tape = Tape::new(1000);
        let mut early = tape.read(0);
        tape.write(Stdout, b"one");
        assert_eq!(early.next().await, data(Stdout, 0, b"one"));
        tape.write(Stdout, b"two");
        tape.write(Stderr, b"bad");
        tape.finish();
        assert_eq!(early.next().await, data(Stdout, 3, b"two"));
        assert_eq!(early.next().await, data(Stderr, 6, b"bad"));
        assert_eq!(early.next().await, None);
        let mut late = tape.read(4);
        assert_eq!(late.next().await, data(Stdout, 4, b"wo"));
        assert_eq!(late.next().await, data(Stderr, 6, b"bad"));
        assert_eq!(late.next().await, None);
        assert_eq!(tape.read(1000).next().await, None);
    }

    #[tokio::test]
    async fn a_waiting_reader_wakes() {
        let tape = Tape::new(1000);
        let mut reader = tape.read(0);
        let waiting = tokio::spawn(async move { (reader.next().await, reader.next().await) });
        tokio::task::yield_now().await;
        tape.write(Stdout, b"x");
        tokio::task::yield_now().await;
        tape.finish();
        assert_eq!(waiting.await.unwrap(), (data(Stdout, 0, b"x"), None));
    }

    #[tokio::test]
    async fn a_patient_writer_waits_for_its_readers_and_for_nobody_else() {
        let tape = Tape::patient(100_000);
        let mut reader = tape.read(0);
        let writer = tape.clone();
        let writing = tokio::spawn(async move {
            for _ in 0..1000 {
                writer.write_with_patience(Stdout, &[7; 1000]).await;
            }
            writer.finish();
        });
        let mut seen = 0;
        while let Some(next) = reader.next().await {
            let Next::Data { bytes, .. } = next else { panic!("something was lost") };
            seen += bytes.len();
        }
        assert_eq!(seen, 1_000_000);
        writing.await.unwrap();
        drop(reader);
        // Those who have left are not waited for.
        tape.write_with_patience(Stdout, &[7; 1_000_000]).await;
    }

    #[tokio::test]
    async fn memory_is_bounded_and_loss_is_told() {
        let tape = Tape::new(100_000);
        let mut reader = tape.read(0);
        for n in 0..10_000u32 {
            tape.write(if n % 2 == 0 { Stdout } else { Stderr }, &[7; 1000]);
        }
        assert!(tape.shared.kept().cost <= 100_000);
        let Some(Next::Lost(lost)) = reader.next().await else { panic!("nothing was lost") };
        let mut seen = lost;
        tape.finish();
        while let Some(Next::Data { offset, bytes, .. }) = reader.next().await {
            assert_eq!(offset, seen);
            seen += bytes.len() as u64;
        }
        assert_eq!(seen, 10_000_000);
    }
}
