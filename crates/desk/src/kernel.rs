//! Kernels: Python interpreters that run one piece of code after another and remember what it defined.
//!
//! Each is a program in the background that is told code by a line of JSON, and tells what the code does by lines of JSON
//! (`kernel/worker.py`). It is told the next piece once the one before has ended, so an interrupt never hits the wrong one.
//! The code can write where the worker does, so nothing that comes from there is believed to be short, or to make sense.

use crate::error::{Error, Result};
use crate::files;
use crate::place::Place;
use crate::process::jobs::Job;
use crate::process::tape::{Next, Source};
use crate::process::{Command, Processes};
use bytes::BytesMut;
use hotdesk_api::kernel::{ExecuteCode, Kernel as Described, KernelEvent, NewKernel, Outcome};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::codec::{Decoder, LinesCodec};

const WORKER: &str = include_str!("kernel/worker.py");
/// Kernels at a time. Each is a process of some 10 MiB, before it imports anything.
pub const KERNEL_LIMIT: usize = 64;
/// Pieces of code that run or wait in one kernel. Each may have as much as a request holds.
const WAITING: usize = 16;
/// The longest line that is waited for: code that writes where the worker does need not end any.
const LONGEST_LINE: usize = 1 << 20;
/// Events that wait for a slow client before the code itself has to wait.
const EVENTS: usize = 16;
/// Names are parts of addresses.
const LONGEST_NAME: usize = 128;
/// How long Python may take to start, from a cold disk.
const START: Duration = Duration::from_secs(60);
/// How long a kernel may take to read code.
const READS: Duration = Duration::from_secs(30);
/// Code that is interrupted gets so long to end, twice: by itself, and with the programs that it waits for.
const INTERRUPTED: Duration = Duration::from_secs(1);
/// How long what a kernel started may take to end when it is closed.
const GRACE: Duration = Duration::from_secs(2);
/// What is kept of the words of a Python that does not start.
const WORDS: usize = 4 << 10;

/// The kernel engine. Cheap to clone.
#[derive(Clone)]
pub struct Kernels {
    place: Arc<Place>,
    processes: Processes,
    table: Arc<Mutex<BTreeMap<String, Arc<Kernel>>>>,
    /// One is started at a time, so that a name is not taken twice.
    starting: Arc<tokio::sync::Mutex<()>>,
}

/// One kernel.
pub struct Kernel {
    name: String,
    cwd: String,
    job: Arc<Job>,
    jobs: crate::process::jobs::Jobs,
    /// Whoever has it runs code; how many pieces ran before.
    turn: tokio::sync::Mutex<u64>,
    /// Who runs code or waits for it.
    waiting: AtomicUsize,
    /// Where what is told goes: the number of the code, and who listens.
    listener: Mutex<Option<(u64, mpsc::Sender<Told>)>>,
    ready: watch::Sender<bool>,
    /// Why it was ended by us, if it was.
    ended: OnceLock<String>,
    /// The last words of a Python that did not start.
    words: Mutex<Vec<u8>>,
}

/// A line of the worker.
#[derive(Debug, Deserialize)]
struct Line {
    request: Option<u64>,
    #[serde(flatten)]
    told: Told,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Told {
    Ready,
    Stdout { data: String },
    Stderr { data: String },
    Result { data: String },
    Error { name: String, value: String, traceback: String },
    End,
}

impl Kernels {
    pub fn new(place: Arc<Place>, processes: Processes) -> Self {
        Self { place, processes, table: Arc::default(), starting: Arc::default() }
    }

