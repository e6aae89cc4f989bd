//! A sandbox's life: made, resumed, paused, killed; each good to be repeated.

use super::sandbox::{Access, Known};
use super::{META_DESK, META_FLEET, NAME, Team, template, unsupported};
use crate::cloud::{Call, Fault, Kind, Patience, escaped, fresh_token, gone_is_good};
use crate::{DeskSpec, Door, Error, Placed, Progress, Result, Usage};
use serde::Deserialize;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at a desk that comes up.
const LOOK: Duration = Duration::from_millis(200);
const READY: Duration = Duration::from_secs(120);
/// A resumed desk answers at once; its sandbox may be new to the edge.
const GOES_ON: Duration = Duration::from_secs(10);
/// A log is asked for in one piece.
const MOST_LINES: usize = 1000;

impl Team {
    /// Makes a desk's sandbox.
    pub(super) async fn make(&self, spec: &DeskSpec, progress: &Progress) -> Result<Access> {
        if !spec.volumes.is_empty() {
            return Err(unsupported("a volume", "E2B's volumes are not used by this provider"));
        }
        let origin = self.origin(spec, progress).await?;
        let body = json!({
            "templateID": origin,
            "timeout": self.config.timeout_s,
            "autoPause": true,
            "secure": true,
            "allow_internet_access": spec.network,
            "network": { "allowPublicTraffic": false },
            "metadata": { META_FLEET: self.context.fleet, META_DESK: spec.id },
            "envVars": {},
        });
        progress.stage("E2B: making the sandbox");
        // One for all tries, another for the next desk of this id.
        let token = fresh_token();
        let mut tries = Patience::default().begin();
        loop {
            let fault = match self.request(&body, &token).await {
                Err(fault) if fault.passes() => fault,
                other => return Ok(other?),
            };
            // Whether it was made is not known; if it was, it can be found.
            if fault.kind != Kind::Slow
                && let Ok(Some(listed)) = self.look(&spec.id).await
            {
                return self.connect(&listed.sandbox_id, progress).await;
            }
            tries.pause(fault).await?;
        }
    }

