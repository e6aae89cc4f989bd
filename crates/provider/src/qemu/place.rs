//! Where everything of this provider lies.
//!
//! ```text
//! DATA/qemu/desks/ID/desk.json      what the desk is made of
//!                   /disk-N.qcow2   its files: what differs from the layers below; N grows
//!                   /plan.json      how its machine was started, with its secret
//!                   /running.json   its keeper, while it runs
//!                   /run/           sockets and logs of the machine, owned by its user: not to be trusted
//!                   /desk.log       what its keeper printed
//!          /layers/ID.qcow2         disks that no longer change, below those of desks
//!          /memory/ID/ram, state    saved machines: of snapshots, and of seeds (settled guests that new desks resume)
//!          /snapshots/ID.json       what a snapshot is made of
//!          /seeds/KEY.json          what a seed is made of
//!          /accel.json              whether KVM works
//!          /locks/ID, /trash/
//! ```
//!
//! As everywhere: whatever has its name is whole, and what is deleted loses its name first.

use super::guest::Kind;
use super::jail;
use super::keeper::{Kept, Running, Told, machine_file};
use super::machine::Machine;
use crate::Result;
use crate::local::directory::{make_private, read, remove_all, trouble, write};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a machine tells of itself.
const LARGEST_NOTE: u64 = 16 << 10;

#[derive(Debug, Clone)]
pub(crate) struct Place {
    root: PathBuf,
}

impl Place {
    pub(crate) fn open(root: &Path) -> Result<Self> {
        for name in ["desks", "layers", "memory", "snapshots", "seeds", "locks", "trash"] {
            make_private(&root.join(name)).map_err(|e| trouble("make", &root.join(name), &e))?;
        }
        // Disks name those below them by their whole path.
        let root = root.canonicalize().map_err(|e| trouble("read", root, &e))?;
        Ok(Self { root })
    }

