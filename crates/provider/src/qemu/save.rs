//! Snapshots and archives.
//!
//! A snapshot's disk is the desk's own disk of that moment, which becomes a layer that does not change any more; the desk goes on
//! with an empty disk over it. With memory, the machine stands still while it is written out as one stream; then, while the desk goes on, a
//! second machine that never runs turns the stream into a memory file that any number of desks can map.

use super::control::{self, Outcome, Request};
use super::desk::unknown;
use super::keeper::Plan;
use super::machine::{Memory, Network};
use super::place::{DeskPlace, Record, Saved, names};
use super::seed::{size, size_of};
use super::{Inner, NAME, jail, overlay};
use crate::local::directory::{make_private, read, trouble, write};
use crate::{DeskSpec, Error, Result};
use std::path::Path;
use std::process::Stdio;

/// Layers of one disk. Reading through a hundred is slow; whoever comes here saves in a loop.
const MOST_LAYERS: usize = 100;
/// What an archive holds: the description, and what differs from the base.
const ARCHIVED_RECORD: &str = "desk.json";
const ARCHIVED_DISK: &str = "disk.qcow2";
/// A description is small.
const LARGEST_RECORD: u64 = 1 << 20;

impl Inner {
    pub(super) async fn snapshot(&self, id: &str, snapshot: &str, memory: bool) -> Result<u64> {
        let _lock = self.locks.take_file(self.place.lock(id), id).await?;
        let path = self.place.snapshot(snapshot);
        if let Some(saved) = read::<Saved>(&path)? {
            return Ok(saved.size_bytes);
        }
        let desk = self.place.desk(id);
        let record = desk.record()?.ok_or_else(|| unknown(id))?;
        let running = desk.running();
        if memory && running.is_none() {
            return Err(Error::Failed(format!("the desk `{id}` does not run, so it has no programs to save")));
        }
        if record.layers.len() >= MOST_LAYERS {
            return Err(Error::Full(format!("the desk `{id}` was saved {MOST_LAYERS} times since it was made; reset it first")));
        }
        let plan: Plan = read(&desk.plan())?.ok_or_else(|| unknown(id))?;
        let folder = self.place.memory(snapshot);
        if memory {
            self.place.discard(&folder)?;
            make_private(&folder).map_err(|e| trouble("make", &folder, &e))?;
        }
        let saved = async {
            // Written by the machine's user in its own directory, and taken from there.
            let stream = memory.then(|| desk.run().join(format!("stream-{:016x}", rand::random::<u64>())));
            let record = self.cut(id, &desk, record, running.is_some(), stream.as_deref()).await;
            let stream = match (&record, &stream) {
                (Ok(_), Some(stream)) => {
                    let kept = folder.join("stream");
                    jail::take(stream, &kept, false).map_err(|e| trouble("keep", stream, &e))?;
                    Some(kept)
                }
                (Err(_), Some(stream)) => {
                    let _ = std::fs::remove_file(stream);
                    None
                }
                (_, None) => None,
            };
            let record = record?;
            let mut saved = Saved {
                template: record.template.clone(),
                base: record.base.clone(),
                layers: record.layers.clone(),
                bytes: record.bytes,
                machine: plan.machine.clone(),
                memory: memory.then(|| snapshot.to_owned()),
                guest: running.and_then(|running| running.guest),
                token: plan.secret.clone().unwrap_or_default(),
                size_bytes: record.layers.last().map_or(0, |layer| size_of(&self.place.layer(layer))),
            };
            if let Some(stream) = &stream {
                self.unpack(&saved, &folder, stream).await?;
                saved.size_bytes += size(&folder);
            }
            write(&path, &saved).map_err(|e| trouble("write", &path, &e))?;
            Ok(saved.size_bytes)
        };
        let saved = saved.await;
        if saved.is_err() {
            let _ = self.place.discard(&folder);
        }
        saved
    }

