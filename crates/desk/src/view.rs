//! The live view: an RFB (VNC) server of the desk's display, over TCP and over WebSocket.
//!
//! ```text
//!   TCP ───────┐
//!              ├─ handshake ─ session ─┬─ messages ──▶ live hands, clipboard
//!   WebSocket ─┘  (auth)     (viewers) └─ updates ◀── screen ── encode (Tight, ZRLE, …)
//! ```
//!
//! One implementation over any stream of bytes. All viewers share one capture; each has its own
//! encoder, its own pace and its own idea of what it has seen.

mod auth;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(test), allow(dead_code))]
mod client;
mod clipboard_watch;
mod cursor;
mod cut_text;
#[cfg(any(test, fuzzing))]
mod decode;
mod encode;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(test), allow(dead_code))]
mod fake;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/src/rfb.rs"]
pub(crate) mod fuzz;
mod handshake;
mod message;
mod pace;
mod part;
mod pixel;
mod region;
mod session;
mod stage;
#[cfg(test)]
mod tests;
mod updates;
mod viewers;
mod wishes;

pub use auth::{Door, Password};
pub use viewers::{Viewer, Viewers};

use crate::Desk;
use crate::error::{Error, Result};
use crate::place::Display;
use auth::{Guesses, Strangers};
use clipboard_watch::ClipboardWatch;
use hotdesk_api::action::Size;
use session::{Ending, Terms};
use stage::Stage;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Viewers at once, unless the settings say otherwise. Each costs about 0.3 MB while nothing changes.
pub const MOST_VIEWERS: usize = 64;

/// How long a new viewer waits for a display that is being healed.
const DISPLAY_LIMIT: Duration = Duration::from_secs(10);

/// How long viewers may take to leave when the desk ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// Pause after a connection could not be accepted, which only a lack of file descriptors causes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How the view is offered.
#[derive(Debug, Clone)]
pub struct Options {
    /// Lets in.
    pub password: Option<Password>,
    /// Lets look, without touching anything.
    pub view_only_password: Option<Password>,
    /// Nobody is asked for a password if there is none, wherever they come from.
    pub open: bool,
    /// Nobody may touch anything.
    pub view_only: bool,
    /// Viewers may change the screen's size. Off, because a window that somebody resizes must not
    /// change the screen under an agent's eyes.
    pub resize: bool,
    /// A viewer that asks to be alone is left alone: the others have to go.
    pub exclusive: bool,
    pub most_viewers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            password: None,
            view_only_password: None,
            open: false,
            view_only: false,
            resize: false,
            exclusive: false,
            most_viewers: MOST_VIEWERS,
        }
    }
}

/// How one connection is received.
#[derive(Debug, Clone)]
pub struct Entrance {
    pub door: Door,
    /// Where it comes from, if that is known.
    pub from: Option<SocketAddr>,
    pub view_only: bool,
    pub resize: bool,
    /// The word that the viewer takes the lease with.
    pub word: Option<String>,
}

/// The view of one desk. Cheap to clone.
#[derive(Clone)]
pub struct View(Arc<Inner>);

struct Inner {
    options: Options,
    viewers: Viewers,
    guesses: Guesses,
    strangers: Strangers,
    encoders: Arc<Semaphore>,
    clipboard: ClipboardWatch,
    closing: CancellationToken,
    /// Takes the place of the one in the options.
    password: RwLock<Option<Password>>,
}

