//! New sandboxes.

use super::reply::{Failure, Reply, ok};
use super::{Call, images, labels, snapshots, view, volumes};
use crate::app::App;
use crate::v1::arrived;
use hotdesk_api::action::Size;
use hotdesk_api::desk::{NewDesk, Policy, ResourcesRequest};
use hotdesk_api::shell::ENTRYPOINT_VARIABLE;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a create waits for the sandbox: SDKs ask again each second, and give up after 60 s in all.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);
const MINUTE: u64 = 60;
const AUTO_STOP_MINUTES: u64 = 15;
const AUTO_ARCHIVE_MINUTES: u64 = 7 * 24 * 60;
/// What an interval of 0 means for archiving: the longest, 30 days.
const LONGEST_ARCHIVE_MINUTES: u64 = 30 * 24 * 60;
/// Of the desk; longer ones are refused there.
const LONGEST_VNC_PASSWORD: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NewSandbox {
    name: Option<String>,
    snapshot: Option<String>,
    env: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
    public: Option<bool>,
    target: Option<String>,
    cpu: Option<f32>,
    gpu: Option<f32>,
    memory: Option<f64>,
    disk: Option<f64>,
    auto_stop_interval: Option<i64>,
    auto_archive_interval: Option<i64>,
    auto_delete_interval: Option<i64>,
    auto_pause_interval: Option<i64>,
    ttl_minutes: Option<i64>,
    queue_timeout: Option<u64>,
    volumes: Option<Vec<volumes::Mount>>,
    build_info: Option<BuildInfo>,
    network_block_all: Option<bool>,
    network_allow_list: Option<String>,
    domain_allow_list: Option<String>,
    outbound_proxy_url: Option<String>,
    kvm: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BuildInfo {
    pub(crate) dockerfile_content: String,
    pub(crate) context_hashes: Option<Vec<String>>,
}

/// What a sandbox is made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub(crate) template: Option<String>,
    /// Of the fleet.
    pub(crate) snapshot: Option<String>,
    pub(crate) resources: ResourcesRequest,
    pub(crate) env: BTreeMap<String, String>,
    /// A shell command that its sandboxes run with each start.
    pub(crate) entrypoint: Option<String>,
}

pub(crate) async fn create(mut call: Call) -> Reply {
    let new: NewSandbox = call.json().await?;
    let desk = desired(&call, new).await?;
    let desk = call.app.fleet.create(&call.caller.who, desk, None).await?;
    // A template that is built first takes minutes: the client is told at once that it has to wait, and asks again.
    let limit = if view::building(&call.app, &desk).is_some() { Duration::ZERO } else { START_LIMIT };
    let desk = arrived(&call.app, &call.caller.who, desk, limit).await?;
    ok(view::sandbox(&call.app, &call.caller, &desk))
}

async fn desired(call: &Call, new: NewSandbox) -> Reply<NewDesk> {
    if new.gpu.is_some_and(|gpu| gpu > 0.0) || new.kvm == Some(true) {
        return Err(Failure::unsupported("sandboxes here have neither a GPU nor nested virtualisation"));
    }
    if new.auto_pause_interval.is_some_and(|minutes| minutes > 0) {
        return Err(Failure::unsupported("sandboxes here are stopped, not paused: use the auto-stop interval"));
    }
    // A sandbox has the whole network or none; a cage that is not there must not be believed in.
    for (name, wish) in [
        ("networkAllowList", &new.network_allow_list),
        ("domainAllowList", &new.domain_allow_list),
        ("outboundProxyUrl", &new.outbound_proxy_url),
    ] {
        if wish.as_ref().is_some_and(|wish| !wish.trim().is_empty()) {
            return Err(Failure::unsupported(format!(
                "{name} can't be enforced here: a sandbox has a network or, with networkBlockAll, none"
            )));
        }
    }
    let (origin, named) = match (&new.build_info, &new.snapshot) {
        (Some(_), Some(_)) => return Err(Failure::bad_request("give either a snapshot or an image, not both")),
        (Some(build), None) => (snapshots::built(call, build).await?, Some(String::new())),
        (None, Some(name)) => (snapshots::origin(call, name).await?, Some(name.clone())),
        (None, None) => (Origin::default(), None),
    };
    let mut hidden = BTreeMap::from([(labels::START.to_owned(), labels::fresh_start())]);
    // Without a word of the client's it is the template that the sandbox gets, which is seen in the desk.
    if let Some(named) = named {
        hidden.insert(labels::SNAPSHOT.into(), named);
    }
    if new.public == Some(true) {
        hidden.insert(labels::PUBLIC.into(), "true".into());
    }
    if let Some(target) = new.target.filter(|target| target != view::TARGET) {
        hidden.insert(labels::TARGET.into(), target);
    }
    let mut all = new.labels.unwrap_or_default();
    all.retain(|name, _| !labels::hidden(name));
    all.extend(hidden);
    let mut env = origin.env;
    env.extend(new.env.unwrap_or_default());
    env.extend(origin.entrypoint.map(|command| (ENTRYPOINT_VARIABLE.to_owned(), command)));
    // What neither the client nor its snapshot says is the template's.
    let resources = sized(origin.resources, new.cpu, new.memory, new.disk);
    Ok(NewDesk {
        name: new.name.filter(|name| !name.is_empty()),
        template: origin.template,
        snapshot: origin.snapshot,
        screen: screen(&env),
        vnc_password: env.get("VNC_PASSWORD").filter(|p| !p.is_empty() && p.len() <= LONGEST_VNC_PASSWORD).cloned(),
        env: Some(env),
        labels: Some(all),
        resources,
        policy: Policy {
            end_stops: false,
            auto_stop_s: stop_seconds(new.auto_stop_interval.unwrap_or(AUTO_STOP_MINUTES as i64))?,
            auto_archive_s: archive_seconds(new.auto_archive_interval.unwrap_or(AUTO_ARCHIVE_MINUTES as i64))?,
            auto_delete_s: delete_seconds(new.auto_delete_interval.unwrap_or(-1)),
            ttl_s: minutes("ttlMinutes", new.ttl_minutes.unwrap_or(0))?,
        }
        .into(),
        network: new.network_block_all.filter(|block| *block).map(|_| false),
        queue_s: new.queue_timeout.unwrap_or(0).saturating_mul(MINUTE).min(3600),
        volumes: Some(volumes::wanted(call, new.volumes.unwrap_or_default()).await?),
        ..NewDesk::default()
    })
}

