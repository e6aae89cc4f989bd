//! QEMU's machine protocol: one JSON object per line, both ways.
//!
//! Answers carry the number of their question. What QEMU says unasked (events) goes to whoever listens. A line has a largest
//! length and an answer a latest time, so a QEMU that a guest has taken over can neither fill our memory nor hold us.

use crate::{Error, Result};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{broadcast, oneshot};
use tokio_util::codec::{FramedRead, LinesCodec};

/// The longest lines are lists of block devices: some kilobytes per layer.
const LONGEST_LINE: usize = 1 << 20;
/// How long QEMU may take to answer. Flushing a disk is the slowest that is done within an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// How long QEMU may take to greet: it is loaded, its devices are made.
const GREETING: Duration = Duration::from_secs(30);
/// Events that a listener may be behind.
const EVENTS: usize = 64;

type Waiting = Mutex<Option<HashMap<u64, oneshot::Sender<std::result::Result<Value, String>>>>>;

/// A connection to one QEMU.
pub(crate) struct Qmp {
    send: tokio::sync::Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
    next: AtomicU64,
    /// Who waits for which answer; none when the connection is over.
    waiting: Arc<Waiting>,
    events: broadcast::Sender<String>,
}

impl Qmp {
    /// Hears the greeting and agrees on the protocol.
    pub(crate) async fn open(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Result<Self> {
        let (read, write) = tokio::io::split(stream);
        let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(LONGEST_LINE));
        let greeting = tokio::time::timeout(GREETING, lines.next()).await;
        match greeting {
            Ok(Some(Ok(line))) if line.contains("\"QMP\"") => {}
            Ok(_) => return Err(Error::Failed("QEMU ended before it could be talked to".into())),
            Err(_) => return Err(Error::Failed(format!("QEMU said nothing for {} s", GREETING.as_secs()))),
        }
        let (events, _) = broadcast::channel(EVENTS);
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(Some(HashMap::new())));
        let qmp =
            Self { send: tokio::sync::Mutex::new(Box::new(write)), next: AtomicU64::new(1), waiting: waiting.clone(), events };
        let events = qmp.events.clone();
        tokio::spawn(async move {
            while let Some(Ok(line)) = lines.next().await {
                hear(&line, &waiting, &events);
            }
            // Whoever still waits is told by the end of its channel.
            waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        });
        qmp.ask("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Has a command done.
    pub(crate) async fn ask(&self, command: &str, arguments: Value) -> Result<Value> {
        let failed = |why: &dyn std::fmt::Display| Error::Failed(format!("QEMU did not do `{command}`: {why}"));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        match self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(waiting) => waiting.insert(number, answer),
            None => return Err(failed(&"it has ended")),
        };
        let line = json!({ "execute": command, "arguments": arguments, "id": number }).to_string() + "\n";
        let asked = async {
            let mut send = self.send.lock().await;
            send.write_all(line.as_bytes()).await?;
            send.flush().await
        };
        asked.await.map_err(|e| failed(&e))?;
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(answer)) => answer.map_err(|e| failed(&e)),
            Ok(Err(_)) => Err(failed(&"it ended meanwhile")),
            Err(_) => {
                if let Some(waiting) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                    waiting.remove(&number);
                }
                Err(failed(&format!("no answer in {} s", ANSWER.as_secs())))
            }
        }
    }

    /// The names of what QEMU says unasked, from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<String> {
        self.events.subscribe()
    }
}

fn hear(line: &str, waiting: &Waiting, events: &broadcast::Sender<String>) {
    let Ok(mut message) = serde_json::from_str::<Value>(line) else { return };
    if let Some(name) = message.get("event").and_then(Value::as_str) {
        let _ = events.send(name.to_owned());
        return;
    }
    let Some(number) = message.get("id").and_then(Value::as_u64) else { return };
    let known = waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|waiting| waiting.remove(&number));
    let Some(answer) = known else { return };
    let _ = answer.send(match message.get("error") {
        Some(error) => Err(error.get("desc").and_then(Value::as_str).unwrap_or("it gave no reason").to_owned()),
        None => Ok(message.get_mut("return").map(Value::take).unwrap_or_default()),
    });
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/qmp.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, BufReader};

    /// A QEMU that answers each question with what `answers` says.
    fn stand_in(answers: fn(&Value) -> Vec<String>) -> tokio::io::DuplexStream {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(theirs);
            let mut lines = BufReader::new(read).lines();
            write.write_all(b"{\"QMP\": {\"version\": {}}}\r\n").await.unwrap();
            while let Ok(Some(line)) = lines.next_line().await {
                let question: Value = serde_json::from_str(&line).unwrap();
                for answer in answers(&question) {
                    write.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
                }
            }
        });
        ours
    }

    #[tokio::test]
    async fn answers_events_and_refusals() {
        let qmp = Qmp::open(stand_in(|question| {
            let id = &question["id"];
            match question["execute"].as_str() {
                Some("query-status") => vec![
                    "not JSON at all".into(),
                    json!({"event": "STOP", "data": {"x": 1}}).to_string(),
                    json!({"return": "an answer to somebody else", "id": 4711}).to_string(),
                    json!({"return": {"status": "paused"}, "id": id}).to_string(),
                ],
                Some("no-such") => vec![json!({"error": {"class": "x", "desc": "not found"}, "id": id}).to_string()],
                _ => vec![json!({"return": {}, "id": id}).to_string()],
            }
        }))
        .await
        .unwrap();
        let mut events = qmp.events();
        assert_eq!(qmp.ask("query-status", json!({})).await.unwrap()["status"], "paused");
        assert_eq!(events.recv().await.unwrap(), "STOP");
        assert!(qmp.ask("no-such", json!({})).await.unwrap_err().to_string().contains("`no-such`: not found"));
    }

    #[tokio::test]
    async fn an_end_and_a_flood_are_told() {
        let end = Qmp::open(stand_in(|question| {
            let id = &question["id"];
            let long = format!("{{\"return\": \"{}\", \"id\": {id}}}", "x".repeat(LONGEST_LINE));
            let short = json!({"return": {}, "id": id}).to_string();
            vec![if question["execute"] == "qmp_capabilities" { short } else { long }]
        }))
        .await
        .unwrap();
        assert!(end.ask("x", json!({})).await.unwrap_err().to_string().contains("ended"));
        assert!(end.ask("x", json!({})).await.unwrap_err().to_string().contains("ended"));
        let (ours, theirs) = tokio::io::duplex(64);
        drop(theirs);
        assert!(Qmp::open(ours).await.is_err());
    }
}
