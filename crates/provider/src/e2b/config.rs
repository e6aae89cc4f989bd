//! Settings of the provider `e2b`.

use crate::cloud::Price;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `[e2b]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Sandboxes are reached at `PORT-ID.DOMAIN`.
    pub domain: String,
    /// None: `https://api.DOMAIN`.
    pub api_url: Option<String>,
    /// One address for all sandboxes, which are told apart by headers, where there is no wildcard name (E2B on a machine of one's own).
    pub sandbox_url: Option<String>,
    /// Holds the key, if `E2B_API_KEY` does not.
    pub key_file: Option<PathBuf>,
    /// Images of templates; only these can be used.
    pub templates: BTreeMap<String, Template>,
    /// How far ahead a sandbox's end is kept while it runs. When we are away for longer, it is paused.
    pub timeout_s: u32,
    /// Requests per second in the long run, and at once.
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
    /// Our image by its pushed name. Its layers must be below 9.9 GiB each and 25 GB in all; ours are.
    pub image: String,
    /// Who may pull it, where not everybody may.
    #[serde(default)]
    pub registry_user: Option<String>,
    #[serde(default)]
    pub registry_password_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            domain: "e2b.app".into(),
            api_url: None,
            sandbox_url: None,
            key_file: None,
            templates: BTreeMap::new(),
            timeout_s: 600,
            requests_per_second: 20.0,
            burst: 40,
            // About what E2B asks, in US dollars, per second there; disk is in the plan. Its price list says what it really is.
            price: Price { cpu_hour: 0.0504, memory_gib_hour: 0.0162, disk_gib_hour: 0.0 },
            ca_file: None,
            insecure: false,
        }
    }
}
