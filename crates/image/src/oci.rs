//! OCI images of templates, written directly: no Docker, no root.
//!
//! ```text
//!   tree of the template ──► layers below a limit (kept in IMAGES/oci, packed once)    ┐
//!   hotdesk binary, bill of materials ──► one small layer on top                       ├─► Image ──► layout, tar, registry
//!   parts of a disk ──► one layer each, stored as they are                             ┘
//! ```
//!
//! The same inputs give the same digest: entries are sorted, times are those of the tree in whole seconds, owners, attributes and further
//! names of files are kept, and nothing knows the clock or the host.
//!
//! [`Library::oci`] makes the image of a template, whose desk runs without root, without capabilities, without devices and
//! on a read-only root. [`Library::oci_vm`] makes one that runs a virtual machine: with a disk inside, or with one that is mounted.

pub(crate) mod archive;
mod blob;
mod layer;
mod layers;
pub mod registry;
mod sbom;
mod spec;
mod store;
mod tree;
mod vm;

use crate::{DESK_SETTINGS, Error, Library, Result, Rootfs, Template};
use blob::Blob;
use layer::Layer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use store::Store;
use tokio::sync::mpsc;
use tree::{Entry, Kind, Owners};

pub use layer::Compression;
pub use vm::{PARTS, VM_TEMPLATE};

/// The time that stands for the making of every image, as of every tree.
const MOMENT_S: u64 = 1_767_225_600;
const MOMENT: &str = "2026-01-01T00:00:00Z";
/// Where the desk's server listens in a container.
const PORT: u16 = 5000;
/// Where the binary is inside.
const BINARY: &str = "usr/local/bin/hotdesk";
/// How often a long step says how far it is.
const TELL: Duration = Duration::from_millis(200);

/// How an image is packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// No layer is larger, as it travels and is stored.
    pub layer_max: u64,
    pub compression: Compression,
}

impl Default for Options {
    /// Below what every known registry and provider takes in one piece.
    fn default() -> Self {
        Self { layer_max: 500 << 20, compression: Compression::Gzip }
    }
}

/// An image that can be written somewhere or pushed.
pub struct Image {
    manifest: Blob,
    config: Blob,
    layers: Vec<Blob>,
    /// What its blobs are in, and what keeps them from being removed.
    rooms: Vec<Box<dyn Send + Sync>>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("digest", &self.digest()).field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

impl Image {
    /// `sha256:HEX` of its manifest: names the whole image.
    pub fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// Sizes of its layers, as they travel.
    pub fn layers(&self) -> Vec<u64> {
        self.layers.iter().map(|layer| layer.size).collect()
    }

    /// Bytes of all its blobs.
    pub fn size(&self) -> u64 {
        self.blobs().map(|blob| blob.size).sum()
    }

    /// Layers, then what names them.
    fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.layers.iter().chain([&self.config, &self.manifest])
    }

    /// Writes it: `-` is a tar to stdout, a name that ends in `.tar` a tar that `docker load` takes, everything else a directory that is an OCI layout. `name`
    /// is what the image is called there, such as `hotdesk/base:latest`.
    pub async fn write(self, to: &Path, name: &str, stage: impl Fn(&str) + Send + Sync) -> Result<()> {
        let (to, name) = (to.to_owned(), name.to_owned());
        apart(&stage, move |tell| match to.extension() {
            _ if to == Path::new("-") => self.stream(std::io::stdout().lock(), &name, Path::new("stdout"), tell),
            Some(end) if end == "tar" => self.write_archive(&to, &name, tell),
            _ => self.write_layout(&to, &name, tell),
        })
        .await
    }
}

impl Library {
    /// The image of a template that is built. `binary` is the `hotdesk` that goes into it.
    pub async fn oci(&self, name: &str, binary: &Path, options: &Options, stage: impl Fn(&str) + Send + Sync) -> Result<Image> {
        layers::check(options)?;
        let making = Making::begin(self, name, binary, options)?;
        apart(&stage, move |tell| {
            let run = making.run_desk();
            making.image(Vec::new(), Own::default(), run, tell)
        })
        .await
    }
}

/// All that an image is made from.
struct Making {
    images: PathBuf,
    template: Template,
    rootfs: Rootfs,
    binary: PathBuf,
    options: Options,
}