    /// Whether a file is one of ours.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    pub(crate) fn desks(&self) -> PathBuf {
        self.root.join("desks")
    }

    pub(crate) fn desk(&self, id: &str) -> DeskPlace {
        DeskPlace { path: self.desks().join(id) }
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(crate) fn layer(&self, id: &str) -> PathBuf {
        self.layers().join(format!("{id}.qcow2"))
    }

    pub(crate) fn memories(&self) -> PathBuf {
        self.root.join("memory")
    }

    pub(crate) fn memory(&self, id: &str) -> PathBuf {
        self.memories().join(id)
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn snapshot(&self, id: &str) -> PathBuf {
        self.snapshots().join(format!("{id}.json"))
    }

    pub(crate) fn seeds(&self) -> PathBuf {
        self.root.join("seeds")
    }

    pub(crate) fn seed(&self, key: &str) -> PathBuf {
        self.seeds().join(format!("{key}.json"))
    }

    pub(crate) fn accel(&self) -> PathBuf {
        self.root.join("accel.json")
    }

    pub(crate) fn lock(&self, id: &str) -> PathBuf {
        self.root.join("locks").join(id)
    }

    /// Takes something away at once; the space follows.
    pub(crate) fn discard(&self, path: &Path) -> Result<()> {
        let away = self.root.join("trash").join(format!("{:016x}", rand::random::<u64>()));
        match std::fs::rename(path, &away).and_then(|()| remove_all(&away)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(trouble("remove", path, &e)),
            _ => Ok(()),
        }
    }

    /// Removes what an earlier life left.
    pub(crate) fn sweep(&self) {
        for entry in std::fs::read_dir(self.root.join("trash")).into_iter().flatten().flatten() {
            let _ = remove_all(&entry.path());
        }
    }

    /// Removes layers and memories that nothing is made of any more. Nobody may be making anything meanwhile.
    pub(crate) fn forget_unused(&self) {
        let mut layers: Vec<String> = Vec::new();
        let mut memories: Vec<String> = Vec::new();
        for name in names(&self.desks()) {
            if let Ok(Some(record)) = self.desk(&name).record() {
                layers.extend(record.layers);
            }
        }
        for (folder, whole) in [(self.snapshots(), true), (self.seeds(), false)] {
            for file in names(&folder) {
                let Ok(Some(saved)) = read::<Saved>(&folder.join(&file)) else { continue };
                layers.extend(saved.layers);
                memories.push(if whole { file.trim_end_matches(".json").to_owned() } else { saved.memory.unwrap_or_default() });
            }
        }
        for file in names(&self.layers()) {
            if !layers.iter().any(|layer| file == format!("{layer}.qcow2")) {
                let _ = self.discard(&self.layers().join(file));
            }
        }
        for name in names(&self.memories()) {
            if !memories.contains(&name) {
                let _ = self.discard(&self.memory(&name));
            }
        }
    }
}

/// The names in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The directory of one desk.
#[derive(Debug, Clone)]
pub(crate) struct DeskPlace {
    pub(crate) path: PathBuf,
}

impl DeskPlace {
    pub(crate) fn record(&self) -> Result<Option<Record>> {
        read(&self.path.join("desk.json"))
    }

    pub(crate) fn write_record(&self, record: &Record) -> Result<()> {
        let path = self.path.join("desk.json");
        write(&path, record).map_err(|e| trouble("write", &path, &e))
    }

    pub(crate) fn running(&self) -> Option<Running> {
        self.written().filter(|running| running.keeper.is_alive())
    }

    /// The processes of its machine, as they were written down.
    pub(crate) fn written(&self) -> Option<Running> {
        let Kept { keeper, told: before } = read(&self.running_file()).ok().flatten()?;
        let bytes = jail::read(&machine_file(&self.run()), LARGEST_NOTE).ok();
        let told: Told = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or(before);
        Some(Running { keeper, qemu: told.qemu.filter(|qemu| self.is_own(qemu)), guest: told.guest })
    }

    /// Whether a process is the machine's user's: what is told of it may be a lie, and we signal it.
    fn is_own(&self, process: &crate::local::process::Process) -> bool {
        let owner = |path: &Path| std::fs::metadata(path).map(|meta| meta.uid()).ok();
        let own = owner(&self.run());
        own.is_some() && own == owner(Path::new(&format!("/proc/{}", process.pid)))
    }

    pub(crate) fn running_file(&self) -> PathBuf {
        self.path.join("running.json")
    }

    pub(crate) fn plan(&self) -> PathBuf {
        self.path.join("plan.json")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.run().join("desk.sock")
    }

    /// Where the root of its machine's processes is mounted, in their eyes alone.
    pub(crate) fn jail(&self) -> PathBuf {
        self.path.join("root")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("desk.log")
    }

    pub(crate) fn disk(&self, number: u32) -> PathBuf {
        self.path.join(format!("disk-{number}.qcow2"))
    }
}

/// The disk that everything is built on: never written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    pub path: PathBuf,
    pub format: String,
    pub bytes: u64,
    /// Tells a file that was replaced from the one that desks were built on.
    pub(crate) fingerprint: String,
}

/// What a desk is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) template: String,
    pub(crate) base: Base,
    /// Disks between the base and the desk's own, the lowest first.
    pub(crate) layers: Vec<String>,
    /// The number of its own.
    pub(crate) disk: u32,
    /// The size that the guest sees.
    pub(crate) bytes: u64,
}

/// What a snapshot or a seed is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) template: String,
    pub(crate) base: Base,
    pub(crate) layers: Vec<String>,
    pub(crate) bytes: u64,
    pub(crate) machine: Machine,
    /// Its memory, if it has one, by name.
    pub(crate) memory: Option<String>,
    pub(crate) guest: Option<Kind>,
    /// The token that the desk inside has.
    pub(crate) token: String,
    pub(crate) size_bytes: u64,
}
