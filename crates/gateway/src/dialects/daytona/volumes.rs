//! Volumes: those of the fleet.

use super::reply::{Failure, Reply, empty, ok};
use super::{Call, api};
use axum::http::{Method, StatusCode};
use hotdesk_api::desk::Desk;
use hotdesk_api::fleet::{NewVolume, Volume, VolumeMount};
use hotdesk_fleet::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where Daytona lets nobody mount, nor below.
const SYSTEM: [&str; 9] = ["/proc", "/sys", "/dev", "/boot", "/etc", "/bin", "/sbin", "/lib", "/lib64"];

/// Where a sandbox has a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mount {
    pub(crate) volume_id: String,
    pub(crate) mount_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subpath: Option<String>,
}

pub(crate) fn mounts(desk: &Desk) -> Vec<Mount> {
    let mount = |mount: &VolumeMount| Mount {
        volume_id: mount.volume.clone(),
        mount_path: mount.at.clone(),
        subpath: mount.subpath.clone(),
    };
    desk.volumes.iter().map(mount).collect()
}

/// Mounts of a new sandbox, checked as Daytona does before the fleet checks them.
pub(crate) async fn wanted(call: &Call, mounts: Vec<Mount>) -> Reply<Vec<VolumeMount>> {
    let mut wanted = Vec::new();
    for mount in mounts {
        check(&mount.mount_path)?;
        let volume = find(call, &mount.volume_id).await?.ok_or_else(|| missing(&mount.volume_id))?;
        let subpath = mount.subpath.filter(|path| !path.is_empty());
        wanted.push(VolumeMount { volume: volume.id, at: mount.mount_path, read_only: false, subpath });
    }
    Ok(wanted)
}

fn check(path: &str) -> Reply<()> {
    let wrong = |why: &str| Err(Failure::bad_request(format!("Invalid mount path {path}: {why}")));
    if !path.starts_with('/') {
        return wrong("it must be absolute");
    }
    if path.trim_matches('/').is_empty() {
        return wrong("a volume can't take the place of the whole file system");
    }
    if path.contains("//") || path.split('/').any(|part| part == "." || part == "..") {
        return wrong("it must not have empty parts, `.` or `..`");
    }
    if SYSTEM.iter().any(|system| path == *system || path.strip_prefix(system).is_some_and(|rest| rest.starts_with('/'))) {
        return wrong("it is a directory of the system");
    }
    Ok(())
}

async fn find(call: &Call, id: &str) -> Reply<Option<Volume>> {
    match call.app.fleet.volume(&call.caller.who, id).await {
        Ok(volume) => Ok(Some(volume)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// By these words the oldest release knows that it may make one.
fn missing(name: &str) -> Failure {
    Failure::not_found(format!("Volume with name {name} not found"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct New {
    name: String,
}

pub(crate) async fn answer(mut call: Call, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::GET, []) => {
            let all = call.app.fleet.volumes(&call.caller.who).await?;
            ok(all.iter().map(view).collect::<Vec<_>>())
        }
        (&Method::POST, []) => {
            let New { name } = call.json().await?;
            let new = NewVolume { name, ..NewVolume::default() };
            let volume = call.app.fleet.create_volume(&call.caller.who, new).await.map_err(|error| match error {
                Error::Conflict(reason) => Failure::bad_request(reason),
                error => error.into(),
            })?;
            ok(view(&volume))
        }
        (&Method::GET, ["by-name", id] | [id]) => ok(view(&find(&call, id).await?.ok_or_else(|| missing(id))?)),
        (&Method::DELETE, [id]) => {
            let volume = find(&call, id).await?.ok_or_else(|| missing(id))?;
            call.app.fleet.delete_volume(&call.caller.who, &volume.id).await?;
            empty(StatusCode::OK)
        }
        _ => Err(api::nothing(&call)),
    }
}

fn view(volume: &Volume) -> Value {
    json!({
        "id": volume.id,
        "name": volume.name,
        "organizationId": volume.project,
        "state": "ready",
        "createdAt": volume.created_at,
        "updatedAt": volume.created_at,
        "lastUsedAt": null,
        "errorReason": null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_checked() {
        for path in ["/mnt/data", "/vm", "/home/user/x", "/etcetera"] {
            assert!(check(path).is_ok(), "{path}");
        }
        for path in ["/", "//", "relative", "", "/a/../b", "/a/./b", "/a//b", "/etc", "/etc/x", "/proc/x"] {
            assert!(check(path).is_err(), "{path}");
        }
    }
}
