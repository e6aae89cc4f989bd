//! One turn of somebody, from its beginning to its end, on its way into the trace.

use super::condense::{self, Event};
use super::recorder::Message;
use crate::error::{Error, Result};
use crate::lease::now_ms;
use hotdesk_api::trace::{By, Deed, StepResult};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// Events of one program; more than these are the same again.
const MOST_EVENTS: usize = 200_000;

/// Writes down what a program's hands do, event by event.
#[derive(Clone, Default)]
pub(crate) struct Scribe(Arc<Mutex<Vec<(Instant, Event)>>>);

impl Scribe {
    pub(crate) fn note(&self, event: Event) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < MOST_EVENTS {
            events.push((Instant::now(), event));
        }
    }
}

/// What will be a step.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) ticket: u64,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// When it began, in milliseconds since 1970.
    pub(super) at_ms: i64,
    pub(super) by: By,
    pub(super) entrance: String,
    pub(super) deeds: Vec<Deed>,
    pub(super) result: StepResult,
    pub(super) message: Option<String>,
    pub(super) snapshot: Option<String>,
}

impl Draft {
    pub(super) fn new(by: By, entrance: &str, deeds: Vec<Deed>) -> Self {
        let now = Instant::now();
        Self {
            ticket: ticket(),
            began: now,
            ended: now,
            at_ms: now_ms(),
            by,
            entrance: entrance.to_owned(),
            deeds,
            result: StepResult::Done,
            message: None,
            snapshot: None,
        }
    }
}

fn ticket() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A turn under way. Dropped before its end, it is told as done: hands go on when a client leaves.
pub(crate) struct Turn {
    draft: Option<Draft>,
    messages: UnboundedSender<Message>,
    pub(crate) scribe: Scribe,
}

impl Turn {
    pub(super) fn new(draft: Draft, messages: UnboundedSender<Message>) -> Self {
        Self { draft: Some(draft), messages, scribe: Scribe::default() }
    }

    pub(super) fn ticket(&self) -> u64 {
        self.draft.as_ref().map_or(0, |draft| draft.ticket)
    }

    pub(crate) fn end<T>(mut self, result: &Result<T>) {
        let Some(draft) = &mut self.draft else { return };
        if let Err(error) = result {
            let refused = matches!(error, Error::PersonDrives { .. });
            draft.result = if refused { StepResult::Refused } else { StepResult::Failed };
            draft.message = Some(error.to_string());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(mut draft) = self.draft.take() else { return };
        draft.ended = Instant::now();
        let events = std::mem::take(&mut *self.scribe.0.lock().unwrap_or_else(PoisonError::into_inner));
        draft.deeds.extend(condense::whole(&events).into_iter().map(Deed::Hands));
        // The recording may be over.
        let _ = self.messages.send(Message::Ended(Box::new(draft)));
    }
}
