//! Images that run a virtual machine: QEMU on a small system, with `hotdesk vm` as the entrypoint.
//!
//! With a disk it is *bundled*: the disk is split into a chain of parts (see [`crate::disk`]), each of which becomes a layer as it is,
//! so no layer is larger than the limit and nothing is put together again when it runs. Without one the disk comes as a volume, at
//! `/vm/System.qcow2` or wherever `HOTDESK_DISK` says.

use super::blob::Blob;
use super::layer::{self, STORED_OVERHEAD};
use super::store::Store;
use super::tree::{Entry, Kind};
use super::{Image, MOMENT_S, Making, Options, Own, PORT, Teller, apart, entry, layers, open_to, spec};
use crate::disk::{MANIFEST, Meter};
use crate::{Error, Library, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The template that VM images are made of.
pub const VM_TEMPLATE: &str = "vm";
/// Where the parts of a disk are inside an image, with their `manifest.json`.
pub const PARTS: &str = "/vm-parts";
/// How often is looked whether a disk is split.
const LOOK: Duration = Duration::from_millis(20);
/// Larger lists are none.
const LARGEST_LIST: u64 = 4 << 20;
/// Where a disk may be mounted, and where the machine's changes go.
const PLACES: [&str; 2] = ["vm", "storage"];
/// What a guest serves besides its desk's server: its browser's debugging interface, its screen, its player.
const GUEST_PORTS: [u16; 3] = [9222, 8006, 8080];

impl Options {
    /// How large a part of a disk may be to fit into a layer.
    pub fn part_max(&self) -> u64 {
        self.layer_max.saturating_sub(STORED_OVERHEAD)
    }
}

impl Library {
    /// The image of a virtual machine; the template [`VM_TEMPLATE`] must be built. `disk` goes inside: a file, or a directory with
    /// a disk that was split into parts of at most [`Options::part_max`] bytes, which must stay until the image is written.
    pub async fn oci_vm(
        &self,
        binary: &Path,
        disk: Option<&Path>,
        options: &Options,
        stage: impl Fn(&str) + Send + Sync,
    ) -> Result<Image> {
        layers::check(options)?;
        let making = Making::begin(self, VM_TEMPLATE, binary, options)?;
        let disk = disk.map(Path::to_owned);
        apart(&stage, move |tell| {
            let (user, mut run) = (making.template.user.uid, making.run(&["vm"], std::iter::once(PORT).chain(GUEST_PORTS)));
            let mut own = Own { directories: PLACES.iter().map(|path| open_to(user, path)).collect(), files: Vec::new() };
            let Some(disk) = disk else { return making.image(Vec::new(), own, run, tell) };
            let store = Store::open(&making.images)?;
            let room = store.work()?;
            let parts = match disk.join(MANIFEST).is_file() {
                true => disk,
                false => split(&disk, room.path(), &making.options, tell)?,
            };
            let list = read_list(&parts)?;
            run.labels.insert("hotdesk.disk".into(), spec::digest_of(&list));
            own.directories.push(entry(inside(), Kind::Directory, 0o755));
            let file = entry(&format!("{}/{MANIFEST}", inside()), Kind::File { size: 0, more: Vec::new() }, 0o444);
            own.files.push((file, list));
            let mut image = making.image(part_layers(&parts, &making.options, tell)?, own, run, tell)?;
            image.rooms.push(Box::new(room));
            Ok(image)
        })
        .await
    }
}

fn split(disk: &Path, room: &Path, options: &Options, tell: &Teller) -> Result<PathBuf> {
    let (parts, meter) = (room.join("parts"), Meter::default());
    std::thread::scope(|scope| {
        let work = scope.spawn(|| crate::disk::split(disk, &parts, options.part_max(), &meter));
        while !work.is_finished() {
            let (done, all) = meter.progress();
            if tell.say(|| format!("splitting the disk {} of {} MiB", done >> 20, all >> 20)).is_err() {
                meter.stop();
            }
            std::thread::sleep(LOOK);
        }
        work.join().unwrap_or_else(|_| Err(Error::Failed("the disk was not split".into())))
    })?;
    Ok(parts)
}

fn inside() -> &'static str {
    PARTS.trim_start_matches('/')
}

pub(super) fn read_list(parts: &Path) -> Result<Vec<u8>> {
    let path = parts.join(MANIFEST);
    let wrong = |e: &dyn std::fmt::Display| {
        Error::Invalid(format!("{} is not a disk that was split: {}: {e}", parts.display(), path.display()))
    };
    let size = path.metadata().map_err(|e| wrong(&e))?.len();
    if size > LARGEST_LIST {
        return Err(wrong(&format!("{size} bytes are too many for a list of parts")));
    }
    std::fs::read(&path).map_err(|e| wrong(&e))
}

pub(super) fn part_layers(parts: &Path, options: &Options, tell: &Teller) -> Result<Vec<Blob>> {
    let fail = |e: std::io::Error| Error::Failed(format!("{} can't be read: {e}", parts.display()));
    let mut files: Vec<PathBuf> = Vec::new();
    for found in parts.read_dir().map_err(fail)? {
        let path = found.map_err(fail)?.path();
        if path.extension().is_some_and(|end| end == "qcow2") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Error::Invalid(format!("{} has no parts of a disk in it", parts.display())));
    }
    let directory = entry(inside(), Kind::Directory, 0o755);
    let count = files.len();
    let layers = files.into_iter().enumerate().map(|(number, file)| {
        tell.say(|| format!("reading part {} of {count}", number + 1))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let size = file.metadata().map_err(fail)?.len();
        if size > options.part_max() {
            return Err(Error::Invalid(format!(
                "part `{name}` has {size} bytes, and a layer may have {}; split the disk into smaller parts",
                options.layer_max
            )));
        }
        let inside =
            Entry { time: MOMENT_S, ..entry(&format!("{}/{name}", inside()), Kind::File { size, more: Vec::new() }, 0o444) };
        layers::below(layer::stored(std::slice::from_ref(&directory), &inside, file)?, options.layer_max, &inside.path)
    });
    layers.collect()
}
