//! What works in the cluster, for the fleet and for people.

use super::cluster::Cluster;
use super::{Kubernetes, RIGHTS};
use crate::Check;
use hotdesk_api::fleet::Capabilities;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

pub(super) fn capabilities(kubernetes: &Kubernetes) -> Capabilities {
    Capabilities {
        reset: true,
        snapshot: false,
        live_fork: false,
        live_fork_reason: "a Pod's programs can't be saved through its API server".into(),
        archive: false,
        network: true,
        cpu_limit: true,
        memory_limit: true,
        disk_limit: true,
        volumes: true,
        templates: kubernetes.context.images.names(),
    }
}

pub(super) async fn check(kubernetes: &Kubernetes) -> Vec<Check> {
    let wrong = |what: &str, detail: String, fix: &str| Check { what: what.into(), good: false, detail, fix: Some(fix.into()) };
    let cluster = match kubernetes.cluster().await {
        Ok(cluster) => cluster,
        Err(e) => return vec![wrong("cluster", e.to_string(), "set kubeconfig and context in the table [kubernetes]")],
    };
    let version = match cluster.ask("tell its version", || cluster.client().apiserver_version()).await {
        Ok(version) => version,
        Err(fault) => {
            let reason = crate::Error::from(fault).to_string();
            return vec![wrong("cluster", reason, "kubectl get --raw /readyz shows whether the API server answers")];
        }
    };
    let mut checks = vec![Check {
        what: "cluster".into(),
        good: true,
        detail: format!("Kubernetes {} answers; desks are pods in the namespace {}", version.git_version, cluster.namespace),
        fix: None,
    }];
    let missing = missing_rights(cluster).await;
    checks.push(match missing.is_empty() {
        true => Check { what: "rights".into(), good: true, detail: "all that are needed are given".into(), fix: None },
        false => wrong("rights", format!("not given: {}", missing.join(", ")), "kubectl apply -k deploy/kubernetes"),
    });
    let files = match &kubernetes.config.storage_class {
        Some(class) if class.is_empty() => "homes are claims of the default class and outlive stops and nodes".into(),
        Some(class) => format!("homes are claims of the class {class} and outlive stops and nodes"),
        None => {
            "homes end with their pods: desks can't be stopped, and a lost one begins anew; storage_class changes that".into()
        }
    };
    checks.push(Check { what: "files".into(), good: true, detail: files, fix: None });
    checks
}

/// Rights that are used and not given, such as `create pods`.
async fn missing_rights(cluster: &Cluster) -> Vec<String> {
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.client().clone());
    let mut missing = Vec::new();
    for (group, resource, verbs) in RIGHTS {
        for verb in *verbs {
            let (name, part) = resource.split_once('/').map_or((*resource, None), |(name, part)| (name, Some(part)));
            let attributes = ResourceAttributes {
                group: Some((*group).into()),
                namespace: Some(cluster.namespace.clone()),
                resource: Some(name.into()),
                subresource: part.map(Into::into),
                verb: Some((*verb).into()),
                ..ResourceAttributes::default()
            };
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), non_resource_attributes: None },
                ..SelfSubjectAccessReview::default()
            };
            let params = PostParams::default();
            let answer = cluster.ask("tell our rights", || api.create(&params, &review)).await;
            if !answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed)) {
                missing.push(format!("{verb} {resource}"));
            }
        }
    }
    missing
}
