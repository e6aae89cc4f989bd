//! Traces of the desk.

use super::Desk;
use super::files::Download;
use crate::Result;
use hotdesk_api::trace::{StartTrace, Step, StepList, TraceInfo, TraceList};
use reqwest::Method;
use std::time::Duration;

/// The last steps are waited for, and the file is written.
const STOP: Duration = Duration::from_secs(30);

impl Desk {
    /// Begins to record.
    pub async fn start_trace(&self, how: &StartTrace) -> Result<TraceInfo> {
        self.call(Method::POST, &["trace"]).json(how)?.answer().await
    }

    /// The trace that is being recorded; "not found" if none is.
    pub async fn current_trace(&self) -> Result<TraceInfo> {
        self.call(Method::GET, &["trace"]).answer().await
    }

    pub async fn stop_trace(&self) -> Result<TraceInfo> {
        self.call(Method::DELETE, &["trace"]).within(Some(STOP)).answer().await
    }

    /// All traces, the newest first.
    pub async fn traces(&self) -> Result<Vec<TraceInfo>> {
        self.call(Method::GET, &["traces"]).answer::<TraceList>().await.map(|list| list.traces)
    }

    pub async fn trace(&self, id: &str) -> Result<TraceInfo> {
        self.call(Method::GET, &["traces", id]).answer().await
    }

    pub async fn delete_trace(&self, id: &str) -> Result<()> {
        self.call(Method::DELETE, &["traces", id]).done().await
    }

    /// Steps above a number, 1000 at most.
    pub async fn trace_steps(&self, id: &str, after: u64) -> Result<Vec<Step>> {
        self.call(Method::GET, &["traces", id, "steps"]).query("after", after).answer::<StepList>().await.map(|list| list.steps)
    }

    /// The whole file.
    pub async fn trace_file(&self, id: &str) -> Result<Download> {
        let answer = self.call(Method::GET, &["traces", id, "file"]).within(None).send().await?;
        Ok(Download { answer })
    }
}