impl Making {
    fn begin(library: &Library, name: &str, binary: &Path, options: &Options) -> Result<Self> {
        let template = library.template(name)?;
        if let Some(image) = &template.image {
            return Err(Error::Invalid(format!("template `{name}` is the finished image `{image}`; there is nothing to make")));
        }
        let rootfs = library.rootfs(name)?;
        let images = library.directory().to_owned();
        Ok(Self { images, template, rootfs, binary: binary.to_owned(), options: options.clone() })
    }

    /// Layers of the tree, then `more`, then the one with our own files.
    fn image(&self, more: Vec<Blob>, own: Own, run: spec::Run, tell: &Teller) -> Result<Image> {
        let store = Store::open(&self.images)?;
        let owners = Owners::of_built(&self.template.user.home(), self.template.user.uid);
        let mut layers = store.layers(&self.rootfs, &owners, &self.options, tell)?;
        let tree_layers = layers.len();
        layers.extend(more);
        let room = store.work()?;
        layers.push(layers::below(self.own_layer(room.path(), own, tell)?, self.options.layer_max, Path::new(BINARY))?);
        let history = (0..layers.len()).map(|number| {
            let what = match number {
                _ if number < tree_layers => format!("template {} {}", self.template.name, &self.rootfs.digest[..12]),
                _ if number + 1 < layers.len() => "a part of the disk".to_owned(),
                _ => format!("hotdesk {}", env!("CARGO_PKG_VERSION")),
            };
            spec::Step { created: MOMENT.into(), created_by: what }
        });
        let config = spec::Config {
            created: MOMENT.into(),
            architecture: spec::architecture().into(),
            os: "linux".into(),
            history: history.collect(),
            rootfs: spec::Layers {
                kind: "layers".into(),
                diff_ids: layers.iter().filter_map(|layer| layer.diff_id.clone()).collect(),
            },
            config: run,
        };
        let text = |e: serde_json::Error| Error::Failed(format!("the image can't be described: {e}"));
        let config = Blob::of_bytes(serde_json::to_vec(&config).map_err(text)?, spec::CONFIG);
        let manifest = spec::Manifest {
            schema_version: 2,
            media_type: spec::MANIFEST.into(),
            config: spec::Descriptor::of(&config),
            layers: layers.iter().map(spec::Descriptor::of).collect(),
            annotations: BTreeMap::new(),
        };
        let manifest = Blob::of_bytes(serde_json::to_vec(&manifest).map_err(text)?, spec::MANIFEST);
        Ok(Image { manifest, config, layers, rooms: vec![Box::new(room), Box::new(store)] })
    }

    /// The binary, the bill of materials, and what else is wanted.
    fn own_layer(&self, room: &Path, own: Own, tell: &Teller) -> Result<Blob> {
        tell.say(|| "packing the binary".into())?;
        let bin = self.binary.metadata().map_err(|e| Error::Failed(format!("the binary {}: {e}", self.binary.display())))?;
        let status = self.rootfs.path.join("var/lib/dpkg/status");
        let status =
            std::fs::read_to_string(&status).map_err(|e| Error::Failed(format!("{} can't be read: {e}", status.display())))?;
        let bill = sbom::of_status(&status, &self.template.name, &self.rootfs.digest, &self.distribution(), MOMENT);
        let mut layer = Layer::create(room.join("own"), self.options.compression)?;
        for directory in ["usr", "usr/local", "usr/local/bin", "usr/share", "usr/share/hotdesk"] {
            layer.entry(room, &entry(directory, Kind::Directory, 0o755))?;
        }
        layer.file(&self.binary, &entry(BINARY, Kind::File { size: bin.len(), more: Vec::new() }, 0o755))?;
        layer.bytes(&entry(sbom::PLACE, Kind::File { size: 0, more: Vec::new() }, 0o644), &bill)?;
        layer.entry(room, &entry("home", Kind::Directory, 0o755))?;
        let home = self.template.user.home();
        for directory in std::iter::once(open_to(self.template.user.uid, home.trim_start_matches('/'))).chain(own.directories) {
            layer.entry(room, &directory)?;
        }
        for (file, bytes) in own.files {
            layer.bytes(&file, &bytes)?;
        }
        layer.finish()
    }

