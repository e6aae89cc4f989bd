//! Named volumes: directories that outlive desks and can be mounted into several of them.
//!
//! A volume is a row in the store and a directory `DATA/volumes/ID`. What a desk mounts is written down in its record
//! ([`hotdesk_provider::VolumePlace`]), so which desks use a volume is known from the records alone, and a volume that
//! any desk has is not deleted. Mounts are checked as a whole before anything is spent.

mod source;
pub(crate) mod usage;

use crate::clock::rfc3339;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fleet::create::{project_of, random_id};
use crate::keys::{Deed, On, may};
use crate::limits::request;
use crate::{Fleet, Who};
use hotdesk_api::fleet::{NewVolume, Volume, VolumeMount};
use hotdesk_provider::VolumePlace;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of one desk. Each is a mount that the kernel walks past.
const MOST_MOUNTS: usize = 16;
const LONGEST_PATH: usize = 512;
/// Where nothing of a user's may be put: the desk's own machinery.
const RESERVED: [&str; 7] = ["/proc", "/sys", "/dev", "/run", "/usr/local/bin", "/etc/hotdesk", "/tmp/.X11-unix"];
/// Programs of the system lie here; a volume over one of them makes a desk that can't start.
const SYSTEM: [&str; 10] = ["/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/var", "/home", "/tmp"];

impl Fleet {
    /// Makes an empty volume.
    pub async fn create_volume(&self, who: &Who, new: NewVolume) -> Result<Volume> {
        request::volume_name(&new.name)?;
        let project = project_of(who, new.project.as_deref())?;
        may(who, Deed::Create, On::Project(&project))?;
        if let Some(source) = &new.source {
            // It is reached with what the orchestrator may, which is more than a project's.
            may(who, Deed::Rule, On::Fleet)?;
            source::check(source)?;
        }
        self.engine.volume_room(&project, &self.engine.store.volumes().await?)?;
        let engine = Arc::clone(&self.engine);
        let by = who.name.clone();
        self.engine
            .detached(async move {
                let volume = Volume {
                    id: random_id("v"),
                    name: new.name,
                    project,
                    source: new.source,
                    exclusive: new.exclusive,
                    created_at: rfc3339(engine.clock.now_ms()),
                    desks: Vec::new(),
                };
                // First the directory: a row without one would be a volume that can't be mounted.
                let directory = engine.volume_directory(&volume.id);
                make(&directory).map_err(|e| Error::Store(format!("{} can't be made: {e}", directory.display())))?;
                if let Some(from) = &volume.source
                    && let Err(e) = source::mount(from, &directory).await
                {
                    let _ = std::fs::remove_dir(&directory);
                    return Err(Error::Invalid(e.to_string()));
                }
                let written = engine.add_volume(&volume).await;
                if !matches!(written, Ok(true)) {
                    let _ = source::unmount(&directory).await;
                    let _ = std::fs::remove_dir(&directory);
                }
                if !written? {
                    return Err(Error::Conflict(format!(
                        "there is a volume {} in the project {} already; choose another name, or delete that one",
                        volume.name, volume.project
                    )));
                }
                engine.tell("volume", None, Some(&volume.project), format!("volume {} was made", volume.name), &by).await;
                Ok(volume)
            })
            .await
    }

    /// All volumes that they may see, with the desks that have them.
    pub async fn volumes(&self, who: &Who) -> Result<Vec<Volume>> {
        let mut all = self.engine.store.volumes().await?;
        all.retain(|volume| may(who, Deed::See, On::Project(&volume.project)).is_ok());
        for volume in &mut all {
            volume.desks = self.engine.desks_with(&volume.id);
        }
        Ok(all)
    }

    /// One volume, by id or name.
    pub async fn volume(&self, who: &Who, id: &str) -> Result<Volume> {
        let all = self.volumes(who).await?;
        let own = |volume: &&Volume| volume.name == id && volume.project == crate::DEFAULT_PROJECT;
        let found = all.iter().find(|volume| volume.id == id);
        let found = found.or_else(|| all.iter().find(own)).or_else(|| all.iter().find(|volume| volume.name == id));
        found.cloned().ok_or_else(|| Error::NotFound { what: "volume", id: id.into() })
    }

