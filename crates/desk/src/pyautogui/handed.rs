//! Which hand the mouse is set up for. PyAutoGUI asks `dconf` about it once per program that
//! clicks with the primary button; asking costs a process, so the answer is kept while the
//! settings' files stay the same.

use crate::place::Place;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

const KEY: &str = "/org/gnome/desktop/peripherals/mouse/left-handed";
/// The last part of the key, as it stands in a database that has it.
const NAME: &[u8] = b"left-handed";
/// The largest database that is looked through. They are a few kilobytes; beyond this we ask.
const MOST_BYTES: u64 = 1 << 20;

/// What the answer depends on: the database, its inode, size and time.
type Stamp = (PathBuf, Option<(u64, u64, i64, i64)>);

static KNOWN: Mutex<Option<(Stamp, bool)>> = Mutex::new(None);

/// Whether the primary button is the right one.
pub(super) fn left_handed(place: &Place) -> bool {
    let database = database(place);
    let metadata = std::fs::metadata(&database).ok();
    let stamp = (database, metadata.as_ref().map(|m| (m.ino(), m.len(), m.mtime(), m.mtime_nsec())));
    let system_wide = place.env.contains_key("DCONF_PROFILE") || Path::new("/etc/dconf/profile").exists();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((kept, answer)) = known.as_ref()
        && *kept == stamp
        && !system_wide
    {
        return *answer;
    }
    let answer = if system_wide || mentions(&stamp.0, metadata.as_ref()) { ask(place) } else { false };
    *known = Some((stamp, answer));
    answer
}

fn database(place: &Place) -> PathBuf {
    match place.env.get("XDG_CONFIG_HOME").filter(|path| path.starts_with('/')) {
        Some(config) => Path::new(config).join("dconf/user"),
        None => place.home.join(".config/dconf/user"),
    }
}

/// Whether the database can have the key at all.
fn mentions(database: &Path, metadata: Option<&Metadata>) -> bool {
    match metadata {
        None => false,
        Some(metadata) if metadata.len() > MOST_BYTES => true,
        Some(_) => std::fs::read(database).map_or(true, |bytes| bytes.windows(NAME.len()).any(|window| window == NAME)),
    }
}

fn ask(place: &Place) -> bool {
    let path = place.env.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
    let Some(program) = path.split(':').map(|folder| Path::new(folder).join("dconf")).find(|file| file.is_file()) else {
        return false;
    };
    let output = Command::new(program)
        .args(["read", KEY])
        .env_clear()
        .envs(&place.env)
        .current_dir(&place.home)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| output.stdout == b"true\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_without_the_key_is_not_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("user");
        assert!(!mentions(&file, None));
        std::fs::write(&file, b"GVariant\0\0\0/org/gnome/desktop/background/picture-uri").unwrap();
        assert!(!mentions(&file, std::fs::metadata(&file).ok().as_ref()));
        std::fs::write(&file, b"GVariant\0\0\0\x05left-handed\0").unwrap();
        assert!(mentions(&file, std::fs::metadata(&file).ok().as_ref()));
    }
}
