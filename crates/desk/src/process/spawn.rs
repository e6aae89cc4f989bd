//! Starting a program: what the system is asked for, step by step.
//!
//! `exec` is called by us and not by the standard library, because the library's way (`execvp`)
//! hands a file that is no program to the shell, and tells less about what went wrong.

use super::{Command, Failure};
use crate::place::Place;
use nix::libc;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::net::unix::pipe;

/// Where programs are looked for when the place has no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A file that was just written can't be executed while a program that another thread is starting
/// has not yet let go of the descriptor it was written by. That takes less than a millisecond;
/// ten rounds of twice that are enough.
const BUSY_TRIES: usize = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// The highest number of a real-time signal on Linux.
const LAST_SIGNAL: i32 = 64;

/// Which pipes a program gets; /dev/null in place of the others.
#[derive(Clone, Copy)]
pub(super) struct Plumbing {
    pub(super) stdin: bool,
    pub(super) output: bool,
    /// One pipe for both outputs.
    pub(super) merge: bool,
}

/// A program that runs, and our ends of its pipes.
pub(super) struct Child {
    pub(super) process: tokio::process::Child,
    pub(super) pid: u32,
    pub(super) stdin: Option<pipe::Sender>,
    pub(super) stdout: Option<pipe::Receiver>,
    pub(super) stderr: Option<pipe::Receiver>,
}

/// Starts a program. Nothing has run if this fails.
pub(super) async fn spawn(place: &Place, command: &Command, plumbing: Plumbing) -> Result<Child, Failure> {
    let plan = Plan::new(place, command)?;
    let runtime = tokio::runtime::Handle::current();
    // The system answers only once the program is loaded, which takes its time on a slow disk.
    let started = tokio::task::spawn_blocking(move || {
        let _inside = runtime.enter();
        plan.carry_out(plumbing)
    });
    started.await.map_err(|e| Failure::Lost(e.to_string()))?
}

/// Looks for a program as the desk's programs would: in the `PATH` of the place.
pub fn find_program(place: &Place, name: &str) -> Option<PathBuf> {
    candidates(place.env.get("PATH").map(String::as_str), name).map(|path| place.home.join(path)).find(|path| {
        // SAFETY: the path is a valid C string for the time of the call.
        let runs = CString::new(path.as_os_str().as_bytes()).is_ok_and(|p| unsafe { libc::access(p.as_ptr(), libc::X_OK) } == 0);
        runs && path.is_file()
    })
}

/// The text of a system error, without a number.
pub(super) fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn candidates(path: Option<&str>, name: &str) -> impl Iterator<Item = PathBuf> {
    let dirs = if name.contains('/') { "" } else { path.unwrap_or(DEFAULT_PATH) };
    dirs.split(':').map(move |dir| Path::new(dir).join(name))
}

/// Everything that the new process needs, made ready before it exists: between `fork` and `exec`
/// nothing may be allocated.
#[derive(Clone)]
struct Plan {
    name: String,
    files: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
}

impl Plan {
    fn new(place: &Place, command: &Command) -> Result<Self, Failure> {
        let name = command.argv.first().ok_or(Failure::Empty)?.clone();
        let mut env = place.environment_now();
        for (key, value) in &command.env {
            match value {
                Some(value) => env.insert(key.clone(), value.clone()),
                None => env.remove(key),
            };
        }
        let path = env.get("PATH").cloned();
        let files = candidates(path.as_deref(), &name).map(c_string).collect::<Result<_, _>>()?;
        let argv = command.argv.iter().map(c_string).collect::<Result<_, _>>()?;
        let env = env.iter().map(|(key, value)| c_string(format!("{key}={value}"))).collect::<Result<_, _>>()?;
        let cwd = match &command.cwd {
            Some(dir) => c_string(place.home.join(dir))?,
            None => c_string(&place.home)?,
        };
        Ok(Self { name, files, argv, env, cwd })
    }

    fn carry_out(self, plumbing: Plumbing) -> Result<Child, Failure> {
        for _ in 0..BUSY_TRIES {
            match self.try_once(plumbing) {
                Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => std::thread::sleep(BUSY_PAUSE),
                result => return result.map_err(|e| self.failure(&e)),
            }
        }
        self.try_once(plumbing).map_err(|e| self.failure(&e))
    }

