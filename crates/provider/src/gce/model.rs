//! What of Google's answers is read. Everything else in them is left alone; requests are written where they are made.

use super::fault::Told;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A virtual machine.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) status: String,
    /// A URL; see [`Instance::zone`].
    zone: String,
    pub(super) creation_timestamp: String,
    pub(super) last_start_timestamp: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) label_fingerprint: String,
    pub(super) network_interfaces: Vec<NetworkInterface>,
    pub(super) disks: Vec<AttachedDisk>,
    pub(super) scheduling: Scheduling,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NetworkInterface {
    #[serde(rename = "networkIP")]
    pub(super) address: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AttachedDisk {
    pub(super) boot: bool,
    pub(super) source: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Scheduling {
    pub(super) provisioning_model: String,
}

/// What an instance does, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It runs, or is on its way there.
    Running,
    /// It is on its way down; it can't be started yet.
    Ending,
    Stopped,
}

impl Instance {
    pub(super) fn zone(&self) -> &str {
        last(&self.zone)
    }

    pub(super) fn doing(&self) -> Doing {
        match self.status.as_str() {
            "STOPPING" | "PENDING_STOP" | "SUSPENDING" | "DEPROVISIONING" => Doing::Ending,
            "TERMINATED" | "STOPPED" | "SUSPENDED" => Doing::Stopped,
            // PROVISIONING, STAGING, PENDING, RUNNING, REPAIRING, and what may come.
            _ => Doing::Running,
        }
    }

    pub(super) fn is_spot(&self) -> bool {
        self.scheduling.provisioning_model == "SPOT"
    }

    /// The name of its boot disk.
    pub(super) fn disk(&self) -> Option<&str> {
        self.disks.iter().find(|disk| disk.boot).map(|disk| last(&disk.source)).filter(|name| !name.is_empty())
    }
}

/// A disk.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Disk {
    pub(super) name: String,
    zone: String,
    pub(super) creation_timestamp: String,
    pub(super) users: Vec<String>,
}

impl Disk {
    pub(super) fn zone(&self) -> &str {
        last(&self.zone)
    }
}

/// A golden image.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Image {
    pub(super) name: String,
    pub(super) family: String,
    pub(super) status: String,
    pub(super) creation_timestamp: String,
    #[serde(deserialize_with = "number")]
    pub(super) disk_size_gb: u64,
    pub(super) guest_os_features: Vec<Feature>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Feature {
    #[serde(rename = "type")]
    pub(super) name: String,
}

/// A disk that was saved.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Snapshot {
    pub(super) name: String,
    pub(super) status: String,
    #[serde(deserialize_with = "number")]
    pub(super) disk_size_gb: u64,
    #[serde(deserialize_with = "number")]
    pub(super) storage_bytes: u64,
    pub(super) guest_os_features: Vec<Feature>,
}

impl Snapshot {
    pub(super) fn has_feature(&self, name: &str) -> bool {
        self.guest_os_features.iter().any(|feature| feature.name == name)
    }
}

/// Something that Google does meanwhile.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) status: String,
    zone: String,
    pub(super) insert_time: String,
    pub(super) error: Option<Told>,
    pub(super) http_error_status_code: u16,
}

impl Operation {
    /// Its zone; none for what is global.
    pub(super) fn zone(&self) -> Option<&str> {
        Some(last(&self.zone)).filter(|zone| !zone.is_empty())
    }

    pub(super) fn is_done(&self) -> bool {
        self.status == "DONE"
    }
}

/// The last part of a URL or path.
pub(super) fn last(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

/// Numbers of 64 bits come as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(u64),
    }
    match Option::<Either>::deserialize(deserializer)? {
        None => Ok(0),
        Some(Either::Number(number)) => Ok(number),
        Some(Either::Text(text)) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_read() {
        let text = r#"{"name":"a","status":"STAGING","zone":"https://x/projects/p/zones/us-central1-a","extra":{},
            "networkInterfaces":[{"networkIP":"10.0.0.2"}],"disks":[{"boot":true,"source":"https://x/disks/a"}],
            "scheduling":{"provisioningModel":"SPOT"}}"#;
        let instance: Instance = serde_json::from_str(text).unwrap();
        assert_eq!((instance.zone(), instance.disk(), instance.doing()), ("us-central1-a", Some("a"), Doing::Running));
        assert!(instance.is_spot());
        assert_eq!(instance.network_interfaces[0].address, "10.0.0.2");
        let snapshot: Snapshot = serde_json::from_str(r#"{"storageBytes":"123","diskSizeGb":"8"}"#).unwrap();
        assert_eq!((snapshot.storage_bytes, snapshot.disk_size_gb), (123, 8));
    }
}
