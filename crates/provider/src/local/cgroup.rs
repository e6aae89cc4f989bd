//! Limits: a control group per desk, `hotdesk/FLEET/ID`, in whichever of the two forms the machine has.
//!
//! Version 1 has a tree per controller; a desk gets a group in each of them. Version 2 has one tree, whose controllers must
//! be handed down from its root. A machine may have both; then the one that has the memory controller is used.

mod v1;
mod v2;

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A group can be removed when its last process is gone, which the kernel notices with a delay.
const REMOVE_LIMIT: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);
/// Processes stop when they return from the kernel; one that waits for a disk takes as long as the disk.
const FREEZE_LIMIT: Duration = Duration::from_secs(5);

const TRIES: usize = 5;

/// What a group may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) cpus: f32,
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u32,
}

/// What a group used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Used {
    pub(crate) cpu_s: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) processes: u32,
}

/// The trees of this machine that we may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trees {
    pub(crate) v1: v1::Trees,
    pub(crate) v2: Option<PathBuf>,
}

impl Trees {
    /// What is mounted here and may be written.
    pub(crate) fn find() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut found = Self::parse(&mounts);
        found.v1.keep(can_make_groups);
        found.v2 = found.v2.filter(|tree| can_make_groups(tree) && v2::has_controllers(tree));
        if found.v1.memory.is_some() {
            found.v2 = None;
        } else if found.v2.is_some() {
            found.v1 = v1::Trees::default();
        }
        found
    }

    fn parse(mounts: &str) -> Self {
        let mut found = Self::default();
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let Some(place) = left.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut right = right.split(' ');
            match (right.next(), right.nth(1)) {
                (Some("cgroup"), Some(options)) => found.v1.add(&place, options),
                (Some("cgroup2"), _) => found.v2 = Some(place),
                _ => {}
            }
        }
        found
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.v2.is_some() || self.v1.memory.is_some()
    }

    pub(crate) fn limits_cpu(&self) -> bool {
        self.v2.is_some() || self.v1.cpu.is_some()
    }

    pub(crate) fn limits_processes(&self) -> bool {
        self.v2.is_some() || self.v1.pids.is_some()
    }

    pub(crate) fn describe(&self) -> &'static str {
        match (self.v2.is_some(), self.v1.memory.is_some()) {
            (true, _) => "version 2",
            (false, true) => "version 1",
            (false, false) => "none",
        }
    }

    /// The group of a desk, or of a fleet (without an id).
    pub(crate) fn group(&self, fleet: &str, id: &str) -> Group {
        let name = Path::new("hotdesk").join(fleet).join(id);
        Group { trees: self.clone(), name }
    }
}

fn can_make_groups(tree: &Path) -> bool {
    rustix::fs::access(tree, rustix::fs::Access::WRITE_OK).is_ok()
        && rustix::fs::statvfs(tree).is_ok_and(|fs| !fs.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// The group of one desk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    trees: Trees,
    name: PathBuf,
}

impl Group {
    /// Makes the group, or brings the limits of one that exists up to date.
    pub(crate) fn make(&self, limits: &Limits) -> io::Result<()> {
        let make = || {
            self.trees.v1.make(&self.name, limits)?;
            self.trees.v2.as_ref().map_or(Ok(()), |tree| v2::make(tree, &self.name, limits))
        };
        // The last desk of a fleet takes the fleet's group with it, perhaps in this moment.
        let mut made = make();
        for _ in 0..TRIES {
            match &made {
                Err(e) if e.kind() == io::ErrorKind::NotFound => made = make(),
                _ => break,
            }
        }
        made
    }

    /// Moves a process in, and with it all that it starts.
    pub(crate) fn take(&self, pid: u32) -> io::Result<()> {
        self.directories().iter().try_for_each(|directory| write(&directory.join("cgroup.procs"), pid))
    }

    /// All processes in it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mut all: Vec<i32> = self
            .directories()
            .iter()
            .filter_map(|directory| std::fs::read_to_string(directory.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Ends every process in it, whatever it does.
    pub(crate) fn kill(&self) {
        if let Some(tree) = &self.trees.v2
            && write(&tree.join(&self.name).join("cgroup.kill"), 1).is_ok()
        {
            return;
        }
        for pid in self.processes() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        // What is frozen does not die before it thaws.
        let _ = self.thaw();
    }

    /// Stops every process in it until it is thawed.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let end = Instant::now() + FREEZE_LIMIT;
        let frozen = || match &self.trees.v2 {
            Some(tree) => v2::freeze(&tree.join(&self.name)),
            None => self.trees.v1.freeze(&self.name),
        };
        while !frozen()? {
            if Instant::now() > end {
                let _ = self.thaw();
                return Err(io::Error::other(format!("its processes do not stop within {} s", FREEZE_LIMIT.as_secs())));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        match &self.trees.v2 {
            Some(tree) => v2::thaw(&tree.join(&self.name)),
            None => self.trees.v1.thaw(&self.name),
        }
    }

    /// Removes the group, and those above it that became empty. What still has processes after a while stays.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let end = Instant::now() + REMOVE_LIMIT;
        for directory in self.directories() {
            loop {
                match std::fs::remove_dir(&directory) {
                    Ok(()) => break,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                    Err(e) if Instant::now() > end => return Err(e),
                    Err(_) => {
                        self.kill();
                        std::thread::sleep(LOOK);
                    }
                }
            }
            for above in directory.ancestors().skip(1).take(2) {
                if std::fs::remove_dir(above).is_err() {
                    break; // Others are in it.
                }
            }
        }
        Ok(())
    }

    /// Names of the groups below this one.
    pub(crate) fn below(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .directories()
            .iter()
            .flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten().flatten())
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names.dedup();
        names
    }

    pub(crate) fn used(&self) -> Option<Used> {
        match &self.trees.v2 {
            Some(tree) => v2::used(&tree.join(&self.name)),
            None => self.trees.v1.used(&self.name),
        }
    }

    /// How many processes were ended because the memory was used up.
    pub(crate) fn ended_for_memory(&self) -> u64 {
        let file = match &self.trees.v2 {
            Some(tree) => Some(tree.join(&self.name).join("memory.events")),
            None => self.trees.v1.memory.as_ref().map(|tree| tree.join(&self.name).join("memory.oom_control")),
        };
        file.and_then(|file| field(&file, "oom_kill")).unwrap_or(0)
    }

    fn directories(&self) -> Vec<PathBuf> {
        self.trees.v1.all().into_iter().chain(self.trees.v2.as_ref()).map(|tree| tree.join(&self.name)).collect()
    }
}

fn write(path: &Path, value: impl ToString) -> io::Result<()> {
    std::fs::write(path, value.to_string()).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The value of a line `name value`.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.split_once(' ').filter(|(key, _)| *key == name)?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_found_by_what_is_mounted() {
        let found = Trees::parse(
            "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
             33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             34 25 0:30 / /home rw - ext4 /dev/vda rw\n",
        );
        assert_eq!(found.v1.memory, Some("/sys/fs/cgroup/memory".into()));
        assert_eq!(found.v1.cpu, found.v1.cpuacct);
        assert_eq!(found.v1.pids, None);
        assert_eq!(found.v1.all().len(), 2, "a tree with two controllers is one tree");
        assert_eq!(found.v2, Some("/sys/fs/cgroup/unified".into()));
    }
}
