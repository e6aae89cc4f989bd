//! What the Engine can do, for the fleet and for people.

use super::Docker;
use super::engine::ORDINARY;
use crate::{Check, Result};
use bollard::models::SystemInfo;
use hotdesk_api::fleet::Capabilities;

impl Docker {
    /// What does not change while an Engine runs, asked once: every new desk needs it.
    pub(super) async fn info_once(&self) -> Result<&SystemInfo> {
        self.info.get_or_try_init(|| self.info()).await
    }

    pub(super) async fn info(&self) -> Result<SystemInfo> {
        self.engine.ask(ORDINARY, async |docker| docker.info().await).await
    }
}

pub(super) async fn capabilities(docker: &Docker) -> Capabilities {
    let reason = "the Docker Engine saves files only; the local provider saves memory too".to_owned();
    let mut capabilities = Capabilities {
        reset: true,
        snapshot: true,
        live_fork: false,
        live_fork_reason: reason,
        archive: true,
        network: true,
        volumes: true,
        templates: docker.context.images.names(),
        ..Capabilities::default()
    };
    match docker.info_once().await {
        Ok(info) => {
            capabilities.cpu_limit = info.cpu_cfs_quota.unwrap_or(false);
            capabilities.memory_limit = info.memory_limit.unwrap_or(false);
            capabilities.disk_limit = can_limit_disk(info);
        }
        // Away. Nearly every Engine has these two, and a new desk waits for one that comes back; a refusal would be for good.
        Err(_) => (capabilities.cpu_limit, capabilities.memory_limit) = (true, true),
    }
    capabilities
}

/// Whether `--storage-opt size` works: it does with drivers that have volumes of their own, and with overlay2 on XFS where
/// quotas are on. Whether they are is not told; the first desk finds out.
pub(super) fn can_limit_disk(info: &SystemInfo) -> bool {
    let backing = info.driver_status.iter().flatten().find(|pair| pair.first().is_some_and(|k| k == "Backing Filesystem"));
    match info.driver.as_deref() {
        Some("btrfs" | "zfs" | "devicemapper") => true,
        Some("overlay2") => backing.and_then(|pair| pair.get(1)).is_some_and(|fs| fs == "xfs"),
        _ => false,
    }
}

pub(super) async fn check(docker: &Docker) -> Vec<Check> {
    let info = match docker.info().await {
        Ok(info) => info,
        Err(e) => {
            return vec![Check {
                what: "Docker Engine".into(),
                good: false,
                detail: e.to_string(),
                fix: Some("apt-get install docker.io && systemctl start docker".into()),
            }];
        }
    };
    let version = info.server_version.clone().unwrap_or_default();
    let driver = info.driver.clone().unwrap_or_default();
    let mut checks = vec![Check {
        what: "Docker Engine".into(),
        good: true,
        detail: format!("version {version} at {}, storage driver {driver}", docker.engine.host),
        fix: None,
    }];
    let guard = docker.can_guard().await;
    checks.push(Check {
        what: "Docker: desks can't reach this machine".into(),
        good: guard.is_ok(),
        detail: guard.as_ref().err().map_or("a rule of the packet filter keeps them out".into(), |reason| {
            format!("they can reach its addresses other than loopback, because {reason}")
        }),
        fix: guard.is_err().then(|| "apt-get install iptables, and run hotdesk as root".into()),
    });
    let disk = can_limit_disk(&info);
    for (what, good, detail, fix) in [
        (
            "memory limit",
            info.memory_limit.unwrap_or(false),
            "desks can take all of the machine's memory",
            "boot with cgroup_enable=memory",
        ),
        ("CPU limit", info.cpu_cfs_quota.unwrap_or(false), "desks can take all CPUs", "use a kernel with CFS bandwidth control"),
        (
            "process limit",
            info.pids_limit.unwrap_or(false),
            "desks can take all process numbers",
            "use a kernel with the pids cgroup",
        ),
        ("disk limit", disk, "desks can fill the Engine's disk", "put Docker's data on XFS mounted with pquota"),
    ] {
        let detail = if good { "enforced".into() } else { format!("not enforced: {detail}") };
        checks.push(Check { what: format!("Docker: {what}"), good, detail, fix: (!good).then(|| fix.into()) });
    }
    checks
}
