//! Programs in the background: started, left alone, looked at again.
//!
//! A job keeps its last output for whoever comes to read it, and its end for whoever comes to ask.

use super::tape::{Source, Tape};
use super::{Command, Event, Mark, Process, Processes, Status, Stdin};
use crate::error::{Error, Result};
use hotdesk_api::process::{Exit, ProcessInfo};
use nix::libc;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Jobs that run at a time, more than programs of agents ever start at once. Each has two pipes and up to `OUTPUT` bytes.
pub const RUNNING_LIMIT: usize = 1024;
/// Jobs whose end is remembered; the oldest are forgotten.
pub const ENDED_LIMIT: usize = 64;
/// How long the end of a job is kept for whoever started it to be read, though there are more: many that are started at once end
/// before the first is read.
const READER_COMES: Duration = Duration::from_secs(30);
/// Output that is kept of each job.
const OUTPUT: usize = 1 << 20;
/// How often a dying tree is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// All jobs of a desk. Cheap to clone.
#[derive(Clone, Default)]
pub struct Jobs(Arc<Mutex<BTreeMap<u64, Arc<Job>>>>);

/// What a client said of a program, for lists.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub tag: Option<String>,
}

/// One program in the background.
pub struct Job {
    process: Process,
    noted: Noted,
    mark: Mark,
    /// What it printed.
    pub output: Tape,
    stdin: tokio::sync::Mutex<Option<Stdin>>,
    end: OnceLock<(Exit, SystemTime)>,
    ended: watch::Sender<bool>,
}

impl Jobs {
    pub async fn start(&self, engine: &Processes, command: Command) -> Result<Arc<Job>> {
        self.start_with(engine, command, None, false).await
    }

