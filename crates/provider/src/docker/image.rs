//! Images: a template's tree, imported once, and our binary as a layer of its own on top, so that a new binary
//! costs megabytes and not the whole tree again.
//!
//! ```text
//!   hotdesk/TEMPLATE:TREE12            the tree alone
//!   hotdesk/TEMPLATE:TREE12-BINARY8    with the binary, entrypoint, labels: what desks run
//! ```

use super::engine::{MOVING, ORDINARY, STARTING, gone_is_good, gone_is_none};
use super::{Docker, LABEL_FLEET, NAME, container, no_memory, save, tree};
use crate::{DeskSpec, Error, Progress, Result};
use bollard::models::{ContainerConfig, ContainerCreateBody, ImageInspect};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, CreateContainerOptionsBuilder, CreateImageOptionsBuilder, RemoveImageOptionsBuilder,
};
use futures_util::StreamExt;
use hotdesk_image::{Rootfs, Template};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// How often a long step says how far it is.
const TELL: Duration = Duration::from_millis(500);

/// What a container is made from.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) home: String,
    /// What a foreign image was when the desk was made: `NAME@sha256:…`, or its id where it came from no registry. Tags move.
    pub(super) exact: Option<String>,
}

impl Image {
    fn new(name: impl Into<String>, template: &Template) -> Self {
        Self { name: name.into(), uid: template.user.uid, home: template.user.home(), exact: None }
    }
}

/// The binary's name by content; hashed again when the file was replaced.
#[derive(Default)]
pub(super) struct BinaryName(Mutex<Option<(Stamp, String)>>);

/// What changes when a file is replaced: inode, size, time.
type Stamp = (u64, u64, i64, i64);

impl BinaryName {
    async fn of(&self, path: &Path) -> Result<String> {
        let fail = |e: std::io::Error| Error::Failed(format!("the hotdesk binary at {}: {e}", path.display()));
        let data = path.metadata().map_err(fail)?;
        let stamp = (data.ino(), data.len(), data.mtime(), data.mtime_nsec());
        let mut known = self.0.lock().await;
        if let Some((old, name)) = &*known
            && *old == stamp
        {
            return Ok(name.clone());
        }
        let path = path.to_owned();
        let name = tokio::task::spawn_blocking(move || {
            let mut hash = Sha256::new();
            let mut file = std::fs::File::open(path)?;
            let mut buffer = vec![0; 1 << 20];
            loop {
                match std::io::Read::read(&mut file, &mut buffer)? {
                    0 => break,
                    n => hash.update(&buffer[..n]),
                }
            }
            Ok(hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>())
        });
        let name = name.await.map_err(|e| Error::Failed(e.to_string()))?.map_err(fail)?;
        *known = Some((stamp, name.clone()));
        Ok(name)
    }
}

impl Docker {
    /// What a desk starts from: a snapshot, or its template.
    pub(super) async fn image_of(&self, spec: &DeskSpec, progress: &Progress) -> Result<Image> {
        let Some(snapshot) = &spec.snapshot else { return self.ensure_image(&spec.template, progress).await };
        if snapshot.memory {
            return Err(no_memory());
        }
        let template = self.context.images.template(&spec.template).map_err(of_library)?;
        let name = self.snapshot_name(&snapshot.id);
        match self.inspect(&name).await? {
            Some(_) => Ok(Image::new(name, &template)),
            None => Err(Error::NotFound(format!("there is no snapshot `{}` at docker", snapshot.id))),
        }
    }

