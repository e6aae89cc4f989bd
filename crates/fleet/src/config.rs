//! Settings of a fleet.

use hotdesk_api::action::Size;
use hotdesk_api::desk::{Policy, ResourcesRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The settings of a fleet; `DIR/hotdesk.toml` holds them, flags and environment win over it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Everything that the fleet keeps: store, keys, desks, templates, archives.
    pub data: PathBuf,
    /// `postgres://…`, or empty for SQLite in the data directory.
    pub store: String,
    /// The file with the key that the store's secrets are sealed with; if it is not set, `secrets.key` in the data directory.
    pub secrets_key: Option<PathBuf>,
    /// The template of a request that names none.
    pub template: String,
    /// Templates that are built in the background when the fleet starts; if it is not set, the default template and those that clients
    /// of dialects get when they name none. Those of pools always are.
    pub build_ahead: Option<Vec<String>>,
    /// The screen of a request that names none; if it is not set, the template's.
    pub screen: Option<Size>,
    pub max_desks: u32,
    /// Most desks per project; a project that is not named has the fleet's limit.
    pub max_desks_per_project: BTreeMap<String, u32>,
    /// How much of the machine may be promised: 1.0 is all of it, more is over-booking.
    pub cpu_share: f32,
    pub memory_share: f32,
    pub disk_share: f32,
    /// Most snapshots per project.
    pub max_snapshots: u32,
    /// Most MiB of snapshots per project; zero: as much as there is.
    pub max_snapshots_mib: u64,
    /// Most volumes per project.
    pub max_volumes: u32,
    /// Most MiB of volumes per project; zero: as much as there is.
    pub max_volumes_mib: u64,
    /// Desks that are started at the same time; the others wait for a turn. Zero: twice the machine's cores.
    pub starts_at_once: u32,
    /// A running desk that was lost is started again so often within `restart_window_s`; then it is in error.
    pub restarts: u32,
    pub restart_window_s: u64,
    /// What a desk may use if its request does not say so; what is not set here is the template's.
    pub resources: ResourcesRequest,
    pub policy: Policy,
    /// Price per provider and hour: of one CPU, one GiB of memory, one GiB of disk.
    pub prices: BTreeMap<String, Price>,
    pub currency: String,
    /// Where archives go: a directory, `s3://bucket/prefix` or `gs://bucket/prefix`.
    pub archive: String,
    pub pools: Vec<hotdesk_api::fleet::PoolSpec>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    pub cpu_hour: f64,
    pub memory_gib_hour: f64,
    pub disk_gib_hour: f64,
}

impl Config {
    pub(crate) fn secrets_file(&self) -> PathBuf {
        self.secrets_key.clone().unwrap_or_else(|| self.data.join("secrets.key"))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("/var/lib/hotdesk"),
            store: String::new(),
            secrets_key: None,
            template: "base".into(),
            build_ahead: None,
            screen: None,
            max_desks: 100,
            max_desks_per_project: BTreeMap::new(),
            // Desks idle most of the time and use a small part of what they may: an idle one is 60 MiB of its 4 GiB.
            cpu_share: 100.0,
            memory_share: 20.0,
            disk_share: 20.0,
            max_snapshots: 1000,
            max_snapshots_mib: 0,
            max_volumes: 100,
            max_volumes_mib: 0,
            starts_at_once: 0,
            restarts: 3,
            restart_window_s: 600,
            resources: ResourcesRequest::default(),
            policy: Policy::default(),
            prices: BTreeMap::new(),
            currency: "USD".into(),
            archive: String::new(),
            pools: Vec::new(),
        }
    }
}
