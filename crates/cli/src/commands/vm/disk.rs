//! The disk of a VM image: where it may lie, and whether all of it is there.

use crate::failure::{Failure, Outcome};
use hotdesk_image::disk::Manifest;
use hotdesk_provider::qemu::keeper::Keeper;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Where disks are looked for, in this order.
const USUAL: [&str; 2] = ["/vm/System.qcow2", "/System.qcow2"];
/// The parts of a disk that came with the image.
const PARTS: &str = "/vm-parts";
/// Pauses between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// A file that has not changed for so long is not being written any more. One that was written earlier than that is taken at once.
const STILL: Duration = Duration::from_secs(5);

/// Waits until there is a disk, all of it.
pub(super) async fn wait(wanted: Option<&Path>, keeper: &Keeper) -> PathBuf {
    let places: Vec<PathBuf> = match wanted {
        Some(path) => vec![path.to_owned()],
        None => USUAL.iter().map(PathBuf::from).chain([PathBuf::from(PARTS)]).collect(),
    };
    let mut watched: Option<(PathBuf, State, Instant)> = None;
    loop {
        let found = places.iter().find_map(|place| whole(place));
        match found {
            None => {
                watched = None;
                let names: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                keeper.note("waiting", format!("waiting for a disk at {}", names.join(", ")));
            }
            Some((path, state)) => {
                let age = state.changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
                let since = match &watched {
                    Some((known, before, since)) if *known == path && *before == state => since.elapsed(),
                    _ => {
                        watched = Some((path.clone(), state, Instant::now()));
                        Duration::ZERO
                    }
                };
                if since.max(age.unwrap_or_default()) >= STILL {
                    return path;
                }
                keeper.note(
                    "waiting",
                    format!("the disk {} is being copied, {} so far", path.display(), crate::text::size(state.bytes)),
                );
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A file at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    bytes: u64,
    changed: Option<SystemTime>,
}

/// The disk at a place, if there is one that could be whole.
fn whole(place: &Path) -> Option<(PathBuf, State)> {
    let path = if place.is_dir() { top_part(place)? } else { place.to_owned() };
    let meta = std::fs::metadata(&path).ok().filter(|meta| meta.is_file() && meta.len() > 0)?;
    if std::fs::File::open(&path).is_err() {
        return None;
    }
    Some((path, State { bytes: meta.len(), changed: meta.modified().ok() }))
}

/// The part that the machine is started with: it names the others below it.
fn top_part(folder: &Path) -> Option<PathBuf> {
    let manifest = Manifest::read(folder).ok()?;
    let there =
        |part: &hotdesk_image::disk::Part| std::fs::metadata(folder.join(&part.file)).is_ok_and(|meta| meta.len() == part.size);
    manifest.parts.iter().all(there).then(|| folder.join(&manifest.open))
}

/// A directory that can be written: the one that is wanted, or the usual one, or a temporary one.
pub(super) fn storage(wanted: Option<&Path>) -> Outcome<PathBuf> {
    let places: Vec<PathBuf> = match wanted {
        Some(path) => vec![path.to_owned()],
        None => vec!["/storage".into(), std::env::temp_dir().join("hotdesk-vm")],
    };
    for place in &places {
        let usable = std::fs::create_dir_all(place).is_ok() && rustix::fs::access(place, rustix::fs::Access::WRITE_OK).is_ok();
        if usable {
            return place.canonicalize().map_err(|e| Failure::local(format!("{}: {e}", place.display())));
        }
    }
    let names: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Failure::local(format!("none of {} can be written", names.join(", ")))
        .hint("mount a volume or a tmpfs at /storage, or name another directory with HOTDESK_STORAGE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_in_parts_is_whole_when_all_are_there() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(whole(folder.path()), None);
        let part = |file: &str, at: u64| serde_json::json!({ "file": file, "size": 1, "sha256": "0".repeat(64), "from": at, "to": at + 65536 });
        let manifest = serde_json::json!({
            "version": 1, "virtual_size": 131_072, "max_part_size": 1 << 20, "open": "b.qcow2",
            "parts": [part("a.qcow2", 0), part("b.qcow2", 65536)],
        });
        std::fs::write(folder.path().join("manifest.json"), manifest.to_string()).unwrap();
        std::fs::write(folder.path().join("b.qcow2"), "x").unwrap();
        assert_eq!(whole(folder.path()), None);
        std::fs::write(folder.path().join("a.qcow2"), "too long").unwrap();
        assert_eq!(whole(folder.path()), None);
        std::fs::write(folder.path().join("a.qcow2"), "x").unwrap();
        assert_eq!(whole(folder.path()).unwrap().0, folder.path().join("b.qcow2"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_is_still_copied_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("System.qcow2");
        let keeper = Keeper::new(None);
        let waiting = tokio::spawn({
            let (path, keeper) = (path.clone(), keeper.clone());
            async move { wait(Some(&path), &keeper).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(keeper.status().detail.contains("waiting for a disk at"), "{:?}", keeper.status());
        std::fs::write(&path, "a").unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(keeper.status().detail.contains("is being copied, 1 B so far"), "{:?}", keeper.status());
        assert!(!waiting.is_finished());
        // Its last change was long ago.
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
        assert_eq!(waiting.await.unwrap(), path);
    }
}
