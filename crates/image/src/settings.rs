//! The settings file of `hotdesk desk`, as far as a template and a provider decide it.

use crate::{Error, Result, Template};
use serde::Serialize;
use std::collections::BTreeMap;

/// What goes into a desk's settings file. [`Template::settings`] fills in what the template says; a provider that
/// writes a file for one desk adds the rest.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeskSettings {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnc_password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// An address, or a port of loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnc: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// Last, because it is a table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl Template {
    /// The desk's settings that the template decides.
    pub fn settings(&self) -> DeskSettings {
        DeskSettings {
            display: self.display.clone(),
            size: self.screen.map(String::from),
            vnc: self.vnc.map(|port| format!("127.0.0.1:{port}")),
            start: self.start.clone(),
            env: self.env.clone(),
            ..DeskSettings::default()
        }
    }
}

impl DeskSettings {
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::Failed(format!("the desk's settings: {e}")))
    }
}
