//! Requests and replies of the fleet's API that are not things by themselves: bodies of verbs, lists, and the
//! four routes of `/vm`.

use crate::desk::{Desk, Event, NewDesk, Snapshot};
use crate::fleet::{Budget, Key, Orphan, Pool};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much longer a desk shall live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendDesk {
    /// Seconds from now until its end, at most ten years.
    #[schema(minimum = 1, maximum = 315_360_000)]
    pub by_s: u64,
}

/// What a new snapshot is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewSnapshot {
    pub name: Option<String>,
    /// Whether programs and their memory are saved too; if left out, where the provider can and the desk runs.
    pub memory: Option<bool>,
}

/// What a fork of a desk is: everything that a new desk can have, but for its template and snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ForkDesk {
    /// Whether its programs go on in the fork; if left out, where the provider can and the desk runs.
    pub memory: Option<bool>,
    #[serde(flatten)]
    pub desk: NewDesk,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeskList {
    pub desks: Vec<Desk>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The oldest first.
    pub events: Vec<Event>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    pub snapshots: Vec<Snapshot>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    pub volumes: Vec<crate::fleet::Volume>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolList {
    pub pools: Vec<Pool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    pub keys: Vec<Key>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BudgetList {
    pub budgets: Vec<Budget>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TemplateList {
    pub templates: Vec<TemplateInfo>,
}

/// A template as the fleet offers it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateInfo {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Whether its root file system is ready, so that a desk starts at once.
    pub built: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The newest first.
    pub lines: Vec<AuditLine>,
}

/// Who asked for what, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    /// RFC 3339.
    pub at: String,
    /// Id of the key; `-` if there was no good one.
    pub key: String,
    pub method: String,
    /// Without query and key.
    pub path: String,
    pub status: u16,
    /// The client's address.
    pub from: String,
}

/// What a desk uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeskUsage {
    /// Seconds of processor time since the desk was started.
    pub cpu_s: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub processes: u32,
}

/// Whether the gateway is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alive {
    pub status: String,
    pub version: String,
}

/// Whether the fleet can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    pub ready: bool,
    /// What an operator should look at, though the fleet does its work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What providers have and the fleet has no record of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OrphanList {
    pub orphans: Vec<Orphan>,
}

/// A desk, as `POST /vm/create` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmCreated {
    pub vm_id: String,
    /// The same.
    pub id: String,
    /// `running`
    pub status: String,
    /// Under which the desk's own API is.
    pub url: String,
    /// An OSWorld base URL.
    pub osworld_url: String,
    pub desk: Desk,
}

/// A command, as `POST /vm/{id}/execute` takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VmExecute {
    pub command: VmCommand,
    /// Whether a shell reads the command.
    #[serde(default)]
    pub shell: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum VmCommand {
    Line(String),
    Words(Vec<String>),
}

/// What a command left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmExecuted {
    /// `success`, or `error` if the command could not be run to its end.
    pub status: String,
    pub output: String,
    pub error: String,
    /// -1 if it could not be run to its end.
    pub returncode: i64,
}

/// The end of a desk, as `DELETE /vm/{id}/delete` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmDeleted {
    /// `deleted`, or `deleting` if it takes longer.
    pub status: String,
    pub vm_id: String,
    pub id: String,
}
