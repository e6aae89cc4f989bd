//! The task that records: takes turns as they end, waits until the screen is quiet, writes.
//!
//! ```text
//!   a turn begins ── Before (its picture is also the one after the last step)
//!         ends ──── Ended ── settled? a second? the next one? ── after, tree ── masked ── written
//!   a viewer ────── Live ── condensed into actions ── as above
//! ```

use super::condense::{Condenser, Event};
use super::mask::{self, Passwords};
use super::turn::Draft;
use super::writer::Writer;
use crate::access::Access;
use crate::error::{Error, Result};
use crate::lease::time_text;
use crate::screen::{Frame, Screen};
use hotdesk_api::access::{FindRequest, TreeQuery};
use hotdesk_api::trace::{By, Deed, Frames, Mask, Step, StepResult, TraceInfo};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

/// The screen counts as quiet when nothing changed for so long …
const QUIET: Duration = Duration::from_millis(100);
/// … and is looked at after that at the latest.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long programs may take to tell their tree.
const TREE_LIMIT: Duration = Duration::from_secs(5);
/// How long they may take to tell whether there is a password field.
const PASSWORD_LIMIT: Duration = Duration::from_secs(2);

pub(super) enum Message {
    /// A turn begins, and the screen is like this.
    Before {
        ticket: u64,
        frame: Arc<Frame>,
    },
    Ended(Box<Draft>),
    /// An event of a viewer, and the screen before it if something begins with it.
    Live {
        by: By,
        event: Event,
        at: Instant,
        at_ms: i64,
        frame: Option<Arc<Frame>>,
    },
    Stop {
        reply: oneshot::Sender<TraceInfo>,
    },
}

/// What others may know about a recording under way.
pub(super) struct Facts {
    pub(super) info: TraceInfo,
}

pub(super) struct Recorder {
    pub(super) screen: Screen,
    pub(super) access: Access,
    pub(super) writer: Arc<Mutex<Writer>>,
    pub(super) frames: Frames,
    pub(super) tree: bool,
    pub(super) mask: Mask,
    pub(super) started_ms: i64,
    pub(super) facts: Arc<Mutex<Facts>>,
    /// Pictures that wait to be written.
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) live: Live,
    /// Pictures before turns that are under way, by their tickets.
    pub(super) before: HashMap<u64, String>,
    pub(super) passwords: Passwords,
}

/// What people do through viewers.
#[derive(Default)]
pub(super) struct Live {
    condenser: Condenser,
    by: By,
    before: Option<String>,
    /// The clock's time of one moment.
    clock: Option<(Instant, i64)>,
}

type Quiet = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A step that waits for its last picture.
struct Pending {
    draft: Box<Draft>,
    quiet: Quiet,
}

impl Recorder {
    /// Records until it is told to stop, or can't go on; tells why in that case.
    pub(super) async fn run(mut self, mut messages: UnboundedReceiver<Message>) -> Option<String> {
        self.passwords = self.look_for_passwords().await;
        let mut pending: Option<Pending> = None;
        loop {
            let due = self.live.condenser.due();
            let done = tokio::select! {
                message = messages.recv() => match message {
                    None => return self.finish(&mut pending, None).await,
                    Some(Message::Stop { reply }) => {
                        let note = self.finish(&mut pending, None).await;
                        let _ = reply.send(self.facts.lock().unwrap_or_else(PoisonError::into_inner).info.clone());
                        return note;
                    }
                    Some(message) => self.hear(message, &mut pending).await,
                },
                () = quiet(&mut pending) => self.complete(&mut pending, None).await,
                () = until(due) => self.condensed(Instant::now(), &mut pending).await,
            };
            if let Err(error) = done {
                tracing::warn!(%error, "the trace ends here");
                let note = error.to_string();
                return self.finish(&mut None, Some(note)).await;
            }
        }
    }

    async fn hear(&mut self, message: Message, pending: &mut Option<Pending>) -> Result<()> {
        match message {
            Message::Before { ticket, frame } => {
                let name = self.keep(frame).await?;
                self.waiting.fetch_sub(1, Ordering::AcqRel);
                self.before.insert(ticket, name.clone());
                self.complete(pending, Some(name)).await
            }
            Message::Ended(draft) => self.ended(draft, pending).await,
            Message::Live { by, event, at, at_ms, frame } => {
                if let Some(frame) = frame {
                    let name = self.keep(frame).await?;
                    self.waiting.fetch_sub(1, Ordering::AcqRel);
                    self.complete(pending, Some(name.clone())).await?;
                    self.live.before = Some(name);
                }
                if self.live.by != by {
                    self.close_live(pending).await?;
                    self.live.by = by;
                }
                self.live.clock.get_or_insert((at, at_ms));
                self.live.condenser.feed(event, at);
                self.condensed(at, pending).await
            }
            Message::Stop { .. } => Ok(()),
        }
    }

    /// Steps of a viewer that are over.
    async fn condensed(&mut self, now: Instant, pending: &mut Option<Pending>) -> Result<()> {
        let done = self.live.condenser.take(now);
        self.live_steps(done, pending).await
    }

    async fn close_live(&mut self, pending: &mut Option<Pending>) -> Result<()> {
        let done = self.live.condenser.finish();
        self.live_steps(done, pending).await
    }

    async fn live_steps(&mut self, done: Vec<super::condense::Done>, pending: &mut Option<Pending>) -> Result<()> {
        for done in done {
            let mut draft = Draft::new(self.live.by.clone(), "view", vec![Deed::Hands(done.action)]);
            if let Some((moment, ms)) = self.live.clock {
                draft.at_ms = ms + done.began.saturating_duration_since(moment).as_millis() as i64;
            }
            (draft.began, draft.ended) = (done.began, done.ended);
            if let Some(before) = self.live.before.take() {
                self.before.insert(draft.ticket, before);
            }
            self.ended(Box::new(draft), pending).await?;
        }
        if self.live.condenser.is_idle() {
            self.live.clock = None;
        }
        Ok(())
    }

