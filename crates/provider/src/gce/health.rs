//! What works here: credentials, zones, images, quotas, the way in.

use super::config::region;
use super::fault::Fault;
use super::model::Image;
use super::{Gce, LABEL_TEMPLATE};
use crate::Check;
use hotdesk_api::fleet::Capabilities;
use serde_json::Value;
use std::collections::BTreeSet;

/// Why a running desk can't be forked.
pub(super) const NO_MEMORY: &str = "Compute Engine saves disks only; the local and qemu providers can do both";
/// Quotas that desks use up.
const QUOTAS: [&str; 4] = ["CPUS", "INSTANCES", "SSD_TOTAL_GB", "IN_USE_ADDRESSES"];
/// The desk's port, as firewall rules write it.
const PORT: u16 = 5000;

impl Gce {
    pub(super) fn can(&self) -> Capabilities {
        Capabilities {
            reset: true,
            snapshot: true,
            live_fork: false,
            live_fork_reason: NO_MEMORY.into(),
            archive: false,
            network: true,
            cpu_limit: true,
            memory_limit: true,
            disk_limit: true,
            volumes: false,
            // Whatever has an image; that is asked when it is wanted.
            templates: Vec::new(),
        }
    }

    pub(super) async fn look_around(&self) -> Vec<Check> {
        let mut checks = vec![self.check_access().await];
        if !checks[0].good {
            return checks;
        }
        checks.extend(self.check_quotas().await);
        checks.push(self.check_images().await);
        checks.push(self.check_firewall().await);
        checks
    }

    async fn check_access(&self) -> Check {
        let zones = &self.config.zones;
        let mut down = Vec::new();
        for zone in zones {
            match self.api.get::<Value>(&format!("zones/{zone}")).await {
                Ok(found) if found["status"] == "UP" => {}
                Ok(_) => down.push(format!("{zone} is down")),
                Err(Fault::Gone(_)) => down.push(format!("{zone} does not exist")),
                Err(fault) => {
                    let fix = "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS; see docs/provider-gce.md for the roles";
                    return check("Compute Engine", false, crate::Error::from(fault).to_string(), Some(fix));
                }
            }
        }
        let detail = format!("project {}, zones {}", self.api.project(), zones.join(", "));
        match down.is_empty() {
            true => check("Compute Engine", true, detail, None),
            false => check(
                "Compute Engine",
                down.len() < zones.len(),
                format!("{detail}; {}", down.join(", ")),
                Some("set `zones` in [gce]"),
            ),
        }
    }

    async fn check_quotas(&self) -> Vec<Check> {
        let regions: BTreeSet<&str> = self.config.zones.iter().map(|zone| region(zone)).collect();
        let mut checks = Vec::new();
        for region in regions {
            let Ok(found) = self.api.get::<Value>(&format!("regions/{region}")).await else { continue };
            let quotas = found["quotas"].as_array().cloned().unwrap_or_default();
            let (mut texts, mut good) = (Vec::new(), true);
            for quota in quotas.iter().filter(|quota| QUOTAS.iter().any(|name| quota["metric"] == *name)) {
                let number = |name: &str| quota[name].as_f64().unwrap_or_default();
                let (used, limit) = (number("usage"), number("limit"));
                good &= used < limit || (quota["metric"] == "IN_USE_ADDRESSES" && !self.config.external_ip);
                texts.push(format!("{} {used} of {limit}", quota["metric"].as_str().unwrap_or_default()));
            }
            checks.push(check(
                &format!("quotas of {region}"),
                good,
                texts.join(", "),
                Some("ask Google for more: IAM & Admin, Quotas"),
            ));
        }
        checks
    }

    async fn check_images(&self) -> Check {
        match self.api.list::<Image>("global/images", &format!("labels.{LABEL_TEMPLATE}:*")).await {
            Ok(images) if images.is_empty() && self.config.image_project.is_none() => {
                check("golden images", false, "there are none".into(), Some("hotdesk image publish base"))
            }
            Ok(images) => {
                let families: BTreeSet<&str> = images.iter().map(|image| image.family.as_str()).collect();
                check("golden images", true, families.into_iter().collect::<Vec<_>>().join(", "), None)
            }
            Err(fault) => check("golden images", false, crate::Error::from(fault).to_string(), None),
        }
    }

    /// Whether a rule lets the gateway in; and whether one lets in the whole world.
    async fn check_firewall(&self) -> Check {
        let what = "way to the desks";
        let fix = "let tcp:5000 in from the gateway alone; deploy/gce has the rules";
        let rules: Vec<Value> = match self.api.list("global/firewalls", "direction = \"INGRESS\"").await {
            Ok(rules) => rules,
            Err(fault) => return check(what, false, crate::Error::from(fault).to_string(), None),
        };
        let opens = |rule: &&Value| rule["disabled"] != true && self.is_for_desks(rule) && allows(rule, PORT);
        let open: Vec<&Value> = rules.iter().filter(opens).collect();
        let world =
            |rule: &&&Value| rule["sourceRanges"].as_array().is_some_and(|all| all.iter().any(|range| range == "0.0.0.0/0"));
        let names = |rules: &[&Value]| rules.iter().filter_map(|rule| rule["name"].as_str()).collect::<Vec<_>>().join(", ");
        match open.iter().find(world) {
            Some(rule) => check(what, false, format!("{} lets the whole internet in", names(&[rule])), Some(fix)),
            None if open.is_empty() => check(what, false, format!("no firewall rule allows tcp:{PORT}"), Some(fix)),
            None => check(what, true, format!("by {}", names(&open)), None),
        }
    }

    fn is_for_desks(&self, rule: &Value) -> bool {
        match rule["targetTags"].as_array() {
            Some(tags) => tags.iter().any(|tag| self.config.tags.iter().any(|own| tag == own)),
            None => rule["targetServiceAccounts"].is_null(),
        }
    }
}

/// Whether a rule allows a port of TCP.
fn allows(rule: &Value, port: u16) -> bool {
    let covers = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u16>().is_ok_and(|first| first <= port) && last.parse::<u16>().is_ok_and(|last| port <= last)
    };
    rule["allowed"].as_array().into_iter().flatten().any(|allowed| {
        let protocol = allowed["IPProtocol"].as_str().unwrap_or_default();
        let any_port = || allowed["ports"].as_array().is_none_or(|ports| ports.iter().filter_map(Value::as_str).any(covers));
        protocol == "all" || (matches!(protocol, "tcp" | "6") && any_port())
    })
}

fn check(what: &str, good: bool, detail: String, fix: Option<&str>) -> Check {
    Check { what: what.into(), good, detail, fix: fix.filter(|_| !good).map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn firewall_rules_are_read() {
        let rule = |allowed: Value| json!({ "allowed": allowed });
        assert!(allows(&rule(json!([{ "IPProtocol": "tcp", "ports": ["22", "4000-6000"] }])), 5000));
        assert!(allows(&rule(json!([{ "IPProtocol": "all" }])), 5000));
        assert!(allows(&rule(json!([{ "IPProtocol": "tcp" }])), 5000));
        assert!(!allows(&rule(json!([{ "IPProtocol": "tcp", "ports": ["5001"] }])), 5000));
        assert!(!allows(&rule(json!([{ "IPProtocol": "udp" }])), 5000));
        assert!(!allows(&json!({ "denied": [{ "IPProtocol": "tcp" }] }), 5000));
    }
}
