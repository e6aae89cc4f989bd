//! Shells: each runs one command after another and remembers its directory, variables and functions between them.
//!
//! The shell reads from a pipe. For each command it is told one line:
//!
//! ```text
//!   eval 'COMMAND' <in >out 2>err; echo NUMBER $?
//! ```
//!
//! `in`, `out` and `err` are FIFOs of that command, so output never mixes with that of another, and what it left running in the
//! background is still heard. The shell's own output carries nothing but how commands ended. A command may be `exec PROGRAM`:
//! the program takes the shell's place, and the end of the shell is the command's.

use crate::error::{Error, Result};
use crate::files;
use crate::place::Place;
use crate::process::jobs::Job;
use crate::process::tape::{Next, Source, Tape};
use crate::process::{Command, Processes};
use hotdesk_api::process::Exit;
use hotdesk_api::shell::{OpenShell, Shell as Described, ShellCommand};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

/// Shells at a time. Each is a process, and every client has a few.
pub const SHELL_LIMIT: usize = 64;
/// Commands that a shell remembers; the oldest that have ended are forgotten.
const COMMANDS: usize = 1000;
/// Commands that wait or run in one shell. Each has three FIFOs.
const WAITING: usize = 64;
/// What is kept of a command's output: a page of a browser as text fits, and so does a build's log.
const OUTPUT: usize = 16 << 20;
/// How much is kept of all commands that a shell remembers, but for the last one.
const OUTPUT_OF_ALL: u64 = 32 << 20;
/// Names are parts of addresses.
const LONGEST_NAME: usize = 128;
/// A command is a part of one line that the shell reads.
const LONGEST_COMMAND: usize = 4 << 20;
/// How long what runs in a shell may take to end when the shell is closed.
const GRACE: Duration = Duration::from_millis(500);
/// What a pipe holds.
const PIECE: usize = 64 << 10;
/// The exit code of a command that never ran because its shell had ended.
const NEVER_RAN: i32 = 255;

/// The shell engine. Cheap to clone.
#[derive(Clone)]
pub struct Shells {
    place: Arc<Place>,
    processes: Processes,
    open: Arc<Mutex<BTreeMap<String, Arc<Shell>>>>,
    /// One is opened at a time, so that a name is not taken twice.
    opening: Arc<tokio::sync::Mutex<()>>,
}

/// One shell.
pub struct Shell {
    name: String,
    job: Arc<Job>,
    /// Where its FIFOs are.
    directory: PathBuf,
    told: Mutex<Told>,
    /// Lines are written whole, and in the order of their numbers.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Told {
    last: u64,
    commands: BTreeMap<u64, Arc<Order>>,
    /// How commands are told that they have ended.
    ends: BTreeMap<u64, oneshot::Sender<i32>>,
}

/// One command.
pub struct Order {
    id: u64,
    text: String,
    pub output: Tape,
    input: tokio::sync::Mutex<Option<pipe::Sender>>,
    end: OnceLock<i32>,
    ended: watch::Sender<bool>,
}

impl Shells {
    pub fn new(place: Arc<Place>, processes: Processes) -> Self {
        Self { place, processes, open: Arc::default(), opening: Arc::default() }
    }

