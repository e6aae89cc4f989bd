//! Settings of the provider: the table `[kubernetes]` of the settings file.

use super::{NAME, network};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// None: `KUBECONFIG`, `~/.kube/config`, or the account of the Pod that we run in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; none: its current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// None: the context's, or the one of the Pod that we run in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image of a template is `REGISTRY/TEMPLATE:TAG`, unless `images` names another.
    pub registry: String,
    pub tag: String,
    pub pull_policy: PullPolicy,
    /// Secrets of the namespace by which images are pulled.
    pub pull_secrets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// The share of a desk's CPUs and memory that nodes set aside for it; the whole is its limit.
    pub cpu_request: f32,
    pub memory_request: f32,
    /// Homes are claims of this class and outlive stops and nodes. Empty: the cluster's default class. None: homes end with their Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// How volumes are mounted: `ReadWriteMany` where many desks share one, `ReadWriteOnce` where the class knows no other.
    pub volume_access: String,
    /// Where desks may connect to: `10.1.2.0/24`, `10.1.2.3/32:443`, or `internet` for everything that is not a private network.
    pub egress: Vec<String>,
    /// Labels of the gateway's Pods, which alone may connect to desks; in the namespace of the desks.
    pub gateway: BTreeMap<String, String>,
    pub door: DoorKind,
    pub on_node_loss: OnNodeLoss,
    /// Seconds that a node may be silent, once the cluster knows, before its desks are given up.
    pub node_loss_s: u32,
    /// Seconds that a desk may wait for a node with room; long enough for an autoscaler where there is one.
    pub schedule_s: u32,
    /// Most requests to the API server at a time.
    pub requests: u32,
    /// Most desks that are being started at a time.
    pub starts: u32,
    /// Images by template.
    pub images: BTreeMap<String, String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespace: None,
            registry: "hotdesk".into(),
            tag: "latest".into(),
            pull_policy: PullPolicy::IfNotPresent,
            pull_secrets: Vec::new(),
            runtime_class: None,
            priority_class: None,
            // Desks idle most of the time: an idle one uses 60 MiB and 1 % of a core.
            cpu_request: 0.125,
            memory_request: 0.25,
            storage_class: None,
            volume_access: "ReadWriteMany".into(),
            egress: Vec::new(),
            gateway: BTreeMap::from([("app.kubernetes.io/name".into(), "hotdesk".into())]),
            door: DoorKind::Auto,
            on_node_loss: OnNodeLoss::Reschedule,
            // Above what a kubelet needs to restart.
            node_loss_s: 30,
            schedule_s: 120,
            // A small API server takes 400 at once from everybody; this leaves most of it to others.
            requests: 64,
            starts: 256,
            images: BTreeMap::new(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// How a desk is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DoorKind {
    /// At its Pod's address if that can be reached from here, else by forwarding. Found out with the first desk.
    Auto,
    /// At its Pod's address: the gateway is in the cluster, or the cluster's network is routed to it.
    Direct,
    /// Through the API server: the gateway is outside. Slower, and every byte passes the control plane.
    Forward,
}

/// What becomes of a desk whose node was lost, or which was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnNodeLoss {
    /// It starts on another node: with its files if they are in a claim, else as new.
    Reschedule,
    /// As above if its files are in a claim; else it is in error, and whoever owns it resets or deletes it.
    Error,
}

/// A taint that desks put up with, in Kubernetes' own words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Toleration {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
}

impl Config {
    /// What can be known to be wrong without a cluster.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: &str, reason: String| Err(Error::Unsupported { provider: NAME, what: what.into(), reason });
        for entry in &self.egress {
            if let Err(reason) = network::peer(entry) {
                return wrong("the setting `egress`", reason);
            }
        }
        for (name, share) in [("cpu_request", self.cpu_request), ("memory_request", self.memory_request)] {
            if !(share > 0.0 && share <= 1.0) {
                return wrong(&format!("the setting `{name}`"), format!("{share} is not a share between 0 and 1"));
            }
        }
        if self.requests == 0 || self.starts == 0 {
            return wrong("the settings `requests` and `starts`", "with 0 at a time nothing would ever be done".into());
        }
        if self.gateway.is_empty() {
            return wrong("the setting `gateway`", "without labels every Pod of the namespace could connect to desks".into());
        }
        Ok(())
    }

    pub(super) fn image(&self, template: &str) -> String {
        match self.images.get(template) {
            Some(image) => image.clone(),
            None => format!("{}/{template}:{}", self.registry.trim_end_matches('/'), self.tag),
        }
    }
}
