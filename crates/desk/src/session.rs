//! The session: starts, watches and heals the X server, the bus, AT-SPI, the window manager and
//! the programs of the template. Or watches one that exists.
//!
//! ```text
//!   x_server ──► window_manager ──► settling ──► ready
//!       │              └──────┐
//!       │                     ├──► program_1, program_2, …
//!   bus ┴─► accessibility ────┘
//! ```
//!
//! Each part has a task that keeps it alive (`supervisor`) and reports to the `board`, where
//! `/health` reads and where the others wait. One more task, the driver, walks through the stages
//! and decides what *ready* is: every needed part runs and a settled frame was captured.

mod accessibility;
mod attached;
mod board;
mod bus;
mod child;
mod log;
mod programs;
mod supervisor;
pub mod tools;
mod window_manager;
mod witness;
mod x_server;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::place::{Claim, Place, numbers};
use crate::screen::{Screen, ShotRequest};
use board::{Board, Stage, Up};
use hotdesk_api::health::{Health, LogLine};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use supervisor::{Needs, supervise};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// So long must nothing be drawn for the first frame to count as settled. A window manager draws
/// all it has in one go, so what matters is only that it has begun; it has when it announces itself.
const QUIET: Duration = Duration::from_millis(50);
/// A screen with a clock or a film on it never settles.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);
/// Pause before the screen is asked again after it failed while all parts run.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// For so long a screen that fails while all parts run is put down to its not having noticed yet.
const SCREEN_PATIENCE: Duration = Duration::from_secs(5);

/// A running session. Cheap to clone.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    board: Board,
    /// In the order in which they are ended, the programs first.
    levels: Vec<Level>,
    driver: CancellationToken,
    taken: watch::Receiver<bool>,
    /// Given back when everything is over.
    claim: Mutex<Option<Claim>>,
    /// The number of the display, if we made it.
    own_display: Option<u16>,
}

