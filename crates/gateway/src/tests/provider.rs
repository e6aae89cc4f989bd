//! A provider whose desks are small servers of this process.

use super::desk::FakeDesk;
use async_trait::async_trait;
use hotdesk_api::fleet::Capabilities;
use hotdesk_provider::{Address, Check, DeskSpec, Error, Found, Placed, Progress, Provider, Result, Usage};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub(super) struct FakeProvider {
    directory: PathBuf,
    desks: Mutex<HashMap<String, Option<Arc<FakeDesk>>>>,
    snapshots: Mutex<Vec<String>>,
    /// Real desks of this binary instead of played ones.
    binary: Option<PathBuf>,
    processes: Mutex<HashMap<String, std::process::Child>>,
    /// The next desk does not come up.
    pub(super) broken: Mutex<bool>,
    /// Whether the template `office` is built; until then whoever wants it waits.
    pub(super) built: tokio::sync::watch::Sender<bool>,
    /// Desks wait as long before they come up.
    pub(super) held: tokio::sync::watch::Sender<bool>,
    /// What desks were made of.
    pub(super) specs: Mutex<HashMap<String, DeskSpec>>,
}

impl FakeProvider {
    pub(super) fn new(directory: PathBuf) -> Self {
        std::fs::create_dir_all(&directory).unwrap();
        let mut provider = Self::default();
        provider.directory = directory;
        provider.binary = std::env::var_os("HOTDESK_TEST_BINARY").map(Into::into);
        provider
    }

    pub(super) fn desk(&self, id: &str) -> Option<Arc<FakeDesk>> {
        self.desks.lock().unwrap().get(id).cloned().flatten()
    }

    fn run(&self, spec: &DeskSpec) -> Result<Placed> {
        if std::mem::take(&mut *self.broken.lock().unwrap()) {
            return Err(Error::NotReady("its X server did not start".into()));
        }
        let path = self.directory.join(format!("{}.sock", spec.id));
        if let Some(binary) = &self.binary {
            self.run_real(binary, &path, spec);
            return Ok(Placed { address: Address::Unix { path }, handle: serde_json::Value::Null });
        }
        let mut desks = self.desks.lock().unwrap();
        if desks.get(&spec.id).is_none_or(Option::is_none) {
            let _ = std::fs::remove_file(&path);
            desks.insert(spec.id.clone(), Some(FakeDesk::start(&path, &spec.secret)));
        }
        Ok(Placed { address: Address::Unix { path }, handle: serde_json::Value::Null })
    }
}

impl FakeProvider {
    fn run_real(&self, binary: &Path, path: &Path, spec: &DeskSpec) {
        let token = path.with_extension("token");
        std::fs::write(&token, &spec.secret).unwrap();
        std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let listen = format!("unix:{}", path.display());
        let child = std::process::Command::new(binary)
            .args(["desk", "--display", "auto", "--listen", &listen, "--token-file"])
            .arg(token)
            .spawn()
            .unwrap();
        let _ = std::fs::remove_file(path);
        while !path.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.processes.lock().unwrap().insert(spec.id.clone(), child);
        self.desks.lock().unwrap().insert(spec.id.clone(), Some(FakeDesk::start(&path.with_extension("unused"), "")));
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        for child in self.processes.lock().unwrap().values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[async_trait]
impl Provider for FakeProvider {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn capabilities(&self) -> Capabilities {
        Capabilities {
            reset: true,
            snapshot: true,
            live_fork: true,
            archive: true,
            network: true,
            cpu_limit: true,
            memory_limit: true,
            disk_limit: true,
            templates: vec!["base".into()],
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    async fn prepare(&self, template: &str, progress: &Progress) -> Result<()> {
        match template {
            "base" | "bare" => Ok(()),
            "office" => {
                progress.stage("installing packages");
                let _ = self.built.subscribe().wait_for(|built| *built).await;
                Ok(())
            }
            other => Err(Error::NotFound(format!("there is no template {other}"))),
        }
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        progress.stage("playing");
        self.specs.lock().unwrap().insert(spec.id.clone(), spec.clone());
        let _ = self.held.subscribe().wait_for(|held| !held).await;
        self.run(spec)
    }

    async fn start(&self, spec: &DeskSpec, _: &Progress) -> Result<Placed> {
        self.run(spec)
    }

    async fn stop(&self, id: &str) -> Result<()> {
        if let Some(desk) = self.desks.lock().unwrap().get_mut(id).and_then(Option::take) {
            desk.stop();
        }
        Ok(())
    }

    async fn reset(&self, spec: &DeskSpec, _: &Progress) -> Result<Placed> {
        self.stop(&spec.id).await?;
        self.run(spec)
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.stop(id).await?;
        self.desks.lock().unwrap().remove(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let desks = self.desks.lock().unwrap();
        Ok(desks
            .iter()
            .map(|(id, desk)| Found {
                id: id.clone(),
                running: desk.is_some(),
                placed: desk.as_ref().map(|_| Placed {
                    address: Address::Unix { path: self.directory.join(format!("{id}.sock")) },
                    handle: serde_json::Value::Null,
                }),
            })
            .collect())
    }

    async fn usage(&self, _: &str) -> Result<Usage> {
        Ok(Usage { cpu_s: 1.5, memory_bytes: 64 << 20, disk_bytes: 1 << 20, processes: 7 })
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        Ok((0..lines.min(3)).map(|n| format!("line {n} of {id}\n")).collect())
    }

    async fn snapshot(&self, _: &str, snapshot: &str, _: bool) -> Result<u64> {
        self.snapshots.lock().unwrap().push(snapshot.into());
        Ok(1000)
    }

    async fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        self.snapshots.lock().unwrap().retain(|known| known != snapshot);
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        Ok(self.snapshots.lock().unwrap().clone())
    }

    async fn export(&self, _: &str, to: &Path) -> Result<()> {
        tokio::fs::write(to, b"files").await.map_err(|e| Error::Failed(e.to_string()))
    }

    async fn import(&self, spec: &DeskSpec, from: &Path) -> Result<()> {
        tokio::fs::read(from).await.map_err(|e| Error::Failed(e.to_string()))?;
        self.desks.lock().unwrap().insert(spec.id.clone(), None);
        Ok(())
    }
}
