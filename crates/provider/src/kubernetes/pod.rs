//! What a desk's Pod and its Secret are, as the API server is told.
//!
//! The Pod keeps to the *restricted* Pod Security Standard, whatever its namespace enforces. What a desk writes goes to volumes: its home
//! (a claim, or a directory of the node that ends with the Pod), `/tmp`, `/run` and shared memory.

use super::{Config, LABEL_DESK, LABEL_FLEET, NAME, PORT, claim, world};
use crate::{DeskSpec, Error, Result};
use hotdesk_image::{Library, Template};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where the desk's settings are mounted.
const SETTINGS: &str = "/etc/hotdesk/own";
const SETTINGS_FILE: &str = "own.toml";
/// Seconds between the request to end and the end.
const STOP_S: u32 = 5;
/// Kubernetes' bound for the value of a label.
const LONGEST_LABEL: usize = 63;
/// A home is filled once; afterwards this file is in it.
const FILLED: &str = ".hotdesk-home";

/// What a Pod is made from.
pub(super) struct Recipe<'a> {
    pub(super) fleet: &'a str,
    pub(super) name: String,
    /// Another one for each Pod, so that one that waits to be collected with an old Pod is not taken for the new one's.
    pub(super) secret: String,
    pub(super) config: &'a Config,
    pub(super) spec: &'a DeskSpec,
    pub(super) template: Template,
}

/// The template, if Pods can be made from it.
pub(super) fn template(images: &Library, name: &str) -> Result<Template> {
    let template = images.template(name).map_err(|e| Error::NotFound(e.to_string()))?;
    let refused = |reason: &str| {
        let what = format!("the template {name}");
        Err(Error::Unsupported { provider: NAME, what, reason: reason.into() })
    };
    if template.root {
        return refused("its programs may become root, and the restricted Pod Security Standard forbids that");
    }
    if template.image.is_some() {
        return refused("it is a finished image without hotdesk in it; make a template that is built, and push its image");
    }
    Ok(template)
}