    async fn ended(&mut self, draft: Box<Draft>, pending: &mut Option<Pending>) -> Result<()> {
        self.complete(pending, None).await?;
        if draft.result == StepResult::Refused {
            return self.write(draft, None).await;
        }
        let (screen, frames) = (self.screen.clone(), self.frames);
        let quiet: Quiet = Box::pin(async move {
            if frames == Frames::Changed {
                // A display that is down is as quiet as can be.
                let _ = screen.settled(QUIET, LONGEST_WAIT).await;
            }
        });
        *pending = Some(Pending { draft, quiet });
        Ok(())
    }

    /// Writes the step that waits, with this picture or the one of this moment.
    async fn complete(&mut self, pending: &mut Option<Pending>, after: Option<String>) -> Result<()> {
        let Some(Pending { draft, .. }) = pending.take() else { return Ok(()) };
        let after = match after {
            Some(name) => Some(name),
            None => self.now().await?,
        };
        self.write(draft, after).await
    }

    /// The screen of this moment.
    async fn now(&mut self) -> Result<Option<String>> {
        if self.frames == Frames::None {
            return Ok(None);
        }
        match self.screen.frame().await {
            Ok(update) => self.keep(update.frame).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn write(&mut self, draft: Box<Draft>, after: Option<String>) -> Result<()> {
        let mut deeds = draft.deeds;
        let refused = draft.result == StepResult::Refused;
        let before = self.passwords;
        if self.mask == Mask::Secrets && !refused {
            self.passwords = self.look_for_passwords().await;
        }
        if mask::has_text(&deeds) {
            mask::mask(&mut deeds, self.mask, before, self.passwords);
        }
        let tree = if self.tree && !refused { self.look_at_tree().await } else { None };
        let step = Step {
            number: 0,
            at: time_text(draft.at_ms),
            offset_ms: u64::try_from(draft.at_ms - self.started_ms).unwrap_or(0),
            took_ms: (draft.ended.saturating_duration_since(draft.began).as_secs_f64() * 1e6).round() / 1e3,
            by: draft.by,
            entrance: draft.entrance,
            actions: deeds,
            result: draft.result,
            message: draft.message,
            before: self.before.remove(&draft.ticket),
            after,
            tree: tree.is_some(),
            snapshot: draft.snapshot,
        };
        self.on_writer(move |writer| {
            let number = writer.steps + 1;
            if let Some(tree) = &tree {
                writer.tree(number, tree)?;
            }
            writer.step(&Step { number, ..step })
        })
        .await
    }

    async fn keep(&mut self, frame: Arc<Frame>) -> Result<String> {
        self.on_writer(move |writer| writer.frame(&frame)).await
    }

    async fn look_at_tree(&self) -> Option<Vec<u8>> {
        let tree = tokio::time::timeout(TREE_LIMIT, async { self.access.tree(&TreeQuery::default()).await }).await.ok()?.ok()?;
        serde_json::to_vec(&tree).ok()
    }

    /// Which password fields programs tell of; none where nothing is known.
    async fn look_for_passwords(&self) -> Passwords {
        if self.mask != Mask::Secrets {
            return Passwords::default();
        }
        let request = FindRequest { role: Some("password-text".into()), ..FindRequest::default() };
        match tokio::time::timeout(PASSWORD_LIMIT, self.access.find(&request)).await {
            Ok(Ok(reply)) => Passwords {
                showing: !reply.found.is_empty(),
                focused: reply.found.iter().any(|e| e.states.iter().flatten().any(|state| state == "focused")),
            },
            _ => Passwords::default(),
        }
    }

    /// The last step and the end of the file.
    async fn finish(&mut self, pending: &mut Option<Pending>, note: Option<String>) -> Option<String> {
        let mut note = note;
        if note.is_none()
            && let Err(error) = self.last_steps(pending).await
        {
            note = Some(error.to_string());
        }
        let (ended, why) = (time_text(crate::lease::now_ms()), note.clone());
        {
            let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
            (facts.info.ended, facts.info.note) = (Some(ended.clone()), note.clone());
        }
        match self.on_writer(move |writer| writer.end(ended, why)).await {
            Ok(()) => self.facts.lock().unwrap_or_else(PoisonError::into_inner).info.complete = true,
            Err(error) => tracing::warn!(%error, "the end of the trace could not be written"),
        }
        note
    }

    async fn last_steps(&mut self, pending: &mut Option<Pending>) -> Result<()> {
        self.close_live(pending).await?;
        if let Some(Pending { quiet, .. }) = pending {
            quiet.as_mut().await;
        }
        self.complete(pending, None).await
    }

    /// Packing and writing take a while: not for async code.
    async fn on_writer<T: Send + 'static>(&self, work: impl FnOnce(&mut Writer) -> Result<T> + Send + 'static) -> Result<T> {
        let (writer, facts) = (self.writer.clone(), self.facts.clone());
        let work = move || {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let result = work(&mut writer);
            let mut facts = facts.lock().unwrap_or_else(PoisonError::into_inner);
            (facts.info.steps, facts.info.bytes) = (writer.steps, writer.bytes());
            result
        };
        tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
    }
}

async fn quiet(pending: &mut Option<Pending>) {
    match pending {
        Some(Pending { quiet, .. }) => quiet.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
