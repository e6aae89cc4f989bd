//! What is written beside CRIU's own files, and the one of them that is different in every copy.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The name of [`Saved`] in the directory of a saved state; it is written last, so what has it is whole.
pub const FILE: &str = "saved.json";

/// What a restore must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Mount points that a restore has to provide.
    pub mounts: Vec<PathBuf>,
    /// The kernel's version, for the one who wonders why a restore fails after a change of kernel.
    pub kernel: String,
    pub criu: String,
}

impl Saved {
    pub fn read(images: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(images.join(FILE))?)?)
    }
}

/// Makes a directory with all files of a saved state in it, as links, and users of its own: whoever restores from it gets
/// the processes in a user namespace that maps its users to the host's from `base` on.
pub fn with_users(images: &Path, to: &Path, base: u32, count: u32) -> io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(images)? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        if name.to_string_lossy().starts_with("userns-") {
            std::fs::write(to.join(&name), users(base, count))?;
        } else {
            symlink(std::path::absolute(path)?, to.join(&name))?;
        }
    }
    Ok(())
}

/// CRIU's file of a user namespace: two numbers that say what it is, a length, and a message of protocol buffers.
fn users(base: u32, count: u32) -> Vec<u8> {
    const COMMON: u32 = 0x5456_4319;
    const USERS: u32 = 0x5547_4906;
    let mut extent = Vec::new();
    for (field, value) in [(1u8, 0), (2, base), (3, count)] {
        extent.push(field << 3);
        varint(&mut extent, value);
    }
    let mut message = Vec::new();
    // Users, then groups.
    for field in [1u8, 2] {
        message.push(field << 3 | 2);
        varint(&mut message, extent.len() as u32);
        message.extend(&extent);
    }
    [&COMMON.to_le_bytes()[..], &USERS.to_le_bytes(), &(message.len() as u32).to_le_bytes(), &message].concat()
}

fn varint(to: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_written_as_criu_does() {
        // What CRIU 4.2 wrote for a map of `0 0 65536`.
        let written = [
            0x19, 0x43, 0x56, 0x54, 0x06, 0x49, 0x47, 0x55, 0x14, 0, 0, 0, 0x0a, 8, 8, 0, 0x10, 0, 0x18, 0x80, 0x80, 4, 0x12, 8, 8, 0, 0x10, 0,
            0x18, 0x80, 0x80, 4,
        ];
        assert_eq!(users(0, 65_536), written);
    }

    #[test]
    fn a_copy_shares_everything_but_its_users() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("core-1.img"), "core").unwrap();
        std::fs::write(from.join("userns-9.img"), users(0, 65_536)).unwrap();
        with_users(&from, &to, 600_000, 65_536).unwrap();
        assert_eq!(std::fs::read(to.join("core-1.img")).unwrap(), b"core");
        assert_eq!(std::fs::read(to.join("userns-9.img")).unwrap(), users(600_000, 65_536));
        assert_eq!(std::fs::read(from.join("userns-9.img")).unwrap(), users(0, 65_536));
    }
}
