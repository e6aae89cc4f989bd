//! How the provider talks to a machine's keeper: one JSON line each way, on a socket in the machine's private directory.

use super::guest;
use super::vm::Vm;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::AbortOnDropHandle;

const SOCKET: &str = "control.sock";
/// A question and its answer are a few paths.
const LONGEST_LINE: u64 = 64 << 10;
/// Gigabytes of memory to a slow disk.
const ANSWER: Duration = Duration::from_secs(900);

/// What a keeper can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// From now on write to this disk, which is empty and lies over the one before.
    NextDisk { node: String, disk: PathBuf },
    /// The same, and the whole machine as one stream, of the same moment.
    Save { node: String, disk: PathBuf, stream: PathBuf },
    /// What the screen shows, as a PNG file.
    Screenshot { to: PathBuf },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    /// The guest writes to the next disk, but what should follow failed.
    Half(String),
    Failed(String),
}

/// What became of a request that was heard.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    /// The guest writes to the next disk, but what should follow failed.
    Half(Error),
}

/// Answers for as long as the handle lives.
pub(crate) fn serve(folder: &Path, vm: Arc<Vm>, secret: Option<String>) -> Result<AbortOnDropHandle<()>> {
    let path = folder.join(SOCKET);
    let _ = std::fs::remove_file(&path);
    let bound =
        File::open(folder).and_then(|folder| UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd())));
    let listener = bound.map_err(|e| crate::local::directory::trouble("make", &path, &e))?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        // One after the other: each changes the machine.
        while let Ok((stream, _)) = listener.accept().await {
            if let Err(e) = attend(stream, &vm, secret.as_deref()).await {
                tracing::warn!(error = %e, "a request of the provider was not heard");
            }
        }
    })))
}

async fn attend(mut stream: UnixStream, vm: &Vm, secret: Option<&str>) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new((&mut stream).take(LONGEST_LINE)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => match act(vm, secret, request).await {
            Ok(Outcome::Done) => Answer::Done,
            Ok(Outcome::Half(e)) => Answer::Half(e.to_string()),
            Err(e) => Answer::Failed(e.to_string()),
        },
        Err(e) => Answer::Failed(format!("the question can't be understood: {e}")),
    };
    let answer = serde_json::to_string(&answer)? + "\n";
    stream.write_all(answer.as_bytes()).await
}

async fn act(vm: &Vm, secret: Option<&str>, request: Request) -> Result<Outcome> {
    match request {
        Request::NextDisk { node, disk } => {
            guest::sync(vm, secret).await;
            vm.next_disk(&node, &disk).await?;
        }
        Request::Save { node, disk, stream } => {
            vm.pause().await?;
            let moved = vm.next_disk(&node, &disk).await;
            let saved = match &moved {
                Ok(()) => vm.save(&stream, false).await,
                Err(_) => Ok(()),
            };
            vm.go_on().await?;
            moved?;
            if let Err(e) = saved {
                return Ok(Outcome::Half(e));
            }
        }
        Request::Screenshot { to } => {
            let picture = vm.screenshot().await?;
            crate::local::directory::write_bytes(&to, &picture, 0o600)
                .map_err(|e| crate::local::directory::trouble("write", &to, &e))?;
        }
    }
    Ok(Outcome::Done)
}

/// Asks the keeper of the machine in that directory.
pub(crate) async fn ask(folder: &Path, request: &Request) -> Result<Outcome> {
    let failed = |e: &dyn std::fmt::Display| Error::Failed(format!("the desk's machine did not do what it was asked for: {e}"));
    let asked = async {
        let mut stream = crate::Address::Unix { path: folder.join(SOCKET) }.connect().await?;
        stream.write_all((serde_json::to_string(request)? + "\n").as_bytes()).await?;
        let mut line = String::new();
        BufReader::new(stream.take(LONGEST_LINE)).read_line(&mut line).await?;
        Ok::<_, std::io::Error>(line)
    };
    let line = tokio::time::timeout(ANSWER, asked).await.map_err(|_| failed(&"no answer"))?.map_err(|e| failed(&e))?;
    match serde_json::from_str(&line) {
        Ok(Answer::Done) => Ok(Outcome::Done),
        Ok(Answer::Half(why)) => Ok(Outcome::Half(Error::Failed(why))),
        Ok(Answer::Failed(why)) => Err(Error::Failed(why)),
        Err(_) => Err(failed(&"it ended meanwhile")),
    }
}
