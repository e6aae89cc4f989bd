//! Volumes.

use super::Call;
use super::reply::{Failure, Reply};
use hotdesk_api::desk::Desk;
use serde::{Deserialize, Serialize};

/// Where a sandbox has a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mount {
    pub(crate) volume_id: String,
    pub(crate) mount_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subpath: Option<String>,
}

pub(crate) fn mounts(_: &Desk) -> Vec<Mount> {
    Vec::new()
}

pub(crate) async fn wanted(_: &Call, mounts: Vec<Mount>) -> Reply<()> {
    if mounts.is_empty() { Ok(()) } else { Err(Failure::unsupported("no volumes yet")) }
}

pub(crate) async fn answer(_: Call, _: &[&str]) -> Reply {
    Err(Failure::unsupported("no volumes yet"))
}
