//! One instance as it is asked for: name, labels, disk, network, metadata.

use super::config::{Config, region};
use super::fault::Outcome;
use super::model::{Doing, Instance};
use super::{Gce, LABEL_DESK, LABEL_FLEET, LABEL_TEMPLATE, METADATA_SETTINGS, METADATA_TOKEN, NAME};
use crate::{Address, DeskSpec, Error, Placed, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Where the desk's server listens in the instance.
const PORT: u16 = 5000;
/// Google's limit for one value of metadata.
const LONGEST_METADATA: usize = 256 << 10;
/// Google's limits of labels: 64 of them, each part 63 characters long. Some are ours.
const MOST_LABELS: usize = 56;
const LONGEST_LABEL: usize = 63;

/// What the boot disk is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// `sourceImage` or `sourceSnapshot`.
    pub(super) kind: &'static str,
    /// Its path, with the version.
    pub(super) path: String,
    pub(super) size_gb: u64,
    /// Whether it boots by UEFI, as Shielded VM needs.
    pub(super) uefi: bool,
}

impl Gce {
    /// The instance of a desk, wherever it is; of several the one that is kept.
    pub(super) async fn find(&self, id: &str) -> Outcome<Option<Instance>> {
        let filter = format!("(name = \"{}\") (labels.{LABEL_FLEET} = \"{}\")", self.own_name(id), self.context.fleet);
        let found: Vec<Instance> = self.api.list_everywhere("instances", &filter).await?;
        Ok(found.into_iter().min_by_key(rank))
    }

    pub(super) fn path(instance: &Instance) -> String {
        format!("zones/{}/instances/{}", instance.zone(), instance.name)
    }

    /// The request for an instance in a zone.
    pub(super) fn body(&self, spec: &DeskSpec, source: &Source, zone: &str) -> Result<Value> {
        let config = &self.config;
        let labels = self.labels(spec);
        let mut interface = json!({});
        if let Some(network) = &config.network {
            interface["network"] = format!("projects/{}/global/networks/{network}", config.project).into();
        }
        if let Some(subnetwork) = &config.subnetwork {
            let region = region(zone);
            interface["subnetwork"] = format!("projects/{}/regions/{region}/subnetworks/{subnetwork}", config.project).into();
        }
        if config.external_ip && spec.network {
            interface["accessConfigs"] = json!([{ "type": "ONE_TO_ONE_NAT", "name": "External NAT" }]);
        }
        let mut tags = config.tags.clone();
        if !spec.network {
            tags.extend(config.closed_tag.clone());
        }
        let disk = json!({
            source.kind: source.path,
            "diskSizeGb": Config::disk_gb(&spec.resources, source.size_gb).to_string(),
            "diskType": format!("zones/{zone}/diskTypes/{}", config.disk_type),
            "labels": labels,
        });
        let mut body = json!({
            "name": self.own_name(&spec.id),
            "machineType": format!("zones/{zone}/machineTypes/{}", config.machine_type(&spec.resources)?),
            "labels": labels,
            "tags": { "items": tags },
            "disks": [{ "boot": true, "autoDelete": true, "initializeParams": disk }],
            "networkInterfaces": [interface],
            "metadata": { "items": self.metadata(spec)? },
            "scheduling": scheduling(config),
            "canIpForward": false,
        });
        if config.shielded.unwrap_or(source.uefi) {
            if !source.uefi {
                return Err(Error::Failed(format!("{NAME}: `shielded` is set, but {} does not boot by UEFI", source.path)));
            }
            body["shieldedInstanceConfig"] =
                json!({ "enableSecureBoot": false, "enableVtpm": true, "enableIntegrityMonitoring": true });
        }
        if let Some(account) = &config.service_account {
            let scopes = ["https://www.googleapis.com/auth/cloud-platform"];
            body["serviceAccounts"] = json!([{ "email": account, "scopes": scopes }]);
        }
        Ok(body)
    }

