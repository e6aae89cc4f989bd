//! Terminals: shells on a PTY that clients attach to and leave.
//!
//! One task per terminal owns the reading side: it copies what is shown to the [`Tape`], from which any number of
//! viewers read, and sees the program end. The terminal is hung up when the program has ended and its last
//! words are read, whatever its children still hold open.

use crate::error::{Error, Result};
use crate::place::Place;
use crate::process::jobs::{Noted, exit, milliseconds, parse_signal};
use crate::process::tape::{Reader, Source, Tape};
use crate::process::{Mark, Status, signal_tree};
use hotdesk_api::process::Exit;
use hotdesk_api::terminal::{OpenTerminal, TerminalInfo};
use nix::sys::signal::Signal;
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

/// Terminals at a time, ended ones that nobody closed included. Each has a PTY, of which a system has 4096 by default.
pub const TERMINAL_LIMIT: usize = 64;
/// What is kept for those who attach later: some thousand lines.
const SCROLLBACK: usize = 256 << 10;
/// Larger ones are a mistake; some programs allocate a screen of that size.
const SIZE_LIMIT: u16 = 1000;
/// They are shown in lists.
const TAG_LIMIT: usize = 256;
/// How long the last words of a program are waited for.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// How long a shell may take to end after it was hung up.
const HANG_UP: Duration = Duration::from_secs(1);
/// How often what is left of it is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// The terminal engine. Cheap to clone.
#[derive(Clone)]
pub struct Terminals {
    place: Arc<Place>,
    next: Arc<AtomicU64>,
    open: Arc<Mutex<BTreeMap<u64, Arc<Terminal>>>>,
}

/// One terminal.
pub struct Terminal {
    id: u64,
    pid: u32,
    argv: Vec<String>,
    started: SystemTime,
    /// Columns in the upper half, rows in the lower.
    size: AtomicU32,
    output: Tape,
    /// Gone when the program is: closing it hangs up whoever still has the terminal.
    input: tokio::sync::Mutex<Option<OwnedWritePty>>,
    viewers: Arc<AtomicUsize>,
    mark: Mark,
    noted: Noted,
    /// From then on its process id may be a stranger's.
    reaped: AtomicBool,
    end: OnceLock<Exit>,
    ended: watch::Sender<bool>,
}

