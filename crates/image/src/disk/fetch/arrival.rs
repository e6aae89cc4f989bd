//! Which bytes of a download are there, for those who bring them, for those who read behind them, and for the next try.

use crate::disk::Meter;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::Digest;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// What one request asks for. Larger ones lose more when a fetch is killed, smaller ones cost round trips.
pub(super) const SEGMENT: u64 = 4 << 20;
/// With little room, so much may be on the disk that was not unpacked yet.
pub(super) const WINDOW: u64 = 128 << 20;
/// A stopped job is noticed this soon.
const MOMENT: Duration = Duration::from_millis(200);

/// What is kept beside a download that is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) url: String,
    pub(super) validator: Option<String>,
    /// Which stretch of the remote file it is.
    pub(super) from: u64,
    pub(super) length: u64,
    /// A digit for each segment: 1 is there.
    pub(super) done: String,
}

/// The bytes that have come so far.
pub(super) struct Arrival {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Only so much ahead of the reader may be asked for.
    frugal: bool,
}

struct Inner {
    /// Not known while a server sends in chunks; then it is what has come.
    length: Option<u64>,
    /// Of each segment: taken by somebody, there.
    segments: Vec<(bool, bool)>,
    /// Without segments: so many bytes are there.
    prefix: u64,
    /// Where the reader is.
    consumed: u64,
    failed: Option<String>,
}

impl Arrival {
    pub(super) fn segments(length: u64, done: &str, frugal: bool) -> Self {
        let count = length.div_ceil(SEGMENT) as usize;
        let mut segments = vec![(false, false); count];
        for (segment, there) in segments.iter_mut().zip(done.bytes()) {
            *segment = (there == b'1', there == b'1');
        }
        let inner = Inner { length: Some(length), segments, prefix: 0, consumed: 0, failed: None };
        Self { inner: Mutex::new(inner), changed: Condvar::new(), frugal }
    }

    /// One stream, from its beginning to its end.
    pub(super) fn stream(length: Option<u64>) -> Self {
        let inner = Inner { length, segments: Vec::new(), prefix: 0, consumed: 0, failed: None };
        Self { inner: Mutex::new(inner), changed: Condvar::new(), frugal: false }
    }

    /// Everything is there.
    pub(super) fn whole(length: u64) -> Self {
        let arrival = Self::stream(Some(length));
        arrival.reach(length);
        arrival
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The next segment that nobody has: where it begins and how long it is. `Wait` means that the reader is far behind.
    pub(super) fn take(&self) -> Take {
        let mut inner = self.lock();
        if let Some(why) = &inner.failed {
            return Take::Failed(why.clone());
        }
        let Some(index) = inner.segments.iter().position(|(taken, _)| !taken) else { return Take::Nothing };
        let from = index as u64 * SEGMENT;
        if self.frugal && from > inner.consumed + WINDOW {
            return Take::Wait;
        }
        inner.segments[index].0 = true;
        let length = inner.length.unwrap_or(0);
        Take::Segment { index, from, length: SEGMENT.min(length - from) }
    }

    pub(super) fn arrived(&self, index: usize) {
        if let Some(segment) = self.lock().segments.get_mut(index) {
            segment.1 = true;
        }
        self.changed.notify_all();
    }

    /// Of a stream: so many bytes are there.
    pub(super) fn reach(&self, prefix: u64) {
        self.lock().prefix = prefix;
        self.changed.notify_all();
    }

    /// Of a stream: there are no more.
    pub(super) fn end(&self) {
        let mut inner = self.lock();
        inner.length = Some(inner.prefix);
        drop(inner);
        self.changed.notify_all();
    }

    pub(super) fn fail(&self, why: String) {
        self.lock().failed.get_or_insert(why);
        self.changed.notify_all();
    }

    /// For [`State::done`].
    pub(super) fn done(&self) -> String {
        self.lock().segments.iter().map(|(_, there)| if *there { '1' } else { '0' }).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        let inner = self.lock();
        let length = inner.length.unwrap_or(0);
        let there = |(index, segment): (usize, &(bool, bool))| match segment.1 {
            true => SEGMENT.min(length - index as u64 * SEGMENT),
            false => 0,
        };
        inner.segments.iter().enumerate().map(there).sum()
    }

    /// How many bytes can be read at a place; 0 is the end.
    fn wait(&self, position: u64, meter: &Meter) -> Result<u64> {
        let mut inner = self.lock();
        inner.consumed = position;
        loop {
            meter.check()?;
            let end = match inner.segments.is_empty() {
                true => inner.prefix,
                false => {
                    let first = (position / SEGMENT) as usize;
                    let there = inner.segments.iter().skip(first).take_while(|(_, there)| *there).count();
                    ((first + there) as u64 * SEGMENT).min(inner.length.unwrap_or(0))
                }
            };
            if end > position {
                return Ok(end - position);
            }
            if inner.length.is_some_and(|length| position >= length) {
                return Ok(0);
            }
            if let Some(why) = &inner.failed {
                return Err(Error::Failed(why.clone()));
            }
            inner = match self.changed.wait_timeout(inner, MOMENT) {
                Ok((inner, _)) => inner,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

pub(super) enum Take {
    Segment {
        index: usize,
        from: u64,
        length: u64,
    },
    Wait,
    Nothing,
    /// Nobody needs more.
    Failed(String),
}

/// Reads bytes as they arrive, and knows their digest at the end.
pub(super) struct Follow {
    pub(super) file: Arc<File>,
    pub(super) arrival: Arc<Arrival>,
    pub(super) meter: Arc<Meter>,
    pub(super) position: u64,
    pub(super) hash: Option<sha2::Sha256>,
    /// Bytes are given back to the disk once they were read.
    pub(super) frugal: bool,
    /// Up to here they are given back already.
    pub(super) punched: u64,
}

impl Follow {
    /// Reads on to a place, for the digest's sake.
    pub(super) fn skip_to(&mut self, position: u64) -> io::Result<()> {
        let length = position.saturating_sub(self.position);
        let skipped = io::copy(&mut self.by_ref().take(length), &mut io::sink())?;
        if skipped == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The digest of everything, the rest included.
    pub(super) fn digest(&mut self) -> io::Result<Option<String>> {
        if self.hash.is_some() {
            io::copy(self, &mut io::sink())?;
        }
        Ok(self.hash.take().map(|hash| crate::disk::split::hex(&hash.finalize())))
    }
}

impl Read for Follow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let there = self.arrival.wait(self.position, &self.meter).map_err(io::Error::other)?;
        let length = there.min(buffer.len() as u64) as usize;
        let read = self.file.read_at(&mut buffer[..length], self.position)?;
        if let Some(hash) = &mut self.hash {
            hash.update(&buffer[..read]);
        }
        self.position += read as u64;
        if self.frugal && self.position - self.punched >= SEGMENT {
            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&*self.file, flags, self.punched, self.position - self.punched);
            self.punched = self.position;
        }
        Ok(read)
    }
}

impl State {
    pub(super) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| Error::Failed(e.to_string()))?;
        let guard = crate::disk::Unfinished::beside(path, "partial")?;
        std::fs::write(guard.path(), text).map_err(|e| crate::disk::at(path, &e))?;
        guard.finish(path)
    }

    /// Whether what was fetched then is a part of what is wanted now.
    pub(super) fn fits(&self, now: &Self) -> bool {
        now.validator.is_some()
            && (&self.url, &self.validator, self.from, self.length) == (&now.url, &now.validator, now.from, now.length)
    }
}
