//! What stays outside of a sandbox as long as the desk runs: the keeper of its log and of its network.
//!
//! It is the helper itself, after its work. It holds nothing that the desk needs to live: if it is killed, the desk runs
//! on, without network until the next start. It reaps the desk and notes how it ended. A network that ends is started again.

use super::{Outcome, Plan, Step};
use crate::local::cgroup::Group;
use crate::local::directory::{self, DeskDirectory, Ended};
use crate::local::network;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A network helper that ended gets a pause before it is started again: it may end at once, each time.
const AGAIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// A log that grows beyond this loses its older half.
const LONGEST_LOG: u64 = 1 << 20;

pub(crate) struct Keeper {
    desk: DeskDirectory,
    init: i32,
    handle: OwnedFd,
    pipe: File,
    log: Log,
    network: Option<network::Helper>,
    /// What the desk's packet filter closes, and what tells that this machine's addresses changed.
    closed: Option<(network::Network, network::Changes)>,
    group: Option<Group>,
    /// How often memory was used up before this start.
    before: u64,
}

impl Keeper {
    pub(crate) fn new(
        plan: &Plan,
        desk: &DeskDirectory,
        init: i32,
        pipe: OwnedFd,
        network: Option<network::Helper>,
    ) -> Outcome<Self> {
        let pid = Pid::from_raw(init).ok_or_else(|| super::Trouble::new("the sandbox has no process"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).step(|| "watch the sandbox".into())?;
        let _ = std::fs::rename(desk.log(), desk.log_before());
        let log = Log::create(desk.log()).step(|| "open the log".into())?;
        let group = plan.group.clone();
        let before = group.as_ref().map_or(0, Group::ended_for_memory);
        let closed = plan.network.clone().map(|network| network::Changes::watch().map(|changes| (network, changes)));
        let closed = closed.transpose().step(|| "watch the addresses of this machine".into())?;
        Ok(Self { desk: desk.clone(), init, handle, pipe: pipe.into(), log, network, closed, group, before })
    }

    /// Keeps the log until the desk ended; then the network ends too.
    pub(crate) fn keep(mut self) {
        let mut buffer = vec![0; 64 << 10];
        // They may have changed since the filter was planned.
        self.close_new_addresses();
        loop {
            let watched = self.network.as_mut().and_then(network::Helper::handle);
            // One that can't be started is tried again after a while.
            let patience = (self.network.is_some() && watched.is_none()).then_some(AGAIN);
            let mut sources = vec![PollFd::new(&self.handle, PollFlags::IN), PollFd::new(&self.pipe, PollFlags::IN)];
            sources.extend(watched.as_ref().map(|handle| PollFd::new(handle, PollFlags::IN)));
            sources.extend(self.closed.as_ref().map(|(_, changes)| PollFd::new(changes, PollFlags::IN)));
            if poll(&mut sources, patience.as_ref()).is_err() {
                continue;
            }
            let over = sources.first().is_some_and(|source| !source.revents().is_empty());
            self.drain(&mut buffer);
            if over {
                break;
            }
            if let Some(network) = self.network.as_mut().filter(|_| patience.is_some()) {
                let _ = network.again();
            }
            if self.closed.as_mut().is_some_and(|(_, changes)| changes.happened()) {
                self.close_new_addresses();
            }
        }
        self.network.take();
        let ended = Ended { how: self.reap() };
        let _ = directory::write(&self.desk.ended_file(), &ended);
    }

    fn close_new_addresses(&mut self) {
        if let (Some(network), Some((closed, _))) = (&self.network, &mut self.closed)
            && let Err(reason) = network.close_new_addresses(closed)
        {
            self.log.write(format!("hotdesk: {reason}\n").as_bytes());
        }
    }

    fn drain(&mut self, buffer: &mut [u8]) {
        while let Ok(length @ 1..) = self.pipe.read(buffer) {
            self.log.write(buffer.get(..length).unwrap_or_default());
        }
    }

    fn reap(&self) -> String {
        let status = Pid::from_raw(self.init).and_then(|pid| waitpid(Some(pid), WaitOptions::empty()).ok().flatten());
        let memory = self.group.as_ref().map_or(0, Group::ended_for_memory).saturating_sub(self.before);
        let how = match status.map(|(_, status)| status) {
            Some(status) if status.signaled() => format!("it was ended by signal {}", status.terminating_signal().unwrap_or(0)),
            Some(status) => format!("it ended with status {}", status.exit_status().unwrap_or(0)),
            None => "it ended".to_owned(),
        };
        if memory > 0 { format!("{how}; its memory was used up {memory} times") } else { how }
    }
}

/// A file that never grows beyond [`LONGEST_LOG`].
struct Log {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Log {
    fn create(path: PathBuf) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Self { path, file, length: 0 })
    }

    /// A log that can't be written is no reason to end anything.
    fn write(&mut self, bytes: &[u8]) {
        if self.length + bytes.len() as u64 > LONGEST_LOG {
            let _ = self.halve();
        }
        if self.file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        }
    }

    fn halve(&mut self) -> std::io::Result<()> {
        let all = std::fs::read(&self.path)?;
        let half = all.get(all.len() / 2..).unwrap_or_default();
        let from = half.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let kept = half.get(from..).unwrap_or_default();
        directory::write_bytes(&self.path, kept, 0o600)?;
        self.file = File::options().append(true).open(&self.path)?;
        self.length = kept.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_stays_small_and_keeps_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("desk.log");
        let mut log = Log::create(path.clone()).unwrap();
        for number in 0..100_000 {
            log.write(format!("this is line {number} of many\n").as_bytes());
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() as u64 <= LONGEST_LOG);
        assert!(text.starts_with("this is line") && text.ends_with("this is line 99999 of many\n"));
    }
}
