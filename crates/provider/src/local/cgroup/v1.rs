//! Version 1: a tree per controller.

use super::{Limits, Used, field, number, write};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The usual period of the scheduler's quota, in microseconds.
const PERIOD: u64 = 100_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trees {
    pub(crate) memory: Option<PathBuf>,
    pub(crate) cpu: Option<PathBuf>,
    pub(crate) cpuacct: Option<PathBuf>,
    pub(crate) pids: Option<PathBuf>,
    pub(crate) freezer: Option<PathBuf>,
    /// Only where it has weights, which depends on the disks' scheduler.
    #[serde(default)]
    pub(crate) blkio: Option<PathBuf>,
}

/// Weights of the disk's time, by the schedulers that have them.
const IO_WEIGHTS: [&str; 2] = ["blkio.bfq.weight", "blkio.weight"];
/// By which they are known at the root of the tree, where one of them has no weight itself.
const IO_SIGNS: [&str; 2] = ["blkio.bfq.io_service_bytes", "blkio.weight"];
/// The same for all desks: none gets all of the disk's time.
const IO_WEIGHT: u64 = 100;

impl Trees {
    /// Notes a mounted tree with the controllers that its options name.
    pub(super) fn add(&mut self, place: &Path, options: &str) {
        for option in options.split(',') {
            match option {
                "memory" => self.memory = Some(place.into()),
                "cpu" => self.cpu = Some(place.into()),
                "cpuacct" => self.cpuacct = Some(place.into()),
                "pids" => self.pids = Some(place.into()),
                "freezer" => self.freezer = Some(place.into()),
                "blkio" if IO_SIGNS.iter().any(|name| place.join(name).exists()) => self.blkio = Some(place.into()),
                _ => {}
            }
        }
    }

    pub(super) fn keep(&mut self, good: impl Fn(&Path) -> bool) {
        for tree in [&mut self.memory, &mut self.cpu, &mut self.cpuacct, &mut self.pids, &mut self.freezer, &mut self.blkio] {
            *tree = tree.take().filter(|path| good(path));
        }
    }

    /// Each tree once, although one may hold two controllers.
    pub(super) fn all(&self) -> Vec<&PathBuf> {
        let mut all: Vec<_> =
            [&self.memory, &self.cpu, &self.cpuacct, &self.pids, &self.freezer, &self.blkio].into_iter().flatten().collect();
        all.sort();
        all.dedup();
        all
    }

    pub(super) fn make(&self, name: &Path, limits: &Limits) -> io::Result<()> {
        for tree in self.all() {
            std::fs::create_dir_all(tree.join(name))?;
        }
        if let Some(group) = self.memory.as_ref().map(|tree| tree.join(name)) {
            write(&group.join("memory.limit_in_bytes"), limits.memory_bytes)?;
            // Memory and swap together: so there is no swap. Only where the kernel counts swap.
            let both = group.join("memory.memsw.limit_in_bytes");
            if both.exists() {
                write(&both, limits.memory_bytes)?;
            }
        }
        if let Some(group) = self.cpu.as_ref().map(|tree| tree.join(name)) {
            write(&group.join("cpu.cfs_period_us"), PERIOD)?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            write(&group.join("cpu.cfs_quota_us"), (f64::from(limits.cpus) * PERIOD as f64) as u64)?;
        }
        if let Some(group) = self.pids.as_ref().map(|tree| tree.join(name)) {
            write(&group.join("pids.max"), limits.processes)?;
        }
        if let Some(group) = self.blkio.as_ref().map(|tree| tree.join(name)) {
            for file in IO_WEIGHTS.map(|name| group.join(name)).iter().filter(|file| file.exists()) {
                let _ = write(file, IO_WEIGHT);
            }
        }
        Ok(())
    }

    /// Asks for it; true when it is so.
    pub(super) fn freeze(&self, name: &Path) -> io::Result<bool> {
        let Some(group) = self.freezer.as_ref().map(|tree| tree.join(name)) else { return Ok(true) };
        write(&group.join("freezer.state"), "FROZEN")?;
        Ok(std::fs::read_to_string(group.join("freezer.state"))?.trim() == "FROZEN")
    }

    pub(super) fn thaw(&self, name: &Path) -> io::Result<()> {
        self.freezer.as_ref().map_or(Ok(()), |tree| write(&tree.join(name).join("freezer.state"), "THAWED"))
    }

    pub(super) fn used(&self, name: &Path) -> Option<Used> {
        let memory = self.memory.as_ref()?.join(name);
        let cached = field(&memory.join("memory.stat"), "total_inactive_file").unwrap_or(0);
        let cpu = self.cpuacct.as_ref().and_then(|tree| number(&tree.join(name).join("cpuacct.usage")));
        let processes = self.pids.as_ref().and_then(|tree| number(&tree.join(name).join("pids.current")));
        Some(Used {
            cpu_s: cpu.unwrap_or(0) as f64 / 1e9,
            // What the kernel can take back at once is not used.
            memory_bytes: number(&memory.join("memory.usage_in_bytes"))?.saturating_sub(cached),
            processes: u32::try_from(processes.unwrap_or(0)).unwrap_or(u32::MAX),
        })
    }
}
