//! Where everything of this provider lies.
//!
//! ```text
//! DATA/local/desks/ID/desk.json      what the desk is made of
//!                    /disk-N.ext4    its files, N grows with every reset (or disk-N/ where there is no quota)
//!                    /run/           seen by the desk as /run/hotdesk: its socket, its settings, the pipe of its log
//!                    /secret         what opens the desk's server; for the host's eyes only
//!                    /running.json   its processes, while it runs
//!                    /ended.json     how it ended
//!                    /desk.log       what it printed since its start; before.log: the time before
//!           /layers/ID/              saved files of desks, lower layers of others
//!           /memory/ID/              saved programs of desks, with their memory
//!           /snapshots/ID.json       which layers a snapshot is made of
//!           /blank/SIZE.ext4         empty disks, copied for each new desk
//!           /locks/ID                held by whoever changes the desk; also carries the plan to the helper
//!           /trash/                  on its way out
//!           /shifted/DIGEST/        templates with shifted owners, where the kernel needs them
//!           /stage/                  empty; sandboxes mount there, each in its own namespace
//! ```
//!
//! Whatever is written is complete or not there: files get their name when they are whole, directories too,
//! and what is deleted loses its name first. So a `kill -9` at any moment leaves nothing that looks like
//! more than it is; what is left in `trash` goes with the next start.

use super::disk::Disk;
use super::process::Process;
use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The provider's directory.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    root: PathBuf,
}

impl Directory {
    /// Makes it, and everything in it that is always there.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let directory = Self { root: root.to_owned() };
        for name in ["desks", "layers", "memory", "snapshots", "blank", "locks", "trash", "stage", "shifted"] {
            make_private(&root.join(name)).map_err(|e| trouble("make", &root.join(name), &e))?;
        }
        Ok(directory)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn desks(&self) -> PathBuf {
        self.root.join("desks")
    }

    pub(crate) fn desk(&self, id: &str) -> DeskDirectory {
        DeskDirectory { path: self.desks().join(id) }
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(crate) fn layer(&self, id: &str) -> PathBuf {
        self.layers().join(id)
    }

    pub(crate) fn memories(&self) -> PathBuf {
        self.root.join("memory")
    }

    /// The saved programs of a snapshot.
    pub(crate) fn memory(&self, snapshot: &str) -> PathBuf {
        self.memories().join(snapshot)
    }

    /// A template with shifted owners.
    pub(crate) fn shifted(&self, digest: &str) -> PathBuf {
        self.root.join("shifted").join(digest)
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn snapshot(&self, id: &str) -> PathBuf {
        self.snapshots().join(format!("{id}.json"))
    }

    pub(crate) fn blank(&self, name: &str) -> PathBuf {
        self.root.join("blank").join(name)
    }

    pub(crate) fn lock(&self, id: &str) -> PathBuf {
        self.root.join("locks").join(id)
    }

    /// What helpers print when they break.
    pub(crate) fn helper_log(&self) -> PathBuf {
        self.root.join("helper.log")
    }

    pub(crate) fn stage(&self) -> PathBuf {
        self.root.join("stage")
    }

    /// A new name in the trash.
    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash").join(format!("{:016x}", rand::random::<u64>()))
    }

    /// Takes something away at once; the space follows.
    pub(crate) fn discard(&self, path: &Path) -> io::Result<()> {
        let away = self.trash();
        match std::fs::rename(path, &away) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(()) => remove_all(&away),
        }
    }

    /// Empties the trash.
    pub(crate) fn sweep(&self) {
        for entry in std::fs::read_dir(self.root.join("trash")).into_iter().flatten().flatten() {
            if let Err(e) = remove_all(&entry.path()) {
                tracing::warn!(path = %entry.path().display(), error = %e, "what was deleted can't be removed yet");
            }
        }
    }
}

/// The directory of one desk.
#[derive(Debug, Clone)]
pub(crate) struct DeskDirectory {
    pub(crate) path: PathBuf,
}

impl DeskDirectory {
    pub(crate) fn exists(&self) -> bool {
        self.path.join("desk.json").exists()
    }

    pub(crate) fn record(&self) -> Result<Option<Record>> {
        read(&self.path.join("desk.json"))
    }

    pub(crate) fn write_record(&self, record: &Record) -> Result<()> {
        let path = self.path.join("desk.json");
        write(&path, record).map_err(|e| trouble("write", &path, &e))
    }

