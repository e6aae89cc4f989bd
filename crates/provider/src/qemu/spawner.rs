//! Starts processes that end with this one.
//!
//! The kernel sends the signal of `PR_SET_PDEATHSIG` when the *thread* that made the process ends, and threads of the runtime come and
//! go. So one thread makes them all, and lives as long as we do.

use std::io;
use std::sync::{OnceLock, mpsc};
use tokio::process::{Child, Command};

type Job = Box<dyn FnOnce() + Send>;

/// Starts a process whose `pre_exec` asks for the signal.
pub(super) async fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("spawner".into()).stack_size(256 << 10);
        if let Err(e) = thread.spawn(move || jobs.into_iter().for_each(|job| job())) {
            tracing::error!(error = %e, "no thread can be started");
        }
        sender
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (reply, answer) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let job: Job = Box::new(move || {
        let _inside = runtime.enter();
        let _ = reply.send(command.spawn());
    });
    spawner.send(job).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;

    /// A process that was asked for on a thread that ends at once lives on.
    #[test]
    fn it_outlives_the_thread_that_asked_for_it() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let asked = std::thread::spawn(move || {
            let mut command = Command::new("sleep");
            command.arg("60").kill_on_drop(true);
            // SAFETY: one system call between fork and exec.
            unsafe {
                command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    -1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                });
            }
            handle.block_on(spawn(command)).unwrap()
        });
        let mut child = asked.join().unwrap();
        // The signal of a thread's end is sent while it ends, and `join` returns after that.
        runtime.block_on(async {
            assert!(child.try_wait().unwrap().is_none(), "it ended with the thread that asked for it");
            child.kill().await.unwrap();
        });
    }
}