/// Parts that are ended together.
#[derive(Clone, Default)]
struct Level {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Level {
    async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Session {
    /// Begins to start everything and returns at once; [`Session::ready`] waits.
    pub fn start(config: &Config, place: Arc<Place>, claim: Claim, screen: Screen) -> Result<Self> {
        if config.attach.is_some() { Ok(Self::attach(place, claim, screen)) } else { Self::own(config, place, claim, screen) }
    }

    fn own(config: &Config, place: Arc<Place>, claim: Claim, screen: Screen) -> Result<Self> {
        let board = Board::new();
        let (programs, desktop, bus_level, display) = (Level::default(), Level::default(), Level::default(), Level::default());
        let (taken, taken_seen) = watch::channel(false);

        // The display first: everything waits for it.
        let x_server = x_server::XServer::new(config, &place, &claim, taken)?;
        let part = board.part("x_server", true);
        let x_up = part.up();
        display.tasks.spawn(supervise(x_server, part, Needs(vec![]), place.clone(), display.stop.clone()));

        let sight = witness::watch(place.display.clone());
        let mut part = board.part("window_manager", true);
        let wm_up = part.up();
        match window_manager::WindowManager::new(&config.window_manager, &place, sight) {
            Ok(manager) => {
                let needs = Needs(vec![x_up.clone()]);
                desktop.tasks.spawn(supervise(manager, part, needs, place.clone(), desktop.stop.clone()));
            }
            Err(why) => {
                part.absent(&why);
                hold(part, &desktop);
            }
        }

        let mut part = board.part("bus", true);
        let bus_up = part.up();
        match bus::Bus::new(&place) {
            Some(bus) => {
                bus_level.tasks.spawn(supervise(bus, part, Needs(vec![]), place.clone(), bus_level.stop.clone()));
            }
            None => {
                part.absent(&format!("dbus-daemon is not installed; {}", tools::install_hint("dbus-daemon")));
                hold(part, &bus_level);
            }
        }

        let part = board.part("accessibility", false);
        let access_up = part.up();
        // It is a client of the display as well, and what it sets there should be there to stay.
        let access_needs = (bus_up.clone(), wm_up.clone());
        programs.tasks.spawn(start_accessibility(part, access_needs, place.clone(), programs.stop.clone()));

        let mut commands = config.start.clone();
        match programs::browser(config, &place) {
            Ok(browser) => commands.extend(browser),
            Err(why) => {
                let mut part = board.part("browser", false);
                part.absent(&why);
                hold(part, &programs);
            }
        }
        let mut started = Vec::new();
        for (index, command) in commands.into_iter().enumerate() {
            let part = board.part(format!("program_{}", index + 1), false);
            started.push(part.up());
            let program = programs::Program::new(command, vec![wm_up.clone(), access_up.clone()]);
            let needs = Needs(vec![x_up.clone()]);
            programs.tasks.spawn(supervise(program, part, needs, place.clone(), programs.stop.clone()));
        }

        let driver = CancellationToken::new();
        tokio::spawn(drive(board.clone(), [x_up, bus_up, wm_up], started, screen, driver.clone()));
        Ok(Self(Arc::new(Inner {
            board,
            levels: vec![programs, desktop, bus_level, display],
            driver,
            taken: taken_seen,
            claim: Mutex::new(Some(claim)),
            own_display: Some(place.display.number),
        })))
    }

    fn attach(place: Arc<Place>, claim: Claim, screen: Screen) -> Self {
        let board = Board::new();
        let all = Level::default();
        let display = board.part("x_server", true);
        let manager = board.part("window_manager", false);
        let bus = board.part("bus", false);
        let access = board.part("accessibility", false);
        let ups = [display.up(), bus.up(), manager.up()];
        let bus_up = bus.up();
        let sight = witness::watch(place.display.clone());
        all.tasks.spawn(attached::watch_display(display, manager, sight, all.stop.clone()));
        all.tasks.spawn(attached::watch_bus(bus, place.clone(), all.stop.clone()));
        all.tasks.spawn(accessibility::watch_over(access, bus_up, place, all.stop.clone()));
        let driver = CancellationToken::new();
        tokio::spawn(drive(board.clone(), ups, Vec::new(), screen, driver.clone()));
        Self(Arc::new(Inner {
            board,
            levels: vec![all],
            driver,
            taken: watch::channel(false).1,
            claim: Mutex::new(Some(claim)),
            own_display: None,
        }))
    }

    /// How the desk is.
    pub fn health(&self) -> Health {
        self.0.board.health()
    }

    /// Whether a settled frame was captured and every needed part runs.
    pub fn is_ready(&self) -> bool {
        *self.0.board.ready().borrow()
    }

    /// Whether the session was there before us.
    pub fn attached(&self) -> bool {
        self.0.own_display.is_none()
    }

    /// Waits until the desk is ready.
    pub async fn ready(&self) -> Result<()> {
        let stopped = || Error::Unavailable { part: "the desk", reason: "it stops".into() };
        let mut ready = self.0.board.ready();
        tokio::select! {
            ready = ready.wait_for(|ready| *ready) => ready.map(drop).map_err(|_| stopped()),
            () = self.0.driver.cancelled() => Err(stopped()),
        }
    }

    /// Waits for a failure that no healing helps against: the number of the display is gone.
    pub async fn display_taken(&self) {
        let mut taken = self.0.taken.clone();
        if taken.wait_for(|taken| *taken).await.is_err() {
            std::future::pending().await
        }
    }

    /// The last lines that the parts wrote, oldest first.
    pub fn logs(&self, part: Option<&str>, count: usize) -> Vec<LogLine> {
        self.0.board.log().tail(part, count)
    }

    /// The processes of the session's parts.
    pub fn pids(&self) -> Vec<u32> {
        self.0.board.pids()
    }

    /// How long the desk has been there.
    pub fn uptime(&self) -> Duration {
        self.0.board.uptime()
    }

    /// Ends everything, the display last, and gives back what was claimed.
    pub async fn stop(&self) {
        self.stop_with(std::future::ready(())).await;
    }

    /// The same; `sweep` is run after the programs of the template, while there still is a display, to end
    /// all others that use it.
    pub async fn stop_with(&self, sweep: impl Future<Output = ()>) {
        self.0.board.stage(Stage::Stopping);
        self.0.driver.cancel();
        let (programs, rest) = self.0.levels.split_at(1);
        for level in programs {
            level.end().await;
        }
        sweep.await;
        for level in rest {
            level.end().await;
        }
        self.release();
    }

    /// Ends everything at once, without asking.
    pub fn kill(&self) {
        let pids = self.pids();
        for pid in &pids {
            child::signal_group(*pid, nix::sys::signal::SIGKILL);
        }
        if let Some(number) = self.0.own_display {
            // It had no chance to do so itself.
            pids.into_iter().for_each(|pid| numbers::remove_leftovers_of(number, pid));
        }
        self.release();
    }

    fn release(&self) {
        self.0.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Keeps the voice of a part that has nothing to do, so that those who wait for it still hear it.
fn hold(part: board::PartHandle, level: &Level) {
    let stop = level.stop.clone();
    level.tasks.spawn(async move {
        stop.cancelled().await;
        drop(part);
    });
}

/// Accessibility is started after the window manager: it is not needed to be ready, so it must not
/// cost time on the way there.
async fn start_accessibility(
    part: board::PartHandle,
    (bus, mut window_manager): (watch::Receiver<Up>, watch::Receiver<Up>),
    place: Arc<Place>,
    stop: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => return,
        _ = window_manager.wait_for(|up| up.decided()) => {}
    }
    accessibility::watch_over(part, bus, place, stop).await;
}

/// Walks through the stages, again after each fall, until it is told to stop.
async fn drive(
    board: Board,
    mut needed: [watch::Receiver<Up>; 3],
    mut programs: Vec<watch::Receiver<Up>>,
    screen: Screen,
    stop: CancellationToken,
) {
    let walk = async {
        loop {
            for (up, stage) in needed.iter_mut().zip([Stage::XServer, Stage::Bus, Stage::WindowManager]) {
                board.stage(stage);
                if up.wait_for(|up| up.decided()).await.is_err() {
                    return std::future::pending().await;
                }
                if stage == Stage::XServer {
                    // The engine connects and makes its buffers while the window manager starts.
                    let screen = screen.clone();
                    tokio::spawn(async move { screen.size().await });
                }
            }
            board.stage(Stage::Settling);
            let mut fallen = needed.clone();
            let lost = async {
                let changes = fallen.iter_mut().map(|up| Box::pin(up.changed()));
                futures_util::future::select_all(changes).await
            };
            let settled = async {
                for program in programs.drain(..) {
                    // Started is enough; how long a program takes to draw is its own matter.
                    let mut program = program;
                    let _ = tokio::time::timeout(SETTLE_LIMIT, program.wait_for(|up| up.decided())).await;
                }
                first_frame(&screen).await;
                board.stage(Stage::Ready);
                tracing::info!(after_ms = board.uptime().as_millis(), "ready");
                std::future::pending::<()>().await
            };
            tokio::select! {
                _ = lost => {}
                () = settled => {}
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = walk => {}
    }
}

/// Waits for a settled frame and captures it, so that the first client finds it ready.
async fn first_frame(screen: &Screen) {
    let begin = tokio::time::Instant::now();
    loop {
        let captured = async {
            let settled = screen.settled(QUIET, SETTLE_LIMIT).await?;
            screen.shot(ShotRequest::default()).await?;
            Ok::<bool, Error>(settled)
        };
        match captured.await {
            Ok(true) => return,
            Ok(false) => return tracing::info!("the screen does not settle; something on it moves all the time"),
            // A display that can't tell what changes on it is still a display.
            Err(e @ (Error::Unsupported { .. } | Error::Internal(_))) => {
                return tracing::warn!(error = %e, "the screen can't be watched for its first settled frame");
            }
            Err(e) if begin.elapsed() > SCREEN_PATIENCE => {
                return tracing::warn!(error = %e, "the screen can't be captured");
            }
            Err(_) => tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}
