//! The board: what is known about each part of the session, for everybody who asks or waits.

use super::log::Log;
use hotdesk_api::health::{Health, Part, PartState};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the desk is busy with, on its way from nothing to ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    XServer,
    Bus,
    WindowManager,
    Settling,
    Ready,
    Stopping,
}

impl Stage {
    fn word(self) -> &'static str {
        match self {
            Self::XServer => "x_server",
            Self::Bus => "bus",
            Self::WindowManager => "window_manager",
            Self::Settling => "settling",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }

    /// How a stall in this stage is told.
    fn waiting_for(self) -> Option<&'static str> {
        match self {
            Self::XServer => Some("the X server"),
            Self::Bus => Some("the D-Bus session"),
            Self::WindowManager => Some("the window manager"),
            Self::Settling => Some("the screen to settle"),
            Self::Stopping => Some("programs to end"),
            Self::Ready => None,
        }
    }
}

/// Whether a part can be used by those that depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Up {
    /// Not now.
    No,
    /// Yes; the number tells one life of it from the next.
    Yes(u64),
    /// It will not come; those that can do without go on.
    Never,
}

impl Up {
    /// Nothing more is to be waited for.
    pub(crate) fn decided(self) -> bool {
        self != Self::No
    }
}

/// Shared by all tasks of a session. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Board(Arc<Inner>);

struct Inner {
    begin: Instant,
    log: Log,
    state: Mutex<State>,
    ready: watch::Sender<bool>,
}

struct State {
    stage: Stage,
    stage_since: Instant,
    stages: BTreeMap<&'static str, Duration>,
    parts: BTreeMap<String, Record>,
}

struct Record {
    state: PartState,
    since: Instant,
    needed: bool,
    reason: Option<String>,
    command: Option<String>,
    pid: Option<u32>,
    restarts: u32,
    start: Option<Duration>,
}

impl Board {
    pub(crate) fn new() -> Self {
        let begin = Instant::now();
        let state = State { stage: Stage::XServer, stage_since: begin, stages: BTreeMap::new(), parts: BTreeMap::new() };
        Self(Arc::new(Inner { begin, log: Log::new(begin), state: Mutex::new(state), ready: watch::Sender::new(false) }))
    }

    pub(crate) fn log(&self) -> &Log {
        &self.0.log
    }

    /// Announces a part.
    pub(crate) fn part(&self, name: impl Into<String>, needed: bool) -> PartHandle {
        let name = name.into();
        let record = Record {
            state: PartState::Starting,
            since: Instant::now(),
            needed,
            reason: None,
            command: None,
            pid: None,
            restarts: 0,
            start: None,
        };
        self.lock().parts.insert(name.clone(), record);
        PartHandle { board: self.clone(), name, up: watch::Sender::new(Up::No), lives: 0 }
    }

    /// Enters a stage; the one before is over. The time of each is kept from the first time on.
    pub(crate) fn stage(&self, stage: Stage) {
        let mut state = self.lock();
        if state.stage == Stage::Stopping || state.stage == stage {
            return;
        }
        let now = Instant::now();
        if state.stage < stage {
            let (word, took) = (state.stage.word(), now - self.0.begin);
            state.stages.entry(word).or_insert(took);
        }
        if stage == Stage::Ready {
            state.stages.entry(stage.word()).or_insert(now - self.0.begin);
        }
        state.stage = stage;
        state.stage_since = now;
        drop(state);
        self.0.ready.send_replace(stage == Stage::Ready);
    }

    pub(crate) fn ready(&self) -> watch::Receiver<bool> {
        self.0.ready.subscribe()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.0.begin.elapsed()
    }

