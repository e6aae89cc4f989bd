//! A desk as a sandbox: one object that all generations of the SDK accept.

use super::labels;
use crate::app::App;
use crate::credentials::Place;
use crate::entrance::Caller;
use hotdesk_api::desk::{Desk, State};
use serde_json::{Value, json};

/// The region of sandboxes whose makers named none.
pub(crate) const TARGET: &str = "us";
/// Who programs in a sandbox run as.
const USER: &str = "user";
const MIB_PER_GIB: u64 = 1024;
const MINUTE: u64 = 60;
/// A desk with this policy is deleted when it has stopped: Daytona's interval 0.
pub(crate) const AT_ONCE_S: u64 = 1;

/// How far the build of a new sandbox's template is, if it waits for one.
pub(crate) fn building(app: &App, desk: &Desk) -> Option<String> {
    let waits = desk.state == State::Creating && desk.snapshot.is_none();
    waits.then(|| app.fleet.preparation(&desk.provider, &desk.template)).flatten()
}

/// The state of a sandbox, as it is now.
pub(crate) fn state_of(app: &App, desk: &Desk) -> &'static str {
    match building(app, desk) {
        Some(_) if snapshot(desk).is_none() => "building_snapshot",
        Some(_) => "pulling_snapshot",
        None => state(desk.state),
    }
}

/// `creating`, `started`, …: only words that every generation knows.
pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Creating => "creating",
        State::Running => "started",
        State::Stopping => "stopping",
        State::Stopped => "stopped",
        State::Starting | State::Resetting => "starting",
        State::Archiving => "archiving",
        State::Archived => "archived",
        State::Restoring => "restoring",
        State::Deleting => "destroying",
        State::Deleted => "destroyed",
        State::Error => "error",
    }
}

fn desired(state: State) -> &'static str {
    match state {
        State::Stopping | State::Stopped => "stopped",
        State::Archiving | State::Archived => "archived",
        State::Deleting | State::Deleted => "destroyed",
        _ => "started",
    }
}

/// The snapshot that a sandbox was made from, if it was.
pub(crate) fn snapshot(desk: &Desk) -> Option<&str> {
    match desk.labels.get(labels::SNAPSHOT) {
        Some(name) if name.is_empty() => None,
        Some(name) => Some(name),
        None => Some(desk.snapshot.as_deref().unwrap_or(&desk.template)),
    }
}

pub(crate) fn sandbox(app: &App, caller: &Caller, desk: &Desk) -> Value {
    let policy = &desk.policy;
    let active = desk.idle_s.and_then(|idle| {
        let idle = jiff::SignedDuration::from_secs(i64::try_from(idle).ok()?);
        jiff::Timestamp::now().checked_sub(idle).ok().map(|at| at.to_string())
    });
    let failed = desk.state == State::Error;
    let reason = failed.then(|| desk.reason.clone()).or_else(|| {
        let (stage, template) = (building(app, desk)?, &desk.template);
        Some(format!("the template {template} is being built: {stage}; `hotdesk template build {template}` builds it ahead"))
    });
    // Daytona's clients are told the values, which whoever may use a sandbox can read in it.
    let mut env = app.fleet.environment(&caller.who, &desk.id).unwrap_or_default();
    env.remove(hotdesk_api::shell::ENTRYPOINT_VARIABLE);
    let mut view = json!({
        "id": desk.id,
        "organizationId": desk.project,
        "name": desk.name.as_deref().unwrap_or(&desk.id),
        "target": desk.labels.get(labels::TARGET).map_or(TARGET, String::as_str),
        "user": USER,
        "env": env,
        "labels": labels::seen(desk),
        "public": labels::is_public(desk),
        "networkBlockAll": app.fleet.has_network(&desk.id) == Some(false),
        "kvm": false,
        "spot": false,
        "cpu": desk.resources.cpus.ceil() as u64,
        "gpu": 0,
        "memory": desk.resources.memory_mib.div_ceil(MIB_PER_GIB),
        "disk": desk.resources.disk_mib.div_ceil(MIB_PER_GIB),
    });
    let more = json!({
        "toolboxProxyUrl": format!("{}/daytona/toolbox", base_with_key(app, caller)),
        "state": state_of(app, desk),
        "desiredState": desired(desk.state),
        "errorReason": reason,
        "recoverable": failed,
        "backupState": "None",
        "autoStopInterval": policy.auto_stop_s.div_ceil(MINUTE),
        "autoArchiveInterval": policy.auto_archive_s.div_ceil(MINUTE),
        "autoDeleteInterval": auto_delete(policy.auto_delete_s),
        "autoPauseInterval": 0,
        "volumes": super::volumes::mounts(desk),
        "createdAt": desk.created_at,
        "updatedAt": desk.changed_at,
        "sandboxClass": "container",
        "class": "small",
        "daemonVersion": env!("CARGO_PKG_VERSION"),
        "runnerDomain": "",
    });
    if let (Some(view), Value::Object(more)) = (view.as_object_mut(), more) {
        view.extend(more);
    }
    if let Some(name) = snapshot(desk) {
        view["snapshot"] = name.into();
    }
    if let Some(at) = active {
        view["lastActivityAt"] = at.into();
    }
    if let Some(at) = &desk.expires_at {
        view["autoDestroyAt"] = at.as_str().into();
    }
    view
}

fn auto_delete(seconds: u64) -> i64 {
    match seconds {
        0 => -1,
        AT_ONCE_S => 0,
        seconds => i64::try_from(seconds.div_ceil(MINUTE)).unwrap_or(i64::MAX),
    }
}

/// What stands before the paths of addresses that we hand out.
pub(crate) fn base(app: &App, caller: &Caller) -> String {
    match &app.public {
        Some(public) => format!("{}://{}{}", if public.https { "https" } else { "http" }, public.host, public.path),
        None => {
            let scheme = if caller.peer.tls { "https" } else { "http" };
            format!("{scheme}://{}", caller.host.as_deref().unwrap_or("localhost"))
        }
    }
}

/// The same for a client that has its key in addresses.
fn base_with_key(app: &App, caller: &Caller) -> String {
    match caller.place {
        Place::Header => base(app, caller),
        Place::Address => format!("{}/k/{}", base(app, caller), caller.secret.reveal()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_deletion() {
        assert_eq!((auto_delete(0), auto_delete(AT_ONCE_S), auto_delete(1800)), (-1, 0, 30));
    }
}
