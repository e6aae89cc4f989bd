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

/// Whether users of containers are others than the machine's.
pub(super) fn has_user_namespaces(info: &SystemInfo) -> bool {
    let kinds = ["name=userns", "name=rootless"];
    info.security_options.iter().flatten().any(|option| option.split(',').any(|part| kinds.contains(&part)))
}

/// The machine's number of a container's root. An Engine with user namespaces keeps its data in a directory of that name.
pub(super) fn first_uid(info: &SystemInfo) -> u32 {
    if !has_user_namespaces(info) {
        return 0;
    }
    let folder = info.docker_root_dir.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    folder.split_once('.').and_then(|(uid, _)| uid.parse().ok()).unwrap_or(0)
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
    let guard = super::guard::can().await;
    checks.push(Check {
        what: "Docker: desks can't reach this machine and its networks".into(),
        good: guard.is_ok(),
        detail: guard.as_ref().err().map_or("rules of the packet filter keep them out".into(), |reason| {
            let then = if docker.config.unguarded { "they can" } else { "no desk is started" };
            format!("{then}, because {reason}")
        }),
        fix: guard.is_err().then(|| "apt-get install iptables, and run hotdesk as root".into()),
    });
    let separate = has_user_namespaces(&info);
    checks.push(Check {
        what: "Docker: root of a desk is nobody on this machine".into(),
        good: separate,
        detail: match (separate, docker.config.shared_root) {
            (true, _) => "the Engine has user namespaces".into(),
            (false, true) => "root of desks of root templates is this machine's root, with few capabilities".into(),
            (false, false) => "templates whose programs may become root are refused".into(),
        },
        fix: (!separate).then(|| r#"put "userns-remap": "default" into /etc/docker/daemon.json and restart the Engine"#.into()),
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
