//! Daytona's own volumes: found by name, made if they are missing, waited for.

use super::{Daytona, is, unsupported};
use crate::cloud::{Call, Kind, escaped, gone_is_none};
use crate::{DeskSpec, Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A volume is a bucket; making one takes seconds.
const MAKING: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    id: String,
    state: String,
    #[serde(default)]
    error_reason: Option<String>,
}

impl Daytona {
    /// What a sandbox is to mount: the template's volumes and the desk's. The files of both are at Daytona.
    pub(super) async fn mounts(&self, spec: &DeskSpec) -> Result<Vec<Value>> {
        let mut mounts = Vec::new();
        for (name, at) in &self.template(&spec.template)?.volumes {
            mounts.push(json!({"volumeId": self.volume(name).await?, "mountPath": at}));
        }
        for place in &spec.volumes {
            if place.read_only || place.source.is_some() {
                let what = if place.read_only { "a volume that is read-only" } else { "a volume that is a bucket of your own" };
                return Err(unsupported(what, "Daytona's volumes are its own, and can be written"));
            }
            let name = format!("hotdesk-{}-{}", self.context.fleet, place.volume);
            let mut mount = json!({"volumeId": self.volume(&name).await?, "mountPath": place.at});
            if let Some(subpath) = &place.subpath {
                mount["subpath"] = json!(subpath.trim_start_matches('/'));
            }
            mounts.push(mount);
        }
        Ok(mounts)
    }

    /// The id of a volume that is ready.
    async fn volume(&self, name: &str) -> Result<String> {
        let end = Instant::now() + MAKING;
        loop {
            let found: Option<Volume> =
                gone_is_none(self.api.ask_for(Call::get(format!("/volumes/by-name/{}", escaped(name)))).await)?;
            match found {
                None => match self.api.ask(Call::post("/volumes").json(json!({"name": name})).repeatable()).await {
                    // Its name is unique; Daytona says so with either.
                    Err(fault)
                        if is(&fault, Kind::Conflict)
                            || is(&fault, Kind::Refused) && fault.message.contains("already exists") => {}
                    other => drop(other?),
                },
                Some(volume) if volume.state == "ready" => return Ok(volume.id),
                Some(volume) if volume.state == "error" => {
                    let reason = volume.error_reason.unwrap_or_default();
                    return Err(Error::Failed(format!("Daytona's volume {name} is broken: {reason}")));
                }
                Some(_) => {}
            }
            if Instant::now() > end {
                return Err(Error::Failed(format!("Daytona's volume {name} was not ready after two minutes")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
