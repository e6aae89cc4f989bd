//! A sandbox's life: made, started, stopped, removed; each waited for, each good to be repeated.

use super::{Daytona, LABEL_DESK, LABEL_FLEET, Sandbox, is};
use crate::cloud::{Call, Kind, escaped};
use crate::{DeskSpec, Door, Error, Placed, Progress, Result, Usage};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at a sandbox that changes.
const LOOK: Duration = Duration::from_millis(700);
/// Daytona itself gives up after 30 minutes at the most (a restore from cold storage); the fleet is quicker.
const CHANGE: Duration = Duration::from_secs(1800);
/// The desk's server is up a second after its sandbox, and a busy edge takes longer to know.
const READY: Duration = Duration::from_secs(180);
/// While a desk comes up, its sandbox is looked at so often.
const ALIVE: Duration = Duration::from_secs(3);
/// Usage is of the last minutes.
const MEASURED: Duration = Duration::from_secs(300);
/// A conflict right after a removal is the old name, which is on its way out.
const NAME_FREE: Duration = Duration::from_secs(60);

impl Daytona {
    /// Makes a desk's sandbox and waits until it runs.
    pub(super) async fn make(&self, spec: &DeskSpec, progress: &Progress) -> Result<Sandbox> {
        let snapshot = self.origin(spec, progress).await?;
        let template = self.template(&spec.template)?;
        let mounts = self.mounts(spec).await?;
        let mut env = template.env.clone();
        env.extend(spec.env.clone());
        env.insert("HOTDESK_TOKEN".into(), spec.secret.clone());
        env.insert("HOTDESK_SIZE".into(), format!("{}x{}", spec.screen.width, spec.screen.height));
        if let Some(password) = &spec.vnc_password {
            env.insert("VNC_PASSWORD".into(), password.clone());
        }
        let mut body = json!({
            "name": self.sandbox_name(&spec.id),
            "snapshot": snapshot,
            "user": template.user,
            "env": env,
            "labels": { LABEL_FLEET: self.context.fleet, LABEL_DESK: spec.id, "hotdesk.template": spec.template },
            "public": false,
            "networkBlockAll": !spec.network,
            "autoStopInterval": 0,
            "autoArchiveInterval": self.config.auto_archive_minutes,
            "autoDeleteInterval": -1,
        });
        if let Some(target) = &self.config.target {
            body["target"] = json!(target);
        }
        if !mounts.is_empty() {
            body["volumes"] = json!(mounts);
        }
        progress.stage("Daytona: making the sandbox");
        let end = Instant::now() + NAME_FREE;
        loop {
            // Its name is its token: whatever became of a request that was not answered, the second of the same meets the first.
            match self.api.ask_for::<Sandbox>(Call::post("/sandbox").json(&body).repeatable()).await {
                Ok(sandbox) => return self.settled(sandbox, &["started"], progress).await,
                Err(fault) if is(&fault, Kind::Conflict) => match self.look(&spec.id).await? {
                    Some(sandbox) => return self.running(sandbox, progress).await,
                    None if Instant::now() > end => return Err(fault.into()),
                    None => tokio::time::sleep(LOOK).await,
                },
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Starts a sandbox if it does not run, and waits until it does.
    pub(super) async fn running(&self, mut sandbox: Sandbox, progress: &Progress) -> Result<Sandbox> {
        if matches!(sandbox.state.as_str(), "stopping" | "archiving" | "pausing") {
            sandbox = self.settled(sandbox, &["stopped", "archived", "paused"], progress).await?;
        }
        let verb = match sandbox.state.as_str() {
            "stopped" | "archived" | "paused" => "start",
            "error" if sandbox.recoverable == Some(true) => "recover",
            "started" => return Ok(sandbox),
            _ => return self.settled(sandbox, &["started"], progress).await,
        };
        progress.stage("Daytona: starting the sandbox");
        let call = Call::post(format!("/sandbox/{}/{verb}", escaped(&sandbox.id))).repeatable();
        match self.api.ask(call).await {
            Ok(_) => {}
            // It may have got there by a request whose reply was lost.
            Err(fault) if is(&fault, Kind::Conflict) || is(&fault, Kind::Refused) => {
                let now = self.sandbox(&sandbox.id).await?.unwrap_or_default();
                if !now.is_up() {
                    return Err(fault.into());
                }
            }
            Err(fault) => return Err(fault.into()),
        }
        // What it was before is told for a moment after, too.
        self.forget(&sandbox.id);
        sandbox.state = "starting".into();
        self.settled(sandbox, &["started"], progress).await
    }

    /// Waits for one of some states.
    async fn settled(&self, mut sandbox: Sandbox, wanted: &[&str], progress: &Progress) -> Result<Sandbox> {
        let end = Instant::now() + CHANGE;
        let name = sandbox.name.clone();
        while !wanted.contains(&sandbox.state.as_str()) {
            if sandbox.is_broken() {
                let reason = sandbox.error_reason.unwrap_or_else(|| "no reason was given".into());
                return Err(Error::NotReady(format!("Daytona's sandbox is in the state {}: {reason}", sandbox.state)));
            }
            if Instant::now() > end {
                return Err(Error::NotReady(format!("Daytona's sandbox is still {} after half an hour", sandbox.state)));
            }
            progress.stage(format!("Daytona: the sandbox is {}", sandbox.state));
            tokio::time::sleep(LOOK).await;
            sandbox = self
                .sandbox(&sandbox.id)
                .await?
                .filter(|sandbox| !sandbox.is_gone() || wanted.contains(&sandbox.state.as_str()))
                .ok_or_else(|| Error::NotReady(format!("Daytona's sandbox {name} was removed while it was waited for")))?;
        }
        Ok(sandbox)
    }

    /// Waits until a sandbox that runs is a desk that is ready.
    pub(super) async fn ready(&self, spec: &DeskSpec, sandbox: &Sandbox, progress: &Progress) -> Result<Placed> {
        progress.stage("waiting for the desk's server");
        let placed = self.placed(sandbox).await?;
        let door = Door { address: placed.address.clone(), secret: spec.secret.clone() };
        let told = progress.clone();
        tokio::select! {
            ready = door.wait_ready(READY, move |stage| told.stage(stage), async || None) => ready.map(|()| placed),
            end = self.end_of(&sandbox.id) => Err(end),
        }
    }

    /// Returns when the sandbox does not run any more.
    async fn end_of(&self, sandbox: &str) -> Error {
        loop {
            tokio::time::sleep(ALIVE).await;
            match self.sandbox(sandbox).await {
                Ok(Some(now)) if now.is_up() => {}
                Ok(now) => {
                    let now = now.unwrap_or_default();
                    let reason = now.error_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    return Error::NotReady(format!(
                        "Daytona's sandbox ended while the desk came up (it is {}){reason}",
                        now.state
                    ));
                }
                Err(fault) if fault.passes() => {}
                Err(fault) => return fault.into(),
            }
        }
    }

    pub(super) async fn halt(&self, id: &str) -> Result<()> {
        let (silent, _) = Progress::new();
        let Some(mut sandbox) = self.look(id).await? else { return Ok(()) };
        let quiet = ["stopped", "archived", "archiving", "paused"];
        while !quiet.contains(&sandbox.state.as_str()) && !sandbox.is_broken() {
            match sandbox.state.as_str() {
                "stopping" | "pausing" => sandbox = self.settled(sandbox, &quiet, &silent).await?,
                "started" => {
                    let call = Call::post(format!("/sandbox/{}/stop", escaped(&sandbox.id))).repeatable();
                    match self.api.ask(call).await {
                        Err(fault) if is(&fault, Kind::NotFound) => return Ok(()),
                        Err(fault) if !is(&fault, Kind::Conflict) && !is(&fault, Kind::Refused) => return Err(fault.into()),
                        // In the midst of something, or there already: the next look tells.
                        _ => tokio::time::sleep(LOOK).await,
                    }
                    let Some(now) = self.look(id).await? else { return Ok(()) };
                    sandbox = now;
                }
                // On its way up; it can be stopped when it is there.
                _ => match self.settled(sandbox, &["started", "stopped"], &silent).await {
                    Ok(now) => sandbox = now,
                    Err(Error::NotReady(_)) => return Ok(()),
                    Err(e) => return Err(e),
                },
            }
        }
        self.forget(&sandbox.id);
        Ok(())
    }

    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        let end = Instant::now() + NAME_FREE;
        while let Some(sandbox) = self.look(id).await? {
            match self.api.ask(Call::delete(format!("/sandbox/{}", escaped(&sandbox.id)))).await {
                Err(fault) if is(&fault, Kind::NotFound) => break,
                // Something is being done with it.
                Err(fault) if is(&fault, Kind::Conflict) || is(&fault, Kind::Refused) => {
                    if Instant::now() > end {
                        return Err(fault.into());
                    }
                }
                other => drop(other?),
            }
            self.forget(&sandbox.id);
            tokio::time::sleep(LOOK / 4).await;
        }
        Ok(())
    }

    /// What Daytona measured lately, if it measures.
    pub(super) async fn usage_of(&self, id: &str) -> Result<Usage> {
        #[derive(Deserialize)]
        struct Metrics {
            series: Vec<Series>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Series {
            metric_name: String,
            data_points: Vec<Point>,
        }
        #[derive(Deserialize)]
        struct Point {
            value: f64,
        }
        let sandbox = self.look(id).await?.ok_or_else(|| Error::NotFound(format!("desk {id} has no sandbox at Daytona")))?;
        let now = jiff::Timestamp::now();
        let from = now.checked_sub(MEASURED).unwrap_or(now);
        let call = Call::get(format!("/sandbox/{}/telemetry/metrics", escaped(&sandbox.id))).query("from", from).query("to", now);
        let metrics: Metrics = self.api.ask_for(call).await?;
        let last = |words: &[&str]| {
            let named = metrics.series.iter().find(|s| words.iter().all(|word| s.metric_name.contains(word)));
            named.and_then(|s| s.data_points.last()).map_or(0.0, |point| point.value)
        };
        Ok(Usage {
            cpu_s: last(&["cpu", "time"]),
            memory_bytes: last(&["memory", "usage"]) as u64,
            disk_bytes: last(&["filesystem", "usage"]) as u64,
            processes: 0,
        })
    }

    /// What the desk's server printed: Daytona keeps the words of the entrypoint.
    pub(super) async fn logs_of(&self, id: &str, lines: usize) -> Result<String> {
        #[derive(Deserialize)]
        struct Logs {
            #[serde(default)]
            output: String,
        }
        let sandbox = self.look(id).await?.ok_or_else(|| Error::NotFound(format!("desk {id} has no sandbox at Daytona")))?;
        if sandbox.state != "started" {
            return Ok(sandbox.error_reason.unwrap_or_default());
        }
        let path = format!("/{}/process/session/entrypoint/logs", escaped(&sandbox.id));
        let reply = self.api.ask(Call::get(path).at(&sandbox.toolbox_proxy_url)).await?;
        let text =
            reply.json::<Logs>().map(|logs| logs.output).unwrap_or_else(|_| String::from_utf8_lossy(&reply.body).into_owned());
        let all: Vec<_> = text.lines().collect();
        Ok(all[all.len().saturating_sub(lines)..].join("\n"))
    }
}
