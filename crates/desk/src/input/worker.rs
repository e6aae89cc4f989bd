//! The thread that does one list after the other, and the queue before it.

use super::plan::Plan;
use super::session::Session;
use crate::error::{Error, Result};
use crate::lease::Pass;
use crate::place::Display;
use crate::x11::ANSWER_LIMIT;
use hotdesk_api::action::Receipt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Lists that may wait for their turn; more are refused before anything is done.
const QUEUE: usize = 64;
/// After this long without input, keycodes that were lent to missing symbols are given back.
const IDLE: Duration = Duration::from_secs(10);

pub(super) struct Worker {
    display: Display,
    control: Arc<Control>,
    queue: OnceLock<SyncSender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Job {
    Run { plan: Plan, asked: u64, progress: Arc<Progress>, reply: oneshot::Sender<Result<Vec<Receipt>>> },
    Release { reply: oneshot::Sender<Result<()>> },
}

/// How far a list has come, for the one who waits for it.
#[derive(Default)]
pub(super) struct Progress {
    /// Actions that are done.
    pub(super) done: AtomicUsize,
    /// One of the three below. Either the thread touches the display or the one who waits gives up,
    /// never both: what a client was told about is not done afterwards.
    stage: AtomicU8,
    /// Ends when another driver takes over.
    pub(super) pass: Pass,
}

const WAITING: u8 = 0;
const TOUCHED: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Progress {
    /// Asks to make the list's first event; false if nobody wants it any more.
    pub(super) fn touch(&self) -> bool {
        let now = self.stage.compare_exchange(WAITING, TOUCHED, Ordering::AcqRel, Ordering::Acquire);
        now.is_ok() || now == Err(TOUCHED)
    }

    /// Events were made.
    pub(super) fn is_touched(&self) -> bool {
        self.stage.load(Ordering::Acquire) == TOUCHED
    }

    /// Gives the list up; false if events were made already.
    fn give_up(&self) -> bool {
        self.stage.compare_exchange(WAITING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// What the waiting ones and the thread know of each other.
pub(super) struct Control {
    /// Counts the times that everything asked for so far should stop.
    stops: Mutex<u64>,
    bell: Condvar,
    start: Instant,
    /// Milliseconds since `start` when the thread was last known to live.
    alive: AtomicU64,
}

impl Control {
    fn new() -> Self {
        Self { stops: Mutex::new(0), bell: Condvar::new(), start: Instant::now(), alive: AtomicU64::new(0) }
    }

    fn stop(&self) {
        *self.stops.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.bell.notify_all();
    }

    pub(super) fn stops(&self) -> u64 {
        *self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until then; false if it was stopped since `asked`.
    pub(super) fn sleep(&self, asked: u64, until: Instant) -> bool {
        self.lives_until(until);
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *stops != asked {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            stops = self.bell.wait_timeout(stops, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Says that the thread lives, or sleeps on purpose until then.
    pub(super) fn lives_until(&self, then: Instant) {
        let ms = then.saturating_duration_since(self.start).as_millis() as u64;
        self.alive.store(ms, Ordering::Release);
    }

    /// Whether the thread hangs in a request that the X server does not answer.
    fn hangs(&self) -> bool {
        let alive = Duration::from_millis(self.alive.load(Ordering::Acquire));
        self.start.elapsed().saturating_sub(alive) > ANSWER_LIMIT
    }

    /// Waits for an answer of the thread; nothing if it hangs.
    async fn wait<T>(&self, mut answer: oneshot::Receiver<Result<T>>) -> Option<Result<T>> {
        let since = Instant::now();
        loop {
            match tokio::time::timeout(ANSWER_LIMIT / 10, &mut answer).await {
                Ok(Ok(result)) => return Some(result),
                Ok(Err(_)) => return Some(Err(Error::internal("the input thread ended before it answered"))),
                Err(_) if since.elapsed() > ANSWER_LIMIT && self.hangs() => return None,
                Err(_) => {}
            }
        }
    }
}

impl Worker {
    pub(super) fn new(display: Display) -> Self {
        Self { display, control: Arc::new(Control::new()), queue: OnceLock::new(), thread: Mutex::default() }
    }

    pub(super) async fn run(&self, plan: Plan, pass: Pass) -> Result<Vec<Receipt>> {
        let (reply, answer) = oneshot::channel();
        let progress = Arc::new(Progress { pass, ..Progress::default() });
        let count = plan.steps.len();
        self.send(Job::Run { plan, asked: self.control.stops(), progress: progress.clone(), reply })?;
        match self.control.wait(answer).await {
            Some(result) => result,
            None if progress.give_up() => Err(Error::display_down("it does not answer")),
            None => Err(halted(progress.done.load(Ordering::Acquire), count, "the display stopped answering")),
        }
    }

    pub(super) async fn release_all(&self) -> Result<()> {
        self.control.stop();
        let (reply, answer) = oneshot::channel();
        self.send(Job::Release { reply })?;
        self.control.wait(answer).await.unwrap_or_else(|| Err(Error::display_down("it does not answer")))
    }

    fn send(&self, job: Job) -> Result<()> {
        let queue = self.queue.get_or_init(|| {
            let (sender, receiver) = sync_channel(QUEUE);
            let (display, control) = (self.display.clone(), self.control.clone());
            let started = std::thread::Builder::new().name("input".into()).spawn(move || work(&display, &control, &receiver));
            match started {
                Ok(thread) => *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread),
                Err(e) => tracing::error!("the input thread can't be started: {e}"),
            }
            sender
        });
        queue.try_send(job).map_err(|e| match e {
            TrySendError::Full(_) => {
                Error::Unavailable { part: "input", reason: format!("{QUEUE} lists are waiting for their turn") }
            }
            TrySendError::Disconnected(_) => Error::internal("the input thread is gone"),
        })
    }
}

impl Drop for Worker {
    /// Lets the thread give lent keycodes back, unless its display hangs.
    fn drop(&mut self) {
        drop(self.queue.take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.control.stop();
        let deadline = Instant::now() + ANSWER_LIMIT;
        while thread.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The error for a list that had an effect and can't be ended.
pub(super) fn halted(done: usize, count: usize, why: &str) -> Error {
    Error::Conflict(format!("{done} of {count} actions were done when {why}; look at the screen before going on"))
}

fn work(display: &Display, control: &Control, queue: &Receiver<Job>) {
    let mut session: Option<Session> = None;
    loop {
        let job = match &session {
            Some(s) if s.has_lent() => match queue.recv_timeout(IDLE) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            },
            _ => match queue.recv() {
                Ok(job) => Some(job),
                Err(_) => break,
            },
        };
        control.lives_until(Instant::now());
        match job {
            None => restore(&mut session),
            Some(Job::Release { reply }) => {
                let _ = reply.send(with_session(&mut session, display, Session::release_all));
            }
            // Nobody waits for it any more, and nothing was done yet.
            Some(Job::Run { reply, .. }) if reply.is_closed() => {}
            Some(Job::Run { asked, progress, reply, .. }) if asked != control.stops() => {
                let released = Error::Conflict("everything was released before the list's turn; nothing was done".into());
                let _ = reply.send(Err(progress.pass.check().err().unwrap_or(released)));
            }
            Some(Job::Run { plan, asked, progress, reply }) => {
                let _ = reply.send(with_session(&mut session, display, |session| session.run(&plan, control, asked, &progress)));
            }
        }
    }
    restore(&mut session);
}

fn restore(session: &mut Option<Session>) {
    if session.as_mut().is_some_and(|session| session.give_back().is_err()) {
        *session = None;
    }
}

/// Does something with an open session; the connection is opened when there is none that lives.
fn with_session<R>(slot: &mut Option<Session>, display: &Display, act: impl FnOnce(&mut Session) -> Result<R>) -> Result<R> {
    if slot.as_ref().is_some_and(|session| !session.is_alive()) {
        *slot = None;
    }
    let session = match slot {
        Some(session) => session,
        None => slot.insert(Session::open(display)?),
    };
    let result = act(session);
    if session.is_broken() {
        *slot = None;
    }
    result
}
