//! One viewer's connection after the handshake: what it says goes to the hands and the clipboard at
//! once; what concerns the picture goes to [`super::updates`], which runs beside.

use super::cut_text::{self, action};
use super::message::{Malformed, Message, Parser};
use super::stage::Stage;
use super::updates::{Order, Updates};
use super::viewers::Viewer;
use super::wishes::Wishes;
use crate::input::live;
use hotdesk_api::action::Size;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

/// Orders that wait while an update is being written. A viewer that says more is not read meanwhile.
const MOST_ORDERS: usize = 64;

/// How long the clipboard may take before the keys that follow go on without it.
const CLIPBOARD_LIMIT: Duration = Duration::from_secs(1);

/// Bytes that are read at once.
const READ: usize = 4096;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    #[error("the viewer left")]
    Left,
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("the viewer said something that can't be understood: {0}")]
    Malformed(#[from] Malformed),
    #[error("the viewer reads too slowly")]
    TooSlow,
    #[error("the viewer no longer answers")]
    Silent,
    #[error("the viewer had to make room for another or for the end of the desk")]
    Dismissed,
    #[error("an error in the view: {0}")]
    Failed(String),
}

/// What a session is about.
pub(super) struct Terms {
    pub viewer: Arc<Viewer>,
    /// The screen's size that the viewer was told.
    pub size: Size,
    /// Whether the viewer may change it.
    pub resize: bool,
    /// Limits how many updates are encoded at once.
    pub encoders: Arc<Semaphore>,
}

/// What a viewer did itself lately, so that it is not told about it.
#[derive(Clone, Default)]
pub(super) struct Own(Arc<Mutex<Deeds>>);

#[derive(Clone, Copy, Default)]
pub(super) struct Deeds {
    /// Where it moved the pointer, and when.
    pub pointer: Option<(i32, i32, Instant)>,
    /// When it put something on the clipboard.
    pub copied: Option<Instant>,
}

impl Own {
    pub(super) fn get(&self) -> Deeds {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pointed(&self, x: u16, y: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pointer = Some((x.into(), y.into(), Instant::now()));
    }

    fn copied(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).copied = Some(Instant::now());
    }
}

/// Serves one viewer until it leaves.
pub(super) async fn run<S: Stage>(stream: impl AsyncRead + AsyncWrite + Send, stage: S, terms: Terms) -> Ending {
    let (reader, writer) = tokio::io::split(stream);
    let (orders, inbox) = mpsc::channel(MOST_ORDERS);
    let own = Own::default();
    let viewer = terms.viewer.clone();
    let ears = Ears { stage: stage.clone(), viewer: viewer.clone(), orders, own: own.clone(), hands: None };
    let updates = Updates::new(stage, terms, inbox, own, writer);
    tokio::select! {
        ending = ears.listen(reader) => ending,
        ending = updates.run() => ending,
        () = viewer.leave.cancelled() => Ending::Dismissed,
    }
}

/// Hears what the viewer says.
struct Ears<S> {
    stage: S,
    viewer: Arc<Viewer>,
    orders: mpsc::Sender<Order>,
    own: Own,
    /// Taken up with the first key or move: most viewers only look.
    hands: Option<mpsc::Sender<live::Event>>,
}

impl<S: Stage> Ears<S> {
    async fn listen(mut self, reader: impl AsyncRead) -> Ending {
        let mut reader = std::pin::pin!(reader);
        let mut parser = Parser::default();
        loop {
            loop {
                match parser.next() {
                    Ok(Some(message)) => {
                        if let Message::Encodings(numbers) = &message {
                            parser.extended_buttons = Wishes::new(numbers).extended_mouse_buttons;
                        }
                        // Updates end only together with the session.
                        if self.hear(message).await.is_err() {
                            return Ending::Left;
                        }
                    }
                    Ok(None) => break,
                    Err(reason) => return reason.into(),
                }
            }
            parser.buffer.reserve(READ);
            match reader.read_buf(&mut parser.buffer).await {
                Ok(0) => return Ending::Left,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof || e.kind() == io::ErrorKind::ConnectionReset => {
                    return Ending::Left;
                }
                Err(e) => return e.into(),
            }
        }
    }

    async fn hear(&mut self, message: Message) -> Result<(), mpsc::error::SendError<Order>> {
        let looks_only = self.viewer.view_only;
        let order = match message {
            Message::Key { down, keysym } => {
                self.touch(live::Event::Key { keysym, down }).await;
                return Ok(());
            }
            Message::Pointer { x, y, buttons } => {
                if !looks_only {
                    self.own.pointed(x, y);
                }
                self.touch(live::Event::Pointer { x, y, buttons }).await;
                return Ok(());
            }
            Message::CutText(latin) => {
                self.copy(cut_text::latin(&latin)).await;
                return Ok(());
            }
            Message::Clipboard { flags, data } => match self.clipboard(flags, &data).await {
                Some(order) => order,
                None => return Ok(()),
            },
            Message::PixelFormat(wanted) => Order::Format(wanted),
            Message::Encodings(numbers) => Order::Wishes(Box::new(Wishes::new(&numbers))),
            Message::UpdateRequest { incremental, area } => Order::Request { incremental, area },
            Message::ContinuousUpdates { enable, area } => Order::Continuous(enable.then_some(area)),
            Message::Fence { flags, payload } => Order::Fence { flags, payload },
            Message::Resize(size) => Order::Resize(size),
            Message::Ignored => return Ok(()),
        };
        self.orders.send(order).await
    }

    async fn touch(&mut self, event: live::Event) {
        if self.viewer.view_only {
            return;
        }
        if !self.stage.touch(&self.viewer, event).await {
            // Somebody else drives: what is still held down is let go.
            self.hands = None;
            return;
        }
        let hands = self.hands.get_or_insert_with(|| self.stage.hands());
        if hands.send(event).await.is_err() {
            // They failed; the next event gets new ones.
            self.hands = None;
        }
    }

    /// Waits until the text is on the clipboard: the keys that paste it may follow at once.
    async fn copy(&self, text: String) {
        if !self.viewer.view_only && self.stage.may_copy(&self.viewer) {
            self.own.copied();
            match timeout(CLIPBOARD_LIMIT, self.stage.copy_text(&self.viewer, text)).await {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => tracing::debug!(%reason, "a viewer's text did not reach the clipboard"),
                Err(_) => tracing::debug!("the clipboard did not take a viewer's text in time"),
            }
        }
    }

    /// The extended clipboard's messages. Returns what is to be answered.
    async fn clipboard(&self, flags: u32, data: &[u8]) -> Option<Order> {
        if self.viewer.view_only {
            return None;
        }
        match flags & action::ALL {
            action::PROVIDE => {
                if let Some(text) = cut_text::provided(flags, data) {
                    self.copy(text).await;
                }
                None
            }
            action::NOTIFY if flags & cut_text::TEXT != 0 => {
                Some(Order::Reply(cut_text::extended(action::REQUEST | cut_text::TEXT)))
            }
            action::REQUEST if flags & cut_text::TEXT != 0 => Some(Order::ClipboardText),
            action::PEEK => Some(Order::ClipboardNotice),
            _ => None,
        }
    }
}