    fn failure(&self, error: &std::io::Error) -> Failure {
        let cwd = Path::new(OsStr::from_bytes(self.cwd.as_bytes()));
        let name = if cwd.is_dir() { self.name.clone() } else { cwd.to_string_lossy().into_owned() };
        Failure::Start { errno: error.raw_os_error().unwrap_or(libc::EIO), name }
    }

    fn try_once(&self, plumbing: Plumbing) -> std::io::Result<Child> {
        let mut command = std::process::Command::new(OsStr::from_bytes(self.argv[0].as_bytes()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (mut stdin, mut stdout, mut stderr) = (None, None, None);
        if plumbing.stdin {
            let (reader, writer) = std::io::pipe()?;
            command.stdin(reader);
            stdin = Some(pipe::Sender::from_owned_fd(writer.into())?);
        }
        if plumbing.output {
            let (reader, writer) = std::io::pipe()?;
            if plumbing.merge {
                command.stderr(writer.try_clone()?);
            }
            command.stdout(writer);
            stdout = Some(pipe::Receiver::from_owned_fd(reader.into())?);
        }
        if plumbing.output && !plumbing.merge {
            let (reader, writer) = std::io::pipe()?;
            command.stderr(writer);
            stderr = Some(pipe::Receiver::from_owned_fd(reader.into())?);
        }
        let image = Image::of(self);
        // SAFETY: `become_program` makes system calls only; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || Err(image.become_program())) };
        let process = tokio::process::Command::from(command).spawn()?;
        let pid = process.id().unwrap_or_default();
        Ok(Child { process, pid, stdin, stdout, stderr })
    }
}

fn c_string(text: impl AsRef<OsStr>) -> Result<CString, Failure> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| Failure::Nul)
}

/// A plan in the form that `execve` wants: the arrays of pointers, and what they point to.
struct Image {
    plan: Plan,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

// SAFETY: the pointers go into the strings of `plan`, which live and move with them on the heap
// and are never changed.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    fn of(plan: &Plan) -> Self {
        let plan = plan.clone();
        let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Self { argv: pointers(&plan.argv), env: pointers(&plan.env), plan }
    }

    /// The last steps, inside the new process. Returns only when they fail.
    ///
    /// The library has set up the standard streams and the signal mask before.
    fn become_program(&self) -> std::io::Error {
        // SAFETY: plain system calls on strings that are valid and end with NUL, and on arrays that
        // end with a null pointer.
        unsafe {
            // A session of its own: signals of our terminal don't reach it, and its tree can be found.
            libc::setsid();
            // What we ignore, or were told to ignore by `nohup` or `&`, is not for the program to ignore.
            for signal in 1..=LAST_SIGNAL {
                libc::signal(signal, libc::SIG_DFL);
            }
            if libc::chdir(self.plan.cwd.as_ptr()) != 0 {
                return std::io::Error::last_os_error();
            }
            close_on_exec();
            let mut worst = 0;
            for file in &self.plan.files {
                libc::execve(file.as_ptr(), self.argv.as_ptr(), self.env.as_ptr());
                let errno = *libc::__errno_location();
                // A later directory may still have it; what was refused earlier is what to tell.
                let absent = errno == libc::ENOENT || errno == libc::ENOTDIR;
                if worst == 0 || !absent && (worst == libc::ENOENT || worst == libc::ENOTDIR) {
                    worst = errno;
                }
            }
            std::io::Error::from_raw_os_error(worst)
        }
    }
}

/// Marks every descriptor above the standard ones as not for the new program. Ours are marked
/// already; those that we inherited ourselves are not.
///
/// # Safety
/// To be called between `fork` and `exec`.
unsafe fn close_on_exec() {
    // SAFETY: system calls on numbers; a bad descriptor is an error that is ignored.
    unsafe {
        let done = libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        if done != 0 {
            // Before Linux 5.11. More than these nobody inherits in practice.
            for descriptor in 3..1024 {
                libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}
