//! Templates: built by E2B from our image, once per size, because a sandbox has the size of its template.

use super::{Team, Template, unsupported};
use crate::cloud::{Call, Kind, escaped, gone_is_none};
use crate::{DeskSpec, Error, Progress, Result};
use hotdesk_api::desk::Resources;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::time::Instant;

/// E2B gives up on a build after an hour.
const BUILDING: Duration = Duration::from_secs(65 * 60);
const LOOK: Duration = Duration::from_secs(1);
const LOG_PAGE: usize = 100;

/// Where a sandbox gets its desk's settings.
pub(super) const SETTINGS: &str = "/home/user/.hotdesk/desk.env";
/// The last line of the settings: a file that is just being written is not read.
pub(super) const WHOLE: &str = "# whole";
/// Runs in the template for ever: starts the desk when its settings come, anew when others come, again when it ended.
const START: &str = r##"d="$HOME/.hotdesk"; mkdir -p "$d"; cd "$HOME"; f="$d/desk.env"; p=
while :; do
  if [ "$(tail -n 1 "$f" 2>/dev/null)" = "# whole" ]; then
    if [ -n "$p" ]; then kill "$p" 2>/dev/null; wait "$p"; fi
    set -a; . "$f"; set +a; rm -f "$f"
    hotdesk desk --config /etc/hotdesk/desk.toml --listen 0.0.0.0:5000 & p=$!
  elif [ -n "$p" ] && ! kill -0 "$p" 2>/dev/null; then
    hotdesk desk --config /etc/hotdesk/desk.toml --listen 0.0.0.0:5000 & p=$!
  fi
  sleep 0.1
done"##;
/// It waits for settings.
const WAITS: &str = "test -d /home/user/.hotdesk";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Begun {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "buildID")]
    build: String,
}

#[derive(Deserialize)]
struct Alias {
    #[serde(rename = "templateID")]
    template: String,
}

#[derive(Deserialize)]
struct Builds {
    builds: Vec<Build>,
}

#[derive(Deserialize)]
struct Build {
    #[serde(rename = "buildID")]
    id: String,
    status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    status: String,
    #[serde(default)]
    log_entries: Vec<Line>,
    #[serde(default)]
    reason: Option<Line>,
}

#[derive(Deserialize)]
struct Line {
    message: String,
}

/// A size as E2B has them: one CPU or an even number, an even number of MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    cpus: u64,
    memory_mib: u64,
}

impl Size {
    fn of(resources: Resources) -> Self {
        let cpus = resources.cpus.ceil().max(1.0) as u64;
        Self {
            cpus: if cpus == 1 { 1 } else { cpus.next_multiple_of(2) },
            memory_mib: resources.memory_mib.max(128).next_multiple_of(2),
        }
    }
}

impl Team {
    fn template(&self, name: &str) -> Result<&Template> {
        self.config.templates.get(name).ok_or_else(|| {
            let known = self.config.templates.keys().cloned().collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".into() } else { known };
            Error::NotFound(format!(
                "the template {name} has no image at E2B; name one in [e2b.templates.{name}] (there are: {known})"
            ))
        })
    }

    /// What a desk is made from, built if it is missing.
    pub(super) async fn origin(&self, spec: &DeskSpec, progress: &Progress) -> Result<String> {
        match &spec.snapshot {
            Some(snapshot) if snapshot.memory => Err(unsupported("a snapshot with memory", super::NO_FORK)),
            Some(snapshot) => {
                let found = self.find(&snapshot.id).await?;
                found.ok_or_else(|| Error::NotFound(format!("there is no snapshot {} at E2B", snapshot.id)))
            }
            None => self.ensure_template(&spec.template, spec.resources, progress).await,
        }
    }

    pub(super) async fn ensure_template(&self, name: &str, resources: Resources, progress: &Progress) -> Result<String> {
        let template = self.template(name)?;
        let size = Size::of(resources);
        let wanted = template_name(name, template, size);
        let _one = self.making.lock().await;
        let begun = match self.builds(&wanted).await? {
            Some((_, builds)) if builds.iter().any(|build| build.status == "ready") => return Ok(wanted),
            // Somebody else's, or ours before we were ended.
            Some((template, builds)) => {
                builds.into_iter().find(|build| build.status == "building").map(|build| Begun { template, build: build.id })
            }
            None => None,
        };
        let begun = match begun {
            Some(begun) => begun,
            None => self.begin(&wanted, template, size, progress).await?,
        };
        self.built(&begun, &template.image, progress).await?;
        Ok(wanted)
    }