impl View {
    pub fn new(options: Options) -> Self {
        // More at once would only take turns, and each holds a copy of what it encodes.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Inner {
            viewers: Viewers::new(options.most_viewers),
            options,
            guesses: Guesses::default(),
            strangers: Strangers::default(),
            encoders: Arc::new(Semaphore::new(cores)),
            clipboard: ClipboardWatch::default(),
            closing: CancellationToken::new(),
            password: RwLock::default(),
        }))
    }

    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// What lets in.
    pub fn password(&self) -> Option<Password> {
        self.0.password.read().unwrap_or_else(PoisonError::into_inner).clone().or_else(|| self.0.options.password.clone())
    }

    /// Lets in from now on; viewers who are in may stay.
    pub(crate) fn set_password(&self, password: Password) {
        *self.0.password.write().unwrap_or_else(PoisonError::into_inner) = Some(password);
    }

    /// Who looks right now.
    pub fn viewers(&self) -> &Viewers {
        &self.0.viewers
    }

    /// Sends all viewers away, for ever: the desk ends.
    pub fn close(&self) {
        self.0.closing.cancel();
    }

    /// Is cancelled when all viewers have to go.
    pub(crate) fn closing(&self) -> CancellationToken {
        self.0.closing.clone()
    }

    fn clipboard_changes(&self, display: &Display) -> watch::Receiver<u64> {
        self.0.clipboard.subscribe(display)
    }

    /// The door for a connection over TCP.
    fn door(&self, from: IpAddr) -> Door {
        let Options { view_only_password, open, .. } = &self.0.options;
        let password = self.password();
        if password.is_some() || view_only_password.is_some() {
            Door::Locked { full: password, view_only: view_only_password.clone() }
        } else if *open || from.to_canonical().is_loopback() {
            Door::Open
        } else {
            Door::Closed("this desk has no VNC password (VNC_PASSWORD), so it can only be viewed from its own machine".into())
        }
    }

    /// Serves one viewer until it leaves or `shutdown`.
    pub(crate) async fn attend<S: Stage>(
        &self,
        stage: S,
        name: &str,
        mut stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        entrance: Entrance,
        shutdown: CancellationToken,
    ) {
        let from = entrance.from.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        let address = entrance.from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let Some(stranger) = self.0.strangers.enter(address) else {
            // Not louder: whoever floods us must not fill the log.
            tracing::debug!(from, "too many connections wait to be let in; one more was dropped");
            return;
        };
        let admitted = tokio::select! {
            admitted = handshake::admit(&mut stream, &entrance.door, &self.0.guesses, address) => admitted,
            () = shutdown.cancelled() => return,
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(reason) => return tracing::info!(from, %reason, "a viewer was not let in"),
        };
        let view_only = admitted.view_only || entrance.view_only || self.0.options.view_only;
        let alone = self.0.options.exclusive && !admitted.shared && !view_only;
        let Some(presence) = self.0.viewers.enter(from.clone(), entrance.word, view_only, alone, shutdown.child_token()) else {
            return tracing::debug!(from, "too many viewers; one more was sent away");
        };
        let ready = timeout(handshake::STEP_LIMIT, async {
            let size = screen_size(&stage).await?;
            handshake::welcome(&mut stream, size, name).await.map_err(Error::internal)?;
            Ok::<_, Error>(size)
        });
        let size = match ready.await {
            Ok(Ok(size)) => size,
            Ok(Err(reason)) => return tracing::info!(from, %reason, "a viewer got no picture"),
            Err(_) => return tracing::info!(from, "a viewer did not take its welcome"),
        };
        drop(stranger);
        tracing::info!(from, view_only, "a viewer came");
        let terms =
            Terms { viewer: presence.viewer.clone(), size, resize: entrance.resize, encoders: Arc::clone(&self.0.encoders) };
        match session::run(stream, stage, terms).await {
            ending @ (Ending::Malformed(_) | Ending::Failed(_) | Ending::TooSlow) => {
                tracing::warn!(from, %ending, "a viewer was dropped")
            }
            ending => tracing::info!(from, %ending, "a viewer left"),
        }
    }
}

/// Waits for a display that is being healed.
async fn screen_size(stage: &impl Stage) -> Result<Size> {
    let end = Instant::now() + DISPLAY_LIMIT;
    loop {
        match stage.frame().await {
            Ok(look) => return Ok(look.frame.size()),
            Err(Error::Unavailable { .. } | Error::Timeout { .. }) if Instant::now() < end => {
                sleep(Duration::from_millis(200)).await
            }
            Err(reason) => return Err(reason),
        }
    }
}

/// What viewers show in their title.
pub(crate) fn name(desk: &Desk) -> String {
    format!("hotdesk {}", desk.place.display.name())
}

/// Offers the view over TCP until `shutdown`.
pub async fn serve(desk: Desk, addr: SocketAddr, shutdown: CancellationToken) -> Result<()> {
    let listener =
        TcpListener::bind(addr).await.map_err(|e| Error::Conflict(format!("can't listen for VNC viewers on {addr}: {e}")))?;
    serve_on(listener, desk, shutdown).await;
    Ok(())
}

/// The same on a socket that listens already.
pub async fn serve_on(listener: TcpListener, desk: Desk, shutdown: CancellationToken) {
    let (view, name) = (desk.view.clone(), name(&desk));
    accept(listener, view, desk, &name, shutdown).await;
}

async fn accept<S: Stage>(listener: TcpListener, view: View, stage: S, name: &str, shutdown: CancellationToken) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "the live view listens");
    }
    let sessions = TaskTracker::new();
    loop {
        let (stream, from) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(reason) => {
                    tracing::warn!(%reason, "a viewer's connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            () = shutdown.cancelled() => break,
        };
        tune(&stream);
        let options = view.options();
        let entrance = Entrance {
            door: view.door(from.ip()),
            from: Some(from),
            view_only: options.view_only,
            resize: options.resize,
            word: None,
        };
        let (view, stage, name, shutdown) = (view.clone(), stage.clone(), name.to_owned(), shutdown.clone());
        sessions.spawn(async move { view.attend(stage, &name, stream, entrance, shutdown).await });
    }
    sessions.close();
    // Those who do not leave in time are dropped with the runtime.
    let _ = timeout(LEAVE_LIMIT, sessions.wait()).await;
}

/// Small updates go out at once, and connections whose other end is gone are noticed within a minute or two.
fn tune(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = stream.set_nodelay(true);
    let tuned = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, Duration::from_secs(30)))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10)))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, 6))
        .and_then(|()| sockopt::set_tcp_user_timeout(stream, 90_000));
    if let Err(reason) = tuned {
        tracing::debug!(%reason, "a viewer's connection has no keep-alive");
    }
}
