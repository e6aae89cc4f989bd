//! What a viewer says after the handshake: bytes in, messages out, no I/O.
//!
//! Whatever the bytes are, this answers with a message, with "more bytes, please" or with the
//! reason why the connection has to end. Lengths are checked before anything is waited for.

use super::pixel::{PixelFormat, Wanted};
use bytes::{Buf, Bytes, BytesMut};
use hotdesk_api::action::{Rect, Size};

/// Longest text that a viewer may put on the clipboard in one message: more than anybody pastes by
/// hand, and little enough that all viewers together can't fill the memory.
pub(super) const MAX_CUT_TEXT: usize = 1 << 20;

/// More encodings than anybody has invented.
const MAX_ENCODINGS: usize = 1024;

/// By the protocol.
const MAX_FENCE: usize = 64;

/// A message of a viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    PixelFormat(Wanted),
    Encodings(Vec<i32>),
    UpdateRequest {
        incremental: bool,
        area: Rect,
    },
    Key {
        down: bool,
        keysym: u32,
    },
    /// Bit n of `buttons` is X's button n + 1.
    Pointer {
        x: u16,
        y: u16,
        buttons: u16,
    },
    /// Latin-1.
    CutText(Bytes),
    /// Flags and what follows them; see `cut_text`.
    Clipboard {
        flags: u32,
        data: Bytes,
    },
    ContinuousUpdates {
        enable: bool,
        area: Rect,
    },
    Fence {
        flags: u32,
        payload: Bytes,
    },
    Resize(Size),
    /// Understood, but nothing that we do anything about.
    Ignored,
}