    async fn builds(&self, name: &str) -> Result<Option<(String, Vec<Build>)>> {
        let alias: Option<Alias> =
            gone_is_none(self.api.ask_for(Call::get(format!("/templates/aliases/{}", escaped(name)))).await)?;
        let Some(alias) = alias else { return Ok(None) };
        let call = Call::get(format!("/templates/{}", escaped(&alias.template))).query("limit", LOG_PAGE);
        let builds: Option<Builds> = gone_is_none(self.api.ask_for(call).await)?;
        Ok(builds.map(|builds| (alias.template, builds.builds)))
    }

    async fn begin(&self, name: &str, template: &Template, size: Size, progress: &Progress) -> Result<Begun> {
        progress.stage(format!("E2B: building a template from {}", template.image));
        // A second request of a name is a second build of the same template; the one that is not started costs nothing.
        let body = json!({ "name": name, "cpuCount": size.cpus, "memoryMB": size.memory_mib });
        let begun: Begun = self.api.ask_for(Call::post("/v3/templates").json(body).repeatable()).await?;
        let mut body = json!({
            "fromImage": template.image,
            "force": false,
            "steps": [
                { "type": "USER", "args": ["user"], "force": false },
                { "type": "WORKDIR", "args": ["/home/user"], "force": false },
            ],
            "startCmd": START,
            "readyCmd": WAITS,
        });
        if let (Some(user), Some(file)) = (&template.registry_user, &template.registry_password_file) {
            let password = std::fs::read_to_string(file)
                .map_err(|e| Error::Failed(format!("the registry's password in {} can't be read: {e}", file.display())))?;
            body["fromImageRegistry"] = json!({ "type": "registry", "username": user, "password": password.trim() });
        }
        let path = format!("/v2/templates/{}/builds/{}", escaped(&begun.template), escaped(&begun.build));
        match self.api.ask(Call::post(path).json(body).repeatable()).await {
            // It was started by a request whose reply got lost; its status tells.
            Err(fault) if fault.kind == Kind::Conflict => {}
            Err(fault) if fault.kind == Kind::Refused && self.status(&begun, 0).await.is_ok_and(|s| s.status != "waiting") => {}
            other => drop(other?),
        }
        Ok(begun)
    }

    async fn status(&self, begun: &Begun, logs: usize) -> Result<Status> {
        let path = format!("/templates/{}/builds/{}/status", escaped(&begun.template), escaped(&begun.build));
        Ok(self.api.ask_for(Call::get(path).query("logsOffset", logs).query("limit", LOG_PAGE)).await?)
    }

    /// Waits for a build, and tells what it says.
    async fn built(&self, begun: &Begun, image: &str, progress: &Progress) -> Result<()> {
        let end = Instant::now() + BUILDING;
        let (mut seen, mut last) = (0, String::new());
        loop {
            let status = self.status(begun, seen).await?;
            seen += status.log_entries.len();
            if let Some(line) = status.log_entries.last() {
                last.clone_from(&line.message);
                progress.stage(format!("E2B: {last}"));
            }
            match status.status.as_str() {
                "ready" => return Ok(()),
                "error" => {
                    let reason = status.reason.map_or(last, |reason| reason.message);
                    return Err(Error::Failed(format!("E2B could not build a template from {image}: {reason}")));
                }
                _ if Instant::now() > end => {
                    return Err(Error::Failed(format!(
                        "E2B did not build a template from {image} in an hour; it last said: {last}"
                    )));
                }
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    pub(super) async fn state_of_template(&self, name: &str) -> Result<String> {
        let template = self.template(name)?;
        let builds = self.builds(&template_name(name, template, Size::of(Resources::default()))).await?;
        Ok(match builds {
            Some((id, builds)) if builds.iter().any(|build| build.status == "ready") => {
                format!("{} is built ({id})", template.image)
            }
            Some(_) => format!("{} is not built to its end yet", template.image),
            None => format!("{} is built with the first desk", template.image),
        })
    }
}

/// Another image, start command or size is another template.
fn template_name(name: &str, template: &Template, size: Size) -> String {
    let hash = Sha256::digest(format!("{}\n{START}", template.image));
    let short: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let name: String =
        name.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' { c } else { '-' }).collect();
    format!("hotdesk-{name}-{short}-{}c{}m", size.cpus, size.memory_mib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_e2b_takes_and_names_differ_by_them() {
        let size = |cpus, memory_mib| Size::of(Resources { cpus, memory_mib, disk_mib: 0 });
        assert_eq!(size(0.5, 64), Size { cpus: 1, memory_mib: 128 });
        assert_eq!(size(3.0, 4095), Size { cpus: 4, memory_mib: 4096 });
        let template = |image: &str| Template { image: image.into(), registry_user: None, registry_password_file: None };
        let name = template_name("My.base", &template("r/a:1"), size(2.0, 4096));
        assert!(name.starts_with("hotdesk--y-base-") && name.ends_with("-2c4096m"), "{name}");
        assert_ne!(name, template_name("My.base", &template("r/a:2"), size(2.0, 4096)));
    }
}
