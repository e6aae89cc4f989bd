//! One desktop: its session, its eyes and hands, its accessibility, programs and files, and the
//! server that offers them.
//!
//! ```text
//!   server ── osworld (the OSWorld dialect) ─┐
//!          └─ v1 (the native API) ───────────┤
//!   view (VNC) ──────────────────────────────┤
//!                                            ▼
//!   screen  input  access  windows  clipboard  processes  shells  kernels  git  terminals  files  recorder
//!      └──────┴───────┴───────┴─────────┘              │
//!                  display (X11, D-Bus)              place (home, environment)
//!                          └───────── session (starts, watches, heals) ──────┘
//! ```
//!
//! A dialect translates to the engines below it; it never implements.

// Some fuzz targets name the crate, as one does from outside.
#[cfg(any(test, fuzzing))]
extern crate self as hotdesk_desk;

pub mod access;
pub mod clipboard;
pub mod config;
pub mod error;
pub mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod git;
pub mod input;
pub mod kernel;
pub mod lease;
pub mod place;
pub mod process;
pub mod pyautogui;
mod python;
pub mod recorder;
mod run;
pub mod screen;
pub mod server;
pub mod session;
pub mod shell;
pub mod terminal;
pub mod trace;
pub mod user;
pub mod view;
pub mod windows;
mod x11;

pub use config::Config;
pub use error::{Error, Result};
pub use place::{Display, Place};
pub use run::{Ended, Hooks, ReadyHook, SweepHook, run, run_with};

use std::sync::Arc;

/// Everything that a server needs to offer one desktop. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    pub config: Arc<Config>,
    pub place: Arc<Place>,
    pub session: session::Session,
    pub screen: screen::Screen,
    pub input: input::Input,
    pub access: access::Access,
    pub windows: windows::Windows,
    pub clipboard: clipboard::Clipboard,
    pub processes: process::Processes,
    pub shells: shell::Shells,
    pub kernels: kernel::Kernels,
    pub git: git::Git,
    pub terminals: terminal::Terminals,
    pub recorder: recorder::Recorder,
    pub users: user::Users,
    pub view: view::View,
    pub lease: lease::Lease,
    pub tracer: trace::Tracer,
    pub freeze: server::v1::freeze::Freeze,
    last_look: server::v1::activity::LastLook,
    /// Nobody insists on this display; another one would do.
    any_display: bool,
}

impl Desk {
    /// Decides on the place, builds the engines and begins to start the session. Returns at once;
    /// `desk.session.ready().await` waits until there is something to see.
    pub async fn start(config: Config) -> Result<Self> {
        // Looking for a place touches the file system.
        let (config, claimed) = tokio::task::spawn_blocking(move || {
            let claimed = Place::claim(&config);
            (config, claimed)
        })
        .await
        .map_err(Error::internal)?;
        let (place, claim) = claimed?;
        let place = Arc::new(place);
        let any_display = claim.any_display;
        let screen = screen::Screen::new(place.clone());
        let processes = process::Processes::new(place.clone());
        let lease = lease::Lease::default();
        let access = access::Access::new(place.clone());
        let tracer = trace::Tracer::new(&place.home, screen.clone(), access.clone());
        let gate = lease::Gate::new(lease.clone(), tracer.clone());
        let desk = Self {
            session: session::Session::start(&config, place.clone(), claim, screen.clone())?,
            screen,
            input: input::Input::new(place.clone()).gated(gate.clone()),
            access: access.gated(gate.clone()),
            windows: windows::Windows::new(place.clone()).gated(gate.clone()),
            clipboard: clipboard::Clipboard::new(place.clone()).gated(gate),
            shells: shell::Shells::new(place.clone(), processes.clone()),
            kernels: kernel::Kernels::new(place.clone(), processes.clone()),
            git: git::Git::new(place.clone(), processes.clone()),
            processes,
            terminals: terminal::Terminals::new(place.clone()),
            recorder: recorder::Recorder::new(place.clone()),
            users: user::Users::new(place.clone()),
            view: view::View::new(view::Options {
                password: config.vnc_password.as_ref().and_then(|password| view::Password::new(password.reveal())),
                open: config.open,
                ..view::Options::default()
            }),
            lease,
            tracer,
            config: Arc::new(config),
            place,
            freeze: Default::default(),
            last_look: Default::default(),
            any_display,
        };
        // Before anybody is served, so that who finds the desk finds its entrypoint.
        if let Some(command) = desk.config.entrypoint.clone()
            && let Err(e) = desk.run_entrypoint(command).await
        {
            tracing::error!(error = %e, "the entrypoint was not run");
        }
        Ok(desk)
    }

    /// Its output and how it ends are those of a command in a shell; its end is not the desk's.
    async fn run_entrypoint(&self, command: String) -> Result<()> {
        use hotdesk_api::shell::{ENTRYPOINT, OpenShell};
        let shell = self.shells.open(OpenShell { name: ENTRYPOINT.into(), ..OpenShell::default() }).await?;
        shell.run(command, false).await?;
        Ok(())
    }

    /// Ends the film under way and the whole session.
    pub async fn stop(&self) {
        self.stop_with(std::future::ready(())).await;
    }

    /// The same; `sweep` is run while there still is a display, to end programs that use it.
    pub async fn stop_with(&self, sweep: impl Future<Output = ()>) {
        self.view.close();
        self.recorder.shutdown().await;
        self.tracer.shutdown().await;
        self.session.stop_with(sweep).await;
    }
}
