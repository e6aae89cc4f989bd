//! Templates: Daytona's snapshots, made from our image once per size, because a sandbox has the size of its snapshot.

use super::{Daytona, Template, is, unsupported};
use crate::cloud::{Call, Kind, escaped, gone_is_good, gone_is_none};
use crate::{DeskSpec, Error, Progress, Result};
use hotdesk_api::desk::Resources;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::time::Instant;

/// Daytona gives up on a pull after 60 minutes and on a build after 120.
const MAKING: Duration = Duration::from_secs(2 * 3600);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// Saving a sandbox takes seconds to minutes.
const SAVING: Duration = Duration::from_secs(1800);
const PAGE: usize = 100;
/// Of a build's log, for people.
const LAST_LINES: usize = 5;

/// Daytona's snapshot.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Snapshot {
    pub(super) id: String,
    pub(super) name: String,
    state: String,
    #[serde(default)]
    size: Option<f64>,
    #[serde(default)]
    error_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<Snapshot>,
    #[serde(default)]
    total_pages: f64,
}

/// A size as Daytona has them: whole CPUs and GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    cpu: u64,
    memory: u64,
    disk: u64,
}

impl Size {
    fn of(resources: Resources) -> Self {
        let gib = |mib: u64| mib.div_ceil(1024).max(1);
        Self { cpu: resources.cpus.ceil().max(1.0) as u64, memory: gib(resources.memory_mib), disk: gib(resources.disk_mib) }
    }
}

impl Daytona {
    pub(super) fn template(&self, name: &str) -> Result<&Template> {
        self.config.templates.get(name).ok_or_else(|| {
            let known = self.config.templates.keys().cloned().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".into() } else { known };
            Error::NotFound(format!(
                "the template {name} has no image at Daytona; name one in [daytona.templates.{name}] (there are: {known})"
            ))
        })
    }

    /// The name of what a desk is made from, made if it is missing.
    pub(super) async fn origin(&self, spec: &DeskSpec, progress: &Progress) -> Result<String> {
        match &spec.snapshot {
            Some(snapshot) if snapshot.memory => Err(unsupported("a snapshot with memory", super::NO_MEMORY)),
            Some(snapshot) => {
                let name = self.sandbox_name(&snapshot.id);
                let found = self.daytona_snapshot(&name).await?;
                found.map(|_| name).ok_or_else(|| Error::NotFound(format!("there is no snapshot {} at Daytona", snapshot.id)))
            }
            None => self.ensure_template(&spec.template, spec.resources, progress).await,
        }
    }