    /// Makes the desk's disk a layer, and gives the desk an empty one over it.
    ///
    /// It is written down before the machine is told: an empty disk over the one that it still writes to says the same as that one.
    async fn cut(&self, id: &str, desk: &DeskPlace, before: Record, runs: bool, stream: Option<&Path>) -> Result<Record> {
        let _guard = self.layers.lock().await;
        let (old, layer) = (desk.disk(before.disk), format!("{:016x}", rand::random::<u64>()));
        let kept = self.place.layer(&layer);
        std::fs::hard_link(&old, &kept).map_err(|e| trouble("keep", &old, &e))?;
        let mut record = before.clone();
        record.layers.push(layer);
        record.disk += 1;
        let next = desk.disk(record.disk);
        let _ = std::fs::remove_file(&next);
        self.over(&record, &next)?;
        if let Some(uid) = jail::uid(&self.context.fleet, id) {
            jail::give(&next, uid).map_err(|e| trouble("hand over", &next, &e))?;
        }
        desk.write_record(&record)?;
        if runs {
            let (node, disk) = (format!("disk{}", record.disk), next.clone());
            let request = match stream {
                Some(stream) => Request::Save { node, disk, stream: stream.to_owned() },
                None => Request::NextDisk { node, disk },
            };
            match control::ask(&desk.run(), &request).await {
                Ok(Outcome::Done) => {}
                Ok(Outcome::Half(e)) => {
                    let _ = std::fs::remove_file(&old);
                    return Err(e);
                }
                Err(e) => {
                    // Only now its other name may go: the machine still writes to it.
                    desk.write_record(&before)?;
                    let _ = std::fs::remove_file(&kept);
                    let _ = std::fs::remove_file(&next);
                    return Err(e);
                }
            }
        }
        let _ = std::fs::remove_file(&old);
        // Nobody owns it any more: what is made of it is another's.
        jail::take(&kept, &kept, false).map_err(|e| trouble("keep", &kept, &e))?;
        Ok(record)
    }

    /// Turns a stream into a memory file and what belongs to it.
    async fn unpack(&self, saved: &Saved, folder: &Path, stream: &Path) -> Result<()> {
        let scratch = folder.join("scratch.qcow2");
        let layer = saved.layers.last().map(|layer| self.place.layer(layer)).unwrap_or_default();
        overlay::create(&scratch, &layer, "qcow2", saved.bytes)?;
        let place = DeskPlace { path: folder.to_owned() };
        let name = format!("unpack-{:016x}", rand::random::<u64>());
        let plan = Plan {
            name: format!("hotdesk-{}-{name}", self.context.fleet),
            folder: place.run(),
            machine: saved.machine.clone(),
            disk: scratch.clone(),
            memory: Memory::Unpacked { ram: folder.join("ram"), stream: stream.to_owned() },
            network: Network::Off,
            allow_private: Vec::new(),
            secret: None,
            settings: String::new(),
            limit_s: 0,
            resumed: None,
            save: Some(place.run().join("state")),
            limits: None,
            running: Some(place.running_file()),
            jail: None,
        }
        .shut_in(self.jail(&name, &place, &saved.base, &saved.layers));
        write(&place.plan(), &plan).map_err(|e| trouble("write", &place.plan(), &e))?;
        self.hand_to_machine(&place, &plan)?;
        let lock = self.locks.take_file(self.place.lock(&name), &name).await?;
        let written = async {
            self.launch(&place.plan(), &place.socket(), &place.log(), &lock).await?;
            self.until_saved(&place, saved, &crate::Progress::new().0).await?;
            self.keep_memory(&place, None)
        };
        let written = written.await;
        self.end(&place, None).await;
        lock.forget();
        for file in [stream, &scratch, &place.plan(), &place.log()] {
            let _ = std::fs::remove_file(file);
        }
        let _ = std::fs::remove_dir_all(place.run());
        let _ = std::fs::remove_dir_all(place.jail());
        written
    }

