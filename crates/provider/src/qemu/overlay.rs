//! Disks that hold what differs from another one: empty qcow2 files, written here.
//!
//! A new desk needs one at once; starting `qemu-img` would take longer than starting the desk. The layout is the simplest that the
//! format knows: header, table of reference counts, their one block, and the first-level table, all empty.

use crate::{Error, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const MAGIC: [u8; 4] = *b"QFI\xfb";
const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// The format's own bound on the name of the disk below.
const LONGEST_NAME: usize = 1023;
/// Says in which format the disk below is, so that nobody guesses from content that a guest may have written.
const BACKING_FORMAT: u32 = 0xE279_2ACA;
/// What one cluster of reference counts of 16 bits covers, minus what we need ourselves: far beyond any first-level table.
const LARGEST: u64 = 64 << 40;

/// A disk as far as its header tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) format: &'static str,
    pub(crate) bytes: u64,
}

/// The format and the size of a disk. A file without the mark of qcow2 is a raw disk.
pub(crate) fn shape(path: &Path) -> Result<Shape> {
    let failed = |e: std::io::Error| Error::NotFound(format!("the disk {} can't be read: {e}", path.display()));
    let mut file = File::open(path).map_err(failed)?;
    let mut header = [0; 32];
    let mut read = 0;
    while read < header.len() {
        match file.read(&mut header[read..]).map_err(failed)? {
            0 => break,
            more => read += more,
        }
    }
    if header[..4] == MAGIC {
        let bytes = u64::from_be_bytes(header[24..32].try_into().unwrap_or_default());
        return Ok(Shape { format: "qcow2", bytes });
    }
    Ok(Shape { format: "raw", bytes: file.metadata().map_err(failed)?.len() })
}

/// What a qcow2 file says of itself, and to which other files it leads.
pub(crate) fn header(path: &Path) -> Result<hotdesk_image::disk::Header> {
    let failed = |why: &dyn std::fmt::Display| Error::Failed(format!("the disk {} can't be read: {why}", path.display()));
    let file = File::open(path).map_err(|e| failed(&e))?;
    let length = file.metadata().map_err(|e| failed(&e))?.len();
    let mut head = Vec::new();
    file.take(CLUSTER).read_to_end(&mut head).map_err(|e| failed(&e))?;
    hotdesk_image::disk::Header::parse(&head, length).map_err(|e| failed(&e))
}

/// Makes an empty disk of `bytes` over another one.
pub(crate) fn create(path: &Path, below: &Path, format: &str, bytes: u64) -> Result<()> {
    let failed = |why: &dyn std::fmt::Display| Error::Failed(format!("the disk {} can't be made: {why}", path.display()));
    let name = below.as_os_str().as_bytes();
    if name.len() > LONGEST_NAME || !below.is_absolute() {
        return Err(failed(&format!("{} is no name for the disk below it", below.display())));
    }
    if bytes > LARGEST {
        return Err(failed(&format!("{bytes} bytes are too many")));
    }
    let written = (|| {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&tables(name, format.as_bytes(), bytes))
    })();
    written.map_err(|e| {
        let _ = std::fs::remove_file(path);
        if crate::local::directory::is_full(&e) { Error::Full(format!("the disk {}: {e}", path.display())) } else { failed(&e) }
    })
}

fn tables(name: &[u8], format: &[u8], bytes: u64) -> Vec<u8> {
    let entries = bytes.div_ceil(CLUSTER * (CLUSTER / 8)).max(1);
    let first_level = (entries * 8).div_ceil(CLUSTER);
    let used = 3 + first_level;
    let padded = format.len().div_ceil(8) * 8;
    let name_at = 104 + 8 + padded + 8;
    let mut header = Vec::new();
    let mut put = |bytes: &[u8]| header.extend_from_slice(bytes);
    put(&MAGIC);
    put(&3_u32.to_be_bytes());
    put(&(name_at as u64).to_be_bytes());
    put(&(name.len() as u32).to_be_bytes());
    put(&CLUSTER_BITS.to_be_bytes());
    put(&(bytes.div_ceil(512) * 512).to_be_bytes());
    put(&0_u32.to_be_bytes()); // Not encrypted.
    put(&(entries as u32).to_be_bytes());
    put(&(3 * CLUSTER).to_be_bytes()); // First-level table.
    put(&CLUSTER.to_be_bytes()); // Table of reference counts.
    put(&1_u32.to_be_bytes());
    put(&0_u32.to_be_bytes()); // No snapshots inside.
    put(&0_u64.to_be_bytes());
    put(&[0; 24]); // No feature of any kind.
    put(&4_u32.to_be_bytes()); // Reference counts of 16 bits.
    put(&104_u32.to_be_bytes());
    put(&BACKING_FORMAT.to_be_bytes());
    put(&(format.len() as u32).to_be_bytes());
    put(format);
    put(&vec![0; padded - format.len()]);
    put(&[0; 8]); // The end of the extensions.
    put(name);
    header.resize(CLUSTER as usize, 0);
    header.extend_from_slice(&(2 * CLUSTER).to_be_bytes());
    header.resize(2 * CLUSTER as usize, 0);
    for _ in 0..used {
        header.extend_from_slice(&1_u16.to_be_bytes());
    }
    header.resize((used * CLUSTER) as usize, 0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn qemu_knows_it_as_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (base, over, upper) = (folder.path().join("base"), folder.path().join("over"), folder.path().join("upper"));
        std::fs::write(&base, vec![7; 3 << 20]).unwrap();
        assert_eq!(shape(&base).unwrap(), Shape { format: "raw", bytes: 3 << 20 });
        for (path, below, format, size) in [(&over, &base, "raw", 3 << 20), (&upper, &over, "qcow2", 40 << 30)] {
            create(path, below, format, size).unwrap();
            assert_eq!(shape(path).unwrap(), Shape { format: "qcow2", bytes: size });
            let header = header(path).unwrap();
            assert_eq!((header.backing.as_deref(), header.backing_format.as_deref()), (below.to_str(), Some(format)));
            let tool = |words: &[&str]| {
                let output = Command::new("qemu-img").args(words).arg(path).output().expect("qemu-utils is installed");
                assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            let check = tool(&["check", "-f", "qcow2"]);
            assert!(check.contains("No errors"), "{check}");
            let info: serde_json::Value = serde_json::from_str(&tool(&["info", "-U", "--output=json"])).unwrap();
            assert_eq!((&info["virtual-size"], &info["backing-filename-format"]), (&size.into(), &format.into()));
            assert_eq!(info["full-backing-filename"], below.to_str().unwrap());
        }
        let compared =
            Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "qcow2"]).args([&base, &upper]).output().unwrap();
        assert!(String::from_utf8_lossy(&compared.stdout).contains("Images are identical"));
        assert!(create(&over, &base, "raw", 1).is_err(), "nothing is written over");
        assert!(create(&folder.path().join("x"), Path::new("base"), "raw", 1).is_err());
    }
}