    /// Starts a kernel, and waits until it can be told something.
    pub async fn start(&self, wanted: NewKernel) -> Result<Arc<Kernel>> {
        let name = wanted.name.unwrap_or_else(|| format!("{:016x}", rand::random::<u64>()));
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(|c| c.is_control() || c == '/') {
            let text = format!("a kernel's name is 1 to {LONGEST_NAME} visible characters, none of them a slash");
            return Err(Error::Invalid(text));
        }
        let _one = self.starting.lock().await;
        if self.table().get(&name).is_some_and(|kernel| kernel.job.exit().is_none()) {
            return Err(Error::Conflict(format!("there is a kernel `{name}` already")));
        }
        if self.table().len() >= KERNEL_LIMIT {
            return Err(Error::TooMany { what: "kernels", limit: KERNEL_LIMIT });
        }
        let mut command = Command::new(["python3", "-c", WORKER]);
        command.env = wanted.env;
        if let Some(name) = command.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(Error::Invalid(format!("`env`: `{}` can't be the name of a variable", name.escape_default())));
        }
        let cwd = wanted.cwd.map_or(Ok(self.place.home.clone()), |cwd| files::resolve(&self.place, &cwd))?;
        if !cwd.is_dir() {
            return Err(Error::NotFound(format!("`cwd`: {} is not a directory", cwd.display())));
        }
        command.cwd = Some(cwd.clone());
        let jobs = self.processes.jobs().clone();
        let job = match jobs.start_with(&self.processes, command, None, true).await {
            Err(Error::NotFound(_)) => return Err(missing()),
            job => job?,
        };
        let kernel = Arc::new(Kernel {
            name: name.clone(),
            cwd: cwd.to_string_lossy().into_owned(),
            job,
            jobs,
            turn: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::new(0),
            listener: Mutex::default(),
            ready: watch::channel(false).0,
            ended: OnceLock::new(),
            words: Mutex::default(),
        });
        self.table().insert(name.clone(), kernel.clone());
        let (table, heard) = (self.table.clone(), kernel.clone());
        tokio::spawn(async move {
            heard.hear().await;
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            // The name may be another one's by now.
            if table.get(&heard.name).is_some_and(|kernel| Arc::ptr_eq(kernel, &heard)) {
                table.remove(&heard.name);
            }
            drop(table);
            *lock(&heard.listener) = None;
        });
        let mut ready = kernel.ready.subscribe();
        let ready = tokio::select! {
            ready = timeout(START, ready.wait_for(|ready| *ready)) => ready.is_ok(),
            () = kernel.job.wait() => false,
        };
        if ready {
            return Ok(kernel);
        }
        self.table().remove(&name);
        kernel.end().await;
        let reason = String::from_utf8_lossy(&lock(&kernel.words)).trim().to_owned();
        let reason = if reason.is_empty() { "`python3` ended, or said nothing for too long".into() } else { reason };
        Err(Error::Unsupported {
            what: "a kernel".into(),
            reason,
            hint: "look at the desk's `python3`: it does not start".into(),
        })
    }

    pub fn list(&self) -> Vec<Described> {
        self.table().values().filter(|kernel| kernel.is_usable()).map(|kernel| kernel.describe()).collect()
    }

    /// How many wait for code.
    pub fn idle(&self) -> usize {
        self.table().values().filter(|kernel| kernel.is_usable() && !kernel.is_busy()).count()
    }

    pub fn get(&self, name: &str) -> Result<Arc<Kernel>> {
        let missing = || Error::NotFound(format!("there is no kernel `{}`; it has ended, or never was", name.escape_default()));
        self.table().get(name).filter(|kernel| kernel.is_usable()).cloned().ok_or_else(missing)
    }

    /// Ends a kernel with everything that it started.
    pub async fn close(&self, name: &str) -> Result<()> {
        let kernel = self.get(name)?;
        self.table().remove(name);
        let _ = kernel.ended.set("the kernel was closed".into());
        kernel.end().await;
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Kernel>>> {
        lock(&self.table)
    }
}

impl Kernel {
    pub fn describe(&self) -> Described {
        let info = self.job.info();
        let (name, cwd) = (self.name.clone(), self.cwd.clone());
        Described { name, pid: info.pid, cwd, started_ms: info.started_ms, busy: self.is_busy() }
    }