    pub(super) async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        let path = self.place.snapshot(snapshot);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(trouble("remove", &path, &e)),
            _ => {}
        }
        self.place.discard(&self.place.memory(snapshot))?;
        self.tidy().await;
        Ok(())
    }

    pub(super) fn snapshots(&self) -> Vec<String> {
        names(&self.place.snapshots()).iter().filter_map(|name| name.strip_suffix(".json")).map(str::to_owned).collect()
    }

    /// A stopped desk as a tar stream: what differs from the base disk, compressed.
    pub(super) async fn export(&self, id: &str, to: &Path) -> Result<()> {
        let _lock = self.locks.take_file(self.place.lock(id), id).await?;
        let desk = self.place.desk(id);
        let record = desk.record()?.ok_or_else(|| unknown(id))?;
        if desk.running().is_some() {
            return Err(Error::Failed(format!("the desk `{id}` runs; it is archived when it is stopped")));
        }
        let packed = desk.path.join("archive.qcow2");
        let Record { base, disk, .. } = &record;
        self.check_chain(&desk, &record)?;
        let made = async {
            let _ = std::fs::remove_file(&packed);
            let mut words: Vec<std::ffi::OsString> =
                ["convert", "-f", "qcow2", "-O", "qcow2", "-c", "-o", "compression_type=zstd", "-B"].map(Into::into).into();
            words.extend([base.path.clone().into(), "-F".into(), base.format.clone().into()]);
            words.extend([desk.disk(*disk).into(), packed.clone().into()]);
            image_tool(&words).await?;
            // The name of the base means nothing elsewhere.
            image_tool(&[
                "rebase".into(),
                "-u".into(),
                "-f".into(),
                "qcow2".into(),
                "-b".into(),
                "".into(),
                packed.clone().into(),
            ])
            .await?;
            let (to, packed, text) = (to.to_owned(), packed.clone(), serde_json::to_vec(&record));
            let text = text.map_err(|e| Error::Failed(e.to_string()))?;
            blocking(move || pack(&to, &text, &packed).map_err(|e| trouble("write", &to, &e))).await
        };
        let made = made.await;
        let _ = std::fs::remove_file(&packed);
        made
    }

    /// Makes sure that a desk's disk leads to the files that it was made of and to no others: whoever broke out of its machine could
    /// have written the name of any file into it, and we read as root.
    fn check_chain(&self, desk: &DeskPlace, record: &Record) -> Result<()> {
        let mut chain = vec![(desk.disk(record.disk), "qcow2")];
        chain.extend(record.layers.iter().rev().map(|layer| (self.place.layer(layer), "qcow2")));
        chain.push((record.base.path.clone(), record.base.format.as_str()));
        for (disk, below) in chain.iter().zip(&chain[1..]) {
            let header = overlay::header(&disk.0)?;
            let leads = header.backing.as_deref().map(Path::new) == Some(&*below.0);
            if !leads || header.backing_format.as_deref() != Some(below.1) || header.external_data {
                return Err(Error::Failed(format!(
                    "the disk {} leads elsewhere than it was made for: to {:?}",
                    disk.0.display(),
                    header.backing
                )));
            }
        }
        Ok(())
    }

    /// A stopped desk out of such a stream.
    pub(super) async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        let _lock = self.locks.take_file(self.place.lock(&spec.id), &spec.id).await?;
        let desk = self.place.desk(&spec.id);
        if desk.record()?.is_some() {
            return Ok(());
        }
        make_private(&desk.path).map_err(|e| trouble("make", &desk.path, &e))?;
        let brought = async {
            let (to, from) = (desk.disk(0), from.to_owned());
            let record = blocking(move || unpack_archive(&from, &to)).await?;
            let (progress, _) = crate::Progress::new();
            let base = self.disk_of(&spec.template, &progress).await?.base;
            if base.bytes != record.base.bytes || base.format != record.base.format {
                return Err(Error::Failed(format!(
                    "the archive was made on another disk than that of the template `{}` on this machine",
                    spec.template
                )));
            }
            let disk = desk.disk(0);
            hotdesk_image::disk::check_safe(&disk)
                .map_err(|e| Error::Failed(format!("the disk in the archive is not used: {e}")))?;
            let shape = overlay::shape(&disk)?;
            if shape.format != "qcow2" || shape.bytes != record.bytes || shape.bytes < base.bytes {
                return Err(Error::Failed("the disk in the archive is not the one that it describes".into()));
            }
            let mut words: Vec<std::ffi::OsString> = ["rebase", "-u", "-f", "qcow2", "-F"].map(Into::into).into();
            words.extend([base.format.clone().into(), "-b".into(), base.path.clone().into(), disk.into()]);
            image_tool(&words).await?;
            let template = spec.template.clone();
            desk.write_record(&Record { template, base, layers: Vec::new(), disk: 0, bytes: record.bytes })
        };
        let brought = brought.await;
        if brought.is_err() {
            let _ = self.place.discard(&desk.path);
        }
        brought
    }
}

