//! What a desk tells as it happens: events, and the output of commands among them.

use super::super::desk::Desk;
use super::super::reply::{Failure, Reply};
use crate::buffers::Share;
use axum::body::Body;
use axum::http::StatusCode;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotdesk_api::process::OutputEvent;
use hotdesk_desk_client::{Budget, Events};

/// Where a stream begins in a framed text.
pub(crate) const STDOUT: &[u8] = &[1, 1, 1];
pub(crate) const STDERR: &[u8] = &[2, 2, 2];

/// Something that was printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Out(Vec<u8>),
    Err(Vec<u8>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Out(data) | Self::Err(data) => data.len(),
        }
    }
}

/// Output that comes in pieces.
pub(crate) struct Pieces {
    events: Events<Body>,
    /// Of what [`all`](Self::all) holds.
    share: Share,
}

impl Pieces {
    /// What a command of a shell prints: until it ends, or what there is.
    pub(crate) async fn open(desk: &Desk, command: &str, follow: bool) -> Reply<Self> {
        let path = format!("{command}/output?encoding=base64&follow={follow}");
        let events = desk.client().events(&path).await.map_err(|e| desk.failure(e))?;
        Ok(Self { events, share: desk.app.buffers.share(&desk.caller.who.key) })
    }

    /// None at the end, and where the desk sends something that is no event.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some(piece) = piece(self.events.next_json().await.ok()??) {
                return Some(piece);
            }
        }
    }

    /// All that is left.
    pub(crate) async fn all(mut self) -> Reply<Printed> {
        let mut printed = Gathered::default();
        while let Some(piece) = self.next().await {
            // Each is held in three forms.
            self.share
                .grow(3 * piece.len())
                .map_err(|e| Failure::new(StatusCode::INSUFFICIENT_STORAGE, format!("the output can't be read: {e}")))?;
            printed.add(&piece);
        }
        Ok(printed.printed)
    }
}

fn piece(event: OutputEvent) -> Option<Piece> {
    match event {
        OutputEvent::Stdout { data, .. } => Some(Piece::Out(BASE64_STANDARD.decode(data).ok()?)),
        OutputEvent::Stderr { data, .. } => Some(Piece::Err(BASE64_STANDARD.decode(data).ok()?)),
        _ => None,
    }
}

/// One stream after the other in one text, as far as they are told apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Printed {
    pub(crate) combined: Vec<u8>,
    pub(crate) framed: Vec<u8>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Pieces put together.
#[derive(Default)]
struct Gathered {
    printed: Printed,
    last: &'static [u8],
}

impl Gathered {
    fn add(&mut self, piece: &Piece) {
        let Self { printed, last } = self;
        let (mark, data, stream) = match piece {
            Piece::Out(data) => (STDOUT, data, &mut printed.stdout),
            Piece::Err(data) => (STDERR, data, &mut printed.stderr),
        };
        stream.extend_from_slice(data);
        printed.combined.extend_from_slice(data);
        // A mark in the middle of a character would tear it apart.
        if mark != *last {
            printed.framed.extend_from_slice(mark);
            *last = mark;
        }
        printed.framed.extend_from_slice(data);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_pieces() {
        let piece = |text: &str| piece(serde_json::from_str(text).unwrap());
        assert_eq!(piece(r#"{"event":"stdout","offset":0,"data":"aGk="}"#), Some(Piece::Out(b"hi".to_vec())));
        assert_eq!(piece(r#"{"event":"stderr","offset":0,"data":"aGk="}"#), Some(Piece::Err(b"hi".to_vec())));
        assert_eq!(piece(r#"{"event":"exit","timed_out":false}"#), None);
        let mut gathered = Gathered::default();
        gathered.add(&Piece::Out(b"a".to_vec()));
        gathered.add(&Piece::Err(b"b".to_vec()));
        let printed = gathered.printed;
        assert_eq!((printed.combined.as_slice(), printed.framed.as_slice()), (&b"ab"[..], &b"\x01\x01\x01a\x02\x02\x02b"[..]));
    }
}
