//! The way to the helper: a task in, one line out.

use super::Inner;
use super::desk::last;
use super::directory::trouble;
use super::lock::Lock;
use super::sandbox::{Answer, Task};
use crate::{Error, Result};
use std::io::{Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

/// Copies and archives of a desk's files take as long as they are large.
const WORK_LIMIT: Duration = Duration::from_secs(3600);
/// Helpers print only when they break; a log that is longer than this begins anew.
const LONGEST_LOG: u64 = 256 << 10;
/// What is told of a helper that broke.
const LAST_WORDS: usize = 6;

impl Inner {
    /// Starts the helper with a task and hears its answer. It has the lock as long as it works.
    pub(super) async fn ask(&self, task: Task, lock: &Lock, limit: Duration) -> Result<Answer> {
        let failed = |e: &dyn std::fmt::Display| Error::Failed(format!("the helper of sandboxes can't be started: {e}"));
        let text = serde_json::to_vec(&task).map_err(|e| failed(&e))?;
        let mut file = lock.file.try_clone().map_err(|e| failed(&e))?;
        file.set_len(0).and_then(|()| file.rewind()).map_err(|e| failed(&e))?;
        file.write_all(&text).and_then(|()| file.rewind()).map_err(|e| trouble("write", &self.directory.lock(""), &e))?;
        let log = self.directory.helper_log();
        if std::fs::metadata(&log).is_ok_and(|meta| meta.len() > LONGEST_LOG) {
            let _ = std::fs::remove_file(&log);
        }
        let errors = std::fs::File::options().create(true).append(true).mode(0o600).open(&log);
        let mut child = tokio::process::Command::new(&self.context.binary)
            .arg("sandbox")
            .stdin(Stdio::from(file))
            .stdout(Stdio::piped())
            .stderr(errors.map_or_else(|_| Stdio::null(), Stdio::from))
            // A Ctrl-C in the orchestrator's terminal is not meant for desks.
            .process_group(0)
            .spawn()
            .map_err(|e| failed(&format!("{}: {e}", self.context.binary.display())))?;
        let output = child.stdout.take().ok_or_else(|| failed(&"it has no output"))?;
        let mut line = String::new();
        let read = tokio::time::timeout(limit, BufReader::new(output).read_line(&mut line)).await;
        match read {
            Err(_) => {
                let _ = child.kill().await;
                Err(Error::Failed(format!("the helper of sandboxes gave no answer in {} s", limit.as_secs())))
            }
            Ok(Err(e)) => Err(failed(&e)),
            Ok(Ok(_)) => match serde_json::from_str(&line) {
                Ok(Answer::Failed(trouble)) => Err(trouble.into()),
                Ok(answer) => Ok(answer),
                Err(_) => {
                    let status = child.wait().await.map_or_else(|e| e.to_string(), |status| status.to_string());
                    let words = tail(&log, LAST_WORDS);
                    Err(failed(&format!("it ended without an answer ({status}): {}", words.trim())))
                }
            },
        }
    }

    pub(super) async fn work(&self, task: Task, lock: &Lock) -> Result<u64> {
        match self.ask(task, lock, WORK_LIMIT).await? {
            Answer::Written(bytes) => Ok(bytes),
            _ => Err(Error::Failed("the helper answered something else".into())),
        }
    }
}

fn tail(path: &Path, lines: usize) -> String {
    last(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()), lines)
}
