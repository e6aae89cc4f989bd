//! Other users of the desk: root, and whoever else the system knows.
//!
//! A desk has the rights of one user. Where its template lets programs become root (`sudo`), a hand of the desk can: the same
//! server, started as that user when it is first asked for, on a socket that only the desk can reach. What is asked of another
//! user is passed on to it, so everything that is done to programs, terminals and files is done by the same code.

use crate::config::{AttachTarget, Config};
use crate::error::{Error, Result};
use crate::place::Place;
use crate::server::Server;
use crate::{Desk, process};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// The word by which the program is started as a hand.
pub const HAND: &str = "hand";
/// A hand starts in a moment; on a machine that is busy, in some.
const START: Duration = Duration::from_secs(30);
/// What `sudo` says when it refuses.
const WORDS: u64 = 4096;

/// The hands of a desk. Cheap to clone.
#[derive(Clone)]
pub struct Users {
    place: Arc<Place>,
    hands: Arc<Mutex<BTreeMap<String, Hand>>>,
}

struct Hand {
    socket: PathBuf,
    child: Child,
}

impl Users {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        Self { place, hands: Arc::default() }
    }

    /// Users with a hand.
    pub async fn list(&self) -> Vec<String> {
        let mut hands = self.hands.lock().await;
        hands.retain(|_, hand| hand.is_alive());
        hands.keys().cloned().collect()
    }

    /// The socket of a user's hand, which is started if there is none yet.
    pub async fn socket(&self, name: &str) -> Result<PathBuf> {
        let mut hands = self.hands.lock().await;
        if let Some(hand) = hands.get_mut(name)
            && hand.is_alive()
        {
            return Ok(hand.socket.clone());
        }
        hands.remove(name);
        let hand = self.start(name).await?;
        let socket = hand.socket.clone();
        hands.insert(name.to_owned(), hand);
        Ok(socket)
    }

    async fn start(&self, name: &str) -> Result<Hand> {
        let good = !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let known = good.then(|| nix::unistd::User::from_name(name).ok().flatten()).flatten();
        if known.is_none() || name.starts_with('-') {
            return Err(Error::NotFound(format!("there is no user `{}`", name.escape_default())));
        }
        let sudo = process::find_program(&self.place, "sudo").ok_or_else(|| refused(name, "there is no `sudo` here"))?;
        let program = std::env::current_exe().map_err(Error::internal)?;
        let socket = self.place.runtime_dir.join(format!("hotdesk-{name}.sock"));
        let _ = std::fs::remove_file(&socket);
        // Opened here and handed over as standard input, the one descriptor that sudo leaves alone: nobody else can take its place.
        let listener = UnixListener::bind(&socket).map_err(Error::internal)?;
        let mut child = tokio::process::Command::new(sudo)
            .args(["-n", "-H", "-u", name, "--"])
            .arg(program)
            .args([HAND, &self.place.display.number.to_string()])
            .arg(self.place.env.get("XAUTHORITY").map_or("", String::as_str))
            .arg(&self.place.runtime_dir)
            .env_clear()
            .env("PATH", self.place.env.get("PATH").map_or("/usr/bin:/bin", String::as_str))
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| refused(name, &e.to_string()))?;
        let stderr = child.stderr.take();
        let answers = tokio::time::timeout(START, crate::server::v1::users::answers(&socket));
        tokio::select! {
            answered = answers => answered.map_err(|_| Error::Timeout { what: "the hand of another user".into(), limit: START })??,
            _ = child.wait() => {
                let mut words = String::new();
                if let Some(stderr) = stderr {
                    let _ = tokio::time::timeout(Duration::from_secs(1), stderr.take(WORDS).read_to_string(&mut words)).await;
                }
                return Err(refused(name, words.trim()));
            }
        }
        Ok(Hand { socket, child })
    }
}

impl Hand {
    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

fn refused(name: &str, why: &str) -> Error {
    Error::Denied(format!(
        "programs of this desk can't become `{name}`: {why}; a template with `root = true` and `sudo` lets them"
    ))
}

/// A hand, from start to end: `listener` is what the desk has opened for it.
pub async fn serve(listener: UnixListener, display: u16, xauthority: &str, runtime_dir: &Path) -> Result<()> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    // The session's directory is another user's; programs that stand in for others find the desk by this.
    let socket = runtime_dir.join(crate::server::PROGRAMS_SOCKET).display().to_string();
    let mut env = BTreeMap::from([("HOTDESK_DESK_SOCKET".to_owned(), socket)]);
    if !xauthority.is_empty() {
        env.insert("XAUTHORITY".into(), xauthority.into());
    }
    let config = Config { attach: Some(AttachTarget(display)), home: user.map(|user| user.dir), env, ..Config::default() };
    let desk = Desk::start(config).await?;
    Server::on(desk, listener)?.run(CancellationToken::new()).await;
    Ok(())
}
