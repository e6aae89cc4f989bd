//! One blob on its way up.
//!
//! ```text
//!   there? ── yes ─► done          in another repository? ── mounted ─► done
//!     │ no
//!   begin ─► piece ─► piece ─► … ─► finish with the digest
//!              │ broken: wait, ask how far it got, go on there
//! ```

use super::super::blob::Blob;
use super::Push;
use super::session::{Session, Trouble};
use crate::{Error, Result};
use bytes::Bytes;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use reqwest::{Method, Response, StatusCode, Url};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// What is lost at most when a connection breaks, with registries that forget unfinished pieces. Proxies in front of registries refuse
/// requests from about 100 MB on.
const PIECE: u64 = 16 << 20;
/// Read at a time.
const READ: usize = 256 << 10;
/// A connection that takes no byte for so long is dead, whatever it says.
const STALL: Duration = Duration::from_secs(60);
/// A registry checks the whole blob before it says yes, and some copy it to where it stays.
const FINISH: Duration = Duration::from_secs(900);
/// Pauses between attempts: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A registry's least size of a piece.
const LEAST_PIECE: &str = "oci-chunk-min-length";

/// What became of a blob.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) sent: u64,
    pub(super) present: bool,
    pub(super) mounted: bool,
    pub(super) resumed: usize,
}

pub(super) struct Upload<'a> {
    session: &'a Session,
    blob: &'a Blob,
    how: &'a Push,
    /// Bytes of all blobs that are through, for people.
    total: &'a AtomicU64,
    stage: &'a (dyn Fn(&str) + Send + Sync),
    /// Where the registry wants the next piece, once the upload has begun.
    place: Option<Url>,
    offset: u64,
    piece: u64,
    /// What this blob has added to the total.
    counted: Arc<AtomicU64>,
    /// Whether it began in the middle: then a wrong digest may be the registry's fault.
    resumed_here: bool,
    done: Done,
}

