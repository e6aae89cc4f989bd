//! What a viewer is sent: the picture as it changes, the pointer, the size, the clipboard.
//!
//! ```text
//!                    ┌───────────────────────── orders (requests, wishes, fences)
//!                    ▼
//!   wait ──▶ may something be sent? ──no──▶ wait
//!                    │ yes, and the pace allows it
//!                    ▼
//!   owes something ──▶ the screen as it is ──┐
//!   owes nothing ────▶ the next change ──────┼─▶ copy what changed ─▶ encode ─▶ write ─▶ wait
//!   quiet for a while ▶ what was lossy ──────┘      (off the runtime)
//! ```
//!
//! The screen is only asked when the viewer can take an update. So a slow viewer gets fewer
//! updates, never older ones, and nothing is queued for it.

use super::cursor;
use super::cut_text::{self, action};
use super::encode::{Body, Encoder};
use super::pace::Pace;
use super::part::Part;
use super::pixel::{self, PixelFormat, Wanted};
use super::region::Region;
use super::session::{Ending, Own, Terms};
use super::stage::Stage;
use super::wishes::{Wishes, pseudo};
use crate::error::{Error, Result as DeskResult};
use crate::screen::{CursorImage, CursorShape, FrameUpdate, Seen};
use bytes::Bytes;
use hotdesk_api::action::{Rect, Size};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// After this time without changes, what was sent with a loss is sent again without.
const REFINE_AFTER: Duration = Duration::from_millis(300);

/// Pixels that are refined at once, so that a change never waits long behind them.
const REFINE: u32 = 64 * 1024;

/// While the display is down, how often it is looked for.
const RETRY: Duration = Duration::from_millis(500);

/// A viewer that was silent so long is asked whether it is still there.
const PING_AFTER: Duration = Duration::from_secs(30);

/// A viewer that takes no [`CHUNK`] in this time is dropped.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
const CHUNK: usize = 64 * 1024;

/// As long as the viewer moved the pointer itself, it knows best where it is.
const OWN_MOVE: Duration = Duration::from_millis(500);

/// A change of the clipboard so soon after the viewer's own is the viewer's own.
const OWN_COPY: Duration = Duration::from_secs(1);

/// Longest wait for the clipboard's owner.
const CLIPBOARD_LIMIT: Duration = Duration::from_secs(2);

/// What the viewer asked for.
#[derive(Debug)]
pub(super) enum Order {
    Format(Wanted),
    Wishes(Box<Wishes>),
    Request {
        incremental: bool,
        area: Rect,
    },
    Continuous(Option<Rect>),
    Fence {
        flags: u32,
        payload: Bytes,
    },
    Resize(Size),
    /// The clipboard's text is wanted.
    ClipboardText,
    /// Whether there is text on the clipboard is wanted.
    ClipboardNotice,
    /// A message that is ready.
    Reply(Vec<u8>),
}

/// Rectangles without pixels that wait for the next update.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Note {
    /// Why the size is told, and whether the viewer's wish for another was fulfilled.
    Size {
        reason: u16,
        status: u16,
    },
    ExtendedButtons,
}

pub(super) struct Updates<S, W> {
    stage: S,
    terms: Terms,
    orders: mpsc::Receiver<Order>,
    own: Own,
    writer: W,
    clipboard: Option<watch::Receiver<u64>>,
    encoder: Box<Encoder>,
    pace: Pace,
    request: Option<Rect>,
    continuous: Option<Rect>,
    seen: Seen,
    /// The screen's size; the viewer's idea of it is in `terms`.
    screen: Size,
    dirty: Region,
    lossy: Region,
    notes: Vec<Note>,
    /// The pointer as it is painted into the viewer's pixels.
    painted: Option<CursorImage>,
    /// The shape that the viewer shows; none if it has to be told.
    told: Option<Arc<CursorShape>>,
    told_position: Option<(i32, i32)>,
    retry_at: Instant,
    changed_at: Instant,
    /// When to look again whether the pointer is still where the viewer put it.
    recheck_at: Option<Instant>,
    heard_at: Instant,
}

