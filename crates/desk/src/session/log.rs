//! The last lines that each part of the session wrote, kept in memory.

use hotdesk_api::health::LogLine;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Lines kept of each part: enough to see why it died, too few to matter for memory.
const LINES: usize = 200;
/// Longer lines are cut; nothing that explains a failure is longer.
const LINE_BYTES: usize = 1000;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Log {
    begin: Instant,
    parts: Arc<Mutex<BTreeMap<String, VecDeque<LogLine>>>>,
}

impl Log {
    pub(crate) fn new(begin: Instant) -> Self {
        Self { begin, parts: Arc::default() }
    }

    pub(crate) fn push(&self, part: &str, text: &str) {
        tracing::debug!(target: "hotdesk::parts", part, "{text}");
        let at_ms = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if !parts.contains_key(part) {
            parts.insert(part.to_owned(), VecDeque::new());
        }
        if let Some(lines) = parts.get_mut(part) {
            if lines.len() >= LINES {
                lines.pop_front();
            }
            lines.push_back(LogLine { part: part.to_owned(), at_ms, text: text.to_owned() });
        }
    }

    /// The last lines of one part or of all, oldest first.
    pub(crate) fn tail(&self, part: Option<&str>, count: usize) -> Vec<LogLine> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines: Vec<LogLine> = parts
            .iter()
            .filter(|(name, _)| part.is_none_or(|part| part == *name))
            .flat_map(|(_, lines)| lines)
            .cloned()
            .collect();
        lines.sort_by_key(|line| line.at_ms);
        lines.split_off(lines.len().saturating_sub(count))
    }

    /// The last line that a part wrote, as a reason for its end.
    pub(crate) fn last(&self, part: &str) -> Option<String> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.get(part)?.iter().rev().map(|line| line.text.trim()).find(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Reads what a part writes until nobody holds the other end any more. It is never let wait: a
    /// program that writes into a full pipe stands still.
    pub(crate) async fn drain(self, part: String, mut from: impl AsyncRead + Unpin) {
        let mut buffer = [0u8; 4096];
        let mut line = Vec::new();
        loop {
            let read = match from.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            for byte in buffer.iter().take(read) {
                match byte {
                    b'\n' | b'\r' => {
                        if !line.is_empty() {
                            self.push(&part, &String::from_utf8_lossy(&line));
                        }
                        line.clear();
                    }
                    _ if line.len() < LINE_BYTES => line.push(*byte),
                    _ => {}
                }
            }
        }
        if !line.is_empty() {
            self.push(&part, &String::from_utf8_lossy(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded() {
        let log = Log::new(Instant::now());
        let mut text = vec![b'x'; 5000];
        for number in 0..500 {
            text.extend(format!("\nline {number}").bytes());
        }
        log.clone().drain("a".into(), text.as_slice()).await;
        let lines = log.tail(Some("a"), usize::MAX);
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[LINES - 1].text, "line 499");
        assert_eq!(log.tail(None, 3).len(), 3);
        assert_eq!(log.tail(Some("b"), 3).len(), 0);
        assert_eq!(log.last("a").unwrap(), "line 499");
    }

    #[tokio::test]
    async fn long_lines_are_cut() {
        let log = Log::new(Instant::now());
        log.clone().drain("a".into(), [b'x'; 5000].as_slice()).await;
        assert_eq!(log.last("a").unwrap().len(), LINE_BYTES);
    }
}
