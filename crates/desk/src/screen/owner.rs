//! The one thread that talks to the X server about pixels, and the jobs that it is given.
//!
//! ```text
//!            no job, no watcher: sleeps; the first damage wakes it once
//!   asleep ──────────────────────────────────────────────────────────▶ asleep
//!      │ jobs                                   damage, with watchers │
//!      ▼                                                              ▼ (paced)
//!   capture once for all of them ──▶ answer jobs ──▶ answer watchers and settlers ──▶ asleep
//!      │ the connection broke
//!      ▼
//!   everybody gets 503; the next job connects again
//! ```

use super::cursor::CursorImage;
use super::frame::Frame;
use super::source::Source;
use super::strips::Strips;
use super::{Cursor, FrameUpdate, Glance, Seen, Shot, randr};
use crate::error::{Error, Result};
use crate::place::Place;
use hotdesk_api::action::{Rect, Size};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{broadcast, oneshot};

/// Jobs that may wait at once: far more than clients there can be, so that only a hung X server fills the list.
const MOST_JOBS: usize = 4096;

/// Captures for watchers come no faster than this; requests for pictures are not held back.
const PACE: Duration = Duration::from_millis(10);

/// The X server does not tell of the pointer's moves (nor, without DAMAGE, of any change): while somebody watches, we look this often.
const LOOK: Duration = Duration::from_millis(50);

/// Pause before connecting again while only receivers of changes wait for it.
const AGAIN: Duration = Duration::from_millis(250);

/// Rectangles that a slow receiver of changes may lag behind.
const CHANGES: usize = 1024;

type Reply<T> = oneshot::Sender<Result<T>>;

/// What the thread can be asked for.
pub(crate) enum Job {
    /// The whole screen as a PNG.
    Png {
        cursor: Cursor,
        reply: Reply<Shot>,
    },
    Frame {
        reply: Reply<FrameUpdate>,
    },
    Glance {
        reply: Reply<Glance>,
    },
    Watch {
        seen: Seen,
        reply: Reply<FrameUpdate>,
    },
    Settle {
        quiet: Duration,
        limit: Duration,
        reply: Reply<bool>,
    },
    Resize {
        size: Size,
        reply: Reply<Size>,
    },
}

/// Starts the thread when it is needed, and hands it jobs.
pub(crate) struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    place: Arc<Place>,
    jobs: Mutex<Vec<Job>>,
    /// Made together with the thread.
    wake: Mutex<Option<Arc<OwnedFd>>>,
    closed: AtomicBool,
    changes: broadcast::Sender<Rect>,
}

impl Owner {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        let shared = Shared {
            place,
            jobs: Mutex::default(),
            wake: Mutex::default(),
            closed: AtomicBool::new(false),
            changes: broadcast::channel(CHANGES).0,
        };
        Self { shared: Arc::new(shared), thread: Mutex::default() }
    }

    pub(crate) fn submit(&self, job: Job) -> Result<()> {
        {
            let mut jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            if jobs.len() >= MOST_JOBS {
                jobs.retain(|job| !job.is_given_up());
            }
            if jobs.len() >= MOST_JOBS {
                return Err(Error::display_down("too many requests wait for it already"));
            }
            jobs.push(job);
        }
        self.start()
    }

    pub(crate) fn changes(&self) -> broadcast::Receiver<Rect> {
        let receiver = self.shared.changes.subscribe();
        if let Err(e) = self.start() {
            tracing::warn!("the screen is not watched: {e}");
        }
        receiver
    }

    /// Starts the thread if it does not run, and wakes it.
    fn start(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let failed = |e: std::io::Error| Error::internal(format!("starting the capture thread: {e}"));
            let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| failed(e.into()))?);
            let (shared, fd) = (Arc::clone(&self.shared), Arc::clone(&wake));
            let run = move || Eyes::new(shared).run(&fd);
            *thread = Some(std::thread::Builder::new().name("screen".into()).spawn(run).map_err(failed)?);
            *self.shared.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        }
        self.shared.wake();
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake();
    }
}