    /// The processes of all parts.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.lock().parts.values().filter_map(|record| record.pid).collect()
    }

    pub(crate) fn health(&self) -> Health {
        let state = self.lock();
        let now = Instant::now();
        let since = now - state.stage_since;
        let waiting_for = state.stage.waiting_for().map(|what| {
            let why = state.parts.values().find(|record| record.needed && record.state != PartState::Running);
            let why = why.and_then(|record| record.reason.as_deref()).map(|why| format!(" ({why})")).unwrap_or_default();
            format!("waiting for {what} since {:.1} s{why}", since.as_secs_f64())
        });
        let part = |record: &Record| Part {
            state: record.state,
            needed: record.needed,
            reason: record.reason.clone(),
            command: record.command.clone(),
            pid: record.pid,
            restarts: record.restarts,
            start_ms: record.start.map(millis),
            since_ms: millis(now - record.since),
        };
        Health {
            ready: state.stage == Stage::Ready,
            stage: state.stage.word().into(),
            waiting_for,
            stages_ms: state.stages.iter().map(|(word, took)| ((*word).to_owned(), millis(*took))).collect(),
            uptime_ms: millis(now - self.0.begin),
            parts: state.parts.iter().map(|(name, record)| (name.clone(), part(record))).collect(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the task of one part reports about it.
pub(crate) struct PartHandle {
    board: Board,
    name: String,
    up: watch::Sender<Up>,
    lives: u64,
}

impl PartHandle {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// For those that depend on this part.
    pub(crate) fn up(&self) -> watch::Receiver<Up> {
        self.up.subscribe()
    }

    pub(crate) fn command(&self, command: String) {
        self.change(|record| record.command = Some(command));
    }

    /// A process was made for it, which is not usable yet.
    pub(crate) fn started(&self, pid: u32) {
        self.change(|record| record.pid = Some(pid));
    }

    /// It can be used.
    pub(crate) fn running(&mut self, pid: Option<u32>, took: Option<Duration>, reason: Option<String>) {
        self.lives += 1;
        self.enter(PartState::Running, reason, |record| {
            record.pid = pid;
            record.start = took;
        });
        tracing::info!(part = self.name, pid, took_ms = took.map(millis), "running");
        self.up.send_replace(Up::Yes(self.lives));
    }

    /// It is gone and comes back; `again` counts it as one more start.
    pub(crate) fn healing(&mut self, reason: &str) {
        self.up.send_replace(Up::No);
        tracing::warn!(part = self.name, reason, "healing");
        self.enter(PartState::Healing, Some(reason.to_owned()), |record| {
            record.pid = None;
            record.restarts = record.restarts.saturating_add(1);
        });
    }

    /// It is gone because what it stands on is.
    pub(crate) fn waiting(&mut self, reason: &str) {
        self.up.send_replace(Up::No);
        self.enter(PartState::Healing, Some(reason.to_owned()), |record| {
            record.pid = None;
            record.restarts = record.restarts.saturating_add(1);
        });
    }

    pub(crate) fn absent(&mut self, reason: &str) {
        tracing::info!(part = self.name, reason, "absent");
        self.enter(PartState::Absent, Some(reason.to_owned()), |record| {
            record.pid = None;
            record.needed = false;
        });
        self.up.send_replace(Up::Never);
    }

    pub(crate) fn failed(&mut self, reason: &str) {
        tracing::error!(part = self.name, reason, "failed");
        self.enter(PartState::Failed, Some(reason.to_owned()), |record| record.pid = None);
        self.up.send_replace(Up::No);
    }

    pub(crate) fn ended(&mut self, reason: &str) {
        tracing::info!(part = self.name, reason, "ended");
        self.enter(PartState::Ended, Some(reason.to_owned()), |record| record.pid = None);
        self.up.send_replace(Up::No);
    }

    fn enter(&self, state: PartState, reason: Option<String>, more: impl FnOnce(&mut Record)) {
        self.change(|record| {
            if record.state != state {
                record.state = state;
                record.since = Instant::now();
            }
            record.reason = reason;
            more(record);
        });
    }

    fn change(&self, edit: impl FnOnce(&mut Record)) {
        if let Some(record) = self.board.lock().parts.get_mut(&self.name) {
            edit(record);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stall_names_its_stage() {
        let board = Board::new();
        let mut wm = board.part("window_manager", true);
        board.stage(Stage::WindowManager);
        tokio::time::advance(Duration::from_secs(5)).await;
        let health = board.health();
        assert!(!health.ready);
        assert_eq!(health.stage, "window_manager");
        assert_eq!(health.waiting_for.unwrap(), "waiting for the window manager since 5.0 s");
        wm.healing("it ended with status 1");
        assert!(board.health().waiting_for.unwrap().ends_with("(it ended with status 1)"));
        assert_eq!(board.health().parts["window_manager"].restarts, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_times_are_kept() {
        let board = Board::new();
        tokio::time::advance(Duration::from_millis(50)).await;
        board.stage(Stage::Settling);
        tokio::time::advance(Duration::from_millis(60)).await;
        board.stage(Stage::Ready);
        assert!(*board.ready().borrow());
        tokio::time::advance(Duration::from_secs(9)).await;
        board.stage(Stage::XServer);
        assert!(!*board.ready().borrow());
        board.stage(Stage::Ready);
        let health = board.health();
        assert_eq!(health.stages_ms["x_server"], 50);
        assert_eq!(health.stages_ms["settling"], 110);
        assert_eq!(health.stages_ms["ready"], 110);
        board.stage(Stage::Stopping);
        board.stage(Stage::Ready);
        assert_eq!(board.health().stage, "stopping", "a desk that stops does not come back");
    }
}