/// Waits longer and longer, and not for ever.
pub(super) struct Patience {
    limit: Duration,
    since: Option<Instant>,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, since: None, pause: PAUSE }
    }

    /// Something got through.
    fn renew(&mut self) {
        (self.since, self.pause) = (None, PAUSE);
    }

    pub(super) async fn wait(&mut self, host: &str, why: &str) -> Result<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.limit {
            return Err(Error::Failed(format!(
                "the registry at {host} took nothing for {} s, so the push was given up: {why}; pushed again, it goes on with what has arrived",
                self.limit.as_secs()
            )));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

impl<'a> Upload<'a> {
    pub(super) fn new(
        session: &'a Session,
        blob: &'a Blob,
        how: &'a Push,
        total: &'a AtomicU64,
        stage: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Self {
        Self {
            session,
            blob,
            how,
            total,
            stage,
            place: None,
            offset: 0,
            piece: PIECE,
            counted: Arc::default(),
            resumed_here: false,
            done: Done::default(),
        }
    }

    pub(super) async fn run(mut self) -> Result<Done> {
        let mut patience = Patience::new(self.how.patience);
        let mut furthest = 0;
        loop {
            match self.attempt().await {
                Ok(()) => {
                    self.count(self.blob.size);
                    return Ok(self.done);
                }
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Passing(why)) => {
                    tracing::debug!(blob = self.blob.digest, offset = self.offset, "the push waits: {why}");
                    (self.stage)(&format!("waiting for the registry: {why}"));
                    if self.offset > furthest {
                        furthest = self.offset;
                        patience.renew();
                    }
                    patience.wait(self.session.host(), &why).await?;
                }
            }
        }
    }

    async fn attempt(&mut self) -> Result<(), Trouble> {
        if self.place.is_some() {
            self.ask_where().await?;
        }
        if self.place.is_none() && self.begin().await? {
            return Ok(());
        }
        while self.offset < self.blob.size {
            self.send_piece().await?;
        }
        self.finish().await
    }

    /// Returns true if there is nothing to send.
    async fn begin(&mut self) -> Result<bool, Trouble> {
        let session = self.session;
        if self.there(&session.repository).await? {
            // After an answer that was lost, it is ours.
            self.done.present = self.done.sent == 0;
            return Ok(true);
        }
        let mut url = session.url(&session.repository, "blobs/uploads/")?;
        for from in self.how.mount_from.iter().filter(|from| **from != session.repository) {
            if self.there(from).await? {
                url.query_pairs_mut().append_pair("mount", &self.blob.digest).append_pair("from", from);
                break;
            }
        }
        let make = || Ok(session.request(Method::POST, &url).header(CONTENT_LENGTH, 0).timeout(STALL));
        let answer = session.send(&url, make).await?;
        match answer.status() {
            StatusCode::CREATED => {
                self.done.mounted = true;
                Ok(true)
            }
            StatusCode::ACCEPTED => {
                let least = answer.headers().get(LEAST_PIECE).and_then(|value| value.to_str().ok()?.parse().ok());
                self.piece = PIECE.max(least.unwrap_or(0));
                (self.offset, self.resumed_here) = (0, false);
                self.moved(&answer, &url)?;
                Ok(false)
            }
            _ => Err(session.refused("the registry does not begin an upload", answer).await.into()),
        }
    }

    async fn there(&self, repository: &str) -> Result<bool, Trouble> {
        let url = self.session.url(repository, &format!("blobs/{}", self.blob.digest))?;
        let answer = self.session.ask(Method::HEAD, &url).await?;
        Ok(answer.status().is_success())
    }

    /// After something broke: how far did it get?
    async fn ask_where(&mut self) -> Result<(), Trouble> {
        let Some(place) = self.place.clone() else { return Ok(()) };
        let answer = self.session.ask(Method::GET, &place).await?;
        if !answer.status().is_success() {
            // It has forgotten this upload: a restart with other secrets, or it was too old.
            tracing::debug!(blob = self.blob.digest, "the upload begins again: {}", answer.status());
            self.place = None;
            self.count(0);
            return Ok(());
        }
        self.offset = received(&answer).unwrap_or(0).min(self.blob.size);
        self.moved(&answer, &place)?;
        self.resumed_here |= self.offset > 0;
        self.done.resumed += usize::from(self.offset > 0);
        self.count(self.offset);
        Ok(())
    }

    async fn send_piece(&mut self) -> Result<(), Trouble> {
        let Some(place) = self.place.clone() else { return Err(Trouble::Passing("the upload has no place".into())) };
        let (begin, length) = (self.offset, self.piece.min(self.blob.size - self.offset));
        let session = self.session;
        let make = || {
            // A second attempt starts to count where the first did.
            self.count(begin);
            let body = self.body(begin, length);
            Ok(session
                .request(Method::PATCH, &place)
                .header(CONTENT_TYPE, "application/octet-stream")
                .header(CONTENT_LENGTH, length)
                .header(CONTENT_RANGE, format!("{begin}-{}", begin + length - 1))
                .body(body))
        };
        let answer = tokio::select! {
            answer = session.send(&place, make) => answer?,
            () = self.stalled() => return Err(Trouble::Passing(format!("nothing got through in {} s", STALL.as_secs()))),
        };
        match answer.status() {
            StatusCode::ACCEPTED | StatusCode::CREATED | StatusCode::NO_CONTENT => {
                let end = received(&answer).unwrap_or(begin + length);
                if end <= begin || end > self.blob.size {
                    self.place = None;
                    return Err(Trouble::Passing(format!("it says that it has {end} bytes of {}", self.blob.size)));
                }
                self.done.sent += end - begin;
                self.offset = end;
                self.moved(&answer, &place)
            }
            // It has another idea of how far we are: asked at the next attempt.
            StatusCode::RANGE_NOT_SATISFIABLE => {
                if self.offset == 0 {
                    self.place = None;
                }
                Err(Trouble::Passing("it expects another piece".into()))
            }
            StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
                self.place = None;
                Err(Trouble::Passing(format!("it does not know the upload any more ({})", answer.status())))
            }
            _ => Err(session.refused("the registry does not take a layer", answer).await.into()),
        }
    }

    async fn finish(&mut self) -> Result<(), Trouble> {
        let Some(mut place) = self.place.clone() else { return Err(Trouble::Passing("the upload has no place".into())) };
        place.query_pairs_mut().append_pair("digest", &self.blob.digest);
        let session = self.session;
        let make = || Ok(session.request(Method::PUT, &place).header(CONTENT_LENGTH, 0).timeout(FINISH));
        let answer = session.send(&place, make).await?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE if self.resumed_here => {
                self.place = None;
                Err(Trouble::Passing("what it put together is not what was sent; the layer is sent again".into()))
            }
            _ => Err(session.refused("the registry does not accept a layer", answer).await.into()),
        }
    }

    /// The registry says where to go on; a relative address is relative to where we were.
    fn moved(&mut self, answer: &Response, from: &Url) -> Result<(), Trouble> {
        let wrong = |why: String| Error::Failed(format!("the registry at {} sends us nowhere: {why}", self.session.host()));
        let Some(to) = answer.headers().get(LOCATION) else {
            // Only an answer to a question may leave it out.
            return if self.place.is_some() { Ok(()) } else { Err(wrong("there is no Location".into()).into()) };
        };
        let to = to.to_str().map_err(|e| wrong(e.to_string()))?;
        let to = from.join(to).map_err(|e| wrong(e.to_string()))?;
        if self.session.base().scheme() == "https" && to.scheme() != "https" {
            return Err(wrong(format!("{to} is not encrypted")).into());
        }
        self.place = Some(to);
        Ok(())
    }

    /// A part of the blob as a stream, read in a thread of its own and counted when it is taken.
    fn body(&self, begin: u64, length: u64) -> reqwest::Body {
        let (to, from) = mpsc::channel::<std::io::Result<Bytes>>(2);
        let source = self.blob.source.clone();
        tokio::task::spawn_blocking(move || {
            let read = || -> std::io::Result<()> {
                let mut reader = source.read_from(begin)?.take(length);
                loop {
                    let mut piece = Vec::with_capacity(READ);
                    if reader.by_ref().take(READ as u64).read_to_end(&mut piece)? == 0 {
                        return Ok(());
                    }
                    // Nobody listens any more.
                    if to.blocking_send(Ok(piece.into())).is_err() {
                        return Ok(());
                    }
                }
            };
            if let Err(e) = read() {
                let _ = to.blocking_send(Err(e));
            }
        });
        let counted = self.counted.clone();
        let stream = futures_util::stream::unfold(from, move |mut from| {
            let counted = counted.clone();
            async move {
                let piece = from.recv().await?;
                if let Ok(piece) = &piece {
                    counted.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
                Some((piece, from))
            }
        });
        reqwest::Body::wrap_stream(stream)
    }

    /// Returns when nothing was taken for too long.
    async fn stalled(&self) {
        loop {
            let before = self.counted.load(Ordering::Relaxed);
            tokio::time::sleep(STALL).await;
            if self.counted.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// So much of this blob counts as sent.
    fn count(&self, now: u64) {
        let before = self.counted.swap(now, Ordering::Relaxed);
        // Wraps around where less counts than before, which comes out right.
        self.total.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// How many bytes the registry has, by the `Range` of its answer. `0-0` is what an empty upload has too.
fn received(answer: &Response) -> Option<u64> {
    let range = answer.headers().get(RANGE)?.to_str().ok()?;
    match range.trim_start_matches("bytes=").split_once('-')?.1.parse::<u64>().ok()? {
        0 => Some(0),
        last => last.checked_add(1),
    }
}
