//! Programs: started in the desk's place, watched, bounded in time, ended with all their children.
//!
//! Three ways to start one:
//!
//! - [`Processes::run`] waits for the end and returns everything that was printed;
//! - [`Processes::start`] hands the output on piece by piece and can be written to;
//! - [`Processes::launch`] starts it and forgets it.
//!
//! Every program gets the environment of [`Place`] and nothing of ours: its own session, the home
//! as working directory, no descriptors but the first three, signals as they were at boot.

pub mod jobs;
mod mark;
mod spawn;
mod stream;
pub mod tape;
mod tree;

pub use mark::Mark;
pub use spawn::find_program;
pub use stream::{Event, Running, Stdin};
pub use tree::signal_tree;

use crate::error::Error;
use crate::place::Place;
use spawn::Plumbing;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};

/// Output of one stream that is kept when nobody says otherwise. Agents print kilobytes; a
/// program that prints without end must not take the desk's memory with it.
pub const DEFAULT_OUTPUT_LIMIT: usize = 64 << 20;

/// What to start and within which bounds.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program (looked for in the `PATH` of the place, unless it has a slash) and its arguments.
    pub argv: Vec<String>,
    /// Changes to the environment of the place; `None` takes a variable away.
    pub env: BTreeMap<String, Option<String>>,
    /// The home of the place if left out.
    pub cwd: Option<PathBuf>,
    /// What it reads; an empty stream if left out. [`Processes::start`] has its own way.
    pub stdin: Option<Vec<u8>>,
    /// How long it may take; for ever if left out.
    pub limit: Option<Duration>,
    /// How many bytes of each stream are kept. More are read and dropped.
    pub output_limit: usize,
    /// Both streams into `stdout`, in the order in which they were written.
    pub merge_stderr: bool,
    pub on_timeout: OnTimeout,
    pub on_leave: OnLeave,
}

/// Whom the end of the time limit strikes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The program and everything that it started.
    #[default]
    KillTree,
    /// The program alone; what it started lives on.
    KillChild,
}

/// What happens when nobody waits for the result any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLeave {
    /// The program and everything that it started is killed.
    #[default]
    KillTree,
    /// It goes on to its end, its output is dropped.
    Keep,
}

impl Command {
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: None,
            stdin: None,
            limit: None,
            output_limit: DEFAULT_OUTPUT_LIMIT,
            merge_stderr: false,
            on_timeout: OnTimeout::default(),
            on_leave: OnLeave::default(),
        }
    }

    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    /// Ended by a signal.
    Signalled(i32),
}

impl Status {
    /// The exit code, or the negative number of the signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => -signal,
        }
    }

    pub fn success(self) -> bool {
        self == Self::Exited(0)
    }

    fn of(waited: std::io::Result<ExitStatus>) -> Self {
        use std::os::unix::process::ExitStatusExt;
        // Waiting can only fail when somebody else has reaped the child; then its status is lost.
        let Ok(status) = waited else { return Self::Exited(0) };
        match status.signal() {
            Some(signal) => Self::Signalled(signal),
            None => Self::Exited(status.code().unwrap_or(0)),
        }
    }
}

/// What a program left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub status: Status,
    /// More was printed than [`Command::output_limit`] allows.
    pub truncated: bool,
}

/// Why there is no [`Output`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error("the command is empty")]
    Empty,
    #[error("the command, its environment or its directory holds a NUL character")]
    Nul,
    /// The system refused; nothing ran.
    #[error("{name} can't be started: {}", spawn::errno_text(*.errno))]
    Start { errno: i32, name: String },
    /// It ran longer than it may.
    #[error("the command took longer than {} s and was ended", limit.as_secs_f64())]
    TimedOut { limit: Duration, stdout: Vec<u8>, stderr: Vec<u8> },
    #[error("the command was given up: {0}")]
    Lost(String),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        use nix::libc;
        let text = failure.to_string();
        match failure {
            Failure::Empty | Failure::Nul => Self::Invalid(text),
            Failure::Start { errno: libc::ENOENT | libc::ENOTDIR, .. } => Self::NotFound(text),
            Failure::Start { errno: libc::EACCES | libc::EPERM, .. } => Self::Denied(text),
            Failure::Start { errno: libc::E2BIG | libc::ENOEXEC | libc::ENAMETOOLONG | libc::ELOOP, .. } => Self::Invalid(text),
            Failure::Start { errno: libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE, .. } => {
                Self::Unavailable { part: "the process table", reason: text }
            }
            Failure::Start { .. } | Failure::Lost(_) => Self::Internal(text),
            Failure::TimedOut { limit, .. } => Self::Timeout { what: "the command".into(), limit },
        }
    }
}

/// The process engine. Cheap to clone.
#[derive(Clone)]
pub struct Processes {
    place: Arc<Place>,
    live: Arc<Live>,
    jobs: jobs::Jobs,
}

