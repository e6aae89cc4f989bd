//! A desk as the fleet knows it: what was asked for, the state it is in, and why.

use crate::action::Size;
use crate::fleet::VolumeMount;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The states of a desk.
///
/// ```text
///            ┌────────────────────────────┐
///            ▼                            │
///  creating ──► running ──► stopping ──► stopped ──► archiving ──► archived
///     │          ▲   │ ▲                  │  │                        │
///     │   starting ◄─┼─┼──────────────────┘  │       restoring ◄──────┘ (then starting)
///     │              ▼ │                     │
///     │          resetting                   │
///     └──► error ◄── any step that failed    │
///            │                               │
///            └──► deleting ◄── any state ────┘
///                    └──► deleted
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Creating,
    Running,
    Stopping,
    Stopped,
    Starting,
    Resetting,
    Archiving,
    Archived,
    Restoring,
    Deleting,
    Deleted,
    Error,
}

/// What a desk may use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    pub cpus: f32,
    pub memory_mib: u64,
    pub disk_mib: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpus: 2.0, memory_mib: 4096, disk_mib: 5120 }
    }
}

/// What a request says about what a desk may use. What it leaves out is as the template or the fleet has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourcesRequest {
    pub cpus: Option<f32>,
    pub memory_mib: Option<u64>,
    pub disk_mib: Option<u64>,
}

impl ResourcesRequest {
    /// What is asked for, and the rest as it is there.
    pub fn or(self, rest: Resources) -> Resources {
        Resources {
            cpus: self.cpus.unwrap_or(rest.cpus),
            memory_mib: self.memory_mib.unwrap_or(rest.memory_mib),
            disk_mib: self.disk_mib.unwrap_or(rest.disk_mib),
        }
    }
}

impl From<Resources> for ResourcesRequest {
    fn from(all: Resources) -> Self {
        Self { cpus: Some(all.cpus), memory_mib: Some(all.memory_mib), disk_mib: Some(all.disk_mib) }
    }
}

/// When a desk is stopped, archived and deleted by itself. Zero means never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Idle seconds after which a running desk is stopped.
    pub auto_stop_s: u64,
    /// Seconds after which a stopped desk is archived.
    pub auto_archive_s: u64,
    /// Seconds after which a stopped or archived desk is deleted.
    pub auto_delete_s: u64,
    /// Seconds from creation after which a desk is deleted, whatever it does.
    pub ttl_s: u64,
    /// At the end of its time to live a running desk is stopped instead of deleted.
    pub end_stops: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { auto_stop_s: 15 * 60, auto_archive_s: 24 * 3600, auto_delete_s: 0, ttl_s: 0, end_stops: false }
    }
}

/// What a request says about when a desk is stopped, archived and deleted by itself. What it leaves out is as the fleet has it, or, for
/// a desk that exists, stays as it is. Zero means never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyRequest {
    /// Idle seconds after which a running desk is stopped.
    pub auto_stop_s: Option<u64>,
    /// Seconds after which a stopped desk is archived.
    pub auto_archive_s: Option<u64>,
    /// Seconds after which a stopped or archived desk is deleted.
    pub auto_delete_s: Option<u64>,
    /// Seconds from creation after which a desk is deleted, whatever it does.
    pub ttl_s: Option<u64>,
    /// At the end of its time to live a running desk is stopped instead of deleted.
    pub end_stops: Option<bool>,
}

impl PolicyRequest {
    /// What is asked for, and the rest as it is there.
    pub fn or(self, rest: Policy) -> Policy {
        Policy {
            auto_stop_s: self.auto_stop_s.unwrap_or(rest.auto_stop_s),
            auto_archive_s: self.auto_archive_s.unwrap_or(rest.auto_archive_s),
            auto_delete_s: self.auto_delete_s.unwrap_or(rest.auto_delete_s),
            ttl_s: self.ttl_s.unwrap_or(rest.ttl_s),
            end_stops: self.end_stops.unwrap_or(rest.end_stops),
        }
    }
}

impl From<Policy> for PolicyRequest {
    fn from(all: Policy) -> Self {
        Self {
            auto_stop_s: Some(all.auto_stop_s),
            auto_archive_s: Some(all.auto_archive_s),
            auto_delete_s: Some(all.auto_delete_s),
            ttl_s: Some(all.ttl_s),
            end_stops: Some(all.end_stops),
        }
    }
}

/// The request for a new desk. Everything has a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NewDesk {
    /// A name for people, unique in its project.
    pub name: Option<String>,
    /// The template (default: `base`).
    pub template: Option<String>,
    /// The snapshot to start from, instead of a template.
    pub snapshot: Option<String>,
    /// The provider (default: the fleet's first).
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Variables of the commands that a dialect starts in the desk, which its own programs do not have. Not part of the API.
    #[serde(skip)]
    #[schema(ignore)]
    pub commands_env: Option<BTreeMap<String, String>>,
    pub resources: ResourcesRequest,
    pub policy: PolicyRequest,
    pub screen: Option<Size>,
    pub vnc_password: Option<String>,
    /// Whether the desk may reach the outside (never the host or other desks).
    pub network: Option<bool>,
    /// Only for keys of the whole fleet: whose desk it is (default: `default`).
    pub project: Option<String>,
    /// Volumes that are mounted in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeMount>>,
    /// Wait for a free place instead of a refusal when a limit is reached, so many seconds.
    pub queue_s: u64,
}

/// What of a desk can be changed while it lives. What is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeskChange {
    pub name: Option<String>,
    /// A value of `null` removes the label.
    pub labels: BTreeMap<String, Option<String>>,
    pub policy: Option<PolicyRequest>,
}

/// A desk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Desk {
    pub id: String,
    pub name: Option<String>,
    pub project: String,
    pub template: String,
    pub snapshot: Option<String>,
    pub provider: String,
    pub state: State,
    /// Why it is in this state.
    pub reason: String,
    pub labels: BTreeMap<String, String>,
    /// The names of the variables that its request gave it. Their values may be secrets and are never told.
    pub env: Vec<String>,
    pub resources: Resources,
    pub policy: Policy,
    pub screen: Size,
    /// RFC 3339.
    pub created_at: String,
    pub changed_at: String,
    /// When it will be deleted by its time to live.
    pub expires_at: Option<String>,
    /// Seconds without a sign of work; only while it runs.
    pub idle_s: Option<u64>,
    /// What counts as work right now, if anything: `api call`, `live view`, `screen changes`, `cpu`, `command`.
    pub busy: Option<String>,
    /// What it cost so far, in the currency of the price list.
    pub cost: f64,
    /// The stage that a step under way is in, for progress.
    pub stage: Option<String>,
    /// Volumes that are mounted in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
}

/// A change of a desk or of the fleet, as it is written to the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows by one.
    pub number: i64,
    /// RFC 3339.
    pub at: String,
    pub desk: Option<String>,
    pub project: Option<String>,
    /// `state`, `stage`, `pool`, `budget`, `key`, …
    pub kind: String,
    pub state: Option<State>,
    pub reason: String,
    /// Who caused it: a key's name, `policy`, `reconcile`, …
    pub by: String,
}

/// A saved desk that any number of desks can start from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    pub id: String,
    pub name: Option<String>,
    pub project: String,
    pub desk: String,
    pub template: String,
    pub provider: String,
    /// Whether programs and their memory are in it too.
    pub memory: bool,
    pub size_bytes: u64,
    pub created_at: String,
    pub state: SnapshotState,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    Creating,
    Ready,
    Deleting,
    Error,
}
