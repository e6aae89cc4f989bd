//! Reads a trace, also one that is being written or broke off: everything up to the last whole record.
//!
//! Opening looks at the headers of records and at the steps; pictures are read when they are asked
//! for. A file may hold anything: nothing is reserved that the file itself does not hold.

use super::format::{End, HEADER, Hash, Head, Header, Kind, LARGEST, SIGNATURE, from_hex, hex};
use crate::error::{Error, Result};
use crate::screen::{Chunk, STRIP_ROWS, assemble};
use hotdesk_api::action::Size;
use hotdesk_api::trace::{Step, TraceInfo};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Records of a file. A trace of 100,000 steps has fewer; more would only fill memory.
const MOST_RECORDS: usize = 8 << 20;
/// The largest side of a picture, as for screens.
const LARGEST_SIDE: u32 = 16_384;
/// What a tree may unpack to.
const LARGEST_TREE: u64 = 256 << 20;

/// An open trace.
pub struct Reader {
    file: File,
    path: PathBuf,
    head: Head,
    steps: Vec<Place>,
    strips: HashMap<Hash, Place>,
    frames: HashMap<Hash, Place>,
    trees: HashMap<u64, Place>,
    end: Option<End>,
    /// Where the last whole record ends.
    whole: u64,
}

/// Rows of pixels, packed.
pub struct Strip {
    /// The Adler-32 of the filtered rows.
    pub adler: u32,
    /// How many bytes they are.
    pub length: u32,
    /// A whole IDAT chunk of a PNG.
    pub idat: Vec<u8>,
}

