//! Terminals of a desk.

use super::Desk;
use crate::socket::{Receiver, Sender, split};
use crate::{Error, Result};
use bytes::Bytes;
use hotdesk_api::Problem;
use hotdesk_api::process::Exit;
use hotdesk_api::terminal::{OpenTerminal, TerminalControl, TerminalEvent, TerminalInfo, TerminalList};
use reqwest::Method;
use tokio_tungstenite::tungstenite::Message;

/// A terminal and the connection to it.
pub struct Terminal {
    pub info: TerminalInfo,
    pub keyboard: Keyboard,
    pub screen: Screen,
}

pub struct Keyboard(Sender);

pub struct Screen(Receiver);

/// What a terminal shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    Data(Bytes),
    /// So many bytes came faster than they were read and are lost.
    Lost(u64),
    Exit(Exit),
    Problem(Problem),
}

impl Desk {
    /// Opens a terminal and attaches to it.
    pub async fn terminal(&self, what: &OpenTerminal) -> Result<Terminal> {
        let info: TerminalInfo = self.call(Method::POST, &["terminals"]).json(what)?.answer().await?;
        let (keyboard, screen) = self.attach_terminal(info.id).await?;
        Ok(Terminal { info, keyboard, screen })
    }

    /// Attaches to a terminal that is open; what it showed before comes first.
    pub async fn attach_terminal(&self, terminal: u64) -> Result<(Keyboard, Screen)> {
        let socket = self.client.socket(&self.path(&["terminals", &terminal.to_string(), "attach"]), None).await?;
        let (sender, receiver) = split(socket);
        Ok((Keyboard(sender), Screen(receiver)))
    }

    pub async fn terminals(&self) -> Result<Vec<TerminalInfo>> {
        self.call(Method::GET, &["terminals"]).answer::<TerminalList>().await.map(|list| list.terminals)
    }

    /// Closes a terminal; everything that runs in it is ended.
    pub async fn close_terminal(&self, terminal: u64) -> Result<()> {
        self.call(Method::DELETE, &["terminals", &terminal.to_string()]).done().await
    }

    /// The live view: RFB (VNC) as bytes.
    pub async fn view(&self) -> Result<(ViewInput, ViewOutput)> {
        let socket = self.client.socket(&self.path(&["view"]), Some("binary")).await?;
        let (sender, receiver) = split(socket);
        Ok((ViewInput(sender), ViewOutput(receiver)))
    }
}

impl Keyboard {
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        self.0.send(Message::Binary(data)).await
    }

    pub async fn resize(&mut self, cols: u16, rows: u16) -> Result<()> {
        self.0.control(&TerminalControl::Resize { cols, rows }).await
    }
}

impl Screen {
    /// What comes next; `None` after the end, or when the desk went away.
    pub async fn next(&mut self) -> Result<Option<Shown>> {
        let Some(message) = self.0.next().await? else { return Ok(None) };
        match message {
            Message::Binary(data) => Ok(Some(Shown::Data(data))),
            Message::Text(text) => match serde_json::from_str(text.as_str()) {
                Ok(TerminalEvent::Lost { bytes }) => Ok(Some(Shown::Lost(bytes))),
                Ok(TerminalEvent::Exit { exit }) => Ok(Some(Shown::Exit(exit))),
                Ok(TerminalEvent::Problem { problem }) => Ok(Some(Shown::Problem(problem))),
                Err(e) => Err(Error::Strange(e.to_string())),
            },
            _ => Err(Error::Strange("a message of an unknown kind".into())),
        }
    }
}

/// The viewer's side of a live view.
pub struct ViewInput(Sender);

/// The desk's side of a live view.
pub struct ViewOutput(Receiver);

impl ViewInput {
    pub async fn write(&mut self, data: Bytes) -> Result<()> {
        self.0.send(Message::Binary(data)).await
    }
}

impl ViewOutput {
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            return match self.0.next().await? {
                Some(Message::Binary(data)) => Ok(Some(data)),
                Some(_) => continue,
                None => Ok(None),
            };
        }
    }
}
