//! Settings of the provider `daytona`.

use crate::cloud::Price;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `[daytona]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub api_url: String,
    /// Holds the key, if `DAYTONA_API_KEY` does not.
    pub key_file: Option<PathBuf>,
    /// The region; none: the organisation's own.
    pub target: Option<String>,
    /// Images of templates; only these can be used.
    pub templates: BTreeMap<String, Template>,
    /// Minutes after which a stopped desk goes to Daytona's cold storage.
    pub auto_archive_minutes: u32,
    /// Requests per second in the long run, and at once: below the limits of the smallest plan.
    pub requests_per_second: f64,
    pub burst: u32,
    pub price: Price,
    /// Certificates to trust besides the machine's own.
    pub ca_file: Option<PathBuf>,
    /// Speak plain HTTP to `api_url` though it is on another machine.
    pub insecure: bool,
}

/// What a template's desks are made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Our image by its pushed name, with a tag that is not `latest`, or a digest.
    pub image: String,
    /// What Daytona is to run; none: the desk's server.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    /// Daytona's volumes by name, such as one with a disk at `/vm`; made if they are missing.
    #[serde(default)]
    pub volumes: BTreeMap<String, String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The user that the entrypoint runs as.
    #[serde(default = "user")]
    pub user: String,
}

fn user() -> String {
    "user".into()
}

impl Default for Config {
    fn default() -> Self {
        Self {
            api_url: "https://app.daytona.io/api".into(),
            key_file: None,
            target: None,
            templates: BTreeMap::new(),
            auto_archive_minutes: 7 * 24 * 60,
            requests_per_second: 20.0,
            burst: 40,
            // About what Daytona asks, in US dollars, so that a budget is no surprise; its price list says what it really is.
            price: Price { cpu_hour: 0.0504, memory_gib_hour: 0.0162, disk_gib_hour: 0.000_108 },
            ca_file: None,
            insecure: false,
        }
    }
}
