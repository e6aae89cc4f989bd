//! Traces: every step on the desk, by whomever, with the screen before and after it, in one file.
//!
//! ```text
//!   gate ── turn ──┐
//!   viewers ───────┼─▶ recorder ── mask ──▶ writer ──▶ ~/.local/share/hotdesk/traces/ID.hdtrace
//!   snapshots ─────┘   (condense)                              └──▶ reader ── show, render, replay
//! ```
//!
//! The file is only ever appended to, so it can be read while it grows and after a crash. It belongs to
//! the desk: it outlives stops and goes with the desk. `docs/traces.md` has the format.

mod condense;
mod format;
mod mask;
pub(crate) mod reader;
mod recorder;
#[cfg(test)]
mod tests;
mod turn;
mod writer;

pub use condense::Event;
pub use reader::{Reader, Strip};
pub(crate) use turn::{Scribe, Turn};

use crate::access::Access;
use crate::error::{Error, Result};
use crate::input::live;
use crate::lease::{Asker, Pass, now_ms, time_text};
use crate::screen::Screen;
use format::Head;
use hotdesk_api::action::Size;
use hotdesk_api::lease::Driver;
use hotdesk_api::trace::{By, Deed, Frames, OtherDeed, StartTrace, TraceInfo};
use recorder::{Facts, Live, Message, Recorder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use turn::Draft;
use writer::Writer;

/// Below the desk's home.
pub const FOLDER: &str = ".local/share/hotdesk/traces";
/// The end of a trace's file name.
pub const EXTENSION: &str = "hdtrace";
/// A trace ends when it is that large, unless it was asked for more or less. Some 10,000 steps.
const LARGEST: u64 = 1 << 30;
/// Less would not hold a single picture.
const SMALLEST: u64 = 1 << 20;
const LONGEST_NAME: usize = 200;
/// Pictures that may wait to be written. An agent that acts faster than the disk writes gets steps without a picture before them.
const MOST_WAITING: usize = 4;
/// How long the picture before a turn may take.
const LOOK_LIMIT: Duration = Duration::from_millis(250);
/// A viewer's input after such a pause begins something new.
const NEW_GESTURE: Duration = Duration::from_millis(500);
/// How long a recording may take to write its end.
const END_LIMIT: Duration = Duration::from_secs(15);
/// The same when the desk stops, which has only seconds for all of its parts.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);
/// Open traces that are kept for those who page through them.
const MOST_READERS: usize = 4;

/// Records and keeps the traces of a desk. Cheap to clone.
#[derive(Clone)]
pub struct Tracer(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    screen: Screen,
    access: Access,
    active: Mutex<Option<Active>>,
    /// Held while a recording is started or ended.
    change: tokio::sync::Mutex<()>,
    readers: Mutex<Vec<(String, Arc<Mutex<Reader>>)>>,
}

/// The recording under way.
#[derive(Clone)]
struct Active {
    id: String,
    messages: mpsc::UnboundedSender<Message>,
    frames: Frames,
    facts: Arc<Mutex<Facts>>,
    waiting: Arc<AtomicUsize>,
    /// The last input of a viewer, and its buttons.
    live: Arc<Mutex<(Instant, u16)>>,
}

impl Tracer {
    /// `access` must not send its acts through a gate of this tracer.
    pub fn new(home: &Path, screen: Screen, access: Access) -> Self {
        Self(Arc::new(Inner {
            folder: home.join(FOLDER),
            screen,
            access,
            active: Mutex::default(),
            change: tokio::sync::Mutex::default(),
            readers: Mutex::default(),
        }))
    }

    /// Begins to record. `Conflict` while a recording is under way.
    pub async fn start(&self, how: StartTrace) -> Result<TraceInfo> {
        let _change = self.0.change.lock().await;
        if self.active().is_some() {
            return Err(Error::Conflict("a trace is being recorded already; end it first".into()));
        }
        let limit = how.max_bytes.unwrap_or(LARGEST);
        if limit < SMALLEST {
            return Err(Error::Invalid(format!("`max_bytes` is {limit}; it must be at least {SMALLEST}")));
        }
        if how.name.as_ref().is_some_and(|name| name.chars().count() > LONGEST_NAME) {
            return Err(Error::Invalid(format!("`name` has at most {LONGEST_NAME} characters")));
        }
        let size = self.0.screen.size().await.unwrap_or(Size { width: 0, height: 0 });
        let started_ms = now_ms();
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let head = Head {
            id: new_id(),
            name: how.name,
            desk: host.filter(|host| host.starts_with("d-")),
            started: time_text(started_ms),
            width: size.width,
            height: size.height,
            writer: concat!("hotdesk ", env!("CARGO_PKG_VERSION")).into(),
            mask: how.mask,
        };
        let path = self.path(&head.id);
        let (folder, first) = (self.0.folder.clone(), head.clone());
        let made = tokio::task::spawn_blocking(move || {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|e| Error::file(folder.display(), &e))?;
            Writer::create(&path, &first, limit)
        });
        let writer = made.await.map_err(Error::internal)??;
        let info = TraceInfo {
            id: head.id.clone(),
            name: head.name,
            desk: head.desk,
            started: head.started,
            ended: None,
            steps: 0,
            bytes: writer.bytes(),
            width: size.width,
            height: size.height,
            complete: false,
            note: None,
        };
        let (messages, inbox) = mpsc::unbounded_channel();
        let active = Active {
            id: head.id.clone(),
            messages,
            frames: how.frames,
            facts: Arc::new(Mutex::new(Facts { info: info.clone() })),
            waiting: Arc::default(),
            live: Arc::new(Mutex::new((Instant::now() - NEW_GESTURE, 0))),
        };
        let recorder = Recorder {
            screen: self.0.screen.clone(),
            access: self.0.access.clone(),
            writer: Arc::new(Mutex::new(writer)),
            frames: how.frames,
            tree: how.tree,
            mask: how.mask,
            started_ms,
            facts: active.facts.clone(),
            waiting: active.waiting.clone(),
            live: Live::default(),
            before: Default::default(),
            passwords: Default::default(),
        };
        *self.slot() = Some(active);
        let (inner, id) = (Arc::downgrade(&self.0), head.id);
        tokio::spawn(async move {
            recorder.run(inbox).await;
            let Some(inner) = inner.upgrade() else { return };
            let mut slot = inner.active.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.as_ref().is_some_and(|active| active.id == id) {
                *slot = None;
            }
        });
        Ok(info)
    }

    /// Ends the recording.
    pub async fn stop(&self) -> Result<TraceInfo> {
        let _change = self.0.change.lock().await;
        let none = || Error::NotFound("no trace is being recorded".into());
        let active = self.active().ok_or_else(none)?;
        let (reply, answer) = oneshot::channel();
        active.messages.send(Message::Stop { reply }).map_err(|_| none())?;
        let info = tokio::time::timeout(END_LIMIT, answer).await;
        *self.slot() = None;
        match info {
            Ok(Ok(info)) => Ok(info),
            // It ended by itself just now; its file tells the rest.
            Ok(Err(_)) => self.info(&active.id).await,
            Err(_) => Err(Error::Timeout { what: "the end of the trace".into(), limit: END_LIMIT }),
        }
    }

    /// Ends the recording, if there is one: the desk stops. What is not written by then is lost, and no more.
    pub(crate) async fn shutdown(&self) {
        let _ = tokio::time::timeout(SHUTDOWN_LIMIT, self.stop()).await;
    }

    /// The recording under way.
    pub fn current(&self) -> Option<TraceInfo> {
        self.active().map(|active| active.facts.lock().unwrap_or_else(PoisonError::into_inner).info.clone())
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.slot().is_some()
    }

    /// All traces, the newest first.
    pub async fn list(&self) -> Result<Vec<TraceInfo>> {
        let folder = self.0.folder.clone();
        let names = tokio::task::spawn_blocking(move || -> Vec<String> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.filter_map(|name| Some(name.strip_suffix(EXTENSION)?.strip_suffix('.')?.to_owned())).collect()
        });
        let mut traces = Vec::new();
        for id in names.await.map_err(Error::internal)? {
            // A file that is no trace is not ours to complain about.
            traces.extend(self.info(&id).await.ok());
        }
        traces.sort_by(|a, b| b.started.cmp(&a.started));
        Ok(traces)
    }

    pub async fn info(&self, id: &str) -> Result<TraceInfo> {
        match self.current() {
            Some(info) if info.id == id => Ok(info),
            _ => self.read(id, |reader| Ok(reader.info())).await,
        }
    }

    pub async fn delete(&self, id: &str) -> Result<()> {
        if self.current().is_some_and(|info| info.id == id) {
            return Err(Error::Conflict("this trace is being recorded; end it first".into()));
        }
        let path = self.file(id)?;
        self.readers().retain(|(kept, _)| kept != id);
        tokio::fs::remove_file(&path).await.map_err(|e| Error::file(path.display(), &e))
    }

    /// Reads something of a trace.
    pub async fn read<T: Send + 'static>(&self, id: &str, what: impl FnOnce(&Reader) -> Result<T> + Send + 'static) -> Result<T> {
        let path = self.file(id)?;
        let known = self.readers().iter().find(|(kept, _)| kept == id).map(|(_, reader)| reader.clone());
        let (this, id) = (self.clone(), id.to_owned());
        let work = move || {
            let reader = match known {
                Some(reader) => reader,
                None => {
                    let reader = Arc::new(Mutex::new(Reader::open(&path)?));
                    let mut readers = this.readers();
                    readers.retain(|(kept, _)| *kept != id);
                    if readers.len() >= MOST_READERS {
                        readers.remove(0);
                    }
                    readers.push((id, reader.clone()));
                    reader
                }
            };
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.refresh()?;
            what(&reader)
        };
        tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
    }

    /// The file of a trace, which need not exist.
    pub fn file(&self, id: &str) -> Result<PathBuf> {
        if id.len() > 64 || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') || id.is_empty() {
            return Err(Error::NotFound("there is no such trace".into()));
        }
        Ok(self.path(id))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.folder.join(format!("{id}.{EXTENSION}"))
    }

    /// A snapshot was taken: from here a desk can be made that goes on.
    pub fn note_snapshot(&self, id: &str) -> Result<()> {
        let active = self.active().ok_or_else(|| Error::NotFound("no trace is being recorded".into()))?;
        let deed = Deed::Other(OtherDeed::Snapshot { id: id.to_owned() });
        let mut draft = Draft::new(By::default(), "fleet", vec![deed]);
        draft.snapshot = Some(id.to_owned());
        let _ = active.messages.send(Message::Ended(Box::new(draft)));
        Ok(())
    }

    /// A turn begins, if one is recorded; with the picture before it, unless it is refused.
    pub(crate) async fn begin(&self, asker: &Asker, pass: Option<&Pass>, deeds: impl FnOnce() -> Vec<Deed>) -> Option<Turn> {
        let active = self.active()?;
        let by = pass.map(|pass| By { driver: pass.driver, name: pass.name.clone() }).unwrap_or_default();
        let turn = Turn::new(Draft::new(by, &asker.entrance, deeds()), active.messages.clone());
        if pass.is_some()
            && let Some(frame) = self.look(&active).await
        {
            let _ = active.messages.send(Message::Before { ticket: turn.ticket(), frame });
        }
        Some(turn)
    }

    /// An event of a viewer that counts.
    pub(crate) async fn live(&self, name: Option<String>, event: live::Event) {
        let Some(active) = self.active() else { return };
        let by = By { driver: Driver::Person, name };
        let (at, at_ms) = (Instant::now(), now_ms());
        let send = |event, frame| {
            let _ = active.messages.send(Message::Live { by: by.clone(), event, at, at_ms, frame });
        };
        let (new, last) = {
            let mut live = active.live.lock().unwrap_or_else(PoisonError::into_inner);
            let new = at.duration_since(live.0) >= NEW_GESTURE;
            let last = live.1;
            match event {
                live::Event::Pointer { buttons, .. } if buttons == last => {}
                live::Event::Pointer { buttons, .. } => *live = (at, buttons),
                live::Event::Key { .. } => live.0 = at,
            }
            (new, last)
        };
        match event {
            live::Event::Key { keysym, down } => {
                let frame = if new { self.look(&active).await } else { None };
                send(Event::Key { keysym, down }, frame);
            }
            live::Event::Pointer { x, y, buttons } => {
                send(Event::Motion { x: x.into(), y: y.into() }, None);
                let changed = last ^ buttons;
                let mut frame = if new && changed != 0 { self.look(&active).await } else { None };
                for bit in (0..9u8).filter(|bit| changed & 1 << bit != 0) {
                    send(Event::Button { button: bit + 1, down: buttons & 1 << bit != 0 }, frame.take());
                }
            }
        }
    }

    /// The screen now, if there is room for one more picture.
    async fn look(&self, active: &Active) -> Option<Arc<crate::screen::Frame>> {
        if active.frames == Frames::None || active.waiting.load(Ordering::Acquire) >= MOST_WAITING {
            return None;
        }
        let update = tokio::time::timeout(LOOK_LIMIT, self.0.screen.frame()).await.ok()?.ok()?;
        active.waiting.fetch_add(1, Ordering::AcqRel);
        Some(update.frame)
    }

    fn active(&self) -> Option<Active> {
        self.slot().clone()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Active>> {
        self.0.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, Vec<(String, Arc<Mutex<Reader>>)>> {
        self.0.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `t-` and twelve characters.
fn new_id() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bits = rand::random::<u64>();
    let letters = (0..12).map(|n| char::from(LETTERS[(bits >> (5 * n)) as usize & 31]));
    format!("t-{}", letters.collect::<String>())
}
