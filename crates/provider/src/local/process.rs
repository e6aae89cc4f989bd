//! A process that is known again, also by somebody who did not start it.
//!
//! A number alone is not enough: numbers are used again. The time of the start, which the kernel counts from
//! the boot, tells two processes of one number apart, and the boot's own id tells two boots apart.

use super::cgroup::Used;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process, by number and time of start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// In ticks since the boot, as `/proc/PID/stat` tells it.
    pub(crate) started: u64,
    pub(crate) boot: String,
}

impl Process {
    /// A process that runs now.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let stat = Stat::read(pid)?;
        Ok(Self { pid, started: stat.started, boot: boot()? })
    }

    /// Whether it still runs. A dead one that nobody reaped does not.
    pub(crate) fn is_alive(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
            && Stat::read(self.pid).is_ok_and(|stat| stat.started == self.started && !stat.dead)
    }

    /// Whether it is the first process of a namespace below ours.
    pub(crate) fn is_first_of_its_namespace(&self) -> bool {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.pid)) else { return false };
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let numbers: Vec<_> = numbers.split_whitespace().collect();
        numbers.len() > 1 && numbers.last() == Some(&"1")
    }

    /// A handle that can't come to mean another process.
    pub(crate) fn handle(&self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Asked after the handle was made: what is alive now is what the handle holds.
        self.is_alive().then_some(handle)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(handle) = self.handle() {
            let _ = pidfd_send_signal(handle, signal);
        }
    }

    /// Waits until it is gone; false if it is still there after `limit`.
    pub(crate) async fn gone(&self, limit: Duration) -> bool {
        let Some(handle) = self.handle() else { return true };
        let ended = async {
            // SAFETY: the descriptor is owned by what is registered, and so open as long as it is.
            let handle = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?;
            handle.readable().await.map(drop)
        };
        matches!(tokio::time::timeout(limit, ended).await, Ok(Ok(()))) || !self.is_alive()
    }
}

/// What all processes of a sandbox use, added up: for machines without control groups.
pub(crate) fn used_in_namespace_of(init: &Process) -> Used {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let Some(wanted) = namespace(&init.pid.to_string()) else { return Used::default() };
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let mut used = Used::default();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else { continue };
        if namespace(&name).as_ref() != Some(&wanted) {
            continue;
        }
        let Ok(stat) = Stat::read(pid) else { continue };
        used.processes += 1;
        used.cpu_s += stat.ticks as f64 / ticks;
        used.memory_bytes += stat.pages * rustix::param::page_size() as u64;
    }
    used
}

/// What one process uses. Memory that it shares with others counts by its share.
pub(crate) fn used_by(process: &Process) -> Used {
    let Some(stat) = Stat::read(process.pid).ok().filter(|stat| stat.started == process.started) else { return Used::default() };
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid)).unwrap_or_default();
    let share = rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse::<u64>().ok());
    Used {
        cpu_s: stat.ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        memory_bytes: share.map_or(stat.pages * rustix::param::page_size() as u64, |kib| kib << 10),
        processes: 1,
    }
}

/// What of `/proc/PID/stat` matters here.
struct Stat {
    started: u64,
    dead: bool,
    /// Of CPU, its own and that of its ended children.
    ticks: u64,
    /// In memory.
    pages: u64,
}

impl Stat {
    fn read(pid: i32) -> io::Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat can't be understood")))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name is in brackets and may hold anything; what follows the last bracket does not.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let ticks = (11..15).filter_map(number).sum();
        Some(Self {
            dead: matches!(*fields.first()?, "Z" | "X" | "x"),
            started: number(19)?,
            ticks,
            pages: number(21).unwrap_or(0),
        })
    }
}

/// Names the time since the machine was started.
fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_known_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::of(child.id() as i32).unwrap();
        assert!(process.is_alive() && process.handle().is_some());
        assert!(!process.is_first_of_its_namespace());
        assert!(!process.gone(Duration::from_millis(1)).await);
        let other = Process { started: process.started + 1, ..process.clone() };
        assert!(!other.is_alive() && other.handle().is_none(), "the number alone does not count");
        let before = Process { boot: "another".into(), ..process.clone() };
        assert!(!before.is_alive(), "nothing lives through a boot");
        process.signal(Signal::KILL);
        assert!(process.gone(Duration::from_secs(10)).await);
        assert!(!process.is_alive(), "dead, though nobody reaped it");
        child.wait().unwrap();
    }

    #[test]
    fn names_with_brackets_do_not_confuse() {
        let text = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.started, stat.dead), (4711, false));
        assert!(Stat::parse("").is_none());
    }
}