    /// The template's image; made or pulled if it is not there.
    pub(super) async fn ensure_image(&self, template: &str, progress: &Progress) -> Result<Image> {
        let template = self.context.images.template(template).map_err(of_library)?;
        if let Some(foreign) = &template.image {
            let inspected = match self.inspect(foreign).await? {
                Some(inspected) => inspected,
                None => {
                    self.pull(foreign, progress).await?;
                    let gone = || Error::NotFound(format!("the image `{foreign}` was pulled and is not here"));
                    self.inspect(foreign).await?.ok_or_else(gone)?
                }
            };
            // By its content from here on: whoever pulls the tag again does not change what this desk is made of.
            let id = inspected.id.unwrap_or_else(|| foreign.clone());
            let exact = inspected.repo_digests.unwrap_or_default().into_iter().next().unwrap_or_else(|| id.clone());
            tracing::info!(template = template.name, image = foreign, exact, "an image of others");
            return Ok(Image { exact: Some(exact), ..Image::new(id, &template) });
        }
        let rootfs = self.context.images.rootfs(&template.name).map_err(of_library)?;
        let binary = self.binary.of(&self.context.binary).await?;
        let repository = format!("hotdesk/{}", template.name);
        let (bare, whole) = (rootfs.digest[..12].to_owned(), format!("{}-{binary}", &rootfs.digest[..12]));
        let image = Image::new(format!("{repository}:{whole}"), &template);
        if self.inspect(&image.name).await?.is_some() {
            return Ok(image);
        }
        let _making = self.making.lock().await;
        if self.inspect(&image.name).await?.is_some() {
            return Ok(image);
        }
        if self.inspect(&format!("{repository}:{bare}")).await?.is_none() {
            self.load(&repository, &bare, &rootfs, &template, progress).await?;
        }
        self.add_binary(&repository, &bare, &whole, &image, &template, progress).await?;
        Ok(image)
    }

    pub(super) async fn inspect(&self, image: &str) -> Result<Option<ImageInspect>> {
        gone_is_none(self.engine.ask(ORDINARY, async |docker| docker.inspect_image(image).await).await)
    }

    /// Streams the tree into the Engine.
    async fn load(&self, repository: &str, tag: &str, rootfs: &Rootfs, template: &Template, progress: &Progress) -> Result<()> {
        let all = self.context.images.size(&template.name).unwrap_or(0) >> 20;
        let sent = Arc::new(AtomicU64::new(0));
        let body = tree::root(rootfs.path.clone(), &template.user.home(), template.user.uid, sent.clone());
        let options = CreateImageOptionsBuilder::new()
            .from_src("-")
            .repo(repository)
            .tag(tag)
            .changes(vec![format!("LABEL hotdesk.template={} hotdesk.tree={}", template.name, rootfs.digest)])
            .build();
        let import = self.import_image(options, body);
        let tell = async {
            loop {
                let done = sent.load(Ordering::Relaxed) >> 20;
                progress.stage(format!("loading the image {} of {all} MiB", done.min(all)));
                tokio::time::sleep(TELL).await;
            }
        };
        tokio::select! {
            outcome = import => outcome,
            () = tell => Ok(()),
        }
    }

    pub(super) async fn import_image(
        &self,
        options: bollard::query_parameters::CreateImageOptions,
        body: tree::Body,
    ) -> Result<()> {
        self.engine
            .ask(MOVING, async |docker| {
                let mut stream = docker.create_image(Some(options), Some(body.0), None);
                while let Some(info) = stream.next().await {
                    info?;
                }
                Ok(())
            })
            .await
    }

