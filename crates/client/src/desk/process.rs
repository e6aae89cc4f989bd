//! Programs of a desk: run to their end, or started and attached to.

use super::Desk;
use crate::socket::{Receiver, Sender, split};
use crate::{Error, Result};
use bytes::{Buf, Bytes};
use hotdesk_api::Problem;
use hotdesk_api::process::{
    Exit, OutputEvent, ProcessControl, ProcessInfo, ProcessList, RunProcess, RunResult, SendSignal, StartProcess,
};
use reqwest::Method;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

/// The desk's own default for a program that is waited for.
const RUN: Duration = Duration::from_secs(60);
const AFTER_RUN: Duration = Duration::from_secs(30);

/// A program that was started in the background, and the connection to it.
pub struct Program {
    pub info: ProcessInfo,
    pub input: ProgramInput,
    pub output: ProgramOutput,
}

pub struct ProgramInput(Sender);

pub struct ProgramOutput(Receiver);

/// What a program does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Stdout(Bytes),
    Stderr(Bytes),
    /// So many bytes came faster than they were read and are lost.
    Lost(u64),
    Exit(Exit),
    /// Input or a signal did not reach it.
    Problem(Problem),
}

impl Desk {
    /// Runs a program to its end. Never sent twice.
    pub async fn run(&self, what: &RunProcess) -> Result<RunResult> {
        let limit = what.timeout_ms.map_or(RUN, Duration::from_millis) + AFTER_RUN;
        self.call(Method::POST, &["processes", "run"]).json(what)?.within(Some(limit)).answer().await
    }

    /// Starts a program in the background.
    pub async fn spawn(&self, what: &StartProcess) -> Result<ProcessInfo> {
        self.call(Method::POST, &["processes"]).json(what)?.answer().await
    }

    /// Starts a program and attaches to it; nothing that it prints is missed.
    pub async fn exec(&self, what: &StartProcess) -> Result<Program> {
        let info = self.spawn(what).await?;
        let (input, output) = self.attach(info.id).await?;
        Ok(Program { info, input, output })
    }

    /// Attaches to a program that runs in the background.
    pub async fn attach(&self, process: u64) -> Result<(ProgramInput, ProgramOutput)> {
        let socket = self.client.socket(&self.path(&["processes", &process.to_string(), "attach"]), None).await?;
        let (sender, receiver) = split(socket);
        Ok((ProgramInput(sender), ProgramOutput(receiver)))
    }

    pub async fn processes(&self, all: bool) -> Result<ProcessList> {
        self.call(Method::GET, &["processes"]).query("all", all).answer().await
    }

    /// Ends a program and everything that it started, and forgets it.
    pub async fn end_process(&self, process: u64) -> Result<ProcessInfo> {
        self.call(Method::DELETE, &["processes", &process.to_string()]).answer().await
    }

    pub async fn signal(&self, process: u64, signal: &SendSignal) -> Result<()> {
        self.call(Method::POST, &["processes", &process.to_string(), "signal"]).json(signal)?.done().await
    }
}

impl ProgramInput {
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        self.0.send(Message::Binary(data)).await
    }

    pub async fn close(&mut self) -> Result<()> {
        self.0.control(&ProcessControl::CloseStdin).await
    }

    /// `INT`, `SIGTERM`, `9`.
    pub async fn signal(&mut self, signal: &str) -> Result<()> {
        self.0.control(&ProcessControl::Signal { signal: signal.to_owned() }).await
    }
}

impl ProgramOutput {
    /// What the program does next. Its end is told by [`Output::Exit`]; `None` after that, or when the desk went away.
    pub async fn next(&mut self) -> Result<Option<Output>> {
        let Some(message) = self.0.next().await? else { return Ok(None) };
        let strange = |why: String| Err(Error::Strange(why));
        match message {
            Message::Binary(mut data) if !data.is_empty() => match data.get_u8() {
                1 => Ok(Some(Output::Stdout(data))),
                2 => Ok(Some(Output::Stderr(data))),
                other => strange(format!("there is no stream {other}")),
            },
            Message::Text(text) => match serde_json::from_str(text.as_str()) {
                Ok(OutputEvent::Lost { bytes }) => Ok(Some(Output::Lost(bytes))),
                Ok(OutputEvent::Exit { exit }) => Ok(Some(Output::Exit(exit))),
                Ok(OutputEvent::Problem { problem }) => Ok(Some(Output::Problem(problem))),
                Ok(OutputEvent::Stdout { data, .. }) => Ok(Some(Output::Stdout(data.into()))),
                Ok(OutputEvent::Stderr { data, .. }) => Ok(Some(Output::Stderr(data.into()))),
                Err(e) => strange(e.to_string()),
            },
            _ => strange("an empty message".into()),
        }
    }
}