/// Where the content of a record lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    header: Header,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::file(path.display(), &e);
        let mut file = File::open(path).map_err(failed)?;
        let mut signature = [0; SIGNATURE.len()];
        if file.read_exact(&mut signature).is_err() || &signature != SIGNATURE {
            return Err(Error::Invalid(format!("{} is no trace", path.display())));
        }
        let mut reader = Self {
            file,
            path: path.to_owned(),
            head: Head {
                id: String::new(),
                name: None,
                desk: None,
                started: String::new(),
                width: 0,
                height: 0,
                writer: String::new(),
                mask: Default::default(),
            },
            steps: Vec::new(),
            strips: HashMap::new(),
            frames: HashMap::new(),
            trees: HashMap::new(),
            end: None,
            whole: SIGNATURE.len() as u64,
        };
        reader.refresh()?;
        if reader.head.id.is_empty() {
            return Err(Error::Invalid(format!("{} breaks off before it begins", path.display())));
        }
        Ok(reader)
    }

    /// Looks for records that were written since.
    pub fn refresh(&mut self) -> Result<()> {
        let failed = |e: std::io::Error| Error::file(self.path.display(), &e);
        let size = self.file.metadata().map_err(failed)?.len();
        let mut file = BufReader::with_capacity(64 << 10, self.file.try_clone().map_err(failed)?);
        file.seek(SeekFrom::Start(self.whole)).map_err(failed)?;
        while self.end.is_none() && size - self.whole.min(size) >= HEADER as u64 {
            let mut bytes = [0; HEADER];
            if file.read_exact(&mut bytes).is_err() {
                break;
            }
            let Some(header) = Header::read(&bytes) else { break };
            let place = Place { at: self.whole + HEADER as u64, header };
            let end = place.at + u64::from(header.length);
            if end > size || self.count() >= MOST_RECORDS {
                break;
            }
            let wanted = match header.kind {
                Kind::Strip | Kind::Frame => 16,
                Kind::Tree => 8,
                Kind::Head | Kind::Step | Kind::End => header.length as usize,
            };
            // The file holds that many bytes.
            let mut start = vec![0; wanted.min(header.length as usize)];
            if file.read_exact(&mut start).is_err() || !self.keep(place, &start) {
                break;
            }
            if file.seek_relative(i64::from(header.length) - start.len() as i64).is_err() {
                break;
            }
            self.whole = end;
        }
        Ok(())
    }

    /// Takes a record into the index; false if the trace can't go on with it.
    fn keep(&mut self, place: Place, start: &[u8]) -> bool {
        let good = || crc32fast::hash(start) == place.header.checksum;
        let hash = || start.first_chunk::<16>().copied();
        match place.header.kind {
            Kind::Head => match serde_json::from_slice::<Head>(start) {
                Ok(head) if good() && self.head.id.is_empty() && !head.id.is_empty() => self.head = head,
                _ => return false,
            },
            // Nothing comes before the head.
            _ if self.head.id.is_empty() => return false,
            Kind::Strip => match hash() {
                Some(hash) => drop(self.strips.insert(hash, place)),
                None => return false,
            },
            Kind::Frame => match hash() {
                Some(hash) => drop(self.frames.insert(hash, place)),
                None => return false,
            },
            Kind::Tree => match start.first_chunk::<8>() {
                Some(number) => drop(self.trees.insert(u64::from_le_bytes(*number), place)),
                None => return false,
            },
            Kind::Step => {
                if !good() {
                    return false;
                }
                self.steps.push(place);
            }
            Kind::End => match serde_json::from_slice(start) {
                Ok(end) if good() => self.end = Some(end),
                _ => return false,
            },
        }
        true
    }

    fn count(&self) -> usize {
        self.steps.len() + self.strips.len() + self.frames.len() + self.trees.len()
    }

    pub fn info(&self) -> TraceInfo {
        let Head { id, name, desk, started, width, height, .. } = self.head.clone();
        let last = || self.steps.last().and_then(|place| self.step_at(*place).ok()).map(|step| step.at);
        TraceInfo {
            ended: Some(self.end.as_ref().map(|end| end.ended.clone()).or_else(last).unwrap_or_else(|| started.clone())),
            id,
            name,
            desk,
            started,
            steps: self.steps.len() as u64,
            bytes: self.whole,
            width,
            height,
            complete: self.end.is_some(),
            note: self.end.as_ref().and_then(|end| end.note.clone()),
        }
    }

    /// Steps above a number, so many at most.
    pub fn steps(&self, after: u64, limit: usize) -> Result<Vec<Step>> {
        let start = usize::try_from(after).unwrap_or(usize::MAX).min(self.steps.len());
        self.steps[start..].iter().take(limit).map(|place| self.step_at(*place)).collect()
    }

    fn step_at(&self, place: Place) -> Result<Step> {
        let step = serde_json::from_slice(&self.content(place)?);
        step.map_err(|e| Error::Invalid(format!("a step of {} can't be understood: {e}", self.path.display())))
    }

    /// A picture, as a PNG. Its strips are put together as they lie in the file.
    pub fn frame(&self, name: &str) -> Result<Vec<u8>> {
        let (size, strips) = self.picture(name)?;
        let mut chunks = Vec::with_capacity(strips.len());
        let mut total = 0;
        for (index, strip) in strips.iter().enumerate() {
            let Strip { adler, length, idat } = self.strip(strip)?;
            let rows = STRIP_ROWS.min(size.height as usize - index * STRIP_ROWS);
            total += idat.len();
            // Strips pack to little more than they are; more is no picture of ours.
            if length as usize != rows * (1 + size.width as usize * 3) || total > LARGEST {
                return Err(broken(name));
            }
            chunks.push(Chunk { bytes: idat.into(), adler, length: length as usize });
        }
        Ok(assemble(size, chunks.iter()).to_vec())
    }

    /// The size of a picture and the names of its strips, from the top.
    pub fn picture(&self, name: &str) -> Result<(Size, Vec<String>)> {
        let place = from_hex(name).and_then(|hash| self.frames.get(&hash));
        let place = place.ok_or_else(|| Error::NotFound("the trace has no picture of this name".into()))?;
        let content = self.content(*place)?;
        let (sides, strips) = content.get(16..).and_then(|rest| rest.split_at_checked(8)).ok_or_else(|| broken(name))?;
        let side = |at: usize| u32::from_le_bytes([sides[at], sides[at + 1], sides[at + 2], sides[at + 3]]);
        let size = Size { width: side(0), height: side(4) };
        let fits = (1..=LARGEST_SIDE).contains(&size.width) && (1..=LARGEST_SIDE).contains(&size.height);
        let (strips, rest) = strips.as_chunks::<16>();
        if !fits || !rest.is_empty() || strips.len() != (size.height as usize).div_ceil(STRIP_ROWS) {
            return Err(broken(name));
        }
        Ok((size, strips.iter().map(hex).collect()))
    }

    /// Sixteen rows of pixels by their name, as a chunk of a PNG.
    pub fn strip(&self, name: &str) -> Result<Strip> {
        let place = from_hex(name).and_then(|hash| self.strips.get(&hash)).ok_or_else(|| broken(name))?;
        let content = self.content(*place)?;
        let (head, idat) = content.split_at_checked(24).ok_or_else(|| broken(name))?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Ok(Strip { adler: number(16), length: number(20), idat: idat.to_vec() })
    }

    /// The tree after a step, as the JSON that `/v1/accessibility` answered.
    pub fn tree(&self, number: u64) -> Result<Vec<u8>> {
        let place = self.trees.get(&number);
        let content = self.content(*place.ok_or_else(|| Error::NotFound(format!("the trace has no tree of step {number}")))?)?;
        let broken = || Error::Invalid(format!("the tree of step {number} is broken"));
        let packed = content.get(16..).ok_or_else(broken)?;
        let mut json = Vec::new();
        let read = flate2::read::ZlibDecoder::new(packed).take(LARGEST_TREE).read_to_end(&mut json);
        read.map_err(|_| broken())?;
        Ok(json)
    }

    /// The content of a record, which lies inside the file.
    fn content(&self, place: Place) -> Result<Vec<u8>> {
        let mut content = vec![0; place.header.length as usize];
        self.file.read_exact_at(&mut content, place.at).map_err(|e| Error::file(self.path.display(), &e))?;
        if crc32fast::hash(&content) != place.header.checksum {
            return Err(Error::Invalid(format!("{} is damaged at byte {}", self.path.display(), place.at)));
        }
        Ok(content)
    }
}

fn broken(name: &str) -> Error {
    Error::Invalid(format!("the picture {name} is broken"))
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/trace.rs"]
pub(crate) mod fuzz;