    pub(super) async fn ensure_template(&self, name: &str, resources: Resources, progress: &Progress) -> Result<String> {
        let template = self.template(name)?;
        let size = Size::of(resources);
        let wanted = snapshot_name(name, template, size);
        let _one = self.making.lock().await;
        let end = Instant::now() + MAKING;
        let mut asked = false;
        loop {
            let Some(snapshot) = self.daytona_snapshot(&wanted).await? else {
                progress.stage(format!("Daytona: making a snapshot of {}", template.image));
                self.request(&wanted, template, size).await?;
                continue;
            };
            match snapshot.state.as_str() {
                "active" => return Ok(wanted),
                "inactive" if !asked => {
                    progress.stage("Daytona: waking the snapshot, which was not used for long");
                    asked = true;
                    let call = Call::post(format!("/snapshots/{}/activate", escaped(&snapshot.id))).repeatable();
                    self.api.ask(call).await?;
                }
                "error" | "build_failed" => {
                    let log = self.build_log(&snapshot.id).await;
                    let reason = snapshot.error_reason.unwrap_or_else(|| snapshot.state.clone());
                    // It would stay for ever; the next try makes it anew.
                    self.drop_snapshot(&wanted).await?;
                    return Err(Error::Failed(format!("Daytona could not make a snapshot of {}: {reason}{log}", template.image)));
                }
                state => progress.stage(format!("Daytona: the snapshot is {state}")),
            }
            if Instant::now() > end {
                return Err(Error::Failed(format!("Daytona's snapshot {wanted} is still {} after two hours", snapshot.state)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn request(&self, name: &str, template: &Template, size: Size) -> Result<()> {
        let default = || {
            ["/usr/local/bin/hotdesk", "desk", "--config", "/etc/hotdesk/desk.toml", "--listen", "0.0.0.0:5000"]
                .map(String::from)
                .to_vec()
        };
        let mut body = json!({
            "name": name,
            "imageName": template.image,
            "entrypoint": template.entrypoint.clone().unwrap_or_else(default),
            "cpu": size.cpu,
            "memory": size.memory,
            "disk": size.disk,
        });
        if let Some(target) = &self.config.target {
            body["regionId"] = json!(target);
        }
        // The name is unique: a second request of the same is refused, and the look that follows finds the first.
        match self.api.ask(Call::post("/snapshots").json(body).repeatable()).await {
            Err(fault) if is(&fault, Kind::Conflict) => Ok(()),
            Err(fault) if is(&fault, Kind::Refused) && fault.message.contains("already exists") => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    pub(super) async fn daytona_snapshot(&self, name: &str) -> Result<Option<Snapshot>> {
        Ok(gone_is_none(self.api.ask_for(Call::get(format!("/snapshots/{}", escaped(name)))).await)?)
    }

    /// All whose name begins so.
    pub(super) async fn daytona_snapshots(&self, prefix: &str) -> Result<Vec<Snapshot>> {
        let mut all = Vec::new();
        for page in 1.. {
            let call = Call::get("/snapshots").query("page", page).query("limit", PAGE).query("name", prefix);
            let got: Page = self.api.ask_for(call).await?;
            let last = got.items.is_empty() || page as f64 >= got.total_pages;
            all.extend(
                got.items.into_iter().filter(|snapshot| snapshot.name.starts_with(prefix) && snapshot.state != "removing"),
            );
            if last {
                break;
            }
        }
        Ok(all)
    }

    /// What was said last while a snapshot was made; nothing if that can't be had.
    async fn build_log(&self, id: &str) -> String {
        #[derive(Deserialize)]
        struct Url {
            url: String,
        }
        let place: Result<Url, _> = self.api.ask_for(Call::get(format!("/snapshots/{}/build-logs-url", escaped(id)))).await;
        let Ok(place) = place else { return String::new() };
        // The log may be anywhere; the key goes to Daytona's own address only.
        let Some(path) = place.url.strip_prefix(self.api.base()) else { return String::new() };
        let Ok(reply) = self.api.ask(Call::get(path).limit(Duration::from_secs(10))).await else { return String::new() };
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines[lines.len().saturating_sub(LAST_LINES)..].join(" / ") {
            text if text.is_empty() => text,
            text => format!("; its log ends with: {text}"),
        }
    }

    pub(super) async fn state_of_template(&self, name: &str) -> Result<String> {
        let template = self.template(name)?;
        let snapshot = self.daytona_snapshot(&snapshot_name(name, template, Size::of(Resources::default()))).await?;
        Ok(match snapshot {
            Some(snapshot) => format!("{} is {}", template.image, snapshot.state),
            None => format!("{} becomes a snapshot with the first desk", template.image),
        })
    }

    /// Saves a desk's files as a snapshot.
    pub(super) async fn save(&self, id: &str, snapshot: &str) -> Result<u64> {
        let (sandbox, name) = (self.sandbox_name(id), self.sandbox_name(snapshot));
        let end = Instant::now() + SAVING;
        let mut asked = false;
        loop {
            match self.daytona_snapshot(&name).await? {
                Some(saved) if saved.state == "active" => {
                    return Ok(saved.size.map_or(0, |gib| (gib * (1u64 << 30) as f64) as u64));
                }
                Some(saved) if matches!(saved.state.as_str(), "error" | "build_failed") => {
                    self.drop_snapshot(&name).await?;
                    return Err(Error::Failed(format!(
                        "Daytona could not save the desk: {}",
                        saved.error_reason.unwrap_or(saved.state)
                    )));
                }
                None if !asked => {
                    asked = true;
                    let body = json!({"name": name, "includeMemory": false});
                    let call = Call::post(format!("/sandbox/{}/snapshot", escaped(&sandbox))).json(body).repeatable();
                    match self.api.ask(call).await {
                        Err(fault) if is(&fault, Kind::Conflict) => {}
                        other => drop(other?),
                    }
                }
                _ => {}
            }
            if Instant::now() > end {
                return Err(Error::Failed("Daytona did not save the desk in half an hour".into()));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) async fn drop_snapshot(&self, name: &str) -> Result<()> {
        let Some(snapshot) = self.daytona_snapshot(name).await? else { return Ok(()) };
        Ok(gone_is_good(self.api.ask(Call::delete(format!("/snapshots/{}", escaped(&snapshot.id)))).await)?)
    }
}

/// Another image, entrypoint or size is another snapshot.
fn snapshot_name(template: &str, made_from: &Template, size: Size) -> String {
    let mut hash = Sha256::new();
    hash.update(&made_from.image);
    hash.update(format!("{:?}", made_from.entrypoint));
    let hash = hash.finalize();
    let short: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("hotdesk-template-{template}-{short}-{}c{}m{}d", size.cpu, size.memory, size.disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_size_or_image_is_another_snapshot() {
        let template = |image: &str| Template {
            image: image.into(),
            entrypoint: None,
            volumes: Default::default(),
            env: Default::default(),
            user: "user".into(),
        };
        let size = Size::of(Resources { cpus: 1.5, memory_mib: 4000, disk_mib: 5120 });
        assert_eq!(size, Size { cpu: 2, memory: 4, disk: 5 });
        let name = snapshot_name("base", &template("r/a:1"), size);
        assert!(name.starts_with("hotdesk-template-base-") && name.ends_with("-2c4m5d"), "{name}");
        assert_ne!(name, snapshot_name("base", &template("r/a:2"), size));
        assert_ne!(name, snapshot_name("base", &template("r/a:1"), Size { cpu: 1, ..size }));
    }
}
