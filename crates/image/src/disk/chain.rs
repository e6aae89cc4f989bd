//! Which files a disk consists of, found without trusting any of them.
//!
//! A qcow2 file can name others: a backing file, a file for its data. QEMU opens whatever is named, with all its
//! protocols (`json:{…}`, `nbd://…`, `/etc/passwd`). So a disk from elsewhere is looked at here first, and only what lies
//! beside it in its own directory counts as a part of it.

use super::qcow2::header::{HEAD, Header, MAGIC};
use super::{at, invalid};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Deeper chains are slow in QEMU, and no split disk needs them.
pub(crate) const LONGEST_CHAIN: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Raw,
    Qcow2,
    Vmdk,
    Vdi,
    Vhdx,
}

impl Format {
    /// QEMU's name of it.
    pub fn driver(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhdx => "vhdx",
        }
    }

    /// Whether it is read here, without QEMU.
    pub(crate) fn native(self) -> bool {
        matches!(self, Self::Raw | Self::Qcow2)
    }

    /// What a name ending asks for: `.raw`, `.img` and `.qcow2`.
    pub fn of_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "raw" | "img" => Some(Self::Raw),
            "qcow2" => Some(Self::Qcow2),
            _ => None,
        }
    }
}

/// One file of a disk.
#[derive(Debug)]
pub struct Link {
    pub path: PathBuf,
    pub format: Format,
    /// Of qcow2 files.
    pub header: Option<Header>,
    /// Open for reading: what was looked at is what is read.
    pub(crate) file: File,
}

/// Makes sure that a disk can be given to QEMU: every file that it leads to lies in its own directory, is a plain file
/// and has a header that holds together. Returns its files, the one that is opened first.
pub fn check_safe(path: &Path) -> Result<Vec<Link>> {
    check_safe_in(path, &[])
}

/// The same, where backing files may lie in further directories too: those of the caller's own disks.
pub fn check_safe_in(path: &Path, further: &[&Path]) -> Result<Vec<Link>> {
    let path = path.canonicalize().map_err(|e| at(path, &e))?;
    let home = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let mut allowed = vec![home];
    for directory in further {
        allowed.push(directory.canonicalize().map_err(|e| at(directory, &e))?);
    }
    let mut links: Vec<Link> = Vec::new();
    let mut next = Some((path, None));
    while let Some((path, format)) = next.take() {
        if links.iter().any(|link| link.path == path) {
            return Err(invalid(&path, "it is a backing file of itself"));
        }
        if links.len() == LONGEST_CHAIN {
            return Err(invalid(&path, &format!("more than {LONGEST_CHAIN} files are chained")));
        }
        let link = look(path, format)?;
        if let Some(name) = link.header.as_ref().and_then(|header| header.backing.as_deref()) {
            let backing = beside(&link.path, name, &allowed)?;
            let format = match link.header.as_ref().and_then(|header| header.backing_format.as_deref()) {
                None => None,
                Some("raw") => Some(Format::Raw),
                Some("qcow2") => Some(Format::Qcow2),
                Some(other) => return Err(invalid(&link.path, &format!("its backing file has the format {other:?}"))),
            };
            next = Some((backing, format));
        }
        links.push(link);
    }
    Ok(links)
}

fn look(path: PathBuf, said: Option<Format>) -> Result<Link> {
    // A pipe would be waited for without an end, a device may do something when it is opened.
    let kind = std::fs::metadata(&path).map_err(|e| at(&path, &e))?.file_type();
    if !kind.is_file() {
        return Err(invalid(&path, "it is no plain file"));
    }
    let mut file = File::open(&path).map_err(|e| at(&path, &e))?;
    let length = file.metadata().map_err(|e| at(&path, &e))?.len();
    let mut head = Vec::new();
    (&mut file).take(HEAD as u64).read_to_end(&mut head).map_err(|e| at(&path, &e))?;
    let found = detect(&head).map_err(|why| invalid(&path, why))?;
    let format = match said {
        // Bytes that a guest wrote into a raw disk are never taken for a header.
        Some(Format::Raw) => Format::Raw,
        Some(format) if format != found => {
            return Err(invalid(&path, &format!("it is {}, not {}", found.driver(), format.driver())));
        }
        _ => found,
    };
    let header = match format {
        Format::Qcow2 => {
            let header = Header::parse(&head, length).map_err(|why| invalid(&path, &why))?;
            if header.external_data {
                return Err(invalid(&path, "its data is in another file, which is not allowed for disks from elsewhere"));
            }
            Some(header)
        }
        Format::Vmdk => {
            vmdk(&head).map_err(|why| invalid(&path, why))?;
            None
        }
        _ => None,
    };
    Ok(Link { path, format, header, file })
}

