//! A small process above the desk, which does what an init does: reaps whoever lost its parents,
//! hands signals on, and leaves nobody behind.
//!
//! Programs of a desk start others, which start others, and leave. The kernel gives such orphans to the
//! nearest ancestor that asked for them. That must not be the desk itself, for it waits for its own children
//! one by one and would have to tell them apart from strangers. So the desk is a child of this process,
//! which waits for everybody. It is also what makes hotdesk fit to be process 1 of a container.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Orphans get so long to end when asked; by now their display is gone, so most of them are too.
const GRACE: Duration = Duration::from_millis(500);

/// Which side of the fork we are on.
pub(crate) enum Side {
    /// The desk: the process that does the work. What it writes into the pipe is told to the service
    /// manager by the process above, which is the one that the manager knows.
    Desk { above: Pid, notify: std::io::PipeWriter },
    /// The process above, after the desk ended with this status.
    Over { status: u8 },
}

/// Splits in two. Must be called while there is one thread only.
pub(crate) fn split() -> std::io::Result<Side> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGCHLD] {
        signals.add(signal);
    }
    // Held back before the fork, so that none is lost between it and the loop below.
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (reader, writer) = std::io::pipe()?;
    let above = getpid();
    // SAFETY: there is only this thread, so no lock can be held by another one.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(reader);
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
            if nix::unistd::getppid() != above {
                return Err(std::io::Error::other("the process above died while it started"));
            }
            // A group of its own: Ctrl-C in a terminal reaches the process above, which hands it on once.
            nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
            pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            Ok(Side::Desk { above, notify: writer })
        }
        ForkResult::Parent { child } => {
            drop(writer);
            hand_on_notifications(reader);
            let status = watch(child, &signals);
            end_orphans();
            Ok(Side::Over { status })
        }
    }
}

/// Tells the service manager what the desk says.
fn hand_on_notifications(mut from: std::io::PipeReader) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        // Kept open, so that the desk's writing never fails; a pipe holds far more than it ever writes.
        std::mem::forget(OwnedFd::from(from));
        return;
    }
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if let Some(text) = buffer.get(..length).and_then(|text| std::str::from_utf8(text).ok()) {
                crate::notify::send(text);
            }
        }
    });
}

/// Hands signals on and reaps, until the desk ends. Its exit status.
fn watch(desk: Pid, signals: &SigSet) -> u8 {
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(status) = reap(desk) {
                    return status;
                }
            }
            Ok(signal) => drop(kill(desk, signal)),
            Err(_) => {}
        }
    }
}

/// Reaps all who are dead. The status of the desk if it is among them.
fn reap(desk: Pid) -> Option<u8> {
    let mut status = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == desk => status = Some(u8::try_from(code).unwrap_or(1)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == desk => {
                status = Some(u8::try_from(128 + signal as i32).unwrap_or(255));
            }
            Ok(WaitStatus::StillAlive) | Err(_) => return status,
            Ok(_) => {}
        }
    }
}

/// Ends whoever is left below us.
fn end_orphans() {
    let begin = Instant::now();
    let mut asked = BTreeSet::new();
    loop {
        while !matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive) | Err(_)) {}
        let left = descendants(getpid().as_raw());
        if left.is_empty() {
            return;
        }
        let signal = if begin.elapsed() < GRACE { Signal::SIGTERM } else { Signal::SIGKILL };
        for pid in left {
            if asked.insert((pid, signal as i32)) {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
        if begin.elapsed() > GRACE * 4 {
            return; // What can't be killed is waiting for a disk; nobody can do more.
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All processes below one, the dead ones left out.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<(i32, bool)>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name is in brackets and may hold anything; what follows the last bracket does not.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut fields = rest.split_whitespace();
        let (Some(state), Some(parent)) = (fields.next(), fields.next().and_then(|parent| parent.parse().ok())) else { continue };
        children.entry(parent).or_default().push((pid, !matches!(state, "Z" | "X")));
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for (pid, alive) in children.remove(&parent).unwrap_or_default() {
            next.push(pid);
            if alive {
                found.push(pid);
            }
        }
    }
    found
}

/// Makes sure that no descriptor of whoever started us reaches the desk's programs.
pub(crate) fn close_foreign_descriptors_at_exec() {
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
            && number > 2
        {
            // SAFETY: only a flag is changed, and one that is closed meanwhile answers an error.
            let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
        }
    }
}

/// Files and connections at once. The usual limit of 1024 is less than an X server's clients and a desk's viewers need.
const DESCRIPTORS: u64 = 20_000;

/// Raises the limit of descriptors as far as we may.
pub(crate) fn allow_many_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_at_any_depth() {
        let mut shell =
            std::process::Command::new("sh").args(["-c", "sh -c 'sleep 100 & wait' & wait"]).spawn().expect("there is a shell");
        let begin = Instant::now();
        let below = loop {
            let below = descendants(shell.id() as i32);
            if below.len() == 2 || begin.elapsed() > Duration::from_secs(10) {
                break below;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(below.len(), 2);
        assert!(descendants(std::process::id() as i32).contains(&below[1]));
        for pid in below {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
        shell.wait().unwrap();
    }
}