    pub async fn open(&self, request: OpenShell) -> Result<Arc<Shell>> {
        let name = request.name;
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(|c| c.is_control() || c == '/') {
            return Err(Error::Invalid(format!(
                "a shell's name is 1 to {LONGEST_NAME} visible characters, none of them a slash"
            )));
        }
        let _one = self.opening.lock().await;
        if self.table().contains_key(&name) {
            return Err(Error::Conflict(format!("there is a shell `{name}` already")));
        }
        if self.table().len() >= SHELL_LIMIT {
            return Err(Error::TooMany { what: "shells", limit: SHELL_LIMIT });
        }
        let program = ["bash", "sh"].into_iter().find(|program| self.place.find_program(program).is_some());
        let program = program.ok_or_else(|| Error::NotFound("there is no shell on this desk".into()))?;
        let mut command = Command::new([program]);
        command.env = request.env;
        command.cwd = request.cwd.map(|cwd| files::resolve(&self.place, &cwd)).transpose()?;
        let directory = self.place.runtime_dir.join(format!("shell-{:016x}", rand::random::<u64>()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|e| Error::file(format_args!("making {}", directory.display()), &e))?;
        let job = match self.processes.jobs().start(&self.processes, command).await {
            Ok(job) => job,
            Err(error) => {
                let _ = std::fs::remove_dir(&directory);
                return Err(error);
            }
        };
        let shell = Arc::new(Shell {
            name: name.clone(),
            job,
            directory,
            told: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        });
        tokio::spawn(listen(shell.clone()));
        self.table().insert(name, shell.clone());
        Ok(shell)
    }

    pub fn list(&self) -> Vec<Described> {
        self.table().values().map(|shell| shell.describe()).collect()
    }

    pub fn get(&self, name: &str) -> Result<Arc<Shell>> {
        let missing = || Error::NotFound(format!("there is no shell `{}`; it was closed, or never was", name.escape_default()));
        self.table().get(name).cloned().ok_or_else(missing)
    }

    /// Ends a shell with everything that it started, and forgets it.
    pub async fn close(&self, name: &str) -> Result<()> {
        let shell = self.get(name)?;
        self.table().remove(name);
        // It may be forgotten among the jobs already, if it ended long ago.
        let _ = self.processes.jobs().end(shell.job.info().id, GRACE).await;
        let _ = std::fs::remove_dir_all(&shell.directory);
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Shell>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shell {
    pub fn describe(&self) -> Described {
        let info = self.job.info();
        let commands = self.told().commands.values().map(|command| command.describe()).collect();
        Described { name: self.name.clone(), pid: info.pid, running: info.running, started_ms: info.started_ms, commands }
    }

    pub fn command(&self, id: u64) -> Result<Arc<Order>> {
        let missing = || Error::NotFound(format!("the shell `{}` was never told a command {id}, or has forgotten it", self.name));
        self.told().commands.get(&id).cloned().ok_or_else(missing)
    }

    /// Tells the shell a command, which runs when those before it have ended. With `input` it can be written to.
    pub async fn run(&self, text: String, input: bool) -> Result<Arc<Order>> {
        if text.len() > LONGEST_COMMAND || text.contains('\0') {
            return Err(Error::Invalid(format!("a command is at most {LONGEST_COMMAND} bytes long, and none of them is zero")));
        }
        let _order = self.writing.lock().await;
        if self.job.exit().is_some() {
            return Err(Error::Conflict(format!("the shell `{}` has ended; close it and open another", self.name)));
        }
        if self.told().ends.len() >= WAITING {
            return Err(Error::TooMany { what: "commands that wait in this shell", limit: WAITING });
        }
        let id = self.told().last + 1;
        let fifos = Fifos::make(&self.directory, id, input)?;
        let line = format!("eval {} {}; echo {id} $?\n", quoted(&text), fifos.redirections());
        let command = Arc::new(Order {
            id,
            text,
            output: Tape::new(OUTPUT),
            input: tokio::sync::Mutex::new(fifos.input),
            end: OnceLock::new(),
            ended: watch::channel(false).0,
        });
        let (end, ended) = oneshot::channel();
        {
            let mut told = self.told();
            told.last = id;
            told.commands.insert(id, command.clone());
            told.ends.insert(id, end);
            told.forget();
        }
        tokio::spawn(hear(command.clone(), fifos.output, fifos.error, fifos.held, ended));
        // Waits where the pipe is full, for the commands before it.
        match self.job.write(line.as_bytes()).await {
            // A program has taken the shell's place: the command ends with it, without having run.
            Ok(()) | Err(Error::Conflict(_)) => Ok(command),
            Err(e) => Err(e),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, id: u64, code: i32) {
        let end = self.told().ends.remove(&id);
        if let Some(end) = end {
            let _ = end.send(code);
        }
        for kind in ["in", "out", "err"] {
            let _ = std::fs::remove_file(self.directory.join(format!("{id}.{kind}")));
        }
    }
}

impl Told {
    /// Lets go of the oldest that have ended, if there are many or they take much.
    fn forget(&mut self) {
        let mut bytes: u64 = self.commands.values().map(|c| c.output.written().min(OUTPUT as u64)).sum();
        while self.commands.len() > COMMANDS || (bytes > OUTPUT_OF_ALL && self.commands.len() > 1) {
            let Some((id, size)) =
                self.commands.values().find(|c| c.end.get().is_some()).map(|c| (c.id, c.output.written().min(OUTPUT as u64)))
            else {
                return;
            };
            self.commands.remove(&id);
            bytes = bytes.saturating_sub(size);
        }
    }
}

impl Order {
    pub fn describe(&self) -> ShellCommand {
        let exit_code = self.end.get().copied();
        ShellCommand {
            id: self.id,
            command: self.text.clone(),
            running: exit_code.is_none(),
            exit_code,
            output_bytes: self.output.written(),
        }
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.end.get().map(|code| Exit { exit_code: Some(*code), signal: None, timed_out: false })
    }

    /// Waits for its end.
    pub async fn wait(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Writes to the program that reads in it, waiting for it to read.
    pub async fn write(&self, data: &[u8]) -> Result<()> {
        let over = || Error::Conflict("the command has ended, or reads nothing".into());
        let mut input = self.input.lock().await;
        let pipe = input.as_mut().filter(|_| self.end.get().is_none()).ok_or_else(over)?;
        tokio::select! {
            written = pipe.write_all(data) => written.map_err(|e| Error::Conflict(format!("the command reads no more: {e}"))),
            () = self.wait() => Err(over()),
        }
    }

    fn finish(&self, code: i32) {
        let _ = self.end.set(code);
        self.output.finish();
        self.ended.send_replace(true);
    }
}

/// Hears from the shell how commands ended, until it ends itself.
async fn listen(shell: Arc<Shell>) {
    let mut reader = shell.job.output.read(0);
    let mut line = Vec::new();
    while let Some(next) = reader.next().await {
        let Next::Data { source: Source::Stdout, bytes, .. } = next else { continue };
        for byte in bytes {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if let Some((id, code)) = text.split_once(' ').and_then(|(id, code)| Some((id.parse().ok()?, code.parse().ok()?))) {
                shell.ended(id, code);
            }
        }
    }
    // Whatever ran ended with the shell: it was `exit`, or a program that took the shell's place.
    shell.job.wait().await;
    let code = shell.job.exit().map_or(NEVER_RAN, exit_code);
    let left: Vec<u64> = shell.told().ends.keys().copied().collect();
    for (n, id) in left.into_iter().enumerate() {
        shell.ended(id, if n == 0 { code } else { NEVER_RAN });
    }
}

/// As shells tell it: 128 and the signal's number where one ended it.
fn exit_code(exit: &Exit) -> i32 {
    let signal = exit.signal.as_deref().and_then(|name| Signal::from_str(name).ok());
    exit.exit_code.or(signal.map(|signal| 128 + signal as i32)).unwrap_or(NEVER_RAN)
}

/// Keeps what a command prints, also what it left in the background; its end is told when all that it printed before is kept.
async fn hear(
    command: Arc<Order>,
    mut output: pipe::Receiver,
    mut error: pipe::Receiver,
    held: [pipe::Sender; 2],
    mut ended: oneshot::Receiver<i32>,
) {
    let mut held = Some(held);
    let (mut out, mut err) = (vec![0; PIECE], vec![0; PIECE]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        tokio::select! {
            biased;
            read = output.read(&mut out), if out_open => match read {
                Ok(count @ 1..) => command.output.write(Source::Stdout, &out[..count]),
                _ => out_open = false,
            },
            read = error.read(&mut err), if err_open => match read {
                Ok(count @ 1..) => command.output.write(Source::Stderr, &err[..count]),
                _ => err_open = false,
            },
            // Only when there is nothing to read: what was printed before the end was read by now.
            code = &mut ended, if held.is_some() => {
                // From now on the FIFOs end when the last program in the background lets go of them.
                held = None;
                command.finish(code.unwrap_or(NEVER_RAN));
            }
        }
    }
    if held.is_some() {
        command.finish(ended.await.unwrap_or(NEVER_RAN));
    }
}

/// The FIFOs of one command, and our ends of them.
struct Fifos {
    directory: PathBuf,
    id: u64,
    output: pipe::Receiver,
    error: pipe::Receiver,
    /// As long as we hold them, the FIFOs have not ended, even if nobody has opened them yet.
    held: [pipe::Sender; 2],
    input: Option<pipe::Sender>,
}

impl Fifos {
    fn make(directory: &Path, id: u64, input: bool) -> Result<Self> {
        let failed = |e: std::io::Error| Error::file(format_args!("a FIFO in {}", directory.display()), &e);
        let path = |kind: &str| directory.join(format!("{id}.{kind}"));
        for kind in ["in", "out", "err"] {
            nix::unistd::mkfifo(&path(kind), nix::sys::stat::Mode::from_bits_truncate(0o600)).map_err(|e| failed(e.into()))?;
        }
        let open = |kind: &str| -> Result<(pipe::Receiver, pipe::Sender)> {
            let receiver = pipe::OpenOptions::new().open_receiver(path(kind)).map_err(failed)?;
            let sender = pipe::OpenOptions::new().open_sender(path(kind)).map_err(failed)?;
            Ok((receiver, sender))
        };
        let ((output, held_out), (error, held_err)) = (open("out")?, open("err")?);
        let input = match input {
            true => Some(pipe::OpenOptions::new().read_write(true).open_sender(path("in")).map_err(failed)?),
            false => None,
        };
        Ok(Self { directory: directory.to_owned(), id, output, error, held: [held_out, held_err], input })
    }

    fn redirections(&self) -> String {
        let path = |kind: &str| quoted(&self.directory.join(format!("{}.{kind}", self.id)).to_string_lossy());
        let input = if self.input.is_some() { path("in") } else { "/dev/null".into() };
        format!("<{input} >{} 2>{}", path("out"), path("err"))
    }
}

/// As a shell reads it back.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shells(home: &Path) -> Shells {
        let mut place = crate::server::tests::place(home);
        place.runtime_dir = home.to_owned();
        let place = Arc::new(place);
        Shells::new(place.clone(), Processes::new(place))
    }

    async fn open(shells: &Shells, name: &str) -> Arc<Shell> {
        shells.open(OpenShell { name: name.into(), ..OpenShell::default() }).await.unwrap()
    }

    async fn run(shell: &Shell, text: &str) -> (i32, String, String) {
        let command = shell.run(text.into(), false).await.unwrap();
        tokio::time::timeout(Duration::from_secs(30), command.wait()).await.unwrap();
        let (out, err) = said(&command);
        (command.describe().exit_code.unwrap(), out, err)
    }

    fn said(command: &Order) -> (String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        let mut reader = command.output.read(0);
        while let Some(Next::Data { source, bytes, .. }) = reader.try_next() {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if source == Source::Stdout { out.push_str(&text) } else { err.push_str(&text) }
        }
        (out, err)
    }

    #[tokio::test]
    async fn a_shell_remembers_and_tells_streams_and_ends_apart() {
        let home = tempfile::tempdir().unwrap();
        let shells = shells(home.path());
        let shell = open(&shells, "one").await;
        assert_eq!(run(&shell, "cd /; x='it''s'; f() { echo from-f; return 3; }").await.0, 0);
        assert_eq!(run(&shell, "echo \"$PWD $x\"; echo bad >&2; f").await, (3, "/ its\nfrom-f\n".into(), "bad\n".into()));
        assert_ne!(run(&shell, "if then").await.0, 0, "a mistake ends the command, not the shell");
        assert_eq!(run(&shell, "echo 'two\nlines'\necho more").await.1, "two\nlines\nmore\n");
        assert!(matches!(shells.open(OpenShell { name: "one".into(), ..OpenShell::default() }).await, Err(Error::Conflict(_))));
        let large = run(&shell, "head -c 3000000 /dev/zero | tr '\\0' x").await.1;
        assert_eq!(large.len(), 3_000_000);
        shells.close("one").await.unwrap();
        assert!(shells.get("one").is_err());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[tokio::test]
    async fn a_command_can_be_written_to_and_leave_programs_behind() {
        let home = tempfile::tempdir().unwrap();
        let shells = shells(home.path());
        let shell = open(&shells, "one").await;
        let command = shell.run("read line; echo got $line".into(), true).await.unwrap();
        command.write(b"this\n").await.unwrap();
        command.wait().await;
        assert_eq!(said(&command).0, "got this\n");
        assert!(command.write(b"x").await.is_err());
        let command = shell.run("(sleep 0.3; echo late) & echo now".into(), false).await.unwrap();
        command.wait().await;
        assert_eq!(said(&command).0, "now\n");
        let begun = std::time::Instant::now();
        while !said(&command).0.contains("late") {
            assert!(begun.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_program_may_take_the_shells_place() {
        let home = tempfile::tempdir().unwrap();
        let shells = shells(home.path());
        let shell = open(&shells, "one").await;
        let command = shell.run("exec sh -c 'echo here; read x; exit 7'".into(), true).await.unwrap();
        let waits = shell.run("echo never".into(), false).await.unwrap();
        command.write(b"go\n").await.unwrap();
        command.wait().await;
        waits.wait().await;
        assert_eq!((command.describe().exit_code, said(&command).0.as_str()), (Some(7), "here\n"));
        assert_eq!(waits.describe().exit_code, Some(NEVER_RAN));
        assert!(!shell.describe().running);
        assert!(matches!(shell.run("true".into(), false).await, Err(Error::Conflict(_))));
    }
}
