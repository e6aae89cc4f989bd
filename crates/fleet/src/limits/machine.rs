//! What this machine has.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A burst of requests looks at the machine once.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Taken where the system does not say: nothing is refused because of a file that can't be read.
const UNKNOWN_MIB: u64 = u64::MAX / 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Has {
    pub(crate) cpus: f32,
    pub(crate) memory_mib: u64,
    pub(crate) free_memory_mib: u64,
    pub(crate) disk_mib: u64,
    pub(crate) free_disk_mib: u64,
}

/// The machine; tests may put one of their own here.
#[derive(Default)]
pub(crate) struct Machine {
    fixed: Mutex<Option<Has>>,
    seen: Mutex<Option<(Instant, Has)>>,
}

impl Machine {
    pub(crate) fn fixed(has: Has) -> Self {
        Self { fixed: Mutex::new(Some(has)), seen: Mutex::default() }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Has)) {
        self.fixed.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(change);
    }

    pub(crate) fn look(&self, data: &Path) -> Has {
        if let Some(has) = *self.fixed.lock().unwrap_or_else(PoisonError::into_inner) {
            return has;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((at, has)) if at.elapsed() < REMEMBERED => has,
            _ => {
                let has = read(data);
                *seen = Some((Instant::now(), has));
                has
            }
        }
    }
}

fn read(data: &Path) -> Has {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| -> Option<u64> {
        meminfo.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix("kB")?.trim().parse().ok())
    };
    let disk = rustix::fs::statvfs(data).ok();
    let mib = |blocks: u64, size: u64| blocks.saturating_mul(size) >> 20;
    #[expect(clippy::cast_precision_loss)]
    Has {
        cpus: std::thread::available_parallelism().map_or(1.0, |n| n.get() as f32),
        memory_mib: kib("MemTotal").map_or(UNKNOWN_MIB, |k| k >> 10),
        free_memory_mib: kib("MemAvailable").map_or(UNKNOWN_MIB, |k| k >> 10),
        disk_mib: disk.as_ref().map_or(UNKNOWN_MIB, |d| mib(d.f_blocks, d.f_frsize)),
        free_disk_mib: disk.as_ref().map_or(UNKNOWN_MIB, |d| mib(d.f_bavail, d.f_frsize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something() {
        let has = read(&std::env::temp_dir());
        assert!(has.cpus >= 1.0);
        assert!(has.memory_mib >= has.free_memory_mib && has.memory_mib > 0 && has.memory_mib < UNKNOWN_MIB, "{has:?}");
        assert!(has.disk_mib >= has.free_disk_mib && has.disk_mib > 0, "{has:?}");
    }
}
