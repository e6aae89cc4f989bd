//! Snapshots (images committed from a container) and archives (a container's whole file system as a tar).

use super::engine::{MOVING, ORDINARY};
use super::{Docker, LABEL_FLEET, image, tree};
use crate::{DeskSpec, Error, Result};
use bollard::models::ContainerConfig;
use bollard::query_parameters::{CommitContainerOptionsBuilder, CreateImageOptionsBuilder, ListImagesOptionsBuilder};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::path::Path;
use tokio::io::AsyncWriteExt;

/// The snapshot that an image is.
pub(super) const LABEL_SNAPSHOT: &str = "hotdesk.snapshot";

impl Docker {
    pub(super) fn snapshot_name(&self, snapshot: &str) -> String {
        format!("hotdesk/snapshot-{}:{snapshot}", self.context.fleet)
    }

    /// The image that an archived desk came back as.
    pub(super) fn archive_name(&self, id: &str) -> String {
        format!("hotdesk/archive-{}:{id}", self.context.fleet)
    }

    pub(super) async fn save_snapshot(&self, id: &str, snapshot: &str) -> Result<u64> {
        let name = self.snapshot_name(snapshot);
        if self.inspect(&name).await?.is_none() {
            self.blank_settings(id).await?;
            let (repository, tag) = name.rsplit_once(':').unwrap_or((&name, "latest"));
            let options = CommitContainerOptionsBuilder::new()
                .container(&self.container_name(id))
                .repo(repository)
                .tag(tag)
                .pause(true)
                .build();
            let labels =
                HashMap::from([(LABEL_FLEET.into(), self.context.fleet.clone()), (LABEL_SNAPSHOT.into(), snapshot.to_owned())]);
            let config = ContainerConfig { labels: Some(labels), ..ContainerConfig::default() };
            self.engine.ask(MOVING, async |docker| docker.commit_container(options, config).await).await?;
        }
        // The newest layer is what the snapshot added.
        let history = self.engine.ask(ORDINARY, async |docker| docker.image_history(&name).await).await?;
        Ok(history.first().map_or(0, |layer| layer.size.max(0) as u64))
    }

    /// Desks that were started from it go on; the last of them takes the content away.
    pub(super) async fn drop_snapshot(&self, snapshot: &str) -> Result<()> {
        let name = self.snapshot_name(snapshot);
        match self.remove_image(&name).await {
            Err(Error::Failed(message)) if message.contains("must force") || message.contains("must be forced") => {
                let options = bollard::query_parameters::RemoveImageOptionsBuilder::new().force(true).noprune(true).build();
                self.engine.ask(MOVING, async |docker| docker.remove_image(&name, Some(options), None).await).await.map(drop)
            }
            other => other,
        }
    }

    pub(super) async fn list_snapshots(&self) -> Result<Vec<String>> {
        let filters = HashMap::from([(
            "label".to_owned(),
            vec![format!("{LABEL_FLEET}={}", self.context.fleet), LABEL_SNAPSHOT.to_owned()],
        )]);
        let options = ListImagesOptionsBuilder::new().filters(&filters).build();
        let images = self.engine.ask(ORDINARY, async |docker| docker.list_images(Some(options)).await).await?;
        let prefix = self.snapshot_name("");
        let mut ids: Vec<String> = images
            .iter()
            .flat_map(|image| &image.repo_tags)
            .filter_map(|tag| tag.strip_prefix(&prefix))
            .map(String::from)
            .collect();
        ids.sort();
        Ok(ids)
    }

    pub(super) async fn write_archive(&self, id: &str, to: &Path) -> Result<()> {
        let fail = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::StorageFull => Error::Full(e.to_string()),
            _ => Error::Failed(format!("the archive of desk `{id}`: {e}")),
        };
        match self.look(id).await? {
            None => return Err(Error::NotFound(format!("there is no desk `{id}` at docker"))),
            Some(existing) if existing.running => return Err(Error::Failed(format!("desk `{id}` runs; stop it first"))),
            Some(_) => {}
        }
        self.blank_settings(id).await?;
        let name = self.container_name(id);
        let mut file = tokio::fs::File::options().write(true).create(true).truncate(true).open(to).await.map_err(fail)?;
        self.engine
            .ask(MOVING, async |docker| {
                let mut stream = docker.export_container(&name);
                while let Some(part) = stream.next().await {
                    file.write_all(&part?).await?;
                }
                file.flush().await?;
                Ok(())
            })
            .await
    }

    pub(super) async fn read_archive(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        let template = self.context.images.template(&spec.template).map_err(image::of_library)?;
        // What a call left that was cut off.
        self.remove(&spec.id).await?;
        let file = tokio::fs::File::open(from).await.map_err(|e| Error::Failed(format!("{}: {e}", from.display())))?;
        let name = self.archive_name(&spec.id);
        let (repository, tag) = name.rsplit_once(':').unwrap_or((&name, "latest"));
        let options = CreateImageOptionsBuilder::new()
            .from_src("-")
            .repo(repository)
            .tag(tag)
            .changes(vec![format!("LABEL {LABEL_FLEET}={} hotdesk.archive={}", self.context.fleet, spec.id)])
            .build();
        self.import_image(options, tree::passed_on(file)).await?;
        let image = image::Image { name, uid: template.user.uid, home: template.user.home(), exact: None };
        self.make(spec, &image).await
    }
}