impl Shared {
    fn wake(&self) {
        if let Some(fd) = &*self.wake.lock().unwrap_or_else(PoisonError::into_inner) {
            // The only possible failure is a full counter, and then the thread is awake.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }
}

impl Job {
    /// Nobody waits for the answer any more.
    fn is_given_up(&self) -> bool {
        match self {
            Self::Png { reply, .. } => reply.is_closed(),
            Self::Frame { reply } | Self::Watch { reply, .. } => reply.is_closed(),
            Self::Glance { reply } => reply.is_closed(),
            Self::Settle { reply, .. } => reply.is_closed(),
            Self::Resize { reply, .. } => reply.is_closed(),
        }
    }

    fn fail(self, e: Error) {
        // Whoever gave up waiting needs no answer.
        match self {
            Self::Png { reply, .. } => drop(reply.send(Err(e))),
            Self::Frame { reply } | Self::Watch { reply, .. } => drop(reply.send(Err(e))),
            Self::Glance { reply } => drop(reply.send(Err(e))),
            Self::Settle { reply, .. } => drop(reply.send(Err(e))),
            Self::Resize { reply, .. } => drop(reply.send(Err(e))),
        }
    }
}

struct Watcher {
    seen: Seen,
    reply: Reply<FrameUpdate>,
}

struct Settler {
    quiet: Duration,
    end: Instant,
    /// The last change, or the call.
    since: Instant,
    reply: Reply<bool>,
}

/// What the thread knows.
struct Eyes {
    shared: Arc<Shared>,
    source: Option<Source>,
    frame: Arc<Frame>,
    cursor: CursorImage,
    strips: Strips,
    /// The last PNG of each manner of painting the pointer, with the versions that it shows.
    shots: Vec<(Cursor, Seen, Shot)>,
    watchers: Vec<Watcher>,
    settlers: Vec<Settler>,
    /// When the last capture ended.
    looked: Option<Instant>,
    /// Something may have changed since.
    dirty: bool,
}

impl Eyes {
    fn new(shared: Arc<Shared>) -> Self {
        // Versions begin with the clock, so that they (and entity tags) do not repeat after a restart.
        let version = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_micros() as u64);
        Self {
            shared,
            source: None,
            frame: Arc::new(Frame::black(Size { width: 0, height: 0 }, version)),
            cursor: CursorImage::none(),
            strips: Strips::new(),
            shots: Vec::new(),
            watchers: Vec::new(),
            settlers: Vec::new(),
            looked: None,
            dirty: true,
        }
    }

    fn run(mut self, wake: &OwnedFd) {
        while !self.shared.closed.load(Ordering::Acquire) {
            let mut jobs = std::mem::take(&mut *self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner));
            jobs.retain(|job| !job.is_given_up());
            self.heed();
            let jobs = self.admit(jobs);
            if !jobs.is_empty() || self.is_due() {
                match self.capture() {
                    Ok(()) => jobs.into_iter().for_each(|job| self.answer(job)),
                    Err(e) => {
                        jobs.into_iter().for_each(|job| job.fail(e.clone()));
                        self.lose(&e);
                    }
                }
            }
            self.answer_watchers();
            self.answer_settlers();
            self.sleep(wake);
        }
    }