/// What to wait for.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// An order.
    Nothing,
    /// The moment in which something that is owed may be sent.
    Now(Instant),
    /// The next change after the first moment, or the second moment.
    Change(Instant, Option<Instant>),
}

impl<S: Stage, W: AsyncWrite + Send + Unpin> Updates<S, W> {
    pub(super) fn new(stage: S, terms: Terms, orders: mpsc::Receiver<Order>, own: Own, writer: W) -> Self {
        let now = Instant::now();
        let clipboard = (!terms.viewer.view_only).then(|| stage.clipboard_changes());
        Self {
            dirty: Region::new(terms.size),
            lossy: Region::new(terms.size),
            screen: terms.size,
            stage,
            terms,
            orders,
            own,
            writer,
            clipboard,
            encoder: Box::default(),
            pace: Pace::new(),
            request: None,
            continuous: None,
            seen: Seen::default(),
            notes: Vec::new(),
            painted: None,
            told: None,
            told_position: None,
            retry_at: now,
            changed_at: now,
            recheck_at: None,
            heard_at: now,
        }
    }

    pub(super) async fn run(mut self) -> Ending {
        loop {
            if let Err(ending) = self.step().await {
                return ending;
            }
        }
    }

    async fn step(&mut self) -> Result<(), Ending> {
        let (turn, seen, stage) = (self.turn(), self.seen, self.stage.clone());
        let ping_at = self.heard_at + PING_AFTER;
        tokio::select! {
            biased;
            order = self.orders.recv() => {
                self.heard_at = Instant::now();
                self.obey(order.ok_or(Ending::Left)?).await
            }
            () = sleep_until(ping_at) => self.ping().await,
            () = clipboard_changed(&mut self.clipboard) => {
                let own = self.own.get().copied.is_some_and(|at| at.elapsed() < OWN_COPY);
                if own { Ok(()) } else { self.tell_clipboard().await }
            }
            look = look(stage, turn, seen) => match look {
                Ok(look) => self.update(look).await,
                Err(reason) => {
                    tracing::debug!(%reason, "no picture for a viewer");
                    self.retry_at = Instant::now() + RETRY;
                    Ok(())
                }
            },
        }
    }

    /// What may be sent now, if anything.
    fn allowed(&self) -> Option<Rect> {
        match self.continuous {
            Some(area) => self.pace.has_room().then_some(area),
            None => self.request,
        }
    }

    fn turn(&self) -> Turn {
        let Some(area) = self.allowed() else { return Turn::Nothing };
        let at = self.pace.ready_at().max(self.retry_at);
        if !self.notes.is_empty() || self.dirty.touches(area) {
            return Turn::Now(at);
        }
        let refine_at = (!self.lossy.is_empty()).then(|| (self.changed_at + REFINE_AFTER).max(at));
        Turn::Change(at, [refine_at, self.recheck_at].into_iter().flatten().min())
    }

    async fn obey(&mut self, order: Order) -> Result<(), Ending> {
        match order {
            Order::Format(Wanted::TrueColour(format)) => self.set_format(format),
            Order::Format(Wanted::ColourMap) => {
                self.set_format(PixelFormat::EIGHT_BIT);
                self.write(&pixel::colour_map()).await?;
            }
            Order::Wishes(wishes) => self.set_wishes(*wishes).await?,
            Order::Request { incremental, area } => {
                if !incremental {
                    self.dirty.mark(area);
                }
                self.request = Some(area);
            }
            Order::Continuous(area) => {
                if self.continuous.is_some() && area.is_none() {
                    self.write(&[150]).await?;
                }
                self.continuous = area;
            }
            Order::Fence { flags, payload } if flags >> 31 != 0 => {
                let mut answer = vec![248, 0, 0, 0];
                answer.extend((flags & 7).to_be_bytes());
                answer.push(payload.len() as u8);
                answer.extend(payload);
                self.write(&answer).await?;
            }
            Order::Fence { payload, .. } => {
                if let Ok(number) = <[u8; 8]>::try_from(&payload[..]) {
                    self.pace.answered(u64::from_be_bytes(number));
                }
            }
            Order::Resize(size) => self.resize(size).await,
            Order::ClipboardText => {
                let text = self.clipboard_text().await;
                let message = cut_text::provide(&text)?;
                self.write(&message).await?;
            }
            Order::ClipboardNotice => self.tell_clipboard().await?,
            Order::Reply(message) => self.write(&message).await?,
        }
        Ok(())
    }

