//! A mark that every process of a tree carries.
//!
//! It stands in the environment, which children inherit, so it also finds those that left their session and
//! lost their parent (daemons). And unlike a process id it never comes to mean a stranger.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const VARIABLE: &str = "DESK_JOB";

/// One mark. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Mark(u64);

impl Mark {
    /// One that nobody has.
    pub fn new() -> Self {
        Self(rand::random())
    }

    /// The variable that carries it.
    pub fn variable(&self) -> (String, String) {
        (VARIABLE.into(), format!("{:016x}", self.0))
    }

    /// Living processes that carry it.
    pub async fn living(&self) -> Vec<i32> {
        let (name, value) = self.variable();
        let found = tokio::task::spawn_blocking(move || {
            let wanted = format!("{name}={value}").into_bytes();
            let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
            // What has ended has no environment any more.
            let carries = |pid: &i32| {
                let env = std::fs::read(format!("/proc/{pid}/environ"));
                env.is_ok_and(|env| env.split(|byte| *byte == 0).any(|variable| variable == wanted))
            };
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(carries).collect()
        });
        found.await.unwrap_or_default()
    }

    /// Sends a signal to all of them.
    pub async fn signal(&self, signal: Signal) {
        for pid in self.living().await {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}