impl Terminals {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place, next: Arc::default(), open: Arc::default() }
    }

    pub fn open(&self, request: OpenTerminal) -> Result<Arc<Terminal>> {
        self.make_room()?;
        let argv = match request.argv {
            Some(argv) if argv.first().is_none_or(String::is_empty) => {
                return Err(Error::Invalid("`argv` names no program".into()));
            }
            Some(argv) => argv,
            None => vec![self.shell(), "-l".into()],
        };
        let cwd = match &request.cwd {
            Some(cwd) => crate::files::resolve(&self.place, cwd)?,
            None => self.place.home.clone(),
        };
        if !cwd.is_dir() {
            return Err(Error::NotFound(format!("{} is not a directory", cwd.display())));
        }
        if argv.iter().any(|part| part.contains('\0')) || request.env.iter().any(|(k, v)| bad_variable(k, v.as_deref())) {
            return Err(Error::Invalid("arguments and variables hold no NUL bytes, and names of variables no `=`".into()));
        }
        let program =
            self.place.find_program(&argv[0]).ok_or_else(|| Error::NotFound(format!("there is no program `{}`", argv[0])))?;
        if request.tag.as_ref().is_some_and(|tag| tag.len() > TAG_LIMIT) {
            return Err(Error::Invalid(format!("a terminal's tag is at most {TAG_LIMIT} bytes long")));
        }
        let (cols, rows) = checked_size(request.cols.unwrap_or(80), request.rows.unwrap_or(24))?;

        let failed = |e: pty_process::Error| Error::Internal(format!("a terminal can't be made: {e}"));
        let (pty, pts) = pty_process::open().map_err(failed)?;
        pty.resize(Size::new(rows, cols)).map_err(failed)?;
        let mut env = self.place.environment_now();
        env.insert("TERM".into(), "xterm-256color".into());
        let noted = Noted {
            env: request.env.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect(),
            cwd: request.cwd.is_some().then(|| cwd.to_string_lossy().into_owned()),
            tag: request.tag,
        };
        for (name, value) in request.env {
            match value {
                Some(value) => env.insert(name, value),
                None => env.remove(&name),
            };
        }
        let mark = Mark::new();
        let (name, value) = mark.variable();
        env.insert(name, value);
        let child = pty_process::Command::new(program)
            .arg0(&argv[0])
            .args(&argv[1..])
            .env_clear()
            .envs(env)
            .current_dir(cwd)
            .spawn(pts)
            .map_err(failed)?;
        let (reading, writing) = pty.into_split();
        let terminal = Arc::new(Terminal {
            id: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            pid: child.id().unwrap_or_default(),
            argv,
            started: SystemTime::now(),
            size: AtomicU32::new(packed(cols, rows)),
            output: if request.patient { Tape::patient(SCROLLBACK) } else { Tape::new(SCROLLBACK) },
            input: tokio::sync::Mutex::new(Some(writing)),
            viewers: Arc::default(),
            mark,
            noted,
            reaped: AtomicBool::new(false),
            end: OnceLock::new(),
            ended: watch::channel(false).0,
        });
        self.table().insert(terminal.id, terminal.clone());
        tokio::spawn(drive(terminal.clone(), reading, child, request.timeout_ms.map(Duration::from_millis)));
        Ok(terminal)
    }

    pub fn list(&self) -> Vec<TerminalInfo> {
        self.table().values().map(|terminal| terminal.info()).collect()
    }

    pub fn get(&self, id: u64) -> Result<Arc<Terminal>> {
        self.table()
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::NotFound(format!("there is no terminal {id}; it was closed, or never was")))
    }

    /// Hangs a terminal up, ends everything that runs in it, and forgets it.
    pub async fn close(&self, id: u64) -> Result<()> {
        let terminal = self.get(id)?;
        terminal.kill().await;
        self.table().remove(&id);
        Ok(())
    }

    /// Forgets the oldest ended terminals that nobody looks at, if there are too many.
    fn make_room(&self) -> Result<()> {
        let mut table = self.table();
        while table.len() >= TERMINAL_LIMIT {
            let idle = |terminal: &Terminal| terminal.end.get().is_some() && terminal.viewers.load(Ordering::Relaxed) == 0;
            let Some(id) = table.values().find(|terminal| idle(terminal)).map(|terminal| terminal.id) else {
                return Err(Error::TooMany { what: "terminals", limit: TERMINAL_LIMIT });
            };
            table.remove(&id);
        }
        Ok(())
    }

    /// The user's shell.
    fn shell(&self) -> String {
        let of_user = || {
            nix::unistd::User::from_uid(nix::unistd::geteuid())
                .ok()
                .flatten()
                .map(|user| user.shell.to_string_lossy().into_owned())
        };
        let known = [self.place.env.get("SHELL").cloned(), of_user()];
        known.into_iter().flatten().find(|shell| self.place.find_program(shell).is_some()).unwrap_or_else(|| "/bin/sh".into())
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Terminal>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terminal {
    pub fn info(&self) -> TerminalInfo {
        let size = self.size.load(Ordering::Relaxed);
        TerminalInfo {
            id: self.id,
            pid: self.pid,
            argv: self.argv.clone(),
            cols: (size >> 16) as u16,
            rows: size as u16,
            running: self.end.get().is_none(),
            exit: self.end.get().cloned(),
            started_ms: milliseconds(self.started),
            viewers: self.viewers.load(Ordering::Relaxed),
            output_bytes: self.output.written(),
            env: self.noted.env.clone(),
            cwd: self.noted.cwd.clone(),
            tag: self.noted.tag.clone(),
        }
    }

    /// How its program ended, if it has.
    pub fn exit(&self) -> Option<&Exit> {
        self.end.get()
    }

    /// What is shown, from the oldest that is kept on.
    pub fn view(&self) -> View {
        self.viewers.fetch_add(1, Ordering::Relaxed);
        View { reader: self.output.read(0), viewers: self.viewers.clone() }
    }

    /// What is shown, from an offset on.
    pub fn read(&self, from: u64) -> Reader {
        self.output.read(from)
    }

    /// Sends a signal to its program and everything that it started.
    pub async fn signal(&self, name: &str) -> Result<()> {
        let signal = parse_signal(name)?;
        if self.end.get().is_some() {
            return Err(self.over());
        }
        self.signal_all(signal).await;
        Ok(())
    }

    /// Types.
    pub async fn write(&self, data: &[u8]) -> Result<()> {
        let mut input = self.input.lock().await;
        let Some(input) = input.as_mut() else { return Err(self.over()) };
        // A program that reads nothing fills the terminal's input; it must not hold this when it has ended.
        tokio::select! {
            written = input.write_all(data) => written.map_err(|_| self.over()),
            () = self.wait() => Err(self.over()),
        }
    }

    pub async fn resize(&self, cols: u16, rows: u16) -> Result<()> {
        let (cols, rows) = checked_size(cols, rows)?;
        // Not held while typing is stuck: a lock is needed only because the library's writer is the one that resizes.
        let input = tokio::time::timeout(Duration::from_secs(5), self.input.lock()).await;
        let input = input.map_err(|_| Error::Conflict("the terminal's program does not read what is typed".into()))?;
        let Some(input) = input.as_ref() else { return Err(self.over()) };
        input.resize(Size::new(rows, cols)).map_err(|e| Error::Internal(format!("the terminal can't be resized: {e}")))?;
        self.size.store(packed(cols, rows), Ordering::Relaxed);
        Ok(())
    }

    /// Waits for the end of the program.
    pub async fn wait(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    async fn kill(&self) {
        self.signal_all(Signal::SIGHUP).await;
        // Jobs that a shell has stopped do not notice otherwise.
        self.signal_all(Signal::SIGCONT).await;
        let gone = async {
            self.wait().await;
            while !self.mark.living().await.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(HANG_UP, gone).await.is_err() {
            self.signal_all(Signal::SIGKILL).await;
            let _ = tokio::time::timeout(Duration::from_secs(5), self.wait()).await;
        }
    }

    async fn signal_all(&self, signal: Signal) {
        if !self.reaped.load(Ordering::Acquire) {
            signal_tree(self.pid, signal as i32).await;
        }
        self.mark.signal(signal).await;
    }

    fn over(&self) -> Error {
        Error::Conflict(format!("the program of terminal {} has ended", self.id))
    }
}

/// One who looks at a terminal.
pub struct View {
    pub reader: Reader,
    viewers: Arc<AtomicUsize>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Carries what is shown to the tape until the program ends.
async fn drive(terminal: Arc<Terminal>, mut reading: OwnedReadPty, mut child: tokio::process::Child, limit: Option<Duration>) {
    let mut buffer = vec![0; 16 << 10];
    let mut timed_out = false;
    let end = limit.map(|limit| tokio::time::Instant::now() + limit);
    let over = async {
        match end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    let mut over = std::pin::pin!(over);
    let status = loop {
        tokio::select! {
            read = reading.read(&mut buffer) => match read {
                Ok(count @ 1..) => terminal.output.write_with_patience(Source::Stdout, &buffer[..count]).await,
                // All who had it open are gone; the program may live on without it.
                _ => break child.wait().await,
            },
            () = &mut over, if !timed_out => {
                timed_out = true;
                terminal.signal_all(Signal::SIGKILL).await;
            }
            status = child.wait() => {
                terminal.reaped.store(true, Ordering::Release);
                // As a whole, because a child that goes on printing is not the program.
                let last_words = async {
                    while let Ok(count @ 1..) = reading.read(&mut buffer).await {
                        terminal.output.write_with_patience(Source::Stdout, &buffer[..count]).await;
                    }
                };
                let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
                break status;
            }
        }
    };
    terminal.reaped.store(true, Ordering::Release);
    let status = match status {
        Ok(status) => status.signal().map_or_else(|| Status::Exited(status.code().unwrap_or(0)), Status::Signalled),
        Err(_) => Status::Exited(0),
    };
    let _ = terminal.end.set(exit(status, timed_out));
    terminal.output.finish();
    terminal.ended.send_replace(true);
    *terminal.input.lock().await = None;
}

fn checked_size(cols: u16, rows: u16) -> Result<(u16, u16)> {
    if !(1..=SIZE_LIMIT).contains(&cols) || !(1..=SIZE_LIMIT).contains(&rows) {
        return Err(Error::Invalid(format!("{cols} columns and {rows} rows: both have to be from 1 to {SIZE_LIMIT}")));
    }
    Ok((cols, rows))
}

fn packed(cols: u16, rows: u16) -> u32 {
    u32::from(cols) << 16 | u32::from(rows)
}

fn bad_variable(name: &str, value: Option<&str>) -> bool {
    name.is_empty() || name.contains(['=', '\0']) || value.is_some_and(|value| value.contains('\0'))
}

#[cfg(test)]
mod tests;