fn detect(head: &[u8]) -> Result<Format, &'static str> {
    let starts = |magic: &[u8]| head.starts_with(magic);
    Ok(match () {
        () if starts(&MAGIC) => Format::Qcow2,
        () if starts(b"KDMV") => Format::Vmdk,
        () if starts(b"vhdxfile") => Format::Vhdx,
        () if head.get(0x40..0x44) == Some(&[0x7f, 0x10, 0xda, 0xbe]) => Format::Vdi,
        () if starts(b"# Disk DescriptorFile") => {
            return Err("it is a VMDK descriptor, which names other files; convert it to one file");
        }
        () if starts(b"QED\0") || starts(b"LUKS\xba\xbe") || starts(b"COWD") || starts(b"conectix") => {
            return Err("its format (QED, LUKS, VMDK 3 or VHD) is not known here; qemu-img convert makes a qcow2 file of it");
        }
        () if starts(b"PK\x03\x04") || starts(&[0x1f, 0x8b]) || starts(&[0x28, 0xb5, 0x2f, 0xfd]) => {
            return Err("it is packed (zip, gzip or zstd); hotdesk disk fetch file:PATH unpacks it");
        }
        () if head.is_empty() => return Err("it is empty"),
        () => Format::Raw,
    })
}

/// A sparse VMDK keeps its data in itself, unless its size is 0 (then it is a descriptor in disguise) or it has a parent.
fn vmdk(head: &[u8]) -> Result<(), &'static str> {
    let number = |at: usize| head.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    let (capacity, descriptor, size) = (number(12), number(28), number(36));
    let (Some(capacity), Some(descriptor), Some(size)) = (capacity, descriptor, size) else {
        return Err("it is cut off within its header");
    };
    if capacity == 0 {
        return Err("it is a VMDK descriptor, which names other files; convert it to one file");
    }
    let from = descriptor.saturating_mul(512).min(head.len() as u64) as usize;
    let to = descriptor.saturating_add(size).saturating_mul(512).min(head.len() as u64) as usize;
    if descriptor != 0 && size != 0 && (from == to || descriptor.saturating_add(size).saturating_mul(512) > HEAD as u64) {
        return Err("its descriptor lies outside its header");
    }
    let text = String::from_utf8_lossy(&head[from.min(to)..to]).to_ascii_lowercase();
    if text.contains("parentfilenamehint") {
        return Err("it is a VMDK with a parent; convert it to one file");
    }
    Ok(())
}

/// The file that a backing name means, if it is one of the allowed directories' own.
fn beside(path: &Path, name: &str, allowed: &[PathBuf]) -> Result<PathBuf> {
    let refuse = |why: &str| invalid(path, &format!("its backing file is {name:?}: {why}"));
    // QEMU takes everything before a colon for a protocol, unless a slash comes first.
    if name.find(':').is_some_and(|colon| name.find('/').is_none_or(|slash| colon < slash)) {
        return Err(refuse("only files are allowed, no protocols"));
    }
    let home = path.parent().unwrap_or(Path::new("/"));
    let whole = home.join(name);
    let real = match whole.canonicalize() {
        Ok(real) => real,
        Err(e) if e.kind() == ErrorKind::NotFound && allowed.iter().any(|place| whole.parent() == Some(place)) => {
            return Err(refuse("there is no such file"));
        }
        // Whether it exists is nobody's business where it is not allowed.
        Err(_) => return Err(refuse(OUTSIDE)),
    };
    if !allowed.iter().any(|place| real.parent() == Some(place)) {
        return Err(refuse(OUTSIDE));
    }
    Ok(real)
}

const OUTSIDE: &str = "it must lie in the same directory";