/// Runs `qemu-img`.
async fn image_tool(words: &[std::ffi::OsString]) -> Result<()> {
    let mut command = tokio::process::Command::new("qemu-img");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = command.output().await.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::Unavailable {
            provider: NAME,
            reason: "qemu-img is missing; `apt-get install -y qemu-utils` installs it".into(),
        },
        _ => Error::Failed(format!("qemu-img can't be started: {e}")),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if said.contains("No space left") { Error::Full(said) } else { Error::Failed(format!("qemu-img: {said}")) })
}

fn pack(to: &Path, record: &[u8], disk: &Path) -> std::io::Result<()> {
    let mut tar = tar::Builder::new(std::fs::File::options().write(true).open(to)?);
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(record.len() as u64);
    tar.append_data(&mut header, ARCHIVED_RECORD, record)?;
    let file = std::fs::File::open(disk)?;
    header.set_size(file.metadata()?.len());
    tar.append_data(&mut header, ARCHIVED_DISK, file)?;
    tar.into_inner()?;
    Ok(())
}

/// Reads an archive: the two files that it may hold, in their order, and no name of it becomes a path.
fn unpack_archive(from: &Path, disk: &Path) -> Result<Record> {
    let broken = |why: &dyn std::fmt::Display| Error::Failed(format!("the archive can't be used: {why}"));
    let file = std::fs::File::open(from).map_err(|e| trouble("read", from, &e))?;
    let mut archive = tar::Archive::new(std::io::BufReader::with_capacity(1 << 20, file));
    let mut record = None;
    for entry in archive.entries().map_err(|e| broken(&e))? {
        let mut entry = entry.map_err(|e| broken(&e))?;
        let name = entry.path().map_err(|e| broken(&e))?.to_string_lossy().into_owned();
        // A sparse file is as large as it says, however small the archive is.
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(broken(&format!("`{}` is no plain file", name.escape_default())));
        }
        match name.as_str() {
            ARCHIVED_RECORD => {
                let text = std::io::Read::take(&mut entry, LARGEST_RECORD);
                record = Some(serde_json::from_reader::<_, Record>(text).map_err(|e| broken(&e))?);
            }
            ARCHIVED_DISK if record.is_some() => {
                let mut to =
                    std::fs::File::options().write(true).create_new(true).open(disk).map_err(|e| trouble("make", disk, &e))?;
                std::io::copy(&mut entry, &mut to).map_err(|e| trouble("write", disk, &e))?;
            }
            other => return Err(broken(&format!("it holds `{}`, which is no part of a desk", other.escape_default()))),
        }
    }
    record.filter(|_| disk.is_file()).ok_or_else(|| broken(&"it is not whole"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::Failed(format!("a step was broken off: {e}")))?
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/saved.rs"]
pub(crate) mod fuzz;
