//! How far a guest is: firmware, kernel, session, server, settled.
//!
//! What the serial console prints tells the first stages, the guest's server the others. Ours says itself when it has settled.
//! Another's, such as the server on an OSWorld disk, says nothing of the kind: there the guest has settled when its screen stands still.

use super::console::Sign;
use super::vm::Vm;
use crate::{Error, Result};
use hotdesk_desk_client::{Client, Connect, Direct, headers};
use http::HeaderMap;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Where a guest's server listens.
pub(crate) const PORT: u16 = 5000;
/// How long a guest may take to answer a question. One that is emulated on a busy machine takes a while.
const ANSWER: Duration = Duration::from_secs(10);
/// A connection to a guest whose server does not listen yet may hang; it is given up soon, for the next attempt.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// Pauses between two looks at a guest that starts.
const LOOK: Duration = Duration::from_millis(200);
/// A screen that is the same so often, so long apart, has settled. One that never is has, after a while, too.
const SAME: usize = 3;
const SAME_PAUSE: Duration = Duration::from_secs(1);
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Whose server is in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Ours: it speaks everything itself, and has a token of its own.
    Desk,
    /// Another's, such as OSWorld's, without any token.
    Other,
}

/// How far a machine is, for everybody who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    pub ready: bool,
    pub stage: String,
    /// What is waited for, in a sentence.
    pub detail: String,
    /// Whose server it is, once that is known.
    pub guest: Option<Kind>,
}

/// Where the status is written.
pub(crate) type Board = watch::Sender<Status>;

pub(crate) fn board(stage: &str, detail: &str) -> Board {
    watch::channel(Status { ready: false, stage: stage.into(), detail: detail.into(), guest: None }).0
}

pub(crate) fn note(board: &Board, stage: &str, detail: impl Into<String>) {
    let detail = detail.into();
    board.send_if_modified(|status| {
        let new = status.stage != stage || status.detail != detail;
        if new {
            tracing::info!(stage, detail, "the guest");
            stage.clone_into(&mut status.stage);
            status.detail = detail;
        }
        new
    });
}

/// Waits until the guest has settled, or says at which stage it is stuck.
pub(crate) async fn wait_settled(vm: &Vm, board: &Board, secret: Option<&str>, limit: Duration) -> Result<Kind> {
    let begun = Instant::now();
    let settled = tokio::time::timeout(limit, settle(vm, board, secret));
    tokio::select! {
        settled = settled => settled.unwrap_or_else(|_| {
            let Status { stage, detail, .. } = board.borrow().clone();
            Err(Error::NotReady(format!("after {} s the guest was still at `{stage}`: {detail}", begun.elapsed().as_secs())))
        }),
        how = vm.ended() => {
            let stage = board.borrow().stage.clone();
            Err(Error::NotReady(format!("the machine ended at `{stage}`: {how}")))
        }
    }
}

async fn settle(vm: &Vm, board: &Board, secret: Option<&str>) -> Result<Kind> {
    let mut signs = vm.sign();
    let kind = loop {
        match desk(vm, secret, FIRST_ANSWER).health().await {
            Ok(health) if health.ready => return Ok(Kind::Desk),
            Ok(health) => note(board, "session", format!("the desk inside is at `{}`", health.stage)),
            Err(hotdesk_desk_client::Error::Malformed(_)) => break Kind::Other,
            Err(_) => note_sign(board, *signs.borrow_and_update()),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            changed = signs.changed() => {
                if changed.is_err() {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    };
    note(board, "server", "its server answers; its screen is not still yet");
    wait_still(vm).await?;
    Ok(kind)
}

fn note_sign(board: &Board, sign: Sign) {
    let (stage, detail) = match sign {
        Sign::Silent => ("firmware", "nothing was printed on the serial console yet, which need not mean anything"),
        Sign::Firmware => ("firmware", "the firmware looks for something to start"),
        Sign::Kernel => ("kernel", "the kernel and its first programs start"),
        Sign::Session => ("session", "the desktop starts; its server does not answer yet"),
        Sign::Ready => ("server", "the desktop has started; its server does not answer"),
    };
    note(board, stage, detail);
}

/// Waits until the screen stands still.
async fn wait_still(vm: &Vm) -> Result<()> {
    let end = Instant::now() + SETTLE_LIMIT;
    let (mut before, mut same) = (Vec::new(), 0);
    while Instant::now() < end {
        let now = vm.screenshot().await?;
        same = if now == before { same + 1 } else { 1 };
        if same >= SAME {
            break;
        }
        before = now;
        tokio::time::sleep(SAME_PAUSE).await;
    }
    Ok(())
}

/// Gives a copy of a desk its own token and variables.
pub(crate) async fn thaw(vm: &Vm, old: &str, thaw: &hotdesk_api::freeze::Thaw) -> Result<()> {
    let thawed = desk(vm, Some(old), ANSWER).thaw(thaw).await;
    thawed.map_err(|e| Error::Failed(format!("the desk inside refused its new token: {e}")))
}

/// Has the guest write to its disk what is only in its memory yet. One that does not answer is saved as after a loss of power.
pub(crate) async fn sync(vm: &Vm, secret: Option<&str>) {
    let body = json!({ "command": ["sync"], "shell": false });
    if let Err(e) = desk(vm, secret, ANSWER).execute::<IgnoredAny>(&body).await {
        tracing::warn!(error = %e, "the guest did not write its files before it was saved");
    }
}

/// Sets the clock of a guest with another's server, which stood still with it; our own guests read the machine's clock. It
/// works on disks whose user may become root with the password that OSWorld gave it, and does nothing elsewhere.
pub(crate) async fn set_clock(vm: &Vm) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let body = json!({ "command": format!("echo password | sudo -S date -s @{now}"), "shell": true });
    let _ = desk(vm, None, ANSWER).execute::<IgnoredAny>(&body).await;
}

/// The guest's server, and what opens it.
struct Server<'a> {
    vm: &'a Vm,
    secret: Option<&'a str>,
}

impl Connect for Server<'_> {
    type Stream = super::wire::Stream;

    async fn connect(&self) -> io::Result<Self::Stream> {
        self.vm.connect(PORT).await.map_err(io::Error::other)
    }

    fn open(&self, headers: &mut HeaderMap) {
        headers::open(headers, self.secret);
    }
}

fn desk<'a>(vm: &'a Vm, secret: Option<&'a str>, limit: Duration) -> Client<Direct<Server<'a>>> {
    Client::new(Direct(Server { vm, secret })).within(limit)
}