    /// `debian` or whatever the tree says that it is.
    fn distribution(&self) -> String {
        let text = std::fs::read_to_string(self.rootfs.path.join("usr/lib/os-release")).unwrap_or_default();
        let id = text.lines().find_map(|line| line.strip_prefix("ID=")).unwrap_or("debian");
        id.trim_matches('"').to_owned()
    }

    fn run_desk(&self) -> spec::Run {
        let listen = format!("0.0.0.0:{PORT}");
        let words = ["desk", "--config", DESK_SETTINGS, "--listen", &listen];
        self.run(&words, std::iter::once(PORT).chain(self.template.ports.iter().copied()))
    }

    /// How the image is run, whatever it runs.
    fn run(&self, words: &[&str], ports: impl Iterator<Item = u16>) -> spec::Run {
        let (user, home) = (&self.template.user, self.template.user.home());
        let mut env =
            vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(), format!("HOME={home}")];
        env.extend(self.template.env.iter().map(|(name, value)| format!("{name}={value}")));
        spec::Run {
            user: format!("{0}:{0}", user.uid),
            exposed_ports: ports.map(|port| (format!("{port}/tcp"), spec::Nothing {})).collect(),
            env,
            entrypoint: std::iter::once(format!("/{BINARY}")).chain(words.iter().map(|word| (*word).to_owned())).collect(),
            working_dir: home,
            labels: self.labels(),
            stop_signal: "SIGTERM".into(),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        [
            ("org.opencontainers.image.title", self.template.name.clone()),
            ("org.opencontainers.image.description", self.template.description.clone()),
            ("org.opencontainers.image.version", self.rootfs.digest[..12].to_owned()),
            ("org.opencontainers.image.created", MOMENT.to_owned()),
            ("hotdesk.template", self.template.name.clone()),
            ("hotdesk.digest", self.rootfs.digest.clone()),
            ("hotdesk.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("hotdesk.sbom", format!("/{}", sbom::PLACE)),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

/// What goes into the last layer besides.
#[derive(Default)]
struct Own {
    directories: Vec<Entry>,
    files: Vec<(Entry, Vec<u8>)>,
}

/// An entry of ours: root's, of the one moment.
fn entry(path: &str, kind: Kind, mode: u32) -> Entry {
    Entry { path: path.into(), kind, mode, uid: 0, gid: 0, time: MOMENT_S, attributes: Vec::new() }
}

/// A directory of the user on which memory may be mounted: engines give that the mode of the directory below, but not its owner, so
/// everybody may write. There is nobody else in a container.
fn open_to(uid: u32, path: &str) -> Entry {
    Entry { uid, gid: uid, ..entry(path, Kind::Directory, 0o1777) }
}

/// Tells stages from a thread of its own, not too often, and learns from it when nobody waits any more.
struct Teller {
    to: Option<mpsc::UnboundedSender<String>>,
    last: Mutex<Option<Instant>>,
}

impl Teller {
    fn say(&self, text: impl FnOnce() -> String) -> Result<()> {
        let Some(to) = &self.to else { return Ok(()) };
        if to.is_closed() {
            return Err(Error::Failed("it was given up".into()));
        }
        if let Ok(mut last) = self.last.lock()
            && last.is_none_or(|last| last.elapsed() >= TELL)
        {
            *last = Some(Instant::now());
            let _ = to.send(text());
        }
        Ok(())
    }

    #[cfg(any(test, fuzzing))]
    fn silent() -> Self {
        Self { to: None, last: Mutex::new(None) }
    }
}

/// Does what blocks in a thread of its own. It ends soon after this future is dropped.
async fn apart<T: Send + 'static>(
    stage: &(impl Fn(&str) + Send + Sync),
    work: impl FnOnce(&Teller) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (to, mut from) = mpsc::unbounded_channel();
    let task = tokio::task::spawn_blocking(move || work(&Teller { to: Some(to), last: Mutex::new(None) }));
    while let Some(text) = from.recv().await {
        stage(&text);
    }
    task.await.unwrap_or_else(|e| Err(Error::Failed(format!("the image's thread ended: {e}"))))
}

#[cfg(test)]
mod tests;
