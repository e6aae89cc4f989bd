//! A WebSocket on something that prints and reads: a program, a terminal.
//!
//! Output goes out as it comes, input comes in as it is sent, and neither waits for the other: a
//! program that does not read still prints, a client that does not read can still type.

use crate::error::{Error, Result};
use crate::process::tape::Next;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::sync::mpsc;

/// One message of a client: more is not typed, and pasting can be split.
const MESSAGE_LIMIT: usize = 1 << 20;
/// How often a quiet client is asked whether it is still there.
const PING: Duration = Duration::from_secs(20);

/// The two sides of what is attached to.
pub(super) trait Attached: Send + Sync + 'static {
    /// What comes next, `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Next>> + Send;
    /// Output as a message.
    fn show(&self, next: Next) -> Message;
    /// The last message.
    fn end(&self) -> Message;
    /// How a problem is told.
    fn problem(error: &Error) -> Message;
    /// The side that reads.
    fn input(&self) -> impl Input;
}

pub(super) trait Input: Send + Sync + 'static {
    fn write(&self, data: Bytes) -> impl Future<Output = Result<()>> + Send;
    /// Text of the client.
    fn control(&self, text: &str) -> impl Future<Output = Result<()>> + Send;
}

pub(super) fn attach(upgrade: WebSocketUpgrade, attached: impl Attached) -> Response {
    upgrade.max_message_size(MESSAGE_LIMIT).max_frame_size(MESSAGE_LIMIT).on_upgrade(move |socket| run(socket, attached))
}

async fn run<A: Attached>(socket: WebSocket, mut attached: A) {
    let (mut sink, mut stream) = socket.split();
    let input = attached.input();
    // One waits while one is sent; a client that causes more than it reads is not told of all of them.
    let (problems, mut told) = mpsc::channel::<Error>(1);
    let reading = async {
        while let Some(Ok(message)) = stream.next().await {
            let done = match message {
                Message::Binary(data) => input.write(data).await,
                Message::Text(text) => input.control(text.as_str()).await,
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) => Ok(()),
            };
            if let Err(error) = done {
                let _ = problems.try_send(error);
            }
        }
    };
    let writing = async {
        let mut ping = tokio::time::interval(PING);
        ping.reset();
        loop {
            let message = tokio::select! {
                next = attached.next() => match next {
                    Some(next) => attached.show(next),
                    None => break,
                },
                Some(error) = told.recv() => A::problem(&error),
                _ = ping.tick() => Message::Ping(Bytes::new()),
            };
            if sink.send(message).await.is_err() {
                return;
            }
        }
        if sink.send(attached.end()).await.is_ok() {
            let _ = sink.close().await;
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

/// JSON as a text message.
pub(super) fn text(value: &impl serde::Serialize) -> Message {
    Message::Text(serde_json::to_string(value).unwrap_or_default().into())
}

/// What a client said, or why it can't be understood.
pub(super) fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    hotdesk_api::json::from_slice(text.as_bytes()).map_err(|e| Error::Invalid(format!("the message can't be understood: {e}")))
}