    /// Removes a volume and everything in it (of a bucket only its mount). Refused while a desk has it, also a stopped or archived one.
    pub async fn delete_volume(&self, who: &Who, id: &str) -> Result<()> {
        let volume = self.volume(who, id).await?;
        // Whoever may make one may remove one.
        may(who, Deed::Create, On::Project(&volume.project))?;
        let engine = Arc::clone(&self.engine);
        let by = who.name.clone();
        self.engine
            .detached(async move {
                let used = engine.desks_with(&volume.id);
                if !used.is_empty() {
                    return Err(Error::Conflict(format!(
                        "the volume {} is mounted in {}; delete them first",
                        volume.name,
                        used.join(", ")
                    )));
                }
                let directory = engine.volume_directory(&volume.id);
                // The store has the last word on who has it: another orchestrator may just have given it out.
                engine.store.remove_volume(&volume.id).await?;
                if let Err(e) = source::unmount(&directory).await {
                    tracing::warn!(volume = volume.id, error = %e, "the bucket of a deleted volume is still mounted");
                }
                let bucket = volume.source.is_some();
                let removed = tokio::task::spawn_blocking(move || discard(&directory, bucket)).await;
                if !matches!(removed, Ok(Ok(()))) {
                    tracing::warn!(
                        volume = volume.id,
                        "the files of a deleted volume could not be removed; its directory is left"
                    );
                }
                engine.tell("volume", None, Some(&volume.project), format!("volume {} was deleted", volume.name), &by).await;
                Ok(())
            })
            .await
    }
}

impl Engine {
    /// Mounts the buckets of a desk that is about to run, where they are not.
    pub(crate) async fn mount_sources(&self, places: &[VolumePlace]) -> Result<()> {
        for place in places {
            if let Some(from) = &place.source {
                let _turn = self.volumes.lock().await;
                source::mount(from, &place.directory).await?;
            }
        }
        Ok(())
    }

    /// Writes a volume down if there is room for it.
    async fn add_volume(&self, volume: &Volume) -> Result<bool> {
        let _turn = self.counting.lock().await;
        self.volume_room(&volume.project, &self.store.volumes().await?)?;
        self.store.add_volume(volume).await
    }

    fn volume_directory(&self, id: &str) -> PathBuf {
        self.config.data.join("volumes").join(id)
    }

    /// Names, or else ids, of the desks that have a volume.
    fn desks_with(&self, volume: &str) -> Vec<String> {
        let mut desks = Vec::new();
        self.view.for_each(|_, record| {
            let gone = record.state == hotdesk_api::desk::State::Deleted;
            if !gone && record.spec.volumes.iter().any(|place| place.volume == volume) {
                desks.push(record.name.clone().unwrap_or_else(|| record.id.clone()));
            }
        });
        desks.sort();
        desks
    }

    /// The places that mounts mean, each volume found and free; the record that has them is refused if they are not free any more.
    pub(crate) async fn volume_places(&self, project: &str, mounts: &[VolumeMount]) -> Result<Vec<VolumePlace>> {
        if mounts.is_empty() {
            return Ok(Vec::new());
        }
        self.volume_bytes_left(project)?;
        let all = self.store.volumes().await?;
        let mut places = Vec::new();
        for mount in mounts {
            let own = |volume: &&Volume| volume.project == project && (volume.id == mount.volume || volume.name == mount.volume);
            let volume = all.iter().find(own).ok_or_else(|| Error::NotFound { what: "volume", id: mount.volume.clone() })?;
            let used = self.desks_with(&volume.id);
            if volume.exclusive && !used.is_empty() {
                return Err(Error::Conflict(format!(
                    "the volume {} is for one desk at a time, and {} has it",
                    volume.name,
                    used.join(", ")
                )));
            }
            places.push(VolumePlace {
                volume: volume.id.clone(),
                name: volume.name.clone(),
                directory: self.volume_directory(&volume.id),
                at: mount.at.trim_end_matches('/').to_owned(),
                read_only: mount.read_only,
                subpath: mount.subpath.clone().filter(|path| !path.is_empty()),
                source: volume.source.clone(),
            });
        }
        Ok(places)
    }
}