/// What a client says, over what its snapshot says. GiB as clients count, in MiB as we do.
pub(crate) fn sized(base: ResourcesRequest, cpu: Option<f32>, memory: Option<f64>, disk: Option<f64>) -> ResourcesRequest {
    let mib = |gib: f64| (gib * 1024.0).round().max(0.0) as u64;
    ResourcesRequest {
        cpus: cpu.or(base.cpus),
        memory_mib: memory.map(mib).or(base.memory_mib),
        disk_mib: disk.map(mib).or(base.disk_mib),
    }
}

fn minutes(what: &str, minutes: i64) -> Reply<u64> {
    let minutes = u64::try_from(minutes).map_err(|_| Failure::bad_request(format!("{what} must not be negative: {minutes}")))?;
    Ok(minutes.saturating_mul(MINUTE))
}

pub(crate) fn stop_seconds(interval: i64) -> Reply<u64> {
    minutes("Auto-stop interval", interval)
}

pub(crate) fn archive_seconds(interval: i64) -> Reply<u64> {
    match minutes("Auto-archive interval", interval)? {
        0 => Ok(LONGEST_ARCHIVE_MINUTES * MINUTE),
        seconds => Ok(seconds.min(LONGEST_ARCHIVE_MINUTES * MINUTE)),
    }
}

/// Negative is never, and 0 as soon as it has stopped.
pub(crate) fn delete_seconds(interval: i64) -> u64 {
    match u64::try_from(interval) {
        Err(_) => 0,
        Ok(0) => view::AT_ONCE_S,
        Ok(minutes) => minutes.saturating_mul(MINUTE),
    }
}

/// The size of the screen as Daytona's desktops are told it, or OpenManus's.
fn screen(env: &BTreeMap<String, String>) -> Option<Size> {
    let text = env.get("VNC_RESOLUTION").or_else(|| env.get("RESOLUTION"))?;
    let mut sides = text.split('x');
    let mut side = || sides.next()?.trim().parse().ok().filter(|side| (64..=16_384).contains(side));
    Some(Size { width: side()?, height: side()? })
}

/// The template of the fleet that a sandbox of an image gets.
pub(crate) fn of_image(app: &App, text: &str) -> Reply<(String, images::Recipe)> {
    let recipe = images::recipe(text)?;
    Ok((app.config.images.template(&app.images, &recipe.image)?, recipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_minutes() {
        assert_eq!((stop_seconds(0).unwrap(), stop_seconds(7).unwrap()), (0, 420));
        assert!(stop_seconds(-1).is_err() && archive_seconds(-1).is_err());
        assert_eq!(archive_seconds(0).unwrap(), 30 * 24 * 3600);
        assert_eq!((delete_seconds(-1), delete_seconds(0), delete_seconds(30)), (0, view::AT_ONCE_S, 1800));
    }

    #[test]
    fn screens_come_from_the_environment() {
        let env = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(screen(&env("VNC_RESOLUTION", "1280x720")), Some(Size { width: 1280, height: 720 }));
        assert_eq!(screen(&env("RESOLUTION", "1024x768x24")), Some(Size { width: 1024, height: 768 }));
        assert_eq!(screen(&env("RESOLUTION", "wide")), None);
    }
}
