//! Output as server-sent events.

use crate::process::tape::{Next, Reader, Source};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use hotdesk_api::process::{Encoding, Exit, OutputEvent};
use std::convert::Infallible;

/// Events of what `reader` reads from the offset `from` on, and how it `ended`. Without `follow` they end with what is there.
pub(in super::super) fn stream(
    reader: Reader,
    ended: impl Fn() -> Option<Exit> + Send + 'static,
    from: u64,
    follow: bool,
    encoding: Encoding,
) -> Response {
    let feed = Feed { reader, ended: Box::new(ended), follow, encoding, halves: Default::default(), position: from, done: false };
    let events = stream::unfold(feed, |mut feed| async move { feed.next().await.map(|event| (event, feed)) });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

struct Feed {
    reader: Reader,
    ended: Box<dyn Fn() -> Option<Exit> + Send>,
    follow: bool,
    encoding: Encoding,
    /// Of each source, the start of a character whose end has not come yet.
    halves: [Vec<u8>; 2],
    position: u64,
    done: bool,
}

impl Feed {
    async fn next(&mut self) -> Option<Result<Event, Infallible>> {
        loop {
            if self.done {
                return None;
            }
            let next = if self.follow { self.reader.next().await } else { self.reader.try_next() };
            let event = match next {
                Some(Next::Data { source, offset, bytes }) => {
                    self.position = offset + bytes.len() as u64;
                    let (offset, data) = self.decode(source, offset, bytes);
                    if data.is_empty() {
                        continue;
                    }
                    match source {
                        Source::Stdout => OutputEvent::Stdout { offset, data },
                        Source::Stderr => OutputEvent::Stderr { offset, data },
                    }
                }
                Some(Next::Lost(bytes)) => {
                    self.position += bytes;
                    OutputEvent::Lost { bytes }
                }
                None => {
                    self.done = true;
                    // What runs has no end to tell.
                    OutputEvent::Exit { exit: (self.ended)()? }
                }
            };
            return Some(Ok(self.event(&event)));
        }
    }

    fn event(&self, event: &OutputEvent) -> Event {
        let name = match event {
            OutputEvent::Stdout { .. } => "stdout",
            OutputEvent::Stderr { .. } => "stderr",
            OutputEvent::Lost { .. } => "lost",
            OutputEvent::Exit { .. } => "exit",
            OutputEvent::Problem { .. } => "problem",
        };
        // A client that goes on from here must get the halves again.
        let kept: usize = self.halves.iter().map(Vec::len).sum();
        let id = self.position.saturating_sub(kept as u64);
        Event::default().event(name).id(id.to_string()).data(serde_json::to_string(event).unwrap_or_default())
    }

    /// The text of a piece, without a character that is cut off at its end, which comes with the next piece.
    fn decode(&mut self, source: Source, offset: u64, bytes: Bytes) -> (u64, String) {
        if self.encoding == Encoding::Base64 {
            return (offset, STANDARD.encode(&bytes));
        }
        let half = &mut self.halves[usize::from(source == Source::Stderr)];
        let offset = offset.saturating_sub(half.len() as u64);
        let mut all = std::mem::take(half);
        all.extend_from_slice(&bytes);
        let whole = all.len() - cut_off(&all);
        half.extend_from_slice(&all[whole..]);
        all.truncate(whole);
        (offset, String::from_utf8(all).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }
}

/// How many bytes at the end are the start of a character that goes on.
fn cut_off(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::cut_off;

    #[test]
    fn characters_that_go_on_are_kept_back() {
        for (text, kept) in [("", 0), ("a", 0), ("ä", 0), ("€", 0), ("🦀", 0)] {
            assert_eq!(cut_off(text.as_bytes()), kept, "{text}");
        }
        assert_eq!(cut_off(&"aä".as_bytes()[..2]), 1);
        assert_eq!(cut_off(&"€".as_bytes()[..1]), 1);
        assert_eq!(cut_off(&"€".as_bytes()[..2]), 2);
        assert_eq!(cut_off(&"🦀".as_bytes()[..3]), 3);
        assert_eq!(cut_off(&[0x80; 9]), 0, "no start of a character: garbage is not kept");
        assert_eq!(cut_off(&[0xFF]), 0);
    }
}