/// How QEMU opens a disk: every file of its chain with its format, so that nothing is probed and no name in a file is followed.
#[derive(Debug, Clone)]
pub struct OpenArgs {
    pub format: Format,
    /// The tree of nodes, as `-blockdev` and `blockdev-add` take it (with `"node-name"` added by the caller).
    pub blockdev: serde_json::Value,
    /// What the guest sees.
    pub virtual_size: u64,
}

impl OpenArgs {
    /// For every place where QEMU takes a file name: `json:{…}`.
    pub fn filename(&self) -> String {
        format!("json:{}", self.blockdev)
    }
}

/// See [`OpenArgs`]. The disk is checked first.
pub fn open_args(path: &Path) -> Result<OpenArgs> {
    args_of(&check_safe(path)?)
}

pub(crate) fn args_of(links: &[Link]) -> Result<OpenArgs> {
    let mut tree = serde_json::Value::Null;
    for link in links.iter().rev() {
        let name = link.path.to_str().ok_or_else(|| invalid(&link.path, "its name is no text"))?;
        let mut node = serde_json::json!({
            "driver": link.format.driver(),
            "read-only": true,
            "file": { "driver": "file", "filename": name, "read-only": true },
        });
        if link.format == Format::Qcow2 {
            // Null says that there is none, whatever the header says.
            node["backing"] = tree;
        }
        tree = node;
    }
    let first = links.first().ok_or_else(|| Error::Failed("a disk without files".into()))?;
    let virtual_size = match &first.header {
        Some(header) => header.size,
        None => first.file.metadata().map_err(|e| at(&first.path, &e))?.len(),
    };
    Ok(OpenArgs { format: first.format, blockdev: tree, virtual_size })
}

#[cfg(test)]
mod tests {
    use super::super::qcow2::header::tests::{sample, with_backing};
    use super::*;

    fn refused(directory: &Path, backing: &str) -> String {
        let path = directory.join("disk.qcow2");
        let file = File::create(&path).unwrap();
        std::io::Write::write_all(&mut &file, &with_backing(sample(), backing)).unwrap();
        file.set_len(1 << 20).unwrap();
        check_safe(&path).unwrap_err().to_string()
    }

    #[test]
    fn a_disk_stays_in_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        for name in ["/etc/passwd", "../../../../etc/passwd", "/nowhere/at/all", "sub/base"] {
            let why = refused(place, name);
            assert!(why.contains("must lie in the same directory"), "{name}: {why}");
        }
        for name in ["json:{\"driver\":\"file\"}", "nbd://host/x", "nbd:unix:/x", "file:base.raw", "http://x/y"] {
            assert!(refused(place, name).contains("no protocols"), "{name}");
        }
        std::os::unix::fs::symlink("/etc/passwd", place.join("link")).unwrap();
        assert!(refused(place, "link").contains("must lie in the same directory"));
        assert!(refused(place, "missing").contains("no such file"));
        assert!(refused(place, "disk.qcow2").contains("backing file of itself"));
        rustix::fs::mkfifoat(rustix::fs::CWD, place.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert!(refused(place, "pipe").contains("no plain file"));
        std::fs::write(place.join("base.raw"), [1; 512]).unwrap();
        std::fs::write(place.join("good.qcow2"), with_backing(sample(), "base.raw")).unwrap();
        File::options().write(true).open(place.join("good.qcow2")).unwrap().set_len(1 << 20).unwrap();
        let links = check_safe(&place.join("good.qcow2")).unwrap();
        assert_eq!((links.len(), links[1].format), (2, Format::Raw));
        let tree = args_of(&links).unwrap().blockdev;
        assert_eq!((&tree["driver"], &tree["backing"]["driver"]), (&"qcow2".into(), &"raw".into()));
    }

    #[test]
    fn vmdk_with_others_is_refused() {
        let mut head = vec![0; 2048];
        head[..4].copy_from_slice(b"KDMV");
        assert!(vmdk(&head).unwrap_err().contains("descriptor"));
        head[12] = 1;
        assert!(vmdk(&head).is_ok());
        (head[28], head[36]) = (1, 2);
        head[512..533].copy_from_slice(b"parentFileNameHint=\"x");
        assert!(vmdk(&head).unwrap_err().contains("parent"));
        assert!(vmdk(&head[..30]).is_err());
    }
}
