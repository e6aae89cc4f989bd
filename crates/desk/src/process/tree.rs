//! A program and everything that it started, found through `/proc`.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;

/// While processes are killed others may just be born; each round catches those of the one
/// before. A tree that outruns so many rounds is a fork bomb, which needs a cgroup.
const ROUNDS: usize = 16;

/// Sends a signal to the leader of a session (every program that the desk starts is one), to all
/// of its session and to all their descendants. Returns how many got it.
pub async fn signal_tree(leader: u32, signal: i32) -> usize {
    let Ok(signal) = Signal::try_from(signal) else { return 0 };
    let sent = tokio::task::spawn_blocking(move || {
        if signal != Signal::SIGKILL {
            return send(&members(leader as i32), signal);
        }
        let mut dead = HashSet::new();
        for _ in 0..ROUNDS {
            let mut fresh = members(leader as i32);
            fresh.retain(|pid| dead.insert(*pid));
            if fresh.is_empty() {
                break;
            }
            send(&fresh, signal);
        }
        dead.len()
    });
    sent.await.unwrap_or(0)
}

fn send(pids: &[i32], signal: Signal) -> usize {
    pids.iter().filter(|pid| kill(Pid::from_raw(**pid), signal).is_ok()).count()
}

/// The living members of the tree of `leader`.
fn members(leader: i32) -> Vec<i32> {
    let everybody = everybody();
    let mut tree: HashSet<i32> =
        everybody.iter().filter(|p| p.pid == leader || p.session == leader || p.group == leader).map(|p| p.pid).collect();
    loop {
        let before = tree.len();
        tree.extend(everybody.iter().filter(|p| tree.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if tree.len() == before {
            break;
        }
    }
    everybody.iter().filter(|p| p.alive && tree.contains(&p.pid)).map(|p| p.pid).collect()
}

struct Relation {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    alive: bool,
}

fn everybody() -> Vec<Relation> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            relation(pid, &std::fs::read_to_string(entry.path().join("stat")).ok()?)
        })
        .collect()
}

/// Reads a line of `/proc/PID/stat`. The name in it may hold anything, brackets and blanks too.
fn relation(pid: i32, stat: &str) -> Option<Relation> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse::<i32>().ok();
    Some(Relation { pid, parent: number()?, group: number()?, session: number()?, alive: !matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use super::relation;

    #[test]
    fn odd_names_are_read() {
        let r = relation(7, "7 (a) b (c)) S 1 7 9 0 -1").unwrap();
        assert_eq!((r.parent, r.group, r.session, r.alive), (1, 7, 9, true));
        assert!(!relation(7, "7 (x) Z 1 7 9").unwrap().alive);
        assert!(relation(7, "").is_none());
    }
}
