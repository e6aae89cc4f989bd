//! The files of `deploy/kubernetes` against the code.

use crate::kubernetes::{Config, RIGHTS};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes")
}

fn documents(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Everything that kustomize puts together.
pub(super) fn all() -> Vec<Value> {
    let root = &documents("kustomization.yaml")[0];
    root["resources"].as_array().unwrap().iter().flat_map(|file| documents(file.as_str().unwrap())).collect()
}

fn the(kind: &str) -> Value {
    all().into_iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("there is no {kind}"))
}

#[test]
fn rights_are_exactly_those_that_are_used() {
    type Rights = BTreeMap<(String, String), BTreeSet<String>>;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| value.as_array().unwrap().iter().map(text).collect::<Vec<_>>();
    let mut given = Rights::new();
    for rule in the("Role")["rules"].as_array().unwrap() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                given.entry((group.clone(), resource)).or_default().extend(list(&rule["verbs"]));
            }
        }
    }
    let used: Rights = RIGHTS
        .iter()
        .map(|(group, resource, verbs)| {
            (((*group).into(), (*resource).into()), verbs.iter().map(|verb| (*verb).to_owned()).collect())
        })
        .collect();
    assert_eq!(given, used);
    assert!(all().iter().all(|object| object["kind"] != "ClusterRole"), "no right reaches beyond the namespace");
}

#[test]
fn the_gateway_is_the_one_whom_desks_let_in() {
    let gateway = the("Deployment");
    let labels = &gateway["spec"]["template"]["metadata"]["labels"];
    for (key, value) in Config::default().gateway {
        assert_eq!(labels[&key], Value::from(value), "{key}");
    }
    let container = &gateway["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/ready");
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(gateway["spec"]["template"]["spec"]["serviceAccountName"], the("ServiceAccount")["metadata"]["name"]);
    assert_eq!(the("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
}

#[test]
fn the_settings_can_be_used() {
    let text = std::fs::read_to_string(folder().join("hotdesk.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let config: Config = table["kubernetes"].clone().try_into().unwrap();
    config.check().unwrap();
    assert_eq!(config.namespace.as_deref(), the("Namespace")["metadata"]["name"].as_str());
}