/// Why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("message type {0} is unknown, so nothing after it can be understood")]
    Unknown(u8),
    #[error("{what} has {length} parts, and the limit is {limit}")]
    TooLong { what: &'static str, length: usize, limit: usize },
    #[error("{0}")]
    PixelFormat(&'static str),
}

/// Takes messages out of bytes.
#[derive(Debug, Default)]
pub(super) struct Parser {
    pub buffer: BytesMut,
    /// Whether the highest bit of the buttons announces one more byte of buttons.
    pub extended_buttons: bool,
}

impl Parser {
    /// The next whole message, or nothing until there are more bytes.
    pub(super) fn next(&mut self) -> Result<Option<Message>, Malformed> {
        let Some(length) = self.length()? else { return Ok(None) };
        if self.buffer.len() < length {
            return Ok(None);
        }
        let body = self.buffer.split_to(length).freeze();
        self.message(body).map(Some)
    }

    /// Bytes of the message at the front, as far as its first bytes tell.
    fn length(&self) -> Result<Option<usize>, Malformed> {
        let b = &self.buffer;
        let Some(&kind) = b.first() else { return Ok(None) };
        let limited = |what, length: usize, limit: usize| {
            if length > limit { Err(Malformed::TooLong { what, length, limit }) } else { Ok(length) }
        };
        Ok(match kind {
            0 => Some(20),
            2 => match b.get(2..4) {
                Some(n) => Some(4 + 4 * limited("the list of encodings", (&*n).get_u16().into(), MAX_ENCODINGS)?),
                None => None,
            },
            3 => Some(10),
            4 => Some(8),
            5 => b.get(1).map(|mask| if self.extended_buttons && mask & 0x80 != 0 { 7 } else { 6 }),
            6 => match b.get(4..8) {
                // A negative length marks the extended clipboard.
                Some(n) => Some(8 + limited("the clipboard's text", (&*n).get_i32().unsigned_abs() as usize, MAX_CUT_TEXT)?),
                None => None,
            },
            150 => Some(10),
            248 => match b.get(8) {
                Some(n) => Some(9 + limited("a fence", usize::from(*n), MAX_FENCE)?),
                None => None,
            },
            250 => Some(4),
            251 => b.get(6).map(|screens| 8 + 16 * usize::from(*screens)),
            255 => match b.get(1) {
                Some(0) => Some(12),
                Some(1) => match b.get(2..4) {
                    Some([0, 2]) => Some(10),
                    Some(_) => Some(4),
                    None => None,
                },
                Some(other) => return Err(Malformed::Unknown(*other)),
                None => None,
            },
            other => return Err(Malformed::Unknown(other)),
        })
    }

    /// `b` is as long as [`Parser::length`] said.
    fn message(&self, mut b: Bytes) -> Result<Message, Malformed> {
        Ok(match b.get_u8() {
            0 => {
                b.advance(3);
                let mut format = [0; 16];
                b.copy_to_slice(&mut format);
                Message::PixelFormat(PixelFormat::parse(&format).map_err(Malformed::PixelFormat)?)
            }
            2 => {
                b.advance(3);
                Message::Encodings(std::iter::from_fn(|| b.has_remaining().then(|| b.get_i32())).collect())
            }
            3 => Message::UpdateRequest { incremental: b.get_u8() != 0, area: area(b) },
            4 => {
                let down = b.get_u8() != 0;
                b.advance(2);
                Message::Key { down, keysym: b.get_u32() }
            }
            5 => {
                let low = b.get_u8();
                let (x, y) = (b.get_u16(), b.get_u16());
                let buttons = match b.try_get_u8() {
                    Ok(high) => u16::from(low & 0x7f) | u16::from(high) << 7,
                    Err(_) => low.into(),
                };
                Message::Pointer { x, y, buttons }
            }
            6 => {
                b.advance(3);
                match b.get_i32() {
                    0.. => Message::CutText(b),
                    _ if b.remaining() < 4 => Message::Ignored,
                    _ => Message::Clipboard { flags: b.get_u32(), data: b },
                }
            }
            150 => Message::ContinuousUpdates { enable: b.get_u8() != 0, area: area(b) },
            248 => {
                b.advance(3);
                let flags = b.get_u32();
                b.advance(1);
                Message::Fence { flags, payload: b }
            }
            251 => {
                b.advance(1);
                Message::Resize(Size { width: b.get_u16().into(), height: b.get_u16().into() })
            }
            255 if b.get_u8() == 0 => {
                let down = b.get_u16() != 0;
                Message::Key { down, keysym: b.get_u32() }
            }
            _ => Message::Ignored,
        })
    }
}

fn area(mut b: Bytes) -> Rect {
    Rect { x: b.get_u16().into(), y: b.get_u16().into(), width: b.get_u16().into(), height: b.get_u16().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<Option<Message>, Malformed> {
        Parser { buffer: bytes.into(), extended_buttons: false }.next()
    }

    #[test]
    fn messages_are_read() {
        assert_eq!(parse(&[4, 1, 0, 0, 0, 0, 0xff, 0x0d]), Ok(Some(Message::Key { down: true, keysym: 0xff0d })));
        assert_eq!(parse(&[5, 1, 1, 0, 0, 2]), Ok(Some(Message::Pointer { x: 256, y: 2, buttons: 1 })));
        assert_eq!(
            parse(&[3, 1, 0, 1, 0, 2, 0, 3, 0, 4]),
            Ok(Some(Message::UpdateRequest { incremental: true, area: Rect { x: 1, y: 2, width: 3, height: 4 } }))
        );
        assert_eq!(parse(&[2, 0, 0, 2, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0x11]), Ok(Some(Message::Encodings(vec![7, -239]))));
        assert_eq!(parse(&[6, 0, 0, 0, 0, 0, 0, 2, b'h', b'i']), Ok(Some(Message::CutText(Bytes::from_static(b"hi")))));
        assert_eq!(parse(&[251, 0, 4, 0, 3, 0, 0, 0]), Ok(Some(Message::Resize(Size { width: 1024, height: 768 }))));
    }

    #[test]
    fn the_ninth_button_needs_the_extension() {
        let mut parser =
            Parser { buffer: (&[5u8, 0x81, 0, 1, 0, 2, 2, 5, 0x80, 0, 1, 0, 2, 0][..]).into(), extended_buttons: true };
        assert_eq!(parser.next(), Ok(Some(Message::Pointer { x: 1, y: 2, buttons: 0x101 })));
        assert_eq!(parser.next(), Ok(Some(Message::Pointer { x: 1, y: 2, buttons: 0 })));
        assert_eq!(parser.next(), Ok(None));
    }

    #[test]
    fn half_a_message_waits_and_keeps_its_bytes() {
        let whole = [6, 0, 0, 0, 0, 0, 0, 3, b'a', b'b', b'c'];
        let mut parser = Parser::default();
        for byte in &whole[..whole.len() - 1] {
            parser.buffer.extend_from_slice(&[*byte]);
            assert_eq!(parser.next(), Ok(None));
        }
        parser.buffer.extend_from_slice(&whole[whole.len() - 1..]);
        assert_eq!(parser.next(), Ok(Some(Message::CutText(Bytes::from_static(b"abc")))));
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_arrives() {
        assert!(matches!(parse(&[6, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]), Err(Malformed::TooLong { .. })));
        assert!(matches!(parse(&[6, 0, 0, 0, 0x80, 0, 0, 0]), Err(Malformed::TooLong { .. })));
        assert!(matches!(parse(&[2, 0, 0xff, 0xff]), Err(Malformed::TooLong { .. })));
        assert!(matches!(parse(&[248, 0, 0, 0, 0, 0, 0, 0, 65]), Err(Malformed::TooLong { .. })));
        assert_eq!(parse(&[77]), Err(Malformed::Unknown(77)));
        assert_eq!(parse(&[1]), Err(Malformed::Unknown(1)));
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_parser(bytes: Vec<u8>, extended: bool) {
            let mut parser = Parser { buffer: bytes.as_slice().into(), extended_buttons: extended };
            while let Ok(Some(_)) = parser.next() {}
        }

        /// The same with bytes that get past the first one.
        #[test]
        fn no_plausible_bytes_break_the_parser(
            messages in prop::collection::vec((prop::sample::select(vec![0u8, 2, 3, 4, 5, 6, 150, 248, 250, 251, 255]), prop::collection::vec(0u8..8, 0..64)), 0..20),
        ) {
            let mut parser = Parser::default();
            for (kind, rest) in messages {
                parser.buffer.extend_from_slice(&[kind]);
                parser.buffer.extend_from_slice(&rest);
                while let Ok(Some(_)) = parser.next() {}
            }
        }

        #[test]
        fn pieces_give_the_same_messages(keys in prop::collection::vec((any::<bool>(), any::<u32>()), 1..20), cut in 1usize..9) {
            let bytes: Vec<u8> = keys.iter().flat_map(|(down, keysym)| {
                let mut m = vec![4, u8::from(*down), 0, 0];
                m.extend(keysym.to_be_bytes());
                m
            }).collect();
            let mut parser = Parser::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                parser.buffer.extend_from_slice(piece);
                while let Some(message) = parser.next().unwrap() { got.push(message); }
            }
            let wanted: Vec<_> = keys.iter().map(|(down, keysym)| Message::Key { down: *down, keysym: *keysym }).collect();
            prop_assert_eq!(got, wanted);
        }
    }
}