    /// The processes of the desk, if it was started; they may be dead.
    pub(crate) fn running(&self) -> Option<Running> {
        read(&self.running_file()).ok().flatten()
    }

    pub(crate) fn running_file(&self) -> PathBuf {
        self.path.join("running.json")
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        read(&self.ended_file()).ok().flatten()
    }

    pub(crate) fn ended_file(&self) -> PathBuf {
        self.path.join("ended.json")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// What opens the desk's server. It is never read from `run`, which the desk sees.
    pub(crate) fn secret(&self) -> Option<String> {
        std::fs::read_to_string(self.path.join("secret")).ok().filter(|secret| !secret.is_empty())
    }

    pub(crate) fn write_secret(&self, secret: &str) -> io::Result<()> {
        write_bytes(&self.path.join("secret"), secret.as_bytes(), 0o600)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.run().join("desk.sock")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("desk.log")
    }

    pub(crate) fn log_before(&self) -> PathBuf {
        self.path.join("before.log")
    }

    pub(crate) fn network_log(&self) -> PathBuf {
        self.path.join("network.log")
    }

    pub(crate) fn disk(&self, disk: &Disk) -> PathBuf {
        self.path.join(disk.name())
    }
}

/// What a desk is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) template: String,
    /// Lower layers, the uppermost first.
    pub(crate) layers: Vec<Layer>,
    pub(crate) disk: Disk,
}

/// A lower layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layer {
    /// The root file system of a template.
    Template(PathBuf),
    /// Saved files of a desk, in `layers/`.
    Saved(String),
}

/// What a snapshot is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) template: String,
    pub(crate) layers: Vec<Layer>,
    pub(crate) size_bytes: u64,
}

/// The processes of a desk that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    /// The first process of the sandbox: the desk's server.
    pub(crate) init: Process,
    /// Stays outside: keeps the log and the network, and reaps the first.
    pub(crate) keeper: Process,
    /// The loop device below its disk.
    pub(crate) loop_device: Option<u32>,
}

impl Running {
    pub(crate) fn is_alive(&self) -> bool {
        self.init.is_alive() && self.init.is_first_of_its_namespace()
    }
}

/// How a desk ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// As a sentence: `it ended with status 1`.
    pub(crate) how: String,
}

/// Writes a file that is whole or not there, and that survives a loss of power.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    write_bytes(path, &text, 0o600)
}

pub(crate) fn write_bytes(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:08x}.new", rand::random::<u32>()));
    let temporary = path.with_file_name(name);
    let written = (|| {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        std::fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Reads such a file; none if there is none.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| Error::Failed(format!("{} can't be understood: {e}", path.display()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(trouble("read", path, &e)),
    }
}

pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// Removes a file or a whole tree. Directories that their owner may not enter are opened first: overlays make such.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.is_dir() {
        return forgiving(std::fs::remove_file(path));
    }
    if std::fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(path)? {
        remove_all(&entry?.path())?;
    }
    forgiving(std::fs::remove_dir(path))
}

fn forgiving(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// An error about a file, told so that a full disk is seen as one.
pub(crate) fn trouble(what: &str, path: &Path, e: &io::Error) -> Error {
    if is_full(e) {
        return Error::Full(format!("can't {what} {}: {e}", path.display()));
    }
    Error::Failed(format!("can't {what} {}: {e}", path.display()))
}

pub(crate) fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        assert_eq!(read::<Ended>(&path).unwrap(), None);
        write(&path, &Ended { how: "well".into() }).unwrap();
        assert_eq!(read::<Ended>(&path).unwrap().unwrap().how, "well");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "{").unwrap();
        assert!(read::<Ended>(&path).unwrap_err().to_string().contains("x.json"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn the_trash_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let desk = directory.desk("d-1");
        std::fs::create_dir_all(desk.path.join("closed/inner")).unwrap();
        std::fs::set_permissions(desk.path.join("closed"), std::fs::Permissions::from_mode(0o000)).unwrap();
        directory.discard(&desk.path).unwrap();
        assert!(!desk.path.exists());
        directory.discard(&desk.path).unwrap();
        std::fs::create_dir(directory.trash()).unwrap();
        directory.sweep();
        assert_eq!(std::fs::read_dir(folder.path().join("trash")).unwrap().count(), 0);
    }
}