    /// With the client's name for it; with `patient`, it waits for whoever reads its output.
    pub async fn start_with(
        &self,
        engine: &Processes,
        mut command: Command,
        tag: Option<String>,
        patient: bool,
    ) -> Result<Arc<Job>> {
        if self.table().values().filter(|job| job.end.get().is_none()).count() >= RUNNING_LIMIT {
            return Err(Error::TooMany { what: "programs in the background", limit: RUNNING_LIMIT });
        }
        let noted = Noted {
            env: command.env.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect(),
            cwd: command.cwd.as_ref().map(|cwd| cwd.to_string_lossy().into_owned()),
            tag,
        };
        let mark = Mark::new();
        let (name, value) = mark.variable();
        command.env.insert(name, Some(value));
        let running = engine.start(command).await?;
        let job = Arc::new(Job {
            process: running.process,
            noted,
            mark,
            output: if patient { Tape::patient(OUTPUT) } else { Tape::new(OUTPUT) },
            stdin: tokio::sync::Mutex::new(running.stdin),
            end: OnceLock::new(),
            ended: watch::channel(false).0,
        });
        self.remember(job.clone());
        let (watched, mut events) = (job.clone(), running.events);
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                match event {
                    Event::Stdout(data) => watched.output.write_with_patience(Source::Stdout, &data).await,
                    Event::Stderr(data) => watched.output.write_with_patience(Source::Stderr, &data).await,
                    Event::Exit { status, timed_out } => watched.finish(exit(status, timed_out)),
                }
            }
        });
        Ok(job)
    }

    pub fn list(&self) -> Vec<Arc<Job>> {
        self.table().values().cloned().collect()
    }

    pub fn get(&self, id: u64) -> Result<Arc<Job>> {
        let missing = || Error::NotFound(format!("there is no program {id} in the background; it was ended, or is forgotten"));
        self.table().get(&id).cloned().ok_or_else(missing)
    }

    /// Ends a job with everything that it started, and forgets it.
    pub async fn end(&self, id: u64, grace: Duration) -> Result<ProcessInfo> {
        let job = self.get(id)?;
        job.kill(grace).await;
        self.table().remove(&id);
        Ok(job.info())
    }

    fn remember(&self, job: Arc<Job>) {
        let mut table = self.table();
        table.insert(job.process.info.id, job);
        let (mut ended, mut awaited) = (Vec::new(), Vec::new());
        for (id, job) in table.iter() {
            let Some((_, when)) = job.end.get() else { continue };
            let soon = when.elapsed().is_ok_and(|since| since < READER_COMES) && job.output.awaits_its_reader();
            if soon { &mut awaited } else { &mut ended }.push(*id);
        }
        let over = |ids: &[u64], limit: usize| ids[..ids.len().saturating_sub(limit)].to_vec();
        for id in [over(&ended, ENDED_LIMIT), over(&awaited, RUNNING_LIMIT)].concat() {
            table.remove(&id);
        }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Job>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    pub fn info(&self) -> ProcessInfo {
        let info = &self.process.info;
        let end = self.end.get();
        ProcessInfo {
            id: info.id,
            pid: info.pid,
            argv: info.argv.clone(),
            running: end.is_none(),
            exit: end.map(|(exit, _)| exit.clone()),
            started_ms: milliseconds(info.started),
            ended_ms: end.map(|(_, when)| milliseconds(*when)),
            output_bytes: self.output.written(),
            env: self.noted.env.clone(),
            cwd: self.noted.cwd.clone(),
            tag: self.noted.tag.clone(),
        }
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<&Exit> {
        self.end.get().map(|(exit, _)| exit)
    }

    /// Writes to the program, waiting for it to read.
    pub async fn write(&self, data: &[u8]) -> Result<()> {
        let mut stdin = self.stdin.lock().await;
        let Some(pipe) = stdin.as_mut() else {
            return Err(Error::Conflict("the program's input was closed".into()));
        };
        // A program that never reads must not hold this for ever once it has ended.
        let written = tokio::select! {
            written = pipe.write(data) => written,
            () = self.wait() => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|e| {
            *stdin = None;
            Error::Conflict(format!("the program reads no more: {e}"))
        })
    }

    /// Ends the program's input.
    pub async fn close_stdin(&self) {
        *self.stdin.lock().await = None;
    }

    pub async fn signal(&self, name: &str, tree: bool) -> Result<()> {
        let signal = parse_signal(name)?;
        if self.end.get().is_some() {
            return Err(Error::Conflict(format!("program {} has ended", self.process.info.id)));
        }
        if tree {
            self.process.signal_tree(signal as i32).await;
            return Ok(());
        }
        self.process.signal(signal as i32)
    }

    /// Waits for the end of the program.
    pub async fn wait(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Ends the program and everything that it started: asks first, and kills what is left after `grace`.
    async fn kill(&self, grace: Duration) {
        self.signal_all(Signal::SIGTERM).await;
        let gone = async {
            while self.end.get().is_none() || !self.mark.living().await.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(grace, gone).await.is_ok() {
            return;
        }
        self.signal_all(Signal::SIGKILL).await;
        // Nothing survives that, but the system may take its time, and a disk that hangs all of it.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.wait()).await;
    }

    async fn signal_all(&self, signal: Signal) {
        // Once the program was reaped its number may belong to a stranger; the mark never does.
        if self.process.status().is_none() {
            self.process.signal_tree(signal as i32).await;
        }
        self.mark.signal(signal).await;
    }

    fn finish(&self, exit: Exit) {
        let _ = self.end.set((exit, SystemTime::now()));
        self.output.finish();
        self.ended.send_replace(true);
    }
}

/// `TERM`, `SIGTERM`, `sigterm` or `15`.
pub fn parse_signal(text: &str) -> Result<Signal> {
    let unknown = || Error::Invalid(format!("`{}` is not a signal: write `TERM`, `SIGTERM` or `15`", text.escape_default()));
    if let Ok(number) = text.parse::<i32>() {
        return Signal::try_from(number).map_err(|_| unknown());
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    name.parse().map_err(|_| unknown())
}

/// The end of a program as clients see it.
pub fn exit(status: Status, timed_out: bool) -> Exit {
    match status {
        Status::Exited(code) => Exit { exit_code: Some(code), signal: None, timed_out },
        Status::Signalled(number) => {
            let name = Signal::try_from(number).map_or_else(|_| format!("SIG{number}"), |signal| signal.as_str().to_owned());
            Exit { exit_code: None, signal: Some(name), timed_out }
        }
    }
}

pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// All processes that can be seen, by their numbers.
pub fn system() -> Vec<hotdesk_api::process::SystemProcess> {
    /// Longer command lines say nothing more.
    const ARGV: usize = 4096;
    let Ok(all) = procfs::process::all_processes() else { return Vec::new() };
    let (tick, page) = (procfs::ticks_per_second().max(1), procfs::page_size());
    let to_ms = |ticks: u64| ticks.saturating_mul(1000) / tick;
    let mut found: Vec<_> = all
        .flatten()
        .filter_map(|process| {
            // It may end while it is looked at.
            let stat = process.stat().ok()?;
            let mut argv = process.cmdline().unwrap_or_default();
            let mut room = ARGV;
            for argument in &mut argv {
                *argument = argument.chars().take(room).collect();
                room = room.saturating_sub(argument.len());
            }
            Some(hotdesk_api::process::SystemProcess {
                pid: stat.pid,
                parent: stat.ppid,
                user: process.uid().unwrap_or(libc::uid_t::MAX),
                name: stat.comm,
                argv,
                state: stat.state.to_string(),
                cpu_ms: to_ms(stat.utime.saturating_add(stat.stime)),
                memory_bytes: stat.rss.saturating_mul(page),
                started_after_ms: to_ms(stat.starttime),
            })
        })
        .collect();
    found.sort_unstable_by_key(|process| process.pid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::place;

    fn engine() -> Processes {
        Processes::new(Arc::new(place(std::path::Path::new("/tmp"))))
    }

    fn sh(script: &str) -> Command {
        Command::new(["/bin/sh", "-c", script])
    }

    async fn line(job: &Job) -> String {
        let mut reader = job.output.read(0);
        let mut text = String::new();
        while !text.contains('\n') {
            match reader.next().await {
                Some(super::super::tape::Next::Data { bytes, .. }) => text.push_str(&String::from_utf8_lossy(&bytes)),
                _ => break,
            }
        }
        text
    }

    #[tokio::test]
    async fn a_job_is_found_again_talks_and_ends() {
        let engine = engine();
        let job = engine.jobs().start(&engine, sh("read x; echo got $x; exit 3")).await.unwrap();
        let id = job.info().id;
        assert!(job.info().running);
        engine.jobs().get(id).unwrap().write(b"this\n").await.unwrap();
        job.wait().await;
        assert_eq!(line(&job).await, "got this\n");
        let info = engine.jobs().get(id).unwrap().info();
        assert_eq!((info.running, info.exit.unwrap().exit_code, info.output_bytes), (false, Some(3), 9));
        assert!(matches!(job.write(b"x").await, Err(Error::Conflict(_))));
        assert!(matches!(job.signal("TERM", false).await, Err(Error::Conflict(_))));
    }

    /// Living processes that carry the mark of a job, its daemons too.
    async fn living(job: &Job) -> Vec<i32> {
        job.mark.living().await
    }

    #[tokio::test]
    async fn ending_leaves_nothing_behind() {
        let engine = engine();
        // A child, one in another session, a daemon that lost its parents, and one that does not want to go.
        let script = "sleep 300 & setsid sleep 300 & (setsid sh -c 'sleep 300 & sleep 300' &) ; \
                      sh -c 'trap \"\" TERM; echo ready; while :; do sleep 0.05; done' & wait";
        let job = engine.jobs().start(&engine, sh(script)).await.unwrap();
        assert_eq!(line(&job).await, "ready\n");
        let begin = std::time::Instant::now();
        while living(&job).await.len() < 6 && begin.elapsed() < Duration::from_secs(20) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let info = engine.jobs().end(job.info().id, Duration::from_millis(300)).await.unwrap();
        assert!(!info.running);
        let begin = std::time::Instant::now();
        while !living(&job).await.is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?} live on", living(&job).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(engine.jobs().get(info.id).is_err());
    }

    #[tokio::test]
    async fn a_polite_job_ends_at_once() {
        let engine = engine();
        let job = engine.jobs().start(&engine, sh("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")).await.unwrap();
        line(&job).await;
        let info = engine.jobs().end(job.info().id, Duration::from_secs(60)).await.unwrap();
        assert_eq!(info.exit.unwrap().exit_code, Some(7));
    }

    #[tokio::test]
    async fn ended_jobs_are_forgotten_in_time() {
        let engine = engine();
        for _ in 0..ENDED_LIMIT + 10 {
            engine.jobs().start(&engine, Command::new(["true"])).await.unwrap().wait().await;
        }
        let job = engine.jobs().start(&engine, Command::new(["true"])).await.unwrap();
        job.wait().await;
        assert_eq!(engine.jobs().list().len(), ENDED_LIMIT + 1);
    }

    #[tokio::test]
    async fn what_was_started_to_be_read_waits_for_its_reader() {
        let engine = engine();
        let start = || engine.jobs().start_with(&engine, sh("echo here"), None, true);
        let mut jobs = Vec::new();
        for _ in 0..ENDED_LIMIT + 10 {
            jobs.push(start().await.unwrap());
        }
        for job in &jobs {
            job.wait().await;
        }
        let last = start().await.unwrap();
        last.wait().await;
        for job in jobs {
            let kept = engine.jobs().get(job.info().id).unwrap();
            assert!(matches!(kept.output.read(0).next().await, Some(super::super::tape::Next::Data { .. })));
        }
        // Once they are read they are forgotten like all others.
        start().await.unwrap().wait().await;
        assert_eq!(engine.jobs().list().len(), ENDED_LIMIT + 2);
    }

    #[tokio::test]
    async fn output_without_end_is_bounded() {
        let engine = engine();
        let job = engine.jobs().start(&engine, sh("head -c 20000000 /dev/zero")).await.unwrap();
        job.wait().await;
        assert_eq!(job.info().output_bytes, 20_000_000);
        let mut reader = job.output.read(0);
        assert!(matches!(reader.next().await, Some(super::super::tape::Next::Lost(lost)) if lost > 18_000_000));
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse_signal(text).unwrap(), Signal::SIGTERM);
        }
        for text in ["", "SIG", "999", "-1", "0", "HELLO"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_system_shows_ourselves() {
        let me = std::process::id() as i32;
        let found = system().into_iter().find(|process| process.pid == me).unwrap();
        assert!(found.memory_bytes > 0 && !found.argv.is_empty());
    }
}