    /// Watchers and settlers wait here; the other jobs are returned, to be answered at once.
    fn admit(&mut self, jobs: Vec<Job>) -> Vec<Job> {
        let now = Instant::now();
        let mut rest = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job {
                Job::Watch { seen, reply } => {
                    self.watchers.push(Watcher { seen, reply });
                    self.dirty = true;
                }
                Job::Settle { quiet, limit, reply } => {
                    self.settlers.push(Settler { quiet, end: now + limit, since: now, reply });
                    self.dirty = true;
                }
                job => rest.push(job),
            }
        }
        rest
    }

    fn heed(&mut self) {
        match self.source.as_mut().map(Source::heed) {
            Some(Ok(dirty)) => self.dirty |= dirty,
            Some(Err(e)) => {
                // Whoever asks next connects again; those who wait for changes are told now.
                self.source = None;
                self.lose(&e);
            }
            None => {}
        }
    }

    fn is_watched(&self) -> bool {
        !self.watchers.is_empty() || !self.settlers.is_empty() || self.shared.changes.receiver_count() > 0
    }

    /// Whether the watchers' next capture should happen now.
    fn is_due(&self) -> bool {
        self.next_look().is_some_and(|at| at <= Instant::now())
    }

    /// When the next capture should happen without being asked for.
    fn next_look(&self) -> Option<Instant> {
        if !self.is_watched() {
            return None;
        }
        let Some(looked) = self.looked else { return Some(Instant::now()) };
        let pause = match &self.source {
            None if self.watchers.is_empty() && self.settlers.is_empty() => AGAIN,
            Some(source) if !self.dirty && !source.reports() => LOOK,
            Some(_) if !self.dirty && !self.watchers.is_empty() => LOOK,
            Some(_) if !self.dirty => return self.settlers.iter().map(Settler::next).min(),
            _ => PACE,
        };
        let settled = self.settlers.iter().map(Settler::next).min();
        Some(settled.map_or(looked + pause, |at| at.min(looked + pause)))
    }

    /// Brings the frame up to date. A connection that broke meanwhile is made again once.
    fn capture(&mut self) -> Result<()> {
        let before = self.frame.version();
        let fresh = self.source.is_none();
        let mut result = self.try_capture();
        if matches!(result, Err(Error::Unavailable { .. })) && !fresh {
            self.source = None;
            result = self.try_capture();
        }
        let now = Instant::now();
        self.looked = Some(now);
        if result.is_err() {
            self.source = None;
            return result;
        }
        self.dirty = false;
        if self.frame.version() != before {
            self.settlers.iter_mut().for_each(|settler| settler.since = now);
            if self.shared.changes.receiver_count() > 0 {
                for rect in self.frame.changed_since(before) {
                    // Fails when the last receiver has just gone.
                    let _ = self.shared.changes.send(rect);
                }
            }
        }
        Ok(())
    }

    fn try_capture(&mut self) -> Result<()> {
        let source = match &mut self.source {
            Some(source) => source,
            none => none.insert(Source::connect(&self.shared.place.display)?),
        };
        source.capture(&mut self.frame, &mut self.cursor)
    }

    fn answer(&mut self, job: Job) {
        // A failed send means that nobody waits any more.
        match job {
            Job::Png { cursor, reply } => drop(reply.send(self.png(cursor))),
            Job::Frame { reply } => drop(reply.send(Ok(self.update(Seen::default())))),
            Job::Glance { reply } => {
                let depth = self.source.as_ref().map_or(0, Source::depth);
                let (size, version) = (self.frame.size(), self.frame.version());
                drop(reply.send(Ok(Glance { size, depth, version, cursor: self.cursor.clone() })));
            }
            Job::Resize { size, reply } => {
                let resized = match &self.source {
                    Some(source) => randr::resize(source.connection(), source.root(), size),
                    None => Err(Error::display_down("the connection broke")),
                };
                // The answer comes after a capture in the new size, so that whoever asked sees nothing old.
                let answer = resized.and_then(|()| self.capture()).map(|()| self.frame.size());
                drop(reply.send(answer));
            }
            Job::Watch { .. } | Job::Settle { .. } => {}
        }
    }

    fn png(&mut self, manner: Cursor) -> Result<Shot> {
        let drawn = self.cursor.area(manner, self.frame.size()).is_some();
        let shown = Seen { frame: self.frame.version(), cursor: if drawn { self.cursor.version } else { 0 } };
        if let Some((_, _, shot)) = self.shots.iter().find(|(m, s, _)| (*m, *s) == (manner, shown)) {
            return Ok(shot.clone());
        }
        let bytes = self.strips.png(&self.frame, &self.cursor, manner)?;
        let etag = format!("\"{:x}-{:x}-{manner:?}\"", shown.frame, shown.cursor);
        let shot = Shot { bytes, etag, size: self.frame.size() };
        // Pictures of an older frame will not be asked for again.
        self.shots.retain(|(m, s, _)| *m != manner && s.frame == shown.frame);
        self.shots.push((manner, shown, shot.clone()));
        Ok(shot)
    }

    fn update(&self, seen: Seen) -> FrameUpdate {
        let now = Seen { frame: self.frame.version(), cursor: self.cursor.version };
        let rects = match seen.frame <= now.frame {
            true => self.frame.changed_since(seen.frame),
            // A version of another life of this engine.
            false => vec![self.frame.area()],
        };
        FrameUpdate { frame: Arc::clone(&self.frame), rects, cursor: self.cursor.clone(), seen: now }
    }

    fn answer_watchers(&mut self) {
        if self.source.is_none() {
            return;
        }
        let now = Seen { frame: self.frame.version(), cursor: self.cursor.version };
        for watcher in std::mem::take(&mut self.watchers) {
            if watcher.seen != now {
                let _ = watcher.reply.send(Ok(self.update(watcher.seen)));
            } else if !watcher.reply.is_closed() {
                self.watchers.push(watcher);
            }
        }
    }

    /// A settler is answered only right after a capture that showed nothing new.
    fn answer_settlers(&mut self) {
        let Some(looked) = self.looked else { return };
        let now = Instant::now();
        for settler in std::mem::take(&mut self.settlers) {
            if looked >= settler.since + settler.quiet {
                let _ = settler.reply.send(Ok(true));
            } else if now >= settler.end {
                let _ = settler.reply.send(Ok(false));
            } else if !settler.reply.is_closed() {
                self.settlers.push(settler);
            }
        }
    }

    /// Tells those who wait that the display is gone.
    fn lose(&mut self, e: &Error) {
        for watcher in self.watchers.drain(..) {
            let _ = watcher.reply.send(Err(e.clone()));
        }
        for settler in self.settlers.drain(..) {
            let _ = settler.reply.send(Err(e.clone()));
        }
    }

    /// Until there is a job, the X server says something, or it is time to look.
    fn sleep(&self, wake: &OwnedFd) {
        let ends = self.settlers.iter().map(|s| s.end).min();
        let until = [self.next_look(), ends].into_iter().flatten().min();
        let timeout = until.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        let source = self.source.as_ref().map(Source::fd);
        if let Some(fd) = &source {
            fds.push(PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
        }
        // An interrupted sleep is a short one.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut count = [0; 8];
        // Empty when the X server or the clock woke us.
        let _ = rustix::io::read(wake, &mut count);
    }
}

impl Settler {
    /// When to look whether it is settled.
    fn next(&self) -> Instant {
        (self.since + self.quiet).min(self.end)
    }
}
