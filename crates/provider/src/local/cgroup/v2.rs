//! Version 2: one tree, whose controllers are handed down from its root.

use super::{Limits, Used, field, number, write};
use std::io;
use std::path::Path;

/// What a desk's group needs.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// What it gets besides, where the kernel has it: desks then share the disk's time, and none gets all of it.
const IO: &str = "io";
/// The usual weight; all desks have the same.
const IO_WEIGHT: u64 = 100;
/// The usual period of the scheduler's quota, in microseconds.
const PERIOD: u64 = 100_000;

pub(super) fn has_controllers(tree: &Path) -> bool {
    let available = std::fs::read_to_string(tree.join("cgroup.controllers")).unwrap_or_default();
    CONTROLLERS.iter().all(|wanted| available.split_whitespace().any(|name| name == *wanted))
}

pub(super) fn make(tree: &Path, name: &Path, limits: &Limits) -> io::Result<()> {
    let mut group = tree.to_owned();
    for part in name {
        hand_down(&group)?;
        group.push(part);
        match std::fs::create_dir(&group) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    write(&group.join("memory.max"), limits.memory_bytes)?;
    // Only where the kernel counts swap.
    let swap = group.join("memory.swap.max");
    if swap.exists() {
        write(&swap, 0)?;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let quota = (f64::from(limits.cpus) * PERIOD as f64) as u64;
    write(&group.join("cpu.max"), format!("{quota} {PERIOD}"))?;
    write(&group.join("pids.max"), limits.processes)?;
    // Which of them there is depends on the disk's scheduler.
    for name in ["io.weight", "io.bfq.weight"] {
        let file = group.join(name);
        if file.exists() {
            let _ = write(&file, IO_WEIGHT);
        }
    }
    Ok(())
}

/// Lets the groups below have the controllers.
fn hand_down(group: &Path) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    let given = std::fs::read_to_string(&file).unwrap_or_default();
    let has = |text: &str| text.split_whitespace().any(|name| name == IO);
    if !has(&given) && std::fs::read_to_string(group.join("cgroup.controllers")).is_ok_and(|names| has(&names)) {
        let _ = write(&file, format!("+{IO}"));
    }
    let missing: Vec<_> = CONTROLLERS.iter().filter(|wanted| !given.split_whitespace().any(|name| name == **wanted)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    write(&file, missing.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" "))
}

/// Asks for it; true when it is so.
pub(super) fn freeze(group: &Path) -> io::Result<bool> {
    write(&group.join("cgroup.freeze"), 1)?;
    Ok(field(&group.join("cgroup.events"), "frozen") == Some(1))
}

pub(super) fn thaw(group: &Path) -> io::Result<()> {
    write(&group.join("cgroup.freeze"), 0)
}

pub(super) fn used(group: &Path) -> Option<Used> {
    let cached = field(&group.join("memory.stat"), "inactive_file").unwrap_or(0);
    Some(Used {
        cpu_s: field(&group.join("cpu.stat"), "usage_usec").unwrap_or(0) as f64 / 1e6,
        // What the kernel can take back at once is not used.
        memory_bytes: number(&group.join("memory.current"))?.saturating_sub(cached),
        processes: u32::try_from(number(&group.join("pids.current")).unwrap_or(0)).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Group, Trees};
    use super::*;

    /// The kernel makes these files with every directory; here they are made by hand.
    fn fake(tree: &Path) -> Group {
        std::fs::write(tree.join("cgroup.controllers"), "cpuset cpu io memory pids\n").unwrap();
        let group = tree.join("hotdesk/fleet/d-1");
        std::fs::create_dir_all(&group).unwrap();
        for folder in [tree, &tree.join("hotdesk"), &tree.join("hotdesk/fleet")] {
            std::fs::write(folder.join("cgroup.subtree_control"), "cpu\n").unwrap();
        }
        std::fs::write(group.join("memory.swap.max"), "max").unwrap();
        std::fs::write(group.join("io.weight"), "default 7").unwrap();
        Trees { v2: Some(tree.into()), ..Trees::default() }.group("fleet", "d-1")
    }

    #[test]
    fn limits_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let group = fake(folder.path());
        assert!(has_controllers(folder.path()));
        group.make(&Limits { cpus: 1.5, memory_bytes: 64 << 20, processes: 100 }).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join("hotdesk/fleet/d-1").join(name)).unwrap();
        assert_eq!(read("memory.max"), "67108864");
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("cpu.max"), "150000 100000");
        assert_eq!(read("pids.max"), "100");
        assert_eq!(read("io.weight"), "100");
        for above in ["", "hotdesk", "hotdesk/fleet"] {
            let given = std::fs::read_to_string(folder.path().join(above).join("cgroup.subtree_control")).unwrap();
            assert_eq!(given, "+memory +pids");
        }
        group.take(7).unwrap();
        assert_eq!(group.processes(), [7]);
    }

    #[test]
    fn use_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let group = fake(folder.path());
        let write = |name: &str, text: &str| std::fs::write(folder.path().join("hotdesk/fleet/d-1").join(name), text).unwrap();
        assert_eq!(group.used(), None);
        write("memory.current", "1000\n");
        write("memory.stat", "anon 5\ninactive_file 400\n");
        write("cpu.stat", "usage_usec 2500000\nuser_usec 1\n");
        write("pids.current", "9\n");
        write("memory.events", "low 0\noom 3\noom_kill 2\n");
        assert_eq!(group.used(), Some(Used { cpu_s: 2.5, memory_bytes: 600, processes: 9 }));
        assert_eq!(group.ended_for_memory(), 2);
        write("cgroup.events", "populated 1\nfrozen 1\n");
        group.freeze().unwrap();
        group.thaw().unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("hotdesk/fleet/d-1/cgroup.freeze")).unwrap(), "0");
    }
}
