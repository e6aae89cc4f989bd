//! Settings of a fleet.

use hotdesk_api::desk::{Policy, Resources};
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
    pub max_desks: u32,
    /// Most desks per project; a project that is not named has the fleet's limit.
    pub max_desks_per_project: BTreeMap<String, u32>,
    /// How much of the machine may be promised: 1.0 is all of it, more is over-booking.
    pub cpu_share: f32,
    pub memory_share: f32,
    pub resources: Resources,
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

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("/var/lib/hotdesk"),
            store: String::new(),
            max_desks: 100,
            max_desks_per_project: BTreeMap::new(),
            // Desks idle most of the time: CPU is shared, memory is not.
            cpu_share: 100.0,
            memory_share: 20.0,
            resources: Resources::default(),
            policy: Policy::default(),
            prices: BTreeMap::new(),
            currency: "USD".into(),
            archive: String::new(),
            pools: Vec::new(),
        }
    }
}
