//! Writes a trace, record by record. What was written stays whole, whatever happens afterwards.

use super::format::{End, HEADER, Hash, Head, Header, Kind, LARGEST, SIGNATURE, hex};
use crate::error::{Error, Result};
use crate::screen::{Frame, Packer, STRIP_ROWS, plain_rgb};
use flate2::Compression;
use hotdesk_api::action::Size;
use hotdesk_api::trace::Step;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How hard strips are packed: twice as small as the fastest, and still faster than actions come.
const LEVEL: u32 = 6;
/// Kept free below the limit, so that the end can always be written.
const FOR_THE_END: u64 = 4096;

pub(super) struct Writer {
    file: File,
    path: PathBuf,
    /// The end of the last whole record.
    at: u64,
    limit: u64,
    strips: HashSet<Hash>,
    frames: HashSet<Hash>,
    last: Option<Last>,
    packer: Packer,
    rgb: Vec<u8>,
    pub(super) steps: u64,
}

/// The frame that was looked at last: strips that are no newer are not looked at again.
struct Last {
    size: Size,
    version: u64,
    strips: Vec<Hash>,
}

impl Writer {
    pub(super) fn create(path: &Path, head: &Head, limit: u64) -> Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let mut writer = Self {
            file: file.map_err(|e| Error::file(path.display(), &e))?,
            path: path.to_owned(),
            at: 0,
            limit,
            strips: HashSet::new(),
            frames: HashSet::new(),
            last: None,
            packer: Packer::with_level(Compression::new(LEVEL)),
            rgb: Vec::new(),
            steps: 0,
        };
        let begun = writer.put(SIGNATURE).and_then(|()| writer.json(Kind::Head, head));
        begun.inspect_err(|_| drop(std::fs::remove_file(path)))?;
        Ok(writer)
    }

    /// Writes elsewhere from now on.
    #[cfg(test)]
    pub(super) fn swap(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    /// Bytes of whole records.
    pub(super) fn bytes(&self) -> u64 {
        self.at
    }

    /// Keeps a picture, as far as it is new, and tells its name.
    pub(super) fn frame(&mut self, frame: &Frame) -> Result<String> {
        let size = frame.size();
        // Pictures may come in another order than they were taken in; an older one is looked at as a whole.
        let known = self.last.take().filter(|last| last.size == size && last.version <= frame.version());
        let count = (size.height as usize).div_ceil(STRIP_ROWS);
        let mut strips = Vec::with_capacity(count);
        for strip in 0..count {
            let old = known.as_ref().filter(|last| frame.version_of_strip(strip) <= last.version);
            match old.and_then(|last| last.strips.get(strip)) {
                Some(hash) => strips.push(*hash),
                None => strips.push(self.strip(frame, strip)?),
            }
        }
        let mut content = Vec::with_capacity(24 + strips.len() * 16);
        content.extend([0; 16]);
        content.extend(size.width.to_le_bytes());
        content.extend(size.height.to_le_bytes());
        strips.iter().for_each(|hash| content.extend(hash));
        let hash = digest(&content[16..]);
        content[..16].copy_from_slice(&hash);
        if !self.frames.contains(&hash) {
            self.record(Kind::Frame, &content)?;
            self.frames.insert(hash);
        }
        self.last = Some(Last { size, version: frame.version(), strips });
        Ok(hex(&hash))
    }

    fn strip(&mut self, frame: &Frame, strip: usize) -> Result<Hash> {
        let first = (strip * STRIP_ROWS) as u32;
        let rows = frame.rows(first..(first + STRIP_ROWS as u32).min(frame.size().height));
        self.rgb.resize(rows.len() / 4 * 3, 0);
        plain_rgb(rows, &mut self.rgb);
        let hash = digest(&self.rgb);
        if self.strips.contains(&hash) {
            return Ok(hash);
        }
        let chunk = self.packer.strip(rows, frame.stride())?;
        let mut content = Vec::with_capacity(24 + chunk.bytes.len());
        content.extend(hash);
        content.extend(chunk.adler.to_le_bytes());
        content.extend((chunk.length as u32).to_le_bytes());
        content.extend(&*chunk.bytes);
        self.record(Kind::Strip, &content)?;
        self.strips.insert(hash);
        Ok(hash)
    }

    /// Keeps the tree after a step; told before the step itself.
    pub(super) fn tree(&mut self, number: u64, json: &[u8]) -> Result<()> {
        let mut packed = number.to_le_bytes().to_vec();
        packed.extend((json.len() as u64).to_le_bytes());
        let mut deflate = flate2::write::ZlibEncoder::new(packed, Compression::new(LEVEL));
        let content = deflate.write_all(json).and_then(|()| deflate.finish());
        self.record(Kind::Tree, &content.map_err(Error::internal)?)
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        self.json(Kind::Step, step)?;
        self.steps += 1;
        Ok(())
    }

    /// The last record.
    pub(super) fn end(&mut self, ended: String, note: Option<String>) -> Result<()> {
        self.limit += FOR_THE_END;
        let end = End { ended, steps: self.steps, note };
        self.json(Kind::End, &end)?;
        self.file.sync_data().map_err(|e| Error::file(self.path.display(), &e))
    }

    fn json(&mut self, kind: Kind, value: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_vec(value).map_err(Error::internal)?;
        self.record(kind, &text)
    }

    /// A whole record or nothing: what a full disk took of it is cut off again.
    fn record(&mut self, kind: Kind, content: &[u8]) -> Result<()> {
        let header = Header::new(kind, content);
        let header = header.ok_or(Error::TooLarge { what: "a record of a trace".into(), limit: LARGEST as u64 })?;
        if self.at + (HEADER + content.len()) as u64 + FOR_THE_END > self.limit {
            return Err(Error::Full(format!("the trace has reached its limit of {} bytes", self.limit)));
        }
        let mut whole = Vec::with_capacity(HEADER + content.len());
        whole.extend(header.bytes());
        whole.extend(content);
        self.put(&whole)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if let Err(e) = self.file.write_all(bytes) {
            let _ = self.file.set_len(self.at);
            let _ = self.file.seek(SeekFrom::Start(self.at));
            return Err(Error::file(self.path.display(), &e));
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> Hash {
    let mut hash = [0; 16];
    hash.copy_from_slice(&Sha256::digest(bytes)[..16]);
    hash
}
