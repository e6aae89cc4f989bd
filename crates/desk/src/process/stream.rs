//! Programs whose output is handed on as it is printed.

use super::spawn::{self, Plumbing};
use super::{Command, Failure, OnLeave, OnTimeout, Process, Processes, Status, signal_tree, sleep_for};
use bytes::{Bytes, BytesMut};
use nix::libc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Pieces that wait for a slow reader before the program itself has to wait.
const PIECES: usize = 16;
/// The largest piece: what a pipe holds.
const PIECE: usize = 64 << 10;
/// How long output of children that outlive the program is still handed on.
const AFTERGLOW: Duration = Duration::from_secs(1);

/// Something that a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Stdout(Bytes),
    Stderr(Bytes),
    /// It ended; always the last event.
    Exit {
        status: Status,
        timed_out: bool,
    },
}

/// A program under way.
pub struct Running {
    /// For signals and for waiting, also after `events` is gone.
    pub process: Process,
    /// What it does. The program waits when nobody takes its output; dropping this is leaving it,
    /// see [`Command::on_leave`].
    pub events: mpsc::Receiver<Event>,
    /// What it reads. Dropping it is the end of the input.
    pub stdin: Option<Stdin>,
}

/// The input of a program.
pub struct Stdin(pipe::Sender);

impl Stdin {
    /// Writes all of it, waiting for the program to read. Fails once the program reads no more.
    pub async fn write(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.0.write_all(data).await
    }
}

pub(super) async fn start(engine: &Processes, mut command: Command) -> Result<Running, Failure> {
    let first = command.stdin.take();
    let plumbing = Plumbing { stdin: true, output: true, merge: command.merge_stderr };
    let mut child = spawn::spawn(&engine.place, &command, plumbing).await?;
    let (registered, exit) = engine.register(&command, child.pid);
    let process = registered.process.clone();
    let (sender, events) = mpsc::channel(PIECES);

    // Input given beforehand is all of the input.
    let mut stdin = child.stdin.take().map(Stdin);
    if let Some(data) = first
        && let Some(mut pipe) = stdin.take()
    {
        tokio::spawn(async move {
            let _ = pipe.write(&data).await;
        });
    }

    let pid = child.pid;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let keep = command.on_leave == OnLeave::Keep;
    let output = sender.clone();
    let mut pumps = tokio::spawn(async move {
        tokio::join!(pump(stdout, &output, Event::Stdout, keep), pump(stderr, &output, Event::Stderr, keep));
    });
    tokio::spawn(async move {
        let left = async {
            sender.closed().await;
            if keep {
                std::future::pending::<()>().await;
            }
        };
        let mut timed_out = false;
        let status = tokio::select! {
            status = child.process.wait() => Status::of(status),
            whom = async {
                tokio::select! {
                    () = sleep_for(command.limit) => { timed_out = true; command.on_timeout }
                    () = left => OnTimeout::KillTree,
                }
            } => {
                if whom == OnTimeout::KillTree {
                    signal_tree(pid, libc::SIGKILL).await;
                }
                let _ = child.process.start_kill();
                Status::of(child.process.wait().await)
            }
        };
        exit.send_replace(Some(status));
        drop(registered);
        if tokio::time::timeout(AFTERGLOW, &mut pumps).await.is_err() {
            pumps.abort();
            let _ = pumps.await;
        }
        let _ = sender.send(Event::Exit { status, timed_out }).await;
    });
    Ok(Running { process, events, stdin })
}

/// Carries pieces of one stream; with `keep` the stream is emptied also after the reader has left.
async fn pump(pipe: Option<impl AsyncRead + Unpin>, events: &mpsc::Sender<Event>, event: fn(Bytes) -> Event, keep: bool) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE);
        match (&mut pipe).take(PIECE as u64).read_buf(&mut buffer).await {
            Ok(1..) => {}
            _ => return,
        }
        if events.send(event(buffer.split().freeze())).await.is_err() && !keep {
            return;
        }
    }
}
