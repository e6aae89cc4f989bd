//! Which hand the mouse is set up for. PyAutoGUI asks `dconf` about it once per program that
//! clicks with the primary button; asking costs a process, so the answer is kept while the
//! settings' files stay the same.

use crate::place::Place;
use std::collections::BTreeMap;
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

/// Where an administrator's settings are declared, and where they are kept.
const SYSTEM: [&str; 3] = ["/etc/dconf/profile/user", "/usr/share/dconf/profile/user", "/etc/dconf/db"];

/// A file as it was when we looked: its inode, size and time.
type Stamp = Option<(u64, u64, i64, i64)>;
/// What the answer depends on: the user's database and the system's settings.
type Sources = (Stamp, [Stamp; 3]);

/// Answers by database. A process has one desk; tests have some.
static KNOWN: Mutex<BTreeMap<PathBuf, (Sources, bool)>> = Mutex::new(BTreeMap::new());
const MOST_KNOWN: usize = 16;

/// Whether the primary button is the right one.
pub(super) fn left_handed(place: &Place) -> bool {
    look_up(place, || ask(place))
}

fn look_up(place: &Place, ask: impl FnOnce() -> bool) -> bool {
    if place.env.contains_key("DCONF_PROFILE") {
        return ask();
    }
    let database = database(place);
    let metadata = std::fs::metadata(&database).ok();
    let system = SYSTEM.map(|path| stamp(std::fs::metadata(path).ok().as_ref()));
    let has_profile = system[0].is_some() || system[1].is_some();
    let sources = (stamp(metadata.as_ref()), system);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((kept, answer)) = known.get(&database)
        && *kept == sources
    {
        return *answer;
    }
    let answer = (has_profile || mentions(&database, metadata.as_ref())) && ask();
    if known.len() >= MOST_KNOWN {
        known.clear();
    }
    known.insert(database, (sources, answer));
    answer
}

fn stamp(metadata: Option<&Metadata>) -> Stamp {
    metadata.map(|m| (m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
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
    use crate::place::Display;

    #[test]
    fn it_is_asked_again_when_the_settings_change() {
        let home = tempfile::tempdir().unwrap();
        let display = Display { number: 0, cookie: None };
        let folder = home.path().to_owned();
        let place = Place { display, home: folder.clone(), runtime_dir: folder, bus: String::new(), env: BTreeMap::new() };
        let database = home.path().join(".config/dconf/user");
        std::fs::create_dir_all(home.path().join(".config/dconf")).unwrap();
        std::fs::write(&database, "left-handed").unwrap();
        assert!(look_up(&place, || true));
        assert!(look_up(&place, || panic!("nobody touched the settings")));
        std::fs::write(&database, "left-handed, changed").unwrap();
        assert!(!look_up(&place, || false));
    }

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
