//! Lines and events that come in pieces from a desk. Whoever writes there may never end one, so there is a longest.

use bytes::{Bytes, BytesMut};

/// The longest line or event that is waited for.
pub const LONGEST: usize = 1 << 20;

/// A line did not end in [`LONGEST`] bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

/// What has come and was not taken yet, cut where `end` stands.
pub struct Lines {
    end: &'static [u8],
    held: BytesMut,
    /// So much of it was searched already: a line that comes in a thousand pieces is looked through once.
    searched: usize,
}

impl Lines {
    /// Cut behind each of these bytes.
    pub fn ending(end: &'static [u8]) -> Self {
        Self { end, held: BytesMut::new(), searched: 0 }
    }

    pub fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// The next line, with its end; none before it has come whole.
    #[expect(clippy::should_implement_trait, reason = "where an iterator ends, here more may come")]
    pub fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        let found = self.held[self.searched..].windows(self.end.len()).position(|window| window == self.end);
        if let Some(at) = found {
            let line = self.held.split_to(self.searched + at + self.end.len());
            self.searched = 0;
            return Ok(Some(line.freeze()));
        }
        // The end itself may be torn.
        self.searched = self.held.len().saturating_sub(self.end.len() - 1);
        if self.held.len() > LONGEST { Err(TooLong) } else { Ok(None) }
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/src/lines.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        for size in [1, 2, 3, 100] {
            let mut lines = Lines::ending(b"\n\n");
            let mut found = Vec::new();
            for piece in b"a\nb\n\n\n\nc\n\nrest".chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next().unwrap() {
                    found.push(line);
                }
            }
            assert_eq!(found, [&b"a\nb\n\n"[..], b"\n\n", b"c\n\n"], "{size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_given_up_and_searched_once() {
        let mut lines = Lines::ending(b"\n");
        let begun = Instant::now();
        // Byte by byte: searched from its beginning each time, this would be 5 * 10^11 steps.
        for _ in 0..LONGEST {
            lines.push(b"x");
            assert_eq!(lines.next(), Ok(None));
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
        lines.push(b"x");
        assert_eq!(lines.next(), Err(TooLong));
    }
}
