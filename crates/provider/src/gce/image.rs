//! Golden images: a family per template, a version per disk.
//!
//! ```text
//!   base.tar.gz ──► gs://BUCKET/hotdesk/NAME.tar.gz ──► image hotdesk-base-DIGEST in the family hotdesk-base ──► older ones pruned
//! ```
//!
//! A desk is made from the version that is the newest when it is made, by that version's own name.

use super::bucket::Bucket;
use super::config::is_name;
use super::fault::Fault;
use super::instance::Source;
use super::model::Image;
use super::{Gce, LABEL_TEMPLATE, NAME_PREFIX};
use crate::{DeskSpec, Error, Progress, Result};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

/// Google unpacks and converts the whole disk.
const IMPORT_LIMIT: Duration = Duration::from_secs(1800);
const DELETE_LIMIT: Duration = Duration::from_secs(120);
/// Where uploads lie in the bucket.
const FOLDER: &str = "hotdesk";
/// What the golden disk has drivers for.
const FEATURES: [&str; 2] = ["VIRTIO_SCSI_MULTIQUEUE", "GVNIC"];
const UEFI: &str = "UEFI_COMPATIBLE";

/// What is to be published.
#[derive(Debug, Clone)]
pub struct Publish<'a> {
    pub template: &'a str,
    /// The golden disk as `hotdesk template build --as gce` makes it.
    pub file: &'a Path,
    pub bucket: &'a str,
    /// So many versions are kept in all.
    pub keep: usize,
    /// The upload stays in the bucket; the image does not need it.
    pub keep_upload: bool,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Published {
    pub image: String,
    pub family: String,
    /// It was there already.
    pub old: bool,
    /// Older versions that were removed.
    pub pruned: Vec<String>,
}

impl Gce {
    fn image_project(&self) -> &str {
        self.config.image_project.as_deref().unwrap_or(self.api.project())
    }

    fn family(&self, template: &str) -> Result<String> {
        let family = format!("{}{template}", self.config.image_family);
        match is_name(&family) {
            true => Ok(family),
            false => Err(Error::Failed(format!("`{family}` can't be an image family at Google"))),
        }
    }

    /// The newest version of a template's image.
    pub(super) async fn newest_image(&self, template: &str) -> Result<Image> {
        let family = self.family(template)?;
        match self.api.get_of::<Image>(self.image_project(), &format!("global/images/family/{family}")).await {
            Err(Fault::Gone(_)) => Err(Error::NotFound(format!(
                "the project {} has no image of the family {family}; `hotdesk image publish {template}` makes one",
                self.image_project()
            ))),
            Ok(image) if image.status != "READY" => {
                Err(Error::Unavailable { provider: super::NAME, reason: format!("the image {} is {}", image.name, image.status) })
            }
            other => Ok(other?),
        }
    }

    /// What the desk's disk is made of.
    pub(super) async fn source(&self, spec: &DeskSpec, progress: &Progress) -> Result<Source> {
        progress.stage("looking for what it is made of");
        if let Some(snapshot) = &spec.snapshot {
            let saved = self.snapshot_of(&snapshot.id).await?;
            let path = format!("projects/{}/global/snapshots/{}", self.api.project(), saved.name);
            return Ok(Source { kind: "sourceSnapshot", path, size_gb: saved.disk_size_gb, uefi: saved.has_feature(UEFI) });
        }
        let image = self.newest_image(&spec.template).await?;
        let path = format!("projects/{}/global/images/{}", self.image_project(), image.name);
        let uefi = image.guest_os_features.iter().any(|feature| feature.name == UEFI);
        Ok(Source { kind: "sourceImage", path, size_gb: image.disk_size_gb, uefi })
    }

    /// Makes a new version of a template's image out of a golden disk. Whatever is done already is not done again.
    pub async fn publish(&self, publish: &Publish<'_>, progress: &Progress) -> Result<Published> {
        let family = self.family(publish.template)?;
        progress.stage("reading the disk");
        let digest = digest(publish.file).await?;
        let image = format!("{NAME_PREFIX}{}-{}", publish.template, &digest[..12]);
        if !is_name(&image) {
            return Err(Error::Failed(format!("`{image}` can't be an image's name at Google")));
        }
        let old = match self.api.get::<Image>(&format!("global/images/{image}")).await {
            Ok(there) => there.status != "FAILED",
            Err(Fault::Gone(_)) => false,
            Err(fault) => return Err(fault.into()),
        };
        if !old {
            self.import(publish, &image, &family, &digest, progress).await?;
        }
        progress.stage("removing old versions");
        let pruned = self.prune(&family, &image, publish.keep).await?;
        Ok(Published { image, family, old, pruned })
    }

    async fn import(&self, publish: &Publish<'_>, image: &str, family: &str, digest: &str, progress: &Progress) -> Result<()> {
        let bucket = Bucket::open(&self.api, &self.config, publish.bucket).await?;
        let object = format!("{FOLDER}/{image}.tar.gz");
        progress.stage(format!("uploading to gs://{}/{object}", publish.bucket));
        bucket.upload(publish.file, &object, |done| progress.stage(format!("uploading: {} MiB", done >> 20))).await?;
        progress.stage("Google imports the disk");
        let body = json!({
            "name": image,
            "family": family,
            "description": format!("the golden disk of the template {}, sha256 {digest}", publish.template),
            "labels": { LABEL_TEMPLATE: publish.template },
            "rawDisk": { "source": bucket.url(&object), "containerType": "TAR" },
            "guestOsFeatures": FEATURES.map(|name| json!({ "type": name })),
            "architecture": "X86_64",
        });
        match self.api.post("global/images", Some(body), IMPORT_LIMIT).await {
            Ok(_) | Err(Fault::Exists(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
        if !publish.keep_upload {
            bucket.remove(&object).await?;
        }
        Ok(())
    }

    /// Removes all but the newest versions of a family. Desks do not need the image that they were made from.
    async fn prune(&self, family: &str, new: &str, keep: usize) -> Result<Vec<String>> {
        let mut versions: Vec<Image> = self.api.list("global/images", &format!("family = \"{family}\"")).await?;
        versions.retain(|image| image.family == family && image.name.starts_with(NAME_PREFIX) && image.name != new);
        versions.sort_by_key(|image| std::cmp::Reverse(super::life::moment(&image.creation_timestamp)));
        let mut pruned = Vec::new();
        for image in versions.into_iter().skip(keep.saturating_sub(1)) {
            match self.api.delete(&format!("global/images/{}", image.name), DELETE_LIMIT).await {
                Ok(_) | Err(Fault::Gone(_)) => pruned.push(image.name),
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(pruned)
    }
}

async fn digest(file: &Path) -> Result<String> {
    let path = file.to_owned();
    let unread = |e: &dyn std::fmt::Display| Error::Failed(format!("{} can't be read: {e}", file.display()));
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<String> {
        let mut hash = Sha256::new();
        let mut input = std::fs::File::open(path)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match std::io::Read::read(&mut input, &mut buffer)? {
                0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
                count => hash.update(&buffer[..count]),
            }
        }
    });
    read.await.map_err(|e| unread(&e))?.map_err(|e| unread(&e))
}
