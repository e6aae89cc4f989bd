//! Server-sent events (`text/event-stream`), of which only `data` matters to us.

use crate::lines::{LONGEST, Lines, TooLong};
use crate::{Error, Result};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use serde::de::DeserializeOwned;

/// Finds events in bytes that come in pieces.
pub struct Parser {
    lines: Lines,
    /// Of the event that is not over yet.
    data: Option<Vec<u8>>,
}

impl Default for Parser {
    fn default() -> Self {
        Self { lines: Lines::ending(b"\n"), data: None }
    }
}

impl Parser {
    pub fn push(&mut self, piece: &[u8]) {
        self.lines.push(piece);
    }

    /// The data of the next event that has come whole. Comments, which only keep the connection alive, have none.
    pub fn next_event(&mut self) -> Result<Option<String>, TooLong> {
        while let Some(line) = self.lines.next()? {
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                if let Some(data) = self.data.take() {
                    return Ok(Some(String::from_utf8_lossy(&data).into_owned()));
                }
            } else if let Some(value) = line.strip_prefix(b"data:") {
                let value = value.strip_prefix(b" ").unwrap_or(value);
                let data = match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data
                    }
                    none => none.insert(Vec::new()),
                };
                data.extend_from_slice(value);
                if data.len() > LONGEST {
                    return Err(TooLong);
                }
            }
        }
        Ok(None)
    }
}

/// Events as they come.
pub struct Events<B> {
    body: B,
    parser: Parser,
}

impl<B> Events<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    pub fn new(body: B) -> Self {
        Self { body, parser: Parser::default() }
    }

    /// The data of the next event; none at the end. A stream that breaks off is an error. Nothing is lost if this is not waited for
    /// to its end.
    pub async fn next(&mut self) -> Result<Option<String>> {
        loop {
            let found = self.parser.next_event().map_err(|_| Error::TooLarge(LONGEST))?;
            if found.is_some() {
                return Ok(found);
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(piece) = frame.map_err(Error::broken)?.into_data() {
                        self.parser.push(&piece);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// The next event that is such a value; others are passed over.
    pub async fn next_json<V: DeserializeOwned>(&mut self) -> Result<Option<V>> {
        while let Some(data) = self.next().await? {
            if let Ok(value) = serde_json::from_str(&data) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_anywhere() {
        let text = "id: 1\ndata: a\ndata: b\n\n: ping\n\nevent: x\r\ndata:c\r\n\r\ndata\n\ndata: unfinished";
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                parser.push(piece);
                while let Some(data) = parser.next_event().unwrap() {
                    found.push(data);
                }
            }
            assert_eq!(found, ["a\nb", "c"], "in pieces of {size}");
        }
    }

    #[test]
    fn neither_a_line_nor_an_event_goes_on_for_ever() {
        let mut parser = Parser::default();
        parser.push(&vec![b'x'; LONGEST + 1]);
        assert_eq!(parser.next_event(), Err(TooLong));
        let mut parser = Parser::default();
        let line = [&b"data: "[..], &[b'x'; 1 << 16], b"\n"].concat();
        let ended = (0..100).find_map(|_| {
            parser.push(&line);
            parser.next_event().err()
        });
        assert_eq!(ended, Some(TooLong), "many lines of one event");
    }
}