impl Processes {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place, live: Arc::default(), jobs: jobs::Jobs::default() }
    }

    /// Runs a program to its end. It goes on in the background if the caller leaves, or is ended
    /// with everything that it started, as [`Command::on_leave`] says.
    ///
    /// A child of the program that keeps the pipes open is waited for too, within the limit.
    pub async fn run(&self, command: Command) -> Result<Output, Failure> {
        // Dropped with this future, which tells the task that the caller has left.
        let (_here, left) = oneshot::channel::<()>();
        let task = tokio::spawn(self.clone().run_to_end(command, left));
        task.await.map_err(|e| Failure::Lost(e.to_string()))?
    }

    async fn run_to_end(self, mut command: Command, left: oneshot::Receiver<()>) -> Result<Output, Failure> {
        let stdin = command.stdin.take();
        let plumbing = Plumbing { stdin: stdin.is_some(), output: true, merge: command.merge_stderr };
        let mut child = spawn::spawn(&self.place, &command, plumbing).await?;
        let (registered, exit) = self.register(&command, child.pid);
        let mut stdout = Kept::new(command.output_limit);
        let mut stderr = Kept::new(command.output_limit);
        let writing = async {
            if let (Some(mut pipe), Some(data)) = (child.stdin.take(), stdin) {
                // A program need not read all of its input.
                let _ = pipe.write_all(&data).await;
            }
        };
        let work = async {
            let (status, ..) =
                tokio::join!(child.process.wait(), stdout.read(child.stdout.take()), stderr.read(child.stderr.take()), writing);
            Status::of(status)
        };
        let gone = async {
            let _ = left.await;
            if command.on_leave == OnLeave::Keep {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            status = work => Ok(status),
            () = sleep_for(command.limit) => Err(command.on_timeout),
            () = gone => Err(OnTimeout::KillTree),
        };
        match ended {
            Ok(status) => {
                exit.send_replace(Some(status));
                drop(registered);
                let truncated = stdout.dropped || stderr.dropped;
                Ok(Output { stdout: stdout.bytes, stderr: stderr.bytes, status, truncated })
            }
            Err(whom) => {
                if whom == OnTimeout::KillTree {
                    signal_tree(child.pid, nix::libc::SIGKILL).await;
                }
                let _ = child.process.start_kill();
                tokio::spawn(async move {
                    exit.send_replace(Some(Status::of(child.process.wait().await)));
                    drop(registered);
                });
                let limit = command.limit.unwrap_or_default();
                Err(Failure::TimedOut { limit, stdout: stdout.bytes, stderr: stderr.bytes })
            }
        }
    }

    /// Starts a program and leaves it to itself: its output goes nowhere, it outlives its caller
    /// and this server. Returns its process id.
    pub async fn launch(&self, command: Command) -> Result<u32, Failure> {
        let plumbing = Plumbing { stdin: false, output: false, merge: false };
        let mut child = spawn::spawn(&self.place, &command, plumbing).await?;
        let pid = child.pid;
        let (registered, exit) = self.register(&command, pid);
        tokio::spawn(async move {
            exit.send_replace(Some(Status::of(child.process.wait().await)));
            drop(registered);
        });
        Ok(pid)
    }

    /// Starts a program whose output arrives as it is printed.
    pub async fn start(&self, command: Command) -> Result<Running, Failure> {
        stream::start(self, command).await
    }

    /// Programs in the background whose output is kept.
    pub fn jobs(&self) -> &jobs::Jobs {
        &self.jobs
    }

    /// All programs that were started here and have not ended, the oldest first.
    pub fn list(&self) -> Vec<Info> {
        self.live.table().values().map(|entry| entry.info.clone()).collect()
    }

    /// One of them.
    pub fn get(&self, id: u64) -> Option<Process> {
        self.live.table().get(&id).cloned()
    }

    fn register(&self, command: &Command, pid: u32) -> (Registered, watch::Sender<Option<Status>>) {
        let id = self.live.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, exit) = watch::channel(None);
        let info = Info { id, pid, argv: command.argv.clone(), started: SystemTime::now() };
        let process = Process { info, exit };
        self.live.table().insert(id, process.clone());
        (Registered { process, live: self.live.clone() }, sender)
    }
}

/// One program, for lists.
#[derive(Debug, Clone)]
pub struct Info {
    /// Counts from 1 and is never used again, unlike process ids.
    pub id: u64,
    pub pid: u32,
    pub argv: Vec<String>,
    pub started: SystemTime,
}

/// A program that was started here. Cheap to clone; dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct Process {
    pub info: Info,
    exit: watch::Receiver<Option<Status>>,
}

impl Process {
    /// Waits for the end of the program.
    pub async fn wait(&self) -> Status {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(status) => (*status).unwrap_or(Status::Exited(0)),
            // The runtime is shutting down and the watching task with it.
            Err(_) => Status::Exited(0),
        }
    }

    /// How it ended, if it has.
    pub fn status(&self) -> Option<Status> {
        *self.exit.borrow()
    }

    /// Sends a signal to the program alone.
    pub fn signal(&self, signal: i32) -> crate::Result<()> {
        if self.status().is_some() {
            return Err(Error::Conflict(format!("process {} has ended", self.info.id)));
        }
        let signal = nix::sys::signal::Signal::try_from(signal)
            .map_err(|_| Error::Invalid(format!("{signal} is not the number of a signal")))?;
        let pid = nix::unistd::Pid::from_raw(self.info.pid as i32);
        nix::sys::signal::kill(pid, signal).map_err(|e| Error::Denied(format!("{signal} can't be sent: {}", e.desc())))
    }

    /// Sends a signal to the program and to everything that it started.
    pub async fn signal_tree(&self, signal: i32) -> usize {
        signal_tree(self.info.pid, signal).await
    }
}

#[derive(Default)]
struct Live {
    next: AtomicU64,
    table: Mutex<BTreeMap<u64, Process>>,
}

impl Live {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Process>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry of the table of live programs; dropping it removes it.
struct Registered {
    process: Process,
    live: Arc<Live>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.live.table().remove(&self.process.info.id);
    }
}

/// Bytes read so far, up to a limit.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    dropped: bool,
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, dropped: false }
    }

    async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        // The size of a pipe: one read empties it.
        let mut buffer = vec![0; 64 << 10];
        // An error is the end like any other: there is nothing more to be had.
        while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
            let room = self.limit - self.bytes.len();
            self.bytes.extend_from_slice(&buffer[..n.min(room)]);
            self.dropped |= n > room;
        }
    }
}

/// Sleeps as long as the limit says, for ever without one.
async fn sleep_for(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