    fn set_format(&mut self, format: PixelFormat) {
        self.encoder.set_format(format);
        self.told = None;
    }

    async fn set_wishes(&mut self, wishes: Wishes) -> Result<(), Ending> {
        let old = self.encoder.wishes().clone();
        self.encoder.set_wishes(wishes.clone());
        if old.cursor != wishes.cursor {
            self.told = None;
        }
        if wishes.fence && !old.fence {
            self.send_fence().await?;
        }
        if wishes.continuous_updates && !old.continuous_updates && wishes.fence {
            self.write(&[150]).await?;
        }
        if wishes.extended_clipboard && !old.extended_clipboard && !self.terms.viewer.view_only {
            self.write(&cut_text::capabilities()).await?;
        }
        if wishes.extended_desktop_size && !old.extended_desktop_size {
            self.notes.push(Note::Size { reason: 0, status: 0 });
        }
        if wishes.extended_mouse_buttons && !old.extended_mouse_buttons {
            self.notes.push(Note::ExtendedButtons);
        }
        Ok(())
    }

    async fn resize(&mut self, size: Size) {
        const BY_YOU: u16 = 1;
        let status = if !self.terms.resize || self.terms.viewer.view_only {
            1
        } else {
            match self.stage.resize(size).await {
                Ok(_) => 0,
                Err(Error::Unsupported { .. } | Error::Unavailable { .. }) => 2,
                Err(_) => 3,
            }
        };
        self.notes.retain(|note| !matches!(note, Note::Size { .. }));
        if self.encoder.wishes().extended_desktop_size {
            self.notes.push(Note::Size { reason: BY_YOU, status });
        }
    }

    /// Sends what is new in a look at the screen.
    async fn update(&mut self, look: FrameUpdate) -> Result<(), Ending> {
        let start = Instant::now();
        self.absorb(&look);
        let painting = self.place_pointer(&look.cursor);
        let Some(area) = self.allowed() else { return Ok(()) };

        let mut body = Body { bytes: vec![0; 4], ..Body::default() };
        if self.write_size(&mut body) {
            // The viewer asks again, for the new size.
            return self.send(body, start, Duration::ZERO).await;
        }
        self.write_pointer(&look.cursor, painting.is_some(), &mut body);
        if self.notes.contains(&Note::ExtendedButtons) {
            body.rect(0, 0, 0, 0, pseudo::EXTENDED_MOUSE_BUTTONS);
            self.notes.clear();
        }

        let mut rects = self.dirty.take(area);
        let refining = rects.is_empty() && start >= self.changed_at + REFINE_AFTER && !self.lossy.is_empty();
        if refining {
            rects = self.lossy.take_some(REFINE);
        } else {
            // What is sent anew need not be refined, or will be marked again.
            rects.iter().for_each(|rect| drop(self.lossy.take(*rect)));
        }
        if rects.is_empty() && body.rects == 0 {
            self.pace.found_nothing();
            return Ok(());
        }
        let part = Part { frame: look.frame, rects, pointer: painting, exact: refining };
        let cost = self.encode(part, &mut body).await?;
        self.send(body, start, cost).await
    }

