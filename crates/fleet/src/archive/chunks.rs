//! Archives in chunks, each sealed with a key of the fleet, so that whoever unpacks one is given nothing that somebody else wrote.
//!
//! ```text
//!   a skippable frame of zstd: length of the data, whether it is the last, its seal │ a frame of zstd: the data │ …
//! ```
//!
//! The whole is still a file that `zstd -d` reads. A seal holds for one archive, one place in it and one content.

use bytes::{Buf as _, Bytes, BytesMut};
use ring::hmac;
use std::io;
use subtle::ConstantTimeEq as _;

/// Of a desk's files, before they are compressed.
pub(super) const CHUNK: usize = 4 << 20;
/// How the name of such an archive ends.
pub(super) const ENDING: &str = ".sealed.tar.zst";
/// zstd makes what can't be compressed longer by less than that.
const LONGEST: usize = CHUNK + CHUNK / 64;
const MAGIC: u32 = 0x184D_2A50;
const SEAL: usize = 32;
const CONTENT: usize = 4 + 1 + SEAL;
const HEAD: usize = 4 + 4 + CONTENT;

/// Seals and checks the chunks of one archive, in their order.
pub(super) struct Seals {
    key: hmac::Key,
    next: u64,
}

impl Seals {
    /// `name` is the archive's, below the place where all are kept.
    pub(super) fn new(fleet: &[u8; 32], name: &str) -> Self {
        let own = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, fleet), name.as_bytes());
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()), next: 0 }
    }

    fn seal(&mut self, frame: &[u8], last: bool) -> hmac::Tag {
        let mut seal = hmac::Context::with_key(&self.key);
        seal.update(&self.next.to_le_bytes());
        seal.update(&[u8::from(last)]);
        seal.update(frame);
        self.next += 1;
        seal.sign()
    }

    /// What is written before a frame.
    pub(super) fn head(&mut self, frame: &[u8], last: bool) -> io::Result<Vec<u8>> {
        let length = u32::try_from(frame.len()).ok().filter(|_| frame.len() <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("a piece grew when it was compressed"))?;
        let seal = self.seal(frame, last);
        let content = (CONTENT as u32).to_le_bytes();
        Ok([&MAGIC.to_le_bytes()[..], &content, &length.to_le_bytes(), &[u8::from(last)], seal.as_ref()].concat())
    }
}

/// Takes an archive apart as it comes.
pub(super) struct Chunks {
    seals: Seals,
    held: BytesMut,
    ended: bool,
}

impl Chunks {
    pub(super) fn new(seals: Seals) -> Self {
        Self { seals, held: BytesMut::new(), ended: false }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// The next frame that is good; none before it has come whole.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, &'static str> {
        if self.ended {
            return if self.held.is_empty() { Ok(None) } else { Err("something follows its end") };
        }
        let Some(mut head) = self.held.get(..HEAD) else { return Ok(None) };
        if (head.get_u32_le(), head.get_u32_le()) != (MAGIC, CONTENT as u32) {
            return Err("it is not made of sealed chunks");
        }
        let (length, last) = (head.get_u32_le() as usize, head.get_u8());
        if length > LONGEST || last > 1 {
            return Err("a chunk is not as long as they are");
        }
        let Some(frame) = self.held.get(HEAD..HEAD + length) else { return Ok(None) };
        let right = self.seals.seal(frame, last == 1);
        if !bool::from(head.ct_eq(right.as_ref())) {
            return Err("a chunk is not what this fleet wrote there");
        }
        self.ended = last == 1;
        self.held.advance(HEAD);
        Ok(Some(self.held.split_to(length).freeze()))
    }

    /// Whether it came to the end that it was given.
    pub(super) fn is_whole(&self) -> bool {
        self.ended && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn archive(name: &str, frames: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut seals = Seals::new(&KEY, name);
        let last = frames.len() - 1;
        let chunk = |(at, frame): (usize, &&[u8])| [seals.head(frame, at == last).unwrap(), frame.to_vec()].concat();
        frames.iter().enumerate().map(chunk).collect()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Bytes>, &'static str> {
        let mut chunks = Chunks::new(Seals::new(&KEY, "d-1/a"));
        let mut found = Vec::new();
        for piece in bytes.chunks(7) {
            chunks.push(piece);
            while let Some(frame) = chunks.next()? {
                found.push(frame);
            }
        }
        if chunks.is_whole() { Ok(found) } else { Err("cut") }
    }

    #[test]
    fn chunks_are_good_in_their_archive_and_place_alone() {
        let own = archive("d-1/a", &[b"one", b"two", b""]);
        assert_eq!(read(&own.concat()).unwrap(), [&b"one"[..], b"two", b""]);
        let foreign = archive("d-1/b", &[b"one", b"two", b""]);
        let other = archive("d-1/a", &[b"ONE", b"TWO", b""]);
        for (what, bad) in [
            ("of another archive", foreign.concat()),
            ("in another order", [&own[1][..], &own[0], &own[2]].concat()),
            ("one is left out", [&own[0][..], &own[2]].concat()),
            ("one twice", [&own[0][..], &own[0], &own[1], &own[2]].concat()),
            ("without an end", own[..2].concat()),
            ("something behind", [&own.concat()[..], b"x"].concat()),
            ("a seal and other data", [&own[0][..HEAD], &other[0][HEAD..], &own[1], &own[2]].concat()),
            ("the end earlier", [&own[0][..], &archive("d-1/a", &[b"two"])[0]].concat()),
            ("no chunks", b"\x28\xb5\x2f\xfdsomething else that is long enough to be a head".to_vec()),
            ("nothing", Vec::new()),
        ] {
            assert!(read(&bad).is_err(), "{what}");
        }
        // What is longer than any chunk is not waited for.
        let mut long = own[0].clone();
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&long).unwrap_err().contains("long"));
    }
}
