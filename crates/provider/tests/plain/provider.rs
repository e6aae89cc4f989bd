//! A provider in 147 lines of code: desks as plain processes of this machine, without walls around them.
//!
//! `docs/providers.md` walks through it; `main.rs` beside it holds it to the rules.

use async_trait::async_trait;
use hotdesk_api::fleet::Capabilities;
use hotdesk_provider::{Address, Check, Context, DeskSpec, Door, Error, Found, Placed, Progress, Provider, Result, Usage};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::{fs, process::Command};

/// A desktop is there in a fraction of a second; a busy machine gets more.
const READY: Duration = Duration::from_secs(60);

pub(crate) struct Plain {
    pub(crate) context: Context,
}

impl Plain {
    fn folder(&self, id: &str) -> PathBuf {
        self.context.data.join(id)
    }

    /// Of a desk's server, if it runs: what is in the file, and still is that desk's.
    async fn process(&self, id: &str) -> Option<i32> {
        let pid: i32 = fs::read_to_string(self.folder(id).join("pid")).await.ok()?.parse().ok()?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).await.ok()?;
        let socket = self.folder(id).join("desk.sock");
        String::from_utf8_lossy(&command).contains(socket.to_str()?).then_some(pid)
    }

    fn placed(&self, id: &str, pid: i32) -> Placed {
        let address = Address::Unix { path: self.folder(id).join("desk.sock") };
        Placed { address, handle: serde_json::json!({ "pid": pid }) }
    }

    /// Starts the desk's server, unless it runs, and waits until its desktop is there.
    async fn run(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let folder = self.folder(&spec.id);
        let failed = |e: std::io::Error| Error::Failed(format!("{}: {e}", folder.display()));
        let mut child = None;
        let pid = if let Some(pid) = self.process(&spec.id).await {
            pid
        } else {
            progress.stage("starting the desk");
            fs::create_dir_all(folder.join("home")).await.map_err(failed)?;
            let log = std::fs::File::create(folder.join("log")).map_err(failed)?;
            let started = Command::new(&self.context.binary)
                .args(["desk", "--display", "auto", "--listen"])
                .arg(format!("unix:{}", folder.join("desk.sock").display()))
                .args(["--size", &format!("{}x{}", spec.screen.width, spec.screen.height)])
                .env("HOTDESK_TOKEN", &spec.secret)
                .env("HOME", folder.join("home"))
                .envs(&spec.env)
                // It outlives us: no pipe, no group, no terminal of ours.
                .stdin(std::process::Stdio::null())
                .stdout(log.try_clone().map_err(failed)?)
                .stderr(log)
                .process_group(0)
                .spawn()
                .map_err(failed)?;
            let pid = started.id().unwrap_or_default() as i32;
            fs::write(folder.join("pid"), pid.to_string()).await.map_err(failed)?;
            child = Some(started);
            pid
        };
        let placed = self.placed(&spec.id, pid);
        let door = Door { address: placed.address.clone(), secret: spec.secret.clone() };
        let told = progress.clone();
        // A process that has just begun has no command line for a moment: one's own child is waited for, not looked up.
        let ended = async {
            match &mut child {
                Some(child) => drop(child.wait().await),
                None => self.ended(&spec.id).await,
            }
        };
        tokio::select! {
            ready = door.wait_ready(READY, move |stage| told.stage(stage), async || None) => ready.map(|()| placed),
            () = ended => Err(Error::NotReady(format!("its process ended: {}", self.logs(&spec.id, 3).await?))),
        }
    }

    async fn ended(&self, id: &str) {
        while self.process(id).await.is_some() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

#[async_trait]
impl Provider for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    async fn capabilities(&self) -> Capabilities {
        // What is not said is not there, and is refused before anything is spent.
        Capabilities { reset: true, network: true, templates: vec!["here".into()], ..Capabilities::default() }
    }

    async fn check(&self) -> Vec<Check> {
        let good = self.context.binary.is_file();
        vec![Check { what: "binary".into(), good, detail: self.context.binary.display().to_string(), fix: None }]
    }

    async fn prepare(&self, template: &str, _: &Progress) -> Result<()> {
        let unknown = || Error::NotFound(format!("there is no template {template}; there is: here"));
        if template == "here" { Ok(()) } else { Err(unknown()) }
    }

    async fn create(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.run(spec, progress).await
    }

    async fn start(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let gone = || Error::NotFound(format!("desk {} has no files here", spec.id));
        if self.folder(&spec.id).is_dir() { self.run(spec, progress).await } else { Err(gone()) }
    }

    async fn stop(&self, id: &str) -> Result<()> {
        while let Some(pid) = self.process(id).await {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn reset(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.delete(&spec.id).await?;
        self.run(spec, progress).await
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.stop(id).await?;
        match fs::remove_dir_all(self.folder(id)).await {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::Failed(e.to_string())),
            _ => Ok(()),
        }
    }

    async fn list(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        let Ok(mut folders) = fs::read_dir(&self.context.data).await else { return Ok(found) };
        while let Ok(Some(entry)) = folders.next_entry().await {
            let id = entry.file_name().to_string_lossy().into_owned();
            let placed = self.process(&id).await.map(|pid| self.placed(&id, pid));
            found.push(Found { running: placed.is_some(), placed, id });
        }
        Ok(found)
    }

    async fn usage(&self, _: &str) -> Result<Usage> {
        Ok(Usage::default())
    }

    async fn logs(&self, id: &str, lines: usize) -> Result<String> {
        let text = fs::read_to_string(self.folder(id).join("log")).await.unwrap_or_default();
        let all: Vec<_> = text.lines().collect();
        Ok(all[all.len().saturating_sub(lines)..].join("\n"))
    }

    async fn snapshot(&self, _: &str, _: &str, _: bool) -> Result<u64> {
        Err(Error::Unsupported { provider: "plain", what: "a snapshot".into(), reason: "it has none".into() })
    }

    async fn delete_snapshot(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn export(&self, _: &str, _: &Path) -> Result<()> {
        Err(Error::Unsupported { provider: "plain", what: "an archive".into(), reason: "it has none".into() })
    }

    async fn import(&self, _: &DeskSpec, _: &Path) -> Result<()> {
        Err(Error::Unsupported { provider: "plain", what: "an archive".into(), reason: "it has none".into() })
    }
}