    /// A container that is never started gets the binary and becomes the image.
    async fn add_binary(
        &self,
        repository: &str,
        bare: &str,
        whole: &str,
        image: &Image,
        template: &Template,
        progress: &Progress,
    ) -> Result<()> {
        progress.stage("adding the binary to the image");
        let helper = format!("hotdesk-{}-image-{whole}", self.context.fleet);
        // What a call left that was cut off.
        self.remove_container(&helper).await?;
        let body = ContainerCreateBody {
            image: Some(format!("{repository}:{bare}")),
            cmd: Some(vec!["/bin/true".into()]),
            labels: Some(HashMap::from([(LABEL_FLEET.into(), self.context.fleet.clone())])),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::new().name(&helper).build();
        self.engine.ask(STARTING, async |docker| docker.create_container(Some(options), body).await).await?;
        let made = async {
            self.upload_to(&helper, tree::binary(&self.context.binary)).await?;
            let options =
                CommitContainerOptionsBuilder::new().container(&helper).repo(repository).tag(whole).pause(false).build();
            let config = ContainerConfig {
                entrypoint: Some(vec!["/usr/local/bin/hotdesk".into()]),
                cmd: Some(["desk", "--config", hotdesk_image::DESK_SETTINGS].map(String::from).into()),
                user: Some(format!("{0}:{0}", image.uid)),
                working_dir: Some(image.home.clone()),
                env: Some(template.env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
                exposed_ports: Some([container::PORT].iter().chain(&template.ports).map(|port| format!("{port}/tcp")).collect()),
                labels: Some(HashMap::from([
                    ("hotdesk.template".into(), template.name.clone()),
                    ("org.opencontainers.image.title".into(), template.name.clone()),
                    ("org.opencontainers.image.description".into(), template.description.clone()),
                    // The label of the helper must not make the image look like one of the fleet's.
                    (LABEL_FLEET.into(), String::new()),
                ])),
                ..ContainerConfig::default()
            };
            self.engine.ask(MOVING, async |docker| docker.commit_container(options, config).await).await.map(drop)
        };
        let outcome = made.await;
        self.remove_container(&helper).await?;
        outcome
    }

    /// Pulls an image that a template names.
    async fn pull(&self, name: &str, progress: &Progress) -> Result<()> {
        progress.stage(format!("pulling {name}"));
        let options = CreateImageOptionsBuilder::new().from_image(name).build();
        let pulled = self
            .engine
            .ask(MOVING, async |docker| {
                // Layers are pulled side by side; what counts is the sum.
                let mut layers: HashMap<String, (i64, i64)> = HashMap::new();
                let mut stream = docker.create_image(Some(options), None, None);
                while let Some(info) = stream.next().await {
                    let info = info?;
                    if let (Some(id), Some(detail)) = (info.id, info.progress_detail)
                        && let (Some(current), Some(total)) = (detail.current, detail.total)
                    {
                        layers.insert(id, (current, total));
                        let (done, all) = layers.values().fold((0, 0), |(d, a), (done, all)| (d + done, a + all));
                        progress.stage(format!("pulling {name}, {} of {} MiB", done >> 20, all >> 20));
                    }
                }
                Ok(())
            })
            .await;
        pulled.map_err(|e| match e {
            Error::NotFound(reason) | Error::Failed(reason) => Error::NotFound(format!(
                "the image `{name}` is not here and can't be pulled: {reason}; `docker load` can bring it from a file"
            )),
            other => other,
        })
    }

    /// Images that belonged to one desk alone, after its container is gone.
    pub(super) async fn remove_leftover_images(&self, id: &str, image: Option<&str>) -> Result<()> {
        self.remove_image(&self.archive_name(id)).await?;
        // A snapshot that was deleted while a desk ran on it lost its name, not its content.
        if let Some(image) = image
            && let Some(inspected) = self.inspect(image).await?
            && inspected.repo_tags.unwrap_or_default().is_empty()
            && inspected.config.and_then(|config| config.labels).is_some_and(|labels| labels.contains_key(save::LABEL_SNAPSHOT))
        {
            let _ = self.remove_image(image).await;
        }
        Ok(())
    }

    pub(super) async fn remove_image(&self, name: &str) -> Result<()> {
        let options = RemoveImageOptionsBuilder::new().force(false).build();
        let removed = self.engine.ask(MOVING, async |docker| docker.remove_image(name, Some(options), None).await).await;
        gone_is_good(removed.map(drop))
    }
}

/// The library's errors as a provider's.
pub(super) fn of_library(error: hotdesk_image::Error) -> Error {
    match error {
        hotdesk_image::Error::Unknown { .. } | hotdesk_image::Error::NotBuilt { .. } => Error::NotFound(error.to_string()),
        hotdesk_image::Error::Full(room) => Error::Full(room),
        hotdesk_image::Error::Invalid(_) => {
            Error::Unsupported { provider: NAME, what: "the template".into(), reason: error.to_string() }
        }
        hotdesk_image::Error::InUse { .. } | hotdesk_image::Error::Failed(_) => Error::Failed(error.to_string()),
    }
}
