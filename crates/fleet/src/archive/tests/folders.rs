//! A provider of desks that are folders with one file, packed and unpacked by the real tar.

use async_trait::async_trait;
use hotdesk_api::fleet::Capabilities;
use hotdesk_provider::{Check, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::process::Command;

pub(super) struct Folders {
    directory: TempDir,
}

impl Folders {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(super) fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(Tar { root: self.directory.path().to_owned() })
    }

    pub(super) fn make(&self, desk: &str, data: &[u8]) {
        std::fs::create_dir_all(self.directory.path().join(desk)).unwrap();
        std::fs::write(self.directory.path().join(desk).join("file"), data).unwrap();
    }

    pub(super) fn read(&self, desk: &str) -> Vec<u8> {
        std::fs::read(self.directory.path().join(desk).join("file")).unwrap()
    }

    pub(super) fn exists(&self, desk: &str) -> bool {
        self.directory.path().join(desk).exists()
    }
}

struct Tar {
    root: PathBuf,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Failed(error.to_string())
}

fn never<T>() -> Result<T> {
    Err(failed("not a part of this test"))
}

#[async_trait]
impl Provider for Tar {
    fn name(&self) -> &'static str {
        "folders"
    }

    async fn export(&self, id: &str, to: &Path) -> Result<()> {
        if !self.root.join(id).exists() {
            return Err(Error::NotFound(format!("there is no folder {id}")));
        }
        let status = Command::new("tar").arg("cf").arg(to).arg("-C").arg(self.root.join(id)).arg(".").status().await;
        // The stream was whole, but the provider knows better.
        if id == "broken" || !status.map_err(failed)?.success() {
            return Err(failed("export broke"));
        }
        Ok(())
    }

    async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        if spec.id == "refused" {
            return Err(failed("import is refused"));
        }
        let folder = self.root.join(&spec.id);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        // B: a pipe gives less than a record at a time.
        let status = Command::new("tar").arg("-xBf").arg(from).arg("-C").arg(folder).status().await.map_err(failed)?;
        if status.success() { Ok(()) } else { Err(failed("import broke")) }
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let _ = std::fs::remove_dir_all(self.root.join(id));
        Ok(())
    }

    async fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    async fn prepare(&self, _: &str, _: &Progress) -> Result<()> {
        never()
    }

    async fn create(&self, _: &DeskSpec, _: &Progress) -> Result<Placed> {
        never()
    }

    async fn start(&self, _: &DeskSpec, _: &Progress) -> Result<Placed> {
        never()
    }

    async fn stop(&self, _: &str) -> Result<()> {
        never()
    }

    async fn reset(&self, _: &DeskSpec, _: &Progress) -> Result<Placed> {
        never()
    }

    async fn list(&self) -> Result<Vec<Found>> {
        never()
    }

    async fn usage(&self, _: &str) -> Result<Usage> {
        never()
    }

    async fn logs(&self, _: &str, _: usize) -> Result<String> {
        never()
    }

    async fn snapshot(&self, _: &str, _: &str, _: bool) -> Result<u64> {
        never()
    }

    async fn delete_snapshot(&self, _: &str) -> Result<()> {
        never()
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        never()
    }
}