    async fn request(&self, body: &serde_json::Value, token: &str) -> Result<Access, Fault> {
        if !self.old.load(Ordering::Relaxed) {
            let call = Call::post("/v2/sandboxes").header("idempotency-key", token).json(body).repeatable();
            match self.api.ask_for(call).await {
                Err(fault) if is_old(&fault) => self.old.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        self.api.ask_for(Call::post("/sandboxes").json(body)).await
    }

    /// Wakes a sandbox if it is paused, and tells what opens it.
    pub(super) async fn connect(&self, sandbox: &str, progress: &Progress) -> Result<Access> {
        progress.stage("E2B: resuming the sandbox");
        let mut tries = Patience::default().begin();
        loop {
            match self.resume(sandbox).await {
                // It is just being paused.
                Err(fault) if fault.kind == Kind::Conflict => tries.pause(fault).await?,
                other => return Ok(other?),
            }
        }
    }

    async fn resume(&self, sandbox: &str) -> Result<Access, Fault> {
        let body = json!({ "timeout": self.config.timeout_s });
        if !self.old.load(Ordering::Relaxed) {
            let call = Call::post(format!("/v2/sandboxes/{}/connect", escaped(sandbox))).json(&body).repeatable();
            match self.api.ask_for(call).await {
                Err(fault) if is_old(&fault) => self.old.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        self.api.ask_for(Call::post(format!("/sandboxes/{}/connect", escaped(sandbox))).json(&body).repeatable()).await
    }

    /// Sees to it that the sandbox's desk is this one, and waits until it is ready.
    pub(super) async fn ready(&self, spec: &DeskSpec, access: &Access, fresh: bool, progress: &Progress) -> Result<Placed> {
        let placed = self.placed(access)?;
        let door = Door { address: placed.address.clone(), secret: spec.secret.clone() };
        progress.stage("waiting for the desk's server");
        // A desk that goes on knows its token already, and must not be started anew because the edge is slow to find it.
        if fresh || !self.goes_on(&door).await {
            self.put(access, template::SETTINGS, &settings(spec)?).await?;
            let end = Instant::now() + READY;
            while door.opens().await != Some(true) {
                if Instant::now() > end {
                    return Err(Error::NotReady("its server did not start in its sandbox at E2B".into()));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        let told = progress.clone();
        door.wait_ready(READY, move |stage| told.stage(stage), async || None).await?;
        self.remember(&spec.id, Known { sandbox: access.sandbox_id.clone(), placed: placed.clone() });
        Ok(placed)
    }

    /// Whether there is a desk that takes this token. No answer for a while is none.
    async fn goes_on(&self, door: &Door) -> bool {
        let end = Instant::now() + GOES_ON;
        loop {
            match door.opens().await {
                Some(opens) => return opens,
                None if Instant::now() > end => return false,
                None => tokio::time::sleep(LOOK).await,
            }
        }
    }

    pub(super) async fn pause(&self, id: &str) -> Result<()> {
        let Some(listed) = self.look(id).await?.filter(|listed| listed.is_running()) else { return Ok(()) };
        let call = Call::post(format!("/sandboxes/{}/pause", escaped(&listed.sandbox_id))).json(json!({})).repeatable();
        match self.api.ask(call).await {
            // Paused already, as it is after a reply that got lost; or gone.
            Err(fault) if matches!(fault.kind, Kind::Conflict | Kind::NotFound) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Removes all that a desk has.
    pub(super) async fn kill(&self, id: &str) -> Result<()> {
        for listed in self.sandboxes(Some(id)).await? {
            self.kill_one(&listed.sandbox_id).await?;
        }
        self.forget(id);
        Ok(())
    }

    pub(super) async fn kill_one(&self, sandbox: &str) -> Result<()> {
        Ok(gone_is_good(self.api.ask(Call::delete(format!("/sandboxes/{}", escaped(sandbox)))).await)?)
    }

    pub(super) async fn usage_of(&self, id: &str) -> Result<Usage> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metric {
            timestamp_unix: i64,
            cpu_count: f64,
            cpu_used_pct: f64,
            mem_used: u64,
            disk_used: u64,
        }
        let listed = self.look(id).await?.ok_or_else(|| Error::NotFound(format!("desk {id} has no sandbox at E2B")))?;
        let call = Call::get(format!("/sandboxes/{}/metrics", escaped(&listed.sandbox_id)))
            .query("start", listed.started_at.as_second())
            .query("end", jiff::Timestamp::now().as_second());
        let metrics: Vec<Metric> = self.api.ask_for(call).await?;
        // Percent of all CPUs at moments: each counts for the time since the one before.
        let mut since = listed.started_at.as_second();
        let mut cpu_s = 0.0;
        for metric in &metrics {
            cpu_s += (metric.timestamp_unix - since).max(0) as f64 * metric.cpu_used_pct / 100.0 * metric.cpu_count;
            since = metric.timestamp_unix;
        }
        let (memory_bytes, disk_bytes) = metrics.last().map_or((0, 0), |last| (last.mem_used, last.disk_used));
        Ok(Usage { cpu_s, memory_bytes, disk_bytes, processes: 0 })
    }

    pub(super) async fn logs_of(&self, id: &str, lines: usize) -> Result<String> {
        #[derive(Deserialize)]
        struct Logs {
            logs: Vec<Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            timestamp: String,
            message: String,
        }
        let listed = self.look(id).await?.ok_or_else(|| Error::NotFound(format!("desk {id} has no sandbox at E2B")))?;
        let call = Call::get(format!("/v2/sandboxes/{}/logs", escaped(&listed.sandbox_id)))
            .query("limit", lines.clamp(1, MOST_LINES))
            .query("direction", "backward");
        let mut logs: Logs = self.api.ask_for(call).await?;
        logs.logs.sort_by(|a, b| a.timestamp.cmp(&b.timestamp));
        let mut text = String::new();
        for entry in logs.logs {
            let _ = writeln!(text, "{} {}", entry.timestamp, entry.message);
        }
        Ok(text)
    }
}

/// Whether a refusal means that the server does not know this call. A template or sandbox that is unknown is told with the same status.
fn is_old(fault: &Fault) -> bool {
    let said = fault.message.to_ascii_lowercase();
    fault.status == Some(405) || (fault.status == Some(404) && !said.contains("sandbox") && !said.contains("template"))
}

/// The desk's settings as lines that a shell reads. The last one says that it is whole.
fn settings(spec: &DeskSpec) -> Result<String> {
    let mut text = String::new();
    let size = format!("{}x{}", spec.screen.width, spec.screen.height);
    let own =
        [("HOTDESK_TOKEN", Some(&spec.secret)), ("HOTDESK_SIZE", Some(&size)), ("VNC_PASSWORD", spec.vnc_password.as_ref())];
    let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
    for (name, value) in spec.env.iter().map(|(name, value)| (name.as_str(), value)).chain(own) {
        let plain =
            name.bytes().enumerate().all(|(at, b)| b == b'_' || b.is_ascii_alphabetic() || (at > 0 && b.is_ascii_digit()));
        let value = shlex::try_quote(value).ok().filter(|_| plain && !name.is_empty());
        let value = value.ok_or_else(|| Error::Failed(format!("the variable {name} can't be handed to a desk at {NAME}")))?;
        let _ = writeln!(text, "{name}={value}");
    }
    text.push_str(template::WHOLE);
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::action::Size;

    #[test]
    fn settings_are_read_by_a_shell_as_they_are() {
        let odd = "it's \"odd\" $HOME `x`\nnext";
        let spec = DeskSpec {
            id: "d-1".into(),
            template: "base".into(),
            snapshot: None,
            resources: Default::default(),
            screen: Size { width: 800, height: 600 },
            env: [("ODD".to_owned(), odd.to_owned())].into(),
            labels: Default::default(),
            network: true,
            vnc_password: None,
            secret: "s3cret".into(),
            volumes: Vec::new(),
        };
        let text = settings(&spec).unwrap();
        assert!(text.ends_with("# whole\n"), "{text}");
        let script = format!("{text}printf %s \"$ODD|$HOTDESK_TOKEN|$HOTDESK_SIZE\"");
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), format!("{odd}|s3cret|800x600"));
        let bad = DeskSpec { env: [("A B".to_owned(), String::new())].into(), ..spec };
        assert!(settings(&bad).is_err());
    }
}