    /// Marks what the viewer has not seen.
    fn absorb(&mut self, look: &FrameUpdate) {
        let frame = &look.frame;
        let resized = frame.size() != self.screen;
        if resized {
            self.screen = frame.size();
            let wishes = self.encoder.wishes();
            if wishes.extended_desktop_size || wishes.desktop_size {
                self.terms.size = self.screen;
                self.dirty = Region::new(self.screen);
                self.lossy = Region::new(self.screen);
                if !self.notes.iter().any(|note| matches!(note, Note::Size { .. })) {
                    self.notes.push(Note::Size { reason: 0, status: 0 });
                }
            }
        }
        // A display that was started again may count from the beginning.
        if resized || frame.version() < self.seen.frame {
            self.dirty.mark_all();
            self.changed_at = Instant::now();
        } else {
            for rect in frame.changed_since(self.seen.frame) {
                self.dirty.mark(rect);
                self.changed_at = Instant::now();
            }
        }
        self.seen = look.seen;
    }

    /// Decides who shows the pointer, and marks what has to be painted. Returns what is to be painted.
    ///
    /// A viewer that knows shapes shows the pointer where its own mouse is. That is right as long as it moves the
    /// pointer itself; when somebody else does, only paint shows where it is.
    fn place_pointer(&mut self, cursor: &CursorImage) -> Option<CursorImage> {
        let wishes = self.encoder.wishes();
        self.recheck_at = None;
        let paint = match (wishes.cursor, self.own.get().pointer) {
            (None, _) => true,
            (Some(_), _) if wishes.pointer_position => false,
            (Some(_), None) => true,
            (Some(_), Some((x, y, at))) => {
                let elsewhere = (x, y) != (cursor.x, cursor.y);
                if elsewhere && at.elapsed() < OWN_MOVE {
                    self.recheck_at = Some(at + OWN_MOVE);
                }
                elsewhere && at.elapsed() >= OWN_MOVE
            }
        };
        let painting = paint.then(|| cursor.clone());
        let same = match (&self.painted, &painting) {
            (None, None) => true,
            (Some(a), Some(b)) => (a.x, a.y) == (b.x, b.y) && a.shape == b.shape,
            _ => false,
        };
        if !same {
            for image in [&self.painted, &painting].into_iter().flatten() {
                self.dirty.mark(cursor::area(image));
            }
            self.painted = painting.clone();
        }
        painting
    }

    fn write_pointer(&mut self, cursor: &CursorImage, painted: bool, body: &mut Body) {
        let wishes = self.encoder.wishes();
        if let Some(wish) = wishes.cursor {
            let shape = if painted { Arc::default() } else { cursor.shape.clone() };
            if self.told.as_ref() != Some(&shape) {
                cursor::tell(&shape, wish, self.encoder.translator(), body);
                self.told = Some(shape);
            }
        }
        let position = (cursor.x, cursor.y);
        if wishes.pointer_position && self.told_position != Some(position) {
            let side = |n: i32| n.clamp(0, u16::MAX.into()) as u16;
            body.rect(side(position.0), side(position.1), 0, 0, pseudo::POINTER_POSITION);
            self.told_position = Some(position);
        }
    }

    /// Tells the screen's size if that is due; then nothing else goes into the update.
    fn write_size(&mut self, body: &mut Body) -> bool {
        let Some(at) = self.notes.iter().position(|note| matches!(note, Note::Size { .. })) else { return false };
        let Note::Size { reason, status } = self.notes.remove(at) else { return false };
        let side = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let (width, height) = (side(self.terms.size.width), side(self.terms.size.height));
        if self.encoder.wishes().extended_desktop_size {
            body.rect(reason, status, width, height, pseudo::EXTENDED_DESKTOP_SIZE);
            // One screen, number 0, without flags.
            body.bytes.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            body.bytes.extend(width.to_be_bytes());
            body.bytes.extend(height.to_be_bytes());
            body.bytes.extend([0; 4]);
        } else {
            body.rect(0, 0, width, height, pseudo::DESKTOP_SIZE);
        }
        true
    }

