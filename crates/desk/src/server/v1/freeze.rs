//! Standing still, so that the whole desk can be saved with its memory; and going on, as itself or as a copy.
//!
//! ```text
//!   running ── POST /v1/freeze ──► answered ──► no listener, no connection ──► file `frozen` ──► saved by whoever asked
//!      ▲                                                                                              │
//!      └──── listeners anew ◄──── what makes a copy another desk (token, …) ◄──── file `thaw` ◄───────┘
//! ```
//!
//! Programs go on all the while; only what leads out of the desk is closed. The two files lie beside the desk's
//! Unix socket, where whoever keeps the desk can reach them and its programs need not.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::place::{self, Place, xauthority};
use crate::server::cut::Scissors;
use crate::server::listen::Address;
use crate::server::token::Token;
use crate::view::{Password, View};
use crate::Desk;
use axum::Json;
use axum::extract::State;
use hotdesk_api::freeze::{Freezing, Thaw};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How often the file is looked for. A watch by the kernel would have to be saved and restored with the desk.
const LOOK: Duration = Duration::from_millis(2);
/// After so long the desk goes on by itself: whoever froze it is gone.
const LONGEST: Duration = Duration::from_secs(60);
/// What a desk is told is short.
const LARGEST_THAW: u64 = 1 << 20;

/// Whether the desk is to stand still. Cheap to clone.
#[derive(Clone, Default)]
pub struct Freeze(Arc<Inner>);

#[derive(Default)]
struct Inner {
    asked: Notify,
    /// The token of a copy, which takes the place of the one in the settings.
    token: Mutex<Option<Token>>,
    connections: Scissors,
}

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(freeze))
}

/// Let the desk stand still
///
/// For whoever keeps the desk: after the answer it closes its addresses and all connections, and waits until it is told to go on.
#[utoipa::path(post, path = "/v1/freeze", tag = "health", responses(
    (status = 200, body = Freezing),
    (status = 501, description = "The desk has no Unix socket, so nobody could tell it to go on."),
))]
async fn freeze(State(desk): State<Desk>) -> Result<Json<Freezing>> {
    let files = Files::of(&desk.config).ok_or_else(|| Error::Unsupported {
        what: "standing still".into(),
        reason: "the desk listens on no Unix socket, beside which it could be told to go on".into(),
        hint: "start it with `--listen unix:PATH`".into(),
    })?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let answer = Freezing { frozen: text(&files.frozen), thaw: text(&files.thaw), limit_s: LONGEST.as_secs() };
    desk.freeze.0.asked.notify_one();
    Ok(Json(answer))
}

impl Freeze {
    /// Returns when somebody asks the desk to stand still.
    pub(crate) async fn asked(&self) {
        self.0.asked.notified().await;
    }

    /// The token of a copy.
    pub(crate) fn token(&self) -> Option<Token> {
        self.0.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every connection of the desk's server.
    pub(crate) fn connections(&self) -> &Scissors {
        &self.0.connections
    }

    /// Stands still until told to go on, then is what it was told to be.
    pub(crate) async fn hold(&self, desk: &mut Desk) {
        let cut = self.0.connections.cut_all();
        let Some(files) = Files::of(&desk.config) else { return };
        tracing::info!(connections_cut = cut, "the desk stands still");
        let thaw = files.wait().await;
        self.become_what(desk, thaw);
    }

    fn become_what(&self, desk: &mut Desk, thaw: Thaw) {
        if let Some(token) = thaw.token {
            match Token::new(token) {
                Ok(token) => *self.0.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token),
                Err(reason) => tracing::error!(%reason, "the new token is none; the old one stays"),
            }
        }
        let mut options = desk.view.options().clone();
        if let Some(password) = &thaw.vnc_password {
            options.password = Password::new(password);
        }
        // The one before sent its viewers away for ever.
        desk.view = View::new(options);
        place::add_variables(thaw.env);
        renew_cookie(&desk.place);
    }
}

/// A copy may have another host name, by which some programs look for the display's cookie.
fn renew_cookie(place: &Place) {
    if let (Some(file), Some(cookie)) = (place.env.get("XAUTHORITY"), &place.display.cookie)
        && let Err(reason) = xauthority::put(Path::new(file), place.display.number, cookie)
    {
        tracing::warn!(%reason, file, "the cookie of the display can't be written");
    }
}

/// The two files by which a desk that stands still is spoken with.
struct Files {
    frozen: PathBuf,
    thaw: PathBuf,
}

impl Files {
    fn of(config: &Config) -> Option<Self> {
        let folder = config.listen.iter().find_map(|address| match address {
            Address::Unix(path) => path.parent(),
            Address::Tcp(_) => None,
        })?;
        Some(Self { frozen: folder.join("frozen"), thaw: folder.join("thaw") })
    }

    async fn wait(&self) -> Thaw {
        if let Err(reason) = std::fs::write(&self.frozen, "") {
            tracing::error!(%reason, file = %self.frozen.display(), "nobody can be told that the desk stands still");
        }
        let end = Instant::now() + LONGEST;
        let thaw = loop {
            match self.take() {
                Ok(thaw) => break thaw,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(reason) => {
                    tracing::error!(%reason, "what the desk is told can't be read; it goes on as it was");
                    break Thaw::default();
                }
            }
            if Instant::now() > end {
                tracing::warn!(after_s = LONGEST.as_secs(), "nobody told the desk to go on; it does so by itself");
                break Thaw::default();
            }
            tokio::time::sleep(LOOK).await;
        };
        let _ = std::fs::remove_file(&self.frozen);
        thaw
    }

    fn take(&self) -> io::Result<Thaw> {
        let mut text = String::new();
        std::fs::File::open(&self.thaw)?.take(LARGEST_THAW).read_to_string(&mut text)?;
        std::fs::remove_file(&self.thaw)?;
        serde_json::from_str(&text).map_err(io::Error::other)
    }
}
