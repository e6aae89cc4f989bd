//! The fleet: pools, keys, limits, money.

use crate::desk::{Policy, ResourcesRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Desks kept ready for a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    pub template: String,
    #[serde(default)]
    pub provider: Option<String>,
    /// At least so many are kept ready.
    pub min: u32,
    /// Never more than so many.
    pub max: u32,
    #[serde(default)]
    pub resources: ResourcesRequest,
    /// Most money per hour that the desks kept ready may cost, for providers that bill; none: no bound but `max`.
    #[serde(default)]
    pub max_hourly: Option<f64>,
    /// Seconds without demand after which one desk fewer is kept ready, down to `min`.
    #[serde(default = "cool_down")]
    pub cool_down_s: u64,
}

fn cool_down() -> u64 {
    60
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    #[serde(flatten)]
    pub spec: PoolSpec,
    /// The number that demand asks for now, between `min` and `max`.
    pub target: u32,
    pub ready: u32,
    pub filling: u32,
    pub claims: u64,
    pub misses: u64,
}

/// What a key may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Scope {
    Admin,
    Project { project: String },
    Desk { desk: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    pub id: String,
    pub name: String,
    pub scope: Scope,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub revoked_at: Option<String>,
    pub last_used_at: Option<String>,
    /// Most desks at once with this key; none: the project's limit.
    pub max_desks: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    pub name: String,
    pub scope: Scope,
    #[serde(default)]
    pub ttl_s: u64,
    #[serde(default)]
    pub max_desks: Option<u32>,
}

/// A key and its secret, which is shown once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MadeKey {
    pub key: Key,
    pub secret: String,
}

/// Money spent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Costs {
    pub currency: String,
    pub total: f64,
    pub today: f64,
    pub by_project: BTreeMap<String, f64>,
    pub by_day: BTreeMap<String, f64>,
}

/// What a project may spend in a day or in all; an alert at a share of it, a hard stop at the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub project: String,
    #[serde(default)]
    pub per_day: Option<f64>,
    #[serde(default)]
    pub total: Option<f64>,
    /// Share of the budget, 0 to 1, at which the webhook is called.
    #[serde(default = "alert_share")]
    pub alert_at: f64,
    #[serde(default)]
    pub webhook: Option<String>,
}

fn alert_share() -> f64 {
    0.8
}

/// Files that outlive desks: mounted into as many as want them, or into one at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    pub id: String,
    /// Unique in its project.
    pub name: String,
    pub project: String,
    /// Where its files come from; none: a directory of the fleet.
    pub source: Option<String>,
    /// One desk at a time.
    pub exclusive: bool,
    /// RFC 3339.
    pub created_at: String,
    /// Names, or else ids, of the desks that have it, whether they run or not.
    pub desks: Vec<String>,
}

/// The request for a new volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    pub name: String,
    /// Only for keys of the whole fleet: whose volume it is (default: `default`).
    #[serde(default)]
    pub project: Option<String>,
    #[serde(default)]
    pub source: Option<String>,
    /// One desk at a time.
    #[serde(default)]
    pub exclusive: bool,
}

/// A volume in a desk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// Name or id.
    pub volume: String,
    /// The directory inside, anywhere but `/`.
    pub at: String,
    #[serde(default)]
    pub read_only: bool,
    /// Only this directory of the volume; it is made if it is missing.
    #[serde(default)]
    pub subpath: Option<String>,
}

/// Numbers of the fleet at a glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FleetInfo {
    pub version: String,
    pub desks: BTreeMap<String, u32>,
    pub max_desks: u32,
    pub cpus: f32,
    pub cpus_promised: f32,
    pub memory_mib: u64,
    pub memory_promised_mib: u64,
    pub providers: Vec<ProviderInfo>,
    pub default_policy: Policy,
}

/// A provider and what it can do here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProviderInfo {
    pub name: String,
    pub ready: bool,
    pub reason: String,
    pub capabilities: Capabilities,
}

/// What a provider can do here; what it can't is refused before anything is spent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Capabilities {
    pub reset: bool,
    /// Snapshot of the file system.
    pub snapshot: bool,
    /// Snapshot and fork of the running desk, memory included; if not, why.
    pub live_fork: bool,
    pub live_fork_reason: String,
    pub archive: bool,
    pub network: bool,
    pub cpu_limit: bool,
    pub memory_limit: bool,
    pub disk_limit: bool,
    /// Named volumes can be mounted into desks.
    #[serde(default)]
    pub volumes: bool,
    pub templates: Vec<String>,
}

/// What kind of thing has no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OrphanKind {
    Desk,
    Snapshot,
}

impl OrphanKind {
    /// As the API writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Desk => "desk",
            Self::Snapshot => "snapshot",
        }
    }

    pub fn of(word: &str) -> Option<Self> {
        [Self::Desk, Self::Snapshot].into_iter().find(|kind| kind.word() == word)
    }
}

/// Something at a provider that the fleet has no record of. It is kept for a while, and can be adopted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Orphan {
    pub kind: OrphanKind,
    pub id: String,
    pub provider: String,
    pub found_at: String,
    /// When it is removed; none: nothing is done to it before somebody decides.
    pub removed_at: Option<String>,
    pub reason: String,
}

/// How an orphan becomes one of the fleet again. What it was made with is not known any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Adopt {
    pub name: Option<String>,
    /// Whose it is from now on; `default` if left out.
    pub project: Option<String>,
    /// The template that it was made from; the fleet's default if left out.
    pub template: Option<String>,
}

/// What was adopted: a stopped desk, or a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Adopted {
    Desk(Box<crate::desk::Desk>),
    Snapshot(crate::desk::Snapshot),
}