/// The form of mounts: where each goes, and that they do not meet.
pub(crate) fn check_mounts(mounts: &[VolumeMount]) -> Result<()> {
    let bad = |what: String| Err(Error::Invalid(what));
    if mounts.len() > MOST_MOUNTS {
        return bad(format!("a desk has at most {MOST_MOUNTS} volumes"));
    }
    let mut taken: Vec<&str> = Vec::new();
    for mount in mounts {
        let at = mount.at.as_str();
        let trimmed = at.trim_end_matches('/');
        if trimmed.is_empty() && at.starts_with('/') {
            return bad("a volume can't be mounted at /: the desk's own system is there; choose a directory such as /vm".into());
        }
        if !at.starts_with('/') {
            return bad(format!("a volume is mounted at a whole path such as /vm, and {at:?} is none"));
        }
        plain_path("a place of a volume", trimmed.trim_start_matches('/'))?;
        let below = |other: &str| trimmed == other || trimmed.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'));
        if let Some(reserved) = RESERVED.iter().find(|reserved| below(reserved)) {
            return bad(format!("a volume can't be mounted at {at}: {reserved} is the desk's own"));
        }
        if SYSTEM.contains(&trimmed) {
            return bad(format!(
                "a volume can't be mounted at {at}: it would hide the system's files; choose a directory below it"
            ));
        }
        for other in &taken {
            if below(other) || other.strip_prefix(trimmed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                return bad(format!("two volumes meet at {at} and {other}; mount them at places of their own"));
            }
        }
        if let Some(subpath) = mount.subpath.as_deref().filter(|path| !path.is_empty()) {
            plain_path("a subpath of a volume", subpath)?;
        }
        taken.push(trimmed);
    }
    Ok(())
}

fn plain_path(what: &str, path: &str) -> Result<()> {
    let good = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(char::is_control);
    if path.len() <= LONGEST_PATH && path.split('/').all(good) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{what} is at most {LONGEST_PATH} bytes of names between slashes, without . and .. and control characters, and {path:?} is not"
    )))
}

/// Only desks reach it, through a mount: the directory above is closed for other users of the machine.
fn make(directory: &Path) -> std::io::Result<()> {
    if let Some(above) = directory.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(above)?;
    }
    std::fs::DirBuilder::new().mode(0o755).create(directory)
}

/// What is in a bucket is never removed: only an empty directory goes.
fn discard(directory: &Path, bucket: bool) -> std::io::Result<()> {
    let _ = std::fs::remove_file(directory.with_extension("log"));
    let removed = match bucket || source::is_mounted(directory) {
        true => std::fs::remove_dir(directory),
        false => std::fs::remove_dir_all(directory),
    };
    match removed {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(at: &str) -> VolumeMount {
        VolumeMount { volume: "data".into(), at: at.into(), ..VolumeMount::default() }
    }

    #[test]
    fn places_are_checked() {
        for at in ["/vm", "/data/", "/home/user/work", "/mnt/a b", "/var/lib/x", "/usr/share/x", "/tmp/x"] {
            check_mounts(&[mount(at)]).unwrap_or_else(|e| panic!("{at}: {e}"));
        }
        for (at, why) in [
            ("/", "can't be mounted at /"),
            ("//", "can't be mounted at /"),
            ("", "whole path"),
            ("vm", "whole path"),
            ("/a/../etc", "without . and .."),
            ("/a//b", "names between slashes"),
            ("/./a", "without . and .."),
            ("/proc", "desk's own"),
            ("/proc/1", "desk's own"),
            ("/dev/shm", "desk's own"),
            ("/run/hotdesk", "desk's own"),
            ("/etc", "hide the system"),
            ("/usr/", "hide the system"),
            ("/a\nb", "control characters"),
        ] {
            let told = check_mounts(&[mount(at)]).unwrap_err().to_string();
            assert!(told.contains(why), "{at}: {told}");
        }
    }

    #[test]
    fn volumes_do_not_meet() {
        for (a, b) in [("/a", "/a"), ("/a", "/a/"), ("/a", "/a/b"), ("/a/b", "/a")] {
            assert!(check_mounts(&[mount(a), mount(b)]).unwrap_err().to_string().contains("meet"), "{a} {b}");
        }
        check_mounts(&[mount("/a"), mount("/ab"), mount("/b")]).unwrap();
        let many: Vec<_> = (0..17).map(|number| mount(&format!("/v{number}"))).collect();
        assert!(check_mounts(&many).is_err());
        for subpath in ["..", "a/../b", "/a", "a/"] {
            assert!(check_mounts(&[VolumeMount { subpath: Some(subpath.into()), ..mount("/a") }]).is_err(), "{subpath}");
        }
        check_mounts(&[VolumeMount { subpath: Some("a/b".into()), ..mount("/a") }]).unwrap();
    }
}