    pub(super) fn labels(&self, spec: &DeskSpec) -> BTreeMap<String, String> {
        let theirs = spec.public_labels().map(|(key, value)| (label(key), label(value)));
        let usable = theirs.filter(|(key, _)| key.starts_with(|c: char| c.is_ascii_lowercase()) && !key.starts_with("hotdesk-"));
        let mut labels: BTreeMap<String, String> = usable.take(MOST_LABELS).collect();
        labels.insert(LABEL_FLEET.into(), label(&self.context.fleet));
        labels.insert(LABEL_DESK.into(), spec.id.clone());
        labels.insert(LABEL_TEMPLATE.into(), label(&spec.template));
        labels
    }

    /// What the machine is told at its start; `hotdesk boot` reads it.
    fn metadata(&self, spec: &DeskSpec) -> Result<Value> {
        let mut settings = self.context.images.template(&spec.template).map(|template| template.settings()).unwrap_or_default();
        settings.vnc_password = spec.vnc_password.clone();
        settings.size = Some(format!("{}x{}", spec.screen.width, spec.screen.height));
        settings.env.extend(spec.env.clone());
        let settings = settings.to_toml().map_err(|e| Error::Failed(e.to_string()))?;
        if settings.len() > LONGEST_METADATA {
            return Err(Error::Failed(format!(
                "the desk's environment is too large for Google: {} bytes of {LONGEST_METADATA}",
                settings.len()
            )));
        }
        // Nobody comes in by a key of the project, nor by the console.
        Ok(json!([
            { "key": METADATA_TOKEN, "value": spec.secret },
            { "key": METADATA_SETTINGS, "value": settings },
            { "key": "block-project-ssh-keys", "value": "TRUE" },
            { "key": "serial-port-enable", "value": "FALSE" },
        ]))
    }
}

/// When Google needs the host, or the machine itself.
fn scheduling(config: &Config) -> Value {
    match config.spot {
        true => json!({
            "provisioningModel": "SPOT", "instanceTerminationAction": "STOP", "automaticRestart": false, "onHostMaintenance": "TERMINATE",
        }),
        false => json!({ "provisioningModel": "STANDARD", "automaticRestart": true, "onHostMaintenance": "MIGRATE" }),
    }
}

/// Text as a label may be: what can't be in one becomes a dash.
fn label(text: &str) -> String {
    let usable = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' { c } else { '-' };
    text.to_ascii_lowercase().chars().map(usable).take(LONGEST_LABEL).collect()
}

/// Which of several instances of a desk is kept: one that runs before one that does not, then the oldest.
pub(super) fn rank(instance: &Instance) -> (bool, String, String) {
    (instance.doing() != Doing::Running, instance.creation_timestamp.clone(), instance.zone().to_owned())
}

/// Where the desk of an instance is. None: it has no address yet.
pub(super) fn placed(instance: &Instance) -> Option<Placed> {
    let ip: IpAddr = instance.network_interfaces.first()?.address.parse().ok()?;
    let handle = json!({ "zone": instance.zone(), "instance": instance.name, "machine": instance.id });
    Some(Placed { address: Address::Tcp { addr: SocketAddr::new(ip, PORT) }, handle })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_made_usable() {
        assert_eq!(label("Team A/b"), "team-a-b");
        assert_eq!(label(&"x".repeat(99)).len(), 63);
    }

    #[test]
    fn of_two_instances_the_one_that_runs_is_kept() {
        let read = |text: &str| serde_json::from_str::<Instance>(text).unwrap();
        let old = read(r#"{"status":"TERMINATED","creationTimestamp":"2026-01-01T00:00:00Z","zone":"a"}"#);
        let new = read(r#"{"status":"RUNNING","creationTimestamp":"2026-01-02T00:00:00Z","zone":"b"}"#);
        assert!(rank(&new) < rank(&old));
        assert_eq!(placed(&new), None);
    }
}