    /// Runs code after what was sent before it. The last event says how it ended; whoever drops the events interrupts the code.
    pub fn execute(self: &Arc<Self>, code: ExecuteCode) -> Result<mpsc::Receiver<KernelEvent>> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(Error::TooMany { what: "pieces of code that wait in this kernel", limit: WAITING });
        }
        let (events, receiver) = mpsc::channel(EVENTS);
        let until = code.timeout_ms.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        let kernel = self.clone();
        tokio::spawn(async move {
            let (outcome, reason) = kernel.run(code, &events, until).await;
            kernel.waiting.fetch_sub(1, Ordering::SeqCst);
            // Whoever has left need not know.
            let _ = events.send(KernelEvent::End { outcome, reason }).await;
        });
        Ok(receiver)
    }

    /// Interrupts the code that runs, as Ctrl-C does. What waits behind it runs then.
    pub async fn interrupt(&self) -> Result<()> {
        self.job.signal("INT", false).await
    }

    /// It has started and not ended.
    fn is_usable(&self) -> bool {
        *self.ready.borrow() && self.job.exit().is_none()
    }

    fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    async fn run(
        &self,
        code: ExecuteCode,
        events: &mpsc::Sender<KernelEvent>,
        until: Option<Instant>,
    ) -> (Outcome, Option<String>) {
        let stop = async {
            tokio::select! {
                () = events.closed() => Stop::Left,
                () = late(until) => Stop::Late,
            }
        };
        tokio::pin!(stop);
        let mut turn = tokio::select! {
            biased;
            // What has not begun waits behind the code of others, which is not for this one to end.
            why = &mut stop => return why.outcome(None),
            turn = self.turn.lock() => turn,
        };
        *turn += 1;
        let request = *turn;
        let (listener, mut told) = mpsc::channel(1);
        *lock(&self.listener) = Some((request, listener));
        let line = json!({"request": request, "code": code.code, "env": code.env, "result": code.result}).to_string() + "\n";
        // A kernel whose turn it is reads at once. From here on the code runs and has an end, whoever waits for it.
        let told_it = timeout(READS, self.job.write(line.as_bytes())).await;
        if !matches!(told_it, Ok(Ok(()))) {
            self.end().await;
            return (Outcome::Died, Some(self.why_ended()));
        }
        let work = async {
            while let Some(next) = told.recv().await {
                match next.event() {
                    Some(event) => events.send(event).await.ok()?,
                    None => return Some(()),
                }
            }
            None
        };
        let ended = tokio::select! {
            ended = work => Ok(ended),
            why = &mut stop => Err(why),
        };
        let answer = match ended {
            Ok(Some(())) => (Outcome::Done, None),
            // Nobody listens, or the kernel is gone.
            Ok(None) if events.is_closed() => Stop::Left.outcome(self.stop(&mut told).await),
            Ok(None) => (Outcome::Died, Some(self.why_ended())),
            Err(why) => why.outcome(self.stop(&mut told).await),
        };
        *lock(&self.listener) = None;
        answer
    }

    /// Makes code end: by an interrupt, then by one to all programs of the kernel, and at last with the kernel, whose end is told.
    async fn stop(&self, told: &mut mpsc::Receiver<Told>) -> Option<String> {
        for group in [false, true] {
            if self.job.exit().is_some() {
                break;
            }
            let _ = match group {
                false => self.interrupt().await,
                true => killpg(Pid::from_raw(self.job.info().pid as i32), Signal::SIGINT).map_err(Error::internal),
            };
            let over = async { while told.recv().await.is_some_and(|told| told != Told::End) {} };
            if timeout(INTERRUPTED, over).await.is_ok() && self.job.exit().is_none() {
                return None;
            }
        }
        if self.job.exit().is_none() {
            let _ = self.ended.set("the code went on after it was interrupted: the kernel was ended".into());
        }
        told.close();
        self.end().await;
        Some(self.why_ended())
    }

    fn why_ended(&self) -> String {
        self.ended.get().map_or("the kernel ended", String::as_str).to_owned()
    }

    /// Ends it with everything that it started.
    async fn end(&self) {
        // It may be forgotten among the jobs already, if it ended by itself.
        let _ = self.jobs.end(self.job.info().id, GRACE).await;
    }

    /// Hands on what the worker tells, until the kernel ends.
    async fn hear(&self) {
        let mut reader = self.job.output.read(0);
        let (mut lines, mut held) = (LinesCodec::new_with_max_length(LONGEST_LINE), BytesMut::new());
        while let Some(next) = reader.next().await {
            match next {
                Next::Data { source: Source::Stdout, bytes, .. } => held.extend_from_slice(&bytes),
                Next::Data { bytes, .. } => self.complain(&bytes),
                Next::Lost(_) => {}
            }
            loop {
                match lines.decode(&mut held) {
                    Ok(Some(line)) => self.pass_on(&line).await,
                    Ok(None) => break,
                    Err(_) => {
                        let text =
                            format!("a line of the kernel is longer than {} KiB, or no text: it was ended", LONGEST_LINE >> 10);
                        let _ = self.ended.set(text);
                        // Nobody reads what it writes any more: it gets no time.
                        drop(reader);
                        let _ = self.jobs.end(self.job.info().id, Duration::ZERO).await;
                        return;
                    }
                }
            }
        }
        self.job.wait().await;
    }

    async fn pass_on(&self, line: &str) {
        // What is no line of the worker was written by the code to where it does not belong.
        let Ok(Line { request, told }) = serde_json::from_str(line) else { return };
        if told == Told::Ready {
            self.ready.send_replace(true);
            return;
        }
        let listener = lock(&self.listener).clone();
        if let Some((_, listener)) = listener.filter(|(number, _)| Some(*number) == request) {
            // Whoever does not listen any more misses nothing.
            let _ = listener.send(told).await;
        }
    }

    fn complain(&self, bytes: &[u8]) {
        let mut words = lock(&self.words);
        words.extend_from_slice(bytes);
        let over = words.len().saturating_sub(WORDS);
        words.drain(..over);
    }
}

impl Told {
    /// For the client; none is the end.
    fn event(self) -> Option<KernelEvent> {
        Some(match self {
            Self::Stdout { data } => KernelEvent::Stdout { data },
            Self::Stderr { data } => KernelEvent::Stderr { data },
            Self::Result { data } => KernelEvent::Result { data },
            Self::Error { name, value, traceback } => KernelEvent::Error { name, value, traceback },
            Self::Ready | Self::End => return None,
        })
    }
}

/// Why code is stopped.
enum Stop {
    Left,
    Late,
}

impl Stop {
    /// `ended`: why the kernel went with it.
    fn outcome(self, ended: Option<String>) -> (Outcome, Option<String>) {
        match self {
            Self::Left => (Outcome::Done, ended),
            Self::Late => (Outcome::TimedOut, Some(ended.unwrap_or_else(|| "it took too long and was interrupted".into()))),
        }
    }
}

async fn late(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn missing() -> Error {
    Error::Unsupported {
        what: "a kernel".into(),
        reason: "there is no `python3` on this desk".into(),
        hint: "take a template that has Python (`base`, `code`, `desktop`), or add the package `python3` to yours".into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