impl Recipe<'_> {
    pub(super) fn pod(&self) -> Result<Pod> {
        serde_json::from_value(self.pod_value()).map_err(|e| Error::Failed(format!("the pod of {}: {e}", self.spec.id)))
    }

    /// The whole Pod.
    pub(super) fn pod_value(&self) -> Value {
        let (config, spec) = (self.config, self.spec);
        let uid = self.template.user.uid;
        let mut pod = json!({
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "hostname": "desk",
            // The kubelet starts a server that ended again, with the files it had.
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": STOP_S,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": uid,
                "runAsGroup": uid,
                "fsGroup": uid,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": self.tolerations(),
            "volumes": self.volumes(),
            "containers": [self.desk()],
        });
        if self.has_home() {
            pod["initContainers"] = json!([self.fill()]);
        }
        if let Some(class) = &config.runtime_class {
            pod["runtimeClassName"] = json!(class);
        }
        if let Some(class) = &config.priority_class {
            pod["priorityClassName"] = json!(class);
        }
        if !config.node_selector.is_empty() {
            pod["nodeSelector"] = json!(config.node_selector);
        }
        if !config.pull_secrets.is_empty() {
            pod["imagePullSecrets"] = config.pull_secrets.iter().map(|name| json!({"name": name})).collect();
        }
        let mut meta = json!({"name": self.name, "labels": labels(self.fleet, spec)});
        let notes: BTreeMap<String, &String> = spec.public_labels().map(|(k, v)| (format!("hotdesk.label/{k}"), v)).collect();
        if !notes.is_empty() && notes.keys().all(|key| is_label_key(key)) {
            meta["annotations"] = json!(notes);
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    }

    fn desk(&self) -> Value {
        let (config, spec) = (self.config, self.spec);
        let home = self.template.user.home();
        let run = format!("/run/user/{}", self.template.user.uid);
        let health = json!({"path": "/health", "port": PORT});
        json!({
            "name": world::CONTAINER,
            "image": config.image(&spec.template),
            "imagePullPolicy": config.pull_policy,
            "command": ["/usr/local/bin/hotdesk", "desk", "--config", format!("{SETTINGS}/{SETTINGS_FILE}")],
            "workingDir": home,
            "env": [{"name": "HOME", "value": home}, {"name": "XDG_RUNTIME_DIR", "value": run}],
            "ports": [{"name": "desk", "containerPort": PORT, "protocol": "TCP"}],
            "resources": self.resources(),
            "securityContext": closed(),
            // We ask the desk ourselves whether it is ready; these are for people who look at the Pod, and for one that hangs.
            "readinessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 5},
            "livenessProbe": {"httpGet": health, "initialDelaySeconds": 60, "periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 4},
            "volumeMounts": self.mounts(),
        })
    }

    /// Copies what the image has in the home into the volume that hides it.
    fn fill(&self) -> Value {
        let home = self.template.user.home();
        let script = format!(
            "set -e; cd {home}; [ -e /mnt/home/{FILLED} ] && exit 0; \
             find . -mindepth 1 -maxdepth 1 -exec cp -a -t /mnt/home {{}} +; : > /mnt/home/{FILLED}"
        );
        json!({
            "name": "home",
            "image": self.config.image(&self.spec.template),
            "imagePullPolicy": self.config.pull_policy,
            "command": ["/bin/sh", "-c", script],
            "resources": self.resources(),
            "securityContext": closed(),
            "volumeMounts": [{"name": "home", "mountPath": "/mnt/home"}],
        })
    }

    /// Whether the template puts anything into the home.
    fn has_home(&self) -> bool {
        let home = format!("{}/", self.template.user.home());
        !self.template.run.is_empty() || self.template.files.iter().any(|file| file.path.starts_with(&home))
    }

    fn resources(&self) -> Value {
        let (config, wanted) = (self.config, self.spec.resources);
        let milli = |cpus: f32| format!("{}m", ((cpus * 1000.0).round() as u64).max(1));
        let memory = (wanted.memory_mib as f32 * config.memory_request).round() as u64;
        let mut resources = json!({
            "limits": {"cpu": milli(wanted.cpus), "memory": format!("{}Mi", wanted.memory_mib)},
            "requests": {"cpu": milli(wanted.cpus * config.cpu_request), "memory": format!("{}Mi", memory.max(1))},
        });
        if config.storage_class.is_none() {
            resources["limits"]["ephemeral-storage"] = json!(format!("{}Mi", wanted.disk_mib));
            // What is not used is not set aside: images are large, desks write little.
            resources["requests"]["ephemeral-storage"] = json!("64Mi");
        }
        resources
    }

    fn volumes(&self) -> Value {
        let spec = self.spec;
        // Memory that is used as a disk counts as memory, so half of it leaves room for programs.
        let shared = format!("{}Mi", (spec.resources.memory_mib / 2).max(1));
        let home = match self.config.storage_class {
            Some(_) => json!({"name": "home", "persistentVolumeClaim": {"claimName": claim::home_name(self.fleet, &spec.id)}}),
            None => json!({"name": "home", "emptyDir": {"sizeLimit": format!("{}Mi", spec.resources.disk_mib)}}),
        };
        let mut volumes = vec![
            json!({"name": "own", "secret": {"secretName": self.secret, "defaultMode": 0o440}}),
            home,
            json!({"name": "tmp", "emptyDir": {}}),
            json!({"name": "run", "emptyDir": {}}),
            json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared}}),
        ];
        volumes.extend(spec.volumes.iter().enumerate().map(|(number, volume)| {
            let name = claim::volume_name(self.fleet, &volume.volume);
            json!({"name": format!("volume-{number}"), "persistentVolumeClaim": {"claimName": name, "readOnly": volume.read_only}})
        }));
        volumes.into()
    }

    fn mounts(&self) -> Value {
        let mut mounts = vec![
            json!({"name": "own", "mountPath": SETTINGS, "readOnly": true}),
            json!({"name": "home", "mountPath": self.template.user.home()}),
            json!({"name": "tmp", "mountPath": "/tmp"}),
            json!({"name": "run", "mountPath": "/run"}),
            json!({"name": "shm", "mountPath": "/dev/shm"}),
        ];
        mounts.extend(self.spec.volumes.iter().enumerate().map(|(number, volume)| {
            let mut mount = json!({"name": format!("volume-{number}"), "mountPath": volume.at});
            if volume.read_only {
                mount["readOnly"] = json!(true);
            }
            if let Some(part) = &volume.subpath {
                mount["subPath"] = json!(part);
            }
            mount
        }));
        mounts.into()
    }

    /// The configured ones, and how long a silent node is believed in.
    fn tolerations(&self) -> Value {
        let silent = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(
            |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": self.config.node_loss_s}),
        );
        self.config.tolerations.iter().map(|toleration| json!(toleration)).chain(silent).collect()
    }

    /// The desk's settings with its token. It belongs to the Pod and goes with it.
    pub(super) fn secret(&self, name: &str, uid: &str) -> Result<Secret> {
        let spec = self.spec;
        let mut settings = self.template.settings();
        settings.listen = vec![format!("0.0.0.0:{PORT}")];
        settings.token = Some(spec.secret.clone());
        settings.vnc_password.clone_from(&spec.vnc_password);
        settings.size = Some(format!("{}x{}", spec.screen.width, spec.screen.height));
        settings.env.extend(spec.env.clone());
        let text = settings.to_toml().map_err(|e| Error::Failed(e.to_string()))?;
        let value = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "labels": {LABEL_FLEET: self.fleet, LABEL_DESK: spec.id},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": uid}],
            },
            "type": "Opaque",
            "immutable": true,
            "stringData": {SETTINGS_FILE: text},
        });
        serde_json::from_value(value).map_err(|e| Error::Failed(format!("the secret of {}: {e}", spec.id)))
    }
}

/// What every container of a Pod is denied.
fn closed() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// Ours, and those of the desk's own labels that Kubernetes takes; annotations have them all.
fn labels(fleet: &str, spec: &DeskSpec) -> Value {
    let mut labels = Map::new();
    for (key, value) in spec.public_labels() {
        let key = format!("hotdesk.label/{key}");
        if is_label_key(&key) && is_label_value(value) {
            labels.insert(key, json!(value));
        }
    }
    labels.insert(LABEL_FLEET.into(), json!(fleet));
    labels.insert(LABEL_DESK.into(), json!(spec.id));
    labels.insert("hotdesk.template".into(), json!(spec.template));
    labels.insert("hotdesk.network".into(), json!(if spec.network { "listed" } else { "none" }));
    labels.into()
}

fn is_label_key(key: &str) -> bool {
    key.split_once('/').is_some_and(|(_, name)| !name.is_empty() && is_label_value(name))
}

fn is_label_value(value: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let outer = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= LONGEST_LABEL && value.chars().all(inner) && outer(value.chars().next()) && outer(value.chars().next_back())
}

#[cfg(test)]
mod tests;
