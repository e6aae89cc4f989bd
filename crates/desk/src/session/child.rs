//! Processes of the session: started in a group of their own, with clean hands, and never left behind.

use super::log::Log;
use crate::place::Place;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

/// In the words of a command: the number of the descriptor that the program writes to once it is ready.
pub(crate) const READY_FD: &str = "{ready_fd}";

/// What is to be started.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) words: Vec<OsString>,
}

impl Spec {
    pub(crate) fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect() }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        self.words.iter().map(|word| word.to_string_lossy().replace(READY_FD, "FD")).collect::<Vec<_>>().join(" ")
    }
}

/// A process of ours and the group that it leads.
pub(crate) struct Running {
    child: Child,
    pub(crate) pid: u32,
    /// The other end of [`READY_FD`].
    pub(crate) ready: Option<pipe::Receiver>,
}

impl Running {
    /// Starts it in the place of the desk; what it writes goes to the log of its part.
    pub(crate) async fn start(spec: &Spec, part: &str, place: &Place, log: &Log) -> io::Result<Self> {
        let (program, arguments) = spec.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let wants_ready = arguments.iter().any(|word| word == READY_FD);
        let (reader, writer) = if wants_ready { io::pipe().map(|(r, w)| (Some(r), Some(w)))? } else { (None, None) };
        let descriptor = writer.as_ref().map(|writer| writer.as_raw_fd());

        let mut command = Command::new(program);
        command
            .args(arguments.iter().map(|word| match descriptor {
                Some(number) if word == READY_FD => number.to_string().into(),
                _ => word.clone(),
            }))
            .env_clear()
            .envs(&place.env)
            .current_dir(&place.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: only calls that are safe after a fork, and no memory is allocated.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                // Should we be killed in a way that lets us do nothing more, it must not stay.
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
                if let Some(number) = descriptor {
                    // It was made to vanish at exec, as all of ours are; this one is meant for the program.
                    let descriptor = std::os::fd::BorrowedFd::borrow_raw(number);
                    rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
                }
                Ok(())
            });
        }
        let mut child = spawn(command).await?;
        drop(writer);
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(log.clone().drain(part.to_owned(), stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log.clone().drain(part.to_owned(), stderr));
        }
        let ready = reader.map(|reader| pipe::Receiver::from_owned_fd(OwnedFd::from(reader))).transpose()?;
        Ok(Self { child, pid, ready })
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Asks the whole group to end, and after `grace` does not ask any more.
    pub(crate) async fn end(&mut self, grace: Duration) {
        self.signal(Signal::SIGTERM);
        if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
            tracing::warn!(pid = self.pid, "it does not end when asked and is killed");
        }
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait().await;
    }

    fn signal(&self, signal: Signal) {
        signal_group(self.pid, signal);
    }
}

/// Signals a group by the process that leads or led it.
pub(crate) fn signal_group(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 1
    {
        let _ = killpg(Pid::from_raw(pid), signal);
    }
}

/// How a process ended, as half a sentence.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("it was killed by {signal}"),
            Err(_) => format!("it was killed by signal {number}"),
        },
        (None, None) => "it ended".into(),
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Starts a process on a thread that lives as long as we do.
///
/// The kernel sends the death signal of above when the *thread* that made the process ends, and
/// threads of the runtime come and go.
async fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("spawner".into()).stack_size(256 * 1024);
        let started = thread.spawn(move || {
            for job in jobs {
                job();
            }
        });
        if let Err(e) = started {
            tracing::error!(error = %e, "no thread can be started");
        }
        sender
    });
    let (reply, answer) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let job: Job = Box::new(move || {
        let _inside = runtime.enter();
        let _ = reply.send(command.spawn());
    });
    spawner.send(job).map_err(|_| io::Error::other("the thread that starts processes is gone"))?;
    answer.await.map_err(|_| io::Error::other("the thread that starts processes is gone"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Display;
    use std::path::PathBuf;
    use tokio::io::AsyncReadExt;
    use tokio::time::Instant;

    fn place() -> Place {
        Place {
            display: Display { number: 0, cookie: None },
            home: PathBuf::from("/"),
            runtime_dir: PathBuf::from("/tmp"),
            bus: String::new(),
            env: [("PATH", "/usr/bin:/bin"), ("ONLY", "this")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        }
    }

    #[tokio::test]
    async fn it_tells_when_it_is_ready() {
        let log = Log::new(Instant::now());
        let spec = Spec::new(["sh", "-c", "echo up > /proc/self/fd/$0; echo $ONLY; env | wc -l", READY_FD]);
        let mut running = Running::start(&spec, "t", &place(), &log).await.unwrap();
        let mut text = String::new();
        running.ready.take().unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "up\n");
        assert!(running.ended().await.unwrap().success());
    }

    #[tokio::test]
    async fn its_children_end_with_it() {
        let log = Log::new(Instant::now());
        let spec = Spec::new(["sh", "-c", "trap '' TERM; sleep 1000 & echo $! > /proc/self/fd/$0; wait", READY_FD]);
        let mut running = Running::start(&spec, "t", &place(), &log).await.unwrap();
        let mut text = [0; 16];
        let length = running.ready.as_mut().unwrap().read(&mut text).await.unwrap();
        let grandchild: i32 = std::str::from_utf8(&text[..length]).unwrap().trim().parse().unwrap();
        running.end(Duration::from_millis(50)).await;
        // Whoever adopted it reaps it when it likes; a dead one has no command line any more.
        let begin = Instant::now();
        while std::fs::read(format!("/proc/{grandchild}/cmdline")).is_ok_and(|text| !text.is_empty()) {
            assert!(begin.elapsed() < Duration::from_secs(10), "the grandchild lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_said() {
        let log = Log::new(Instant::now());
        let error = Running::start(&Spec::new(["/no/such/program"]), "t", &place(), &log).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
