//! The file: a signature, then records, one after the other, never changed again.
//!
//! ```text
//!   signature   "hdtrace" and the version, 8 bytes
//!   record      kind u8 · 0 0 0 · length u32 · checksum of the content u32 · checksum of these 12 bytes u32 · content
//! ```
//!
//! Numbers are little-endian, checksums CRC-32. `docs/traces.md` tells what each kind holds.

use serde::{Deserialize, Serialize};

pub(super) const SIGNATURE: &[u8; 8] = b"hdtrace\x01";
pub(super) const HEADER: usize = 16;
/// The largest content of a record. A strip of the widest screen and the largest tree are below it; whoever reads reserves no more.
pub(super) const LARGEST: usize = 64 << 20;

/// Names a strip or a frame by what it shows.
pub(super) type Hash = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// JSON: what the trace is.
    Head = 1,
    /// Sixteen rows of pixels.
    Strip = 2,
    /// A picture, as a list of strips.
    Frame = 3,
    /// The accessibility tree after a step.
    Tree = 4,
    /// JSON: a step.
    Step = 5,
    /// JSON: that and why it ended.
    End = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Head, Self::Strip, Self::Frame, Self::Tree, Self::Step, Self::End].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// What stands before the content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) length: u32,
    pub(super) checksum: u32,
}

impl Header {
    pub(super) fn new(kind: Kind, content: &[u8]) -> Option<Self> {
        let length = u32::try_from(content.len()).ok().filter(|length| *length as usize <= LARGEST)?;
        Some(Self { kind, length, checksum: crc32fast::hash(content) })
    }

    pub(super) fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.checksum.to_le_bytes());
        let own = crc32fast::hash(&bytes[..12]);
        bytes[12..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Nothing if these bytes are no header.
    pub(super) fn read(bytes: &[u8; HEADER]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if number(12) != crc32fast::hash(&bytes[..12]) || number(4) as usize > LARGEST {
            return None;
        }
        Some(Self { kind: Kind::of(bytes[0])?, length: number(4), checksum: number(8) })
    }
}

/// The content of the first record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) desk: Option<String>,
    /// RFC 3339.
    pub(super) started: String,
    pub(super) width: u32,
    pub(super) height: u32,
    /// The program that wrote it.
    pub(super) writer: String,
    /// As it was asked for, for people.
    pub(super) mask: hotdesk_api::trace::Mask,
}

/// The content of the last record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) ended: String,
    pub(super) steps: u64,
    /// Why it ended by itself.
    pub(super) note: Option<String>,
}

pub(super) fn hex(hash: &Hash) -> String {
    use std::fmt::Write;
    hash.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn from_hex(text: &str) -> Option<Hash> {
    let mut hash = [0; 16];
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}