    /// Encodes parts of the screen, away from the runtime. Returns what it cost of a core.
    async fn encode(&mut self, part: Part, body: &mut Body) -> Result<Duration, Ending> {
        let failed = |reason: &dyn std::fmt::Display| Ending::Failed(reason.to_string());
        let permit = self.terms.encoders.clone().acquire_owned().await.map_err(|e| failed(&e))?;
        let (encoder, begun) = (std::mem::take(&mut self.encoder), std::mem::take(body));
        let work = move || {
            let done = part.encode(encoder, begun);
            drop(permit);
            done
        };
        let done = tokio::task::spawn_blocking(work).await.map_err(|e| failed(&e))??;
        self.encoder = done.encoder;
        *body = done.body;
        done.left_over.into_iter().for_each(|rect| self.dirty.mark(rect));
        Ok(done.cost)
    }

    async fn send(&mut self, mut body: Body, start: Instant, cost: Duration) -> Result<(), Ending> {
        body.lossy.iter().for_each(|rect| self.lossy.mark(*rect));
        let count = body.rects.min(u16::MAX.into()) as u16;
        body.bytes[2..4].copy_from_slice(&count.to_be_bytes());
        self.write(&body.bytes).await?;
        self.terms.viewer.frames.fetch_add(1, Ordering::Relaxed);
        self.request = None;
        if self.continuous.is_some() {
            self.send_fence().await?;
        }
        self.pace.sent(start, cost);
        Ok(())
    }

    async fn send_fence(&mut self) -> Result<(), Ending> {
        let mut fence = vec![248, 0, 0, 0];
        // A request, to be answered when everything before it was read.
        fence.extend((1u32 << 31 | 1).to_be_bytes());
        fence.push(8);
        fence.extend(self.pace.fence().to_be_bytes());
        self.write(&fence).await
    }

    async fn ping(&mut self) -> Result<(), Ending> {
        self.heard_at = Instant::now();
        if self.pace.is_lost() {
            return Err(Ending::Silent);
        }
        if self.encoder.wishes().fence && !self.pace.is_waiting() { self.send_fence().await } else { Ok(()) }
    }

    async fn clipboard_text(&self) -> String {
        match timeout(CLIPBOARD_LIMIT, self.stage.copied_text()).await {
            Ok(Ok(text)) => text,
            _ => String::new(),
        }
    }

    /// Tells that there is something new on the clipboard: by name where the viewer can ask for it, else the text itself.
    async fn tell_clipboard(&mut self) -> Result<(), Ending> {
        if self.terms.viewer.view_only {
            return Ok(());
        }
        if self.encoder.wishes().extended_clipboard {
            return self.write(&cut_text::extended(action::NOTIFY | cut_text::TEXT)).await;
        }
        let text = self.clipboard_text().await;
        if text.is_empty() { Ok(()) } else { self.write(&cut_text::plain(&text)).await }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Ending> {
        for chunk in bytes.chunks(CHUNK) {
            timeout(WRITE_LIMIT, self.writer.write_all(chunk)).await.map_err(|_| Ending::TooSlow)??;
        }
        timeout(WRITE_LIMIT, self.writer.flush()).await.map_err(|_| Ending::TooSlow)??;
        self.terms.viewer.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

async fn look<S: Stage>(stage: S, turn: Turn, seen: Seen) -> DeskResult<FrameUpdate> {
    match turn {
        Turn::Nothing => std::future::pending().await,
        Turn::Now(at) => {
            sleep_until(at).await;
            stage.frame().await
        }
        Turn::Change(from, until) => {
            sleep_until(from).await;
            let Some(until) = until else { return stage.next_frame(seen).await };
            match timeout_at(until, stage.next_frame(seen)).await {
                Ok(look) => look,
                Err(_) => stage.frame().await,
            }
        }
    }
}

async fn clipboard_changed(changes: &mut Option<watch::Receiver<u64>>) {
    let alive = match changes {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    if !alive {
        std::future::pending().await
    }
}
