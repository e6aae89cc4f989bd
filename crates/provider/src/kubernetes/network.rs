//! Who may connect to desks, and where desks may connect to: two NetworkPolicies per fleet.
//!
//! The first one closes every desk of the fleet: in, port 5000 from the gateway; out, nothing. The second one lets those that have
//! a network out to what is listed, and to the cluster's name service. Whether they are enforced is up to the cluster's network; one
//! that ignores them leaves desks open, and no API tells.

use super::{Kubernetes, LABEL_FLEET, PORT};
use crate::{Error, Result};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::net::IpAddr;
use tokio::sync::OnceCell;

/// What is not the internet: private networks, this host, links, carriers' own, and the service that tells machines who they are.
const PRIVATE: [&str; 7] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/8"];

/// Whether this process has written the policies.
#[derive(Default)]
pub(super) struct Guarded(OnceCell<()>);

impl Kubernetes {
    /// Writes the fleet's policies, once per process: settings may have changed since the last one.
    pub(super) async fn guard(&self) -> Result<()> {
        self.guarded.0.get_or_try_init(async || self.write_policies().await).await.copied()
    }

    async fn write_policies(&self) -> Result<()> {
        let cluster = self.cluster().await?;
        let api = cluster.api::<NetworkPolicy>();
        let params = PatchParams::apply("hotdesk").force();
        for (name, policy) in policies(&self.context.fleet, &self.config)? {
            let policy = Patch::Apply(policy);
            cluster.ask("write a network policy", || api.patch(&name, &params, &policy)).await?;
        }
        Ok(())
    }
}

/// The fleet's policies by name.
pub(super) fn policies(fleet: &str, config: &super::Config) -> Result<Vec<(String, Value)>> {
    let policy = |name: &str, spec: Value| {
        let meta = json!({"name": name, "labels": {LABEL_FLEET: fleet}});
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec})
    };
    let closed = format!("hotdesk-{fleet}-closed");
    let open = format!("hotdesk-{fleet}-egress");
    let mut rules = config.egress.iter().map(|entry| peer(entry).map_err(Error::Failed)).collect::<Result<Vec<_>>>()?;
    if !rules.is_empty() {
        rules.push(names());
    }
    Ok(vec![
        (
            closed.clone(),
            policy(
                &closed,
                json!({
                    "podSelector": {"matchLabels": {LABEL_FLEET: fleet}},
                    "policyTypes": ["Ingress", "Egress"],
                    "ingress": [{
                        "from": [{"podSelector": {"matchLabels": config.gateway}}],
                        "ports": [{"protocol": "TCP", "port": PORT}],
                    }],
                    "egress": [],
                }),
            ),
        ),
        (
            open.clone(),
            policy(
                &open,
                json!({
                    "podSelector": {"matchLabels": {LABEL_FLEET: fleet, "hotdesk.network": "listed"}},
                    "policyTypes": ["Egress"],
                    "egress": rules,
                }),
            ),
        ),
    ])
}

/// The name service, wherever the cluster has it.
fn names() -> Value {
    json!({
        "to": [{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    })
}

/// One entry of `egress` as a rule; or what is wrong with it.
pub(super) fn peer(entry: &str) -> Result<Value, String> {
    if entry == "internet" {
        return Ok(json!({"to": [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": PRIVATE}},
            {"ipBlock": {"cidr": "2000::/3"}},
        ]}));
    }
    let wrong = || format!("`{entry}` is neither `internet` nor a network such as `10.1.2.0/24` or `10.1.2.3/32:443`");
    let (address, rest) = entry.split_once('/').ok_or_else(wrong)?;
    let (bits, port) = match rest.split_once(':') {
        Some((bits, port)) => (bits, Some(port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)?)),
        None => (rest, None),
    };
    let most = match address.parse::<IpAddr>().map_err(|_| wrong())? {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    if !bits.parse::<u8>().is_ok_and(|bits| bits <= most) {
        return Err(wrong());
    }
    let mut rule = json!({"to": [{"ipBlock": {"cidr": format!("{address}/{bits}")}}]});
    if let Some(port) = port {
        rule["ports"] = json!([{"protocol": "TCP", "port": port}]);
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn closed_unless_something_is_listed() {
        let [(_, closed), (_, open)] = &policies("abcdefgh", &Config::default()).unwrap()[..] else { panic!("two policies") };
        assert_eq!(closed["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(closed["spec"]["egress"], json!([]));
        assert_eq!(closed["spec"]["ingress"].as_array().unwrap().len(), 1);
        assert_eq!(open["spec"]["egress"], json!([]), "nothing is listed, so not even names are resolved");
        let config = Config { egress: vec!["internet".into(), "10.1.2.3/32:443".into()], ..Config::default() };
        let open = &policies("abcdefgh", &config).unwrap()[1].1;
        assert_eq!(open["spec"]["egress"].as_array().unwrap().len(), 3);
        assert_eq!(open["spec"]["egress"][1]["ports"][0]["port"], json!(443));
        for (_, value) in policies("abcdefgh", &config).unwrap() {
            let typed: NetworkPolicy = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(typed).unwrap(), value, "every word is one of Kubernetes'");
        }
    }

    #[test]
    fn what_is_no_network_is_told() {
        for entry in ["", "10.0.0.1", "10.0.0.1/33", "example.com/24", "10.0.0.0/8:0", "10.0.0.0/8:x", "fe80::/129"] {
            assert!(peer(entry).unwrap_err().contains("neither"), "{entry}");
        }
    }
}
