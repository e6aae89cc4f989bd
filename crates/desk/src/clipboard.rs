//! The clipboard: reading the owner's selection and owning it ourselves.
//!
//! X keeps no clipboard: one program owns the selection and hands it out to those who ask. Reading
//! is asking (`read`); writing is becoming the owner and answering for as long as nobody else
//! becomes it (`owner`). Both do contents of any size in parts (INCR).

mod offer;
mod owner;
mod read;

use crate::error::{Error, Result};
use crate::lease::Gate;
use crate::place::{Display, Place};
use crate::x11::ANSWER_LIMIT;
use bytes::Bytes;
use hotdesk_api::clipboard::ClipboardTypes;
pub use hotdesk_api::clipboard::Selection;
use hotdesk_api::trace::{Deed, OtherDeed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The largest content in either direction; a picture of an 8K screen fits.
pub const LARGEST: usize = 64 << 20;
/// How long an owner may take for one answer before it counts as hung.
const OWNER_LIMIT: Duration = Duration::from_secs(5);
/// How long a whole content may take.
const WHOLE_LIMIT: Duration = Duration::from_secs(30);
/// Reads at once: each may hold a whole content in memory.
const MOST_READS: usize = 4;

/// What a trace keeps of a text.
const LONGEST_NOTE: usize = 64 << 10;

/// A content and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// A MIME type, or the name of an X target.
    pub kind: String,
    pub bytes: Bytes,
}

/// The clipboard engine. Cheap to clone.
#[derive(Clone)]
pub struct Clipboard {
    display: Display,
    owner: Arc<Mutex<Option<owner::Owner>>>,
    reads: Arc<Semaphore>,
    gate: Gate,
}

impl Clipboard {
    pub fn new(place: Arc<Place>) -> Self {
        let reads = Arc::new(Semaphore::new(MOST_READS));
        Self { display: place.display.clone(), owner: Arc::default(), reads, gate: Gate::default() }
    }

    /// The same behind a gate.
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// The text on the clipboard.
    pub async fn text(&self, selection: Selection) -> Result<String> {
        let content = self.get(selection, None).await?;
        Ok(String::from_utf8_lossy(&content.bytes).into_owned())
    }

    /// Puts a text on the clipboard.
    pub async fn set_text(&self, selection: Selection, text: String) -> Result<()> {
        self.set(selection, Content { kind: offer::TEXT.into(), bytes: text.into() }).await
    }

    /// The content as a type, or as text (always in UTF-8) if none is named.
    pub async fn get(&self, selection: Selection, kind: Option<String>) -> Result<Content> {
        if let Some(kind) = &kind {
            offer::check_kind(kind)?;
        }
        self.ask(move |reader| reader.content(selection, kind.as_deref())).await
    }

    /// What the content can be read as.
    pub async fn types(&self, selection: Selection) -> Result<ClipboardTypes> {
        self.ask(move |reader| reader.types(selection)).await
    }

    /// Puts a content on the clipboard.
    pub async fn set(&self, selection: Selection, content: Content) -> Result<()> {
        offer::check_kind(&content.kind)?;
        if content.bytes.len() > LARGEST {
            return Err(Error::TooLarge { what: "the content".into(), limit: LARGEST as u64 });
        }
        if offer::is_text(&content.kind) && std::str::from_utf8(&content.bytes).is_err() {
            return Err(Error::Invalid("the text is not in UTF-8".into()));
        }
        let (kind, bytes) = (content.kind.clone(), content.bytes.clone());
        let deed = || {
            let text =
                offer::is_text(&kind).then(|| String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_NOTE)]).into_owned());
            vec![Deed::Other(OtherDeed::Copy { selection, r#type: kind, bytes: bytes.len() as u64, text })]
        };
        self.gate.turn(deed, |_| self.tell(selection, Some(content))).await
    }

    /// Empties the clipboard, whoever owns it.
    pub async fn clear(&self, selection: Selection) -> Result<()> {
        let deed = || vec![Deed::Other(OtherDeed::ClearClipboard { selection })];
        self.gate.turn(deed, |_| self.tell(selection, None)).await
    }

    async fn tell(&self, selection: Selection, content: Option<Content>) -> Result<()> {
        let (owner, display) = (self.owner.clone(), self.display.clone());
        let work = move || {
            let mut slot = owner.lock().unwrap_or_else(PoisonError::into_inner);
            let content = match (&*slot, content) {
                (Some(owner), content) => match owner.tell(selection, content) {
                    Ok(answer) => return Ok(answer),
                    // Its display has died; a new owner opens the new one.
                    Err(content) => content,
                },
                (None, content) => content,
            };
            let owner = slot.insert(owner::Owner::start(&display)?);
            owner.tell(selection, content).map_err(|_| Error::display_down("it died meanwhile"))
        };
        let answer = async {
            let answer = tokio::task::spawn_blocking(work).await.map_err(Error::internal)??;
            answer.await.map_err(|_| Error::display_down("it died meanwhile"))?
        };
        match tokio::time::timeout(ANSWER_LIMIT, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::display_down("it does not answer")),
        }
    }

    async fn ask<R: Send + 'static>(&self, question: impl FnOnce(&read::Reader) -> Result<R> + Send + 'static) -> Result<R> {
        let permit = self.reads.clone().acquire_owned().await.map_err(Error::internal)?;
        let display = self.display.clone();
        let work = move || {
            let _permit = permit;
            question(&read::Reader::open(&display)?)
        };
        let limit = WHOLE_LIMIT + OWNER_LIMIT;
        match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
            Ok(answer) => answer.map_err(Error::internal)?,
            Err(_) => Err(Error::display_down("it does not answer")),
        }
    }
}

#[cfg(test)]
mod tests;
