//! What works on this machine.

use super::Config;
use super::cgroup::Trees;
use super::directory::Directory;
use super::disk;
use super::ids::Ids;
use super::network::Tool;
use super::sandbox::probe::Probe;
use super::sandbox::{Answer, Task};
use crate::{Check, Context};
use hotdesk_api::fleet::Capabilities;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Enough for hundreds of desks that share a user's count.
const INOTIFY_INSTANCES: u64 = 8192;

/// What is not there, and what would bring it.
pub(crate) struct Missing {
    pub(crate) what: String,
    pub(crate) fix: &'static str,
}

/// What was found at the start.
pub(crate) struct Ability {
    pub(crate) root: bool,
    /// Why desks can't be made at all, if they can't.
    pub(crate) refused: Option<String>,
    pub(crate) groups: Trees,
    pub(crate) images: Result<(), String>,
    pub(crate) mapped: Result<(), String>,
    pub(crate) network: Result<Tool, Missing>,
    inotify: u64,
}

impl Ability {
    pub(crate) fn probe(context: &Context, directory: &Directory, config: &Config) -> Self {
        let root = rustix::process::geteuid().is_root();
        let images = match (root, config.disk_images) {
            (false, _) => Err("only root may use loop devices".to_owned()),
            (true, false) => Err("switched off by the setting disk_images".to_owned()),
            (true, true) => disk::loops_work(directory),
        };
        let refused = refusal().or_else(|| attempt(context, own_ids(), Vec::new()).err());
        let mapped = match (root, config.mapped_mounts) {
            (false, _) => Err("only root may shift owners".to_owned()),
            (true, false) => Err("switched off by the setting mapped_mounts".to_owned()),
            (true, true) if refused.is_some() => Err("no namespaces can be made".to_owned()),
            (true, true) => overlays_on_shifted_mounts()
                .and_then(|()| attempt(context, own_ids(), vec![directory.stage(), context.images.directory().to_owned()])),
        };
        let groups = if root { Trees::find() } else { Trees::default() };
        let inotify = inotify_instances(root);
        let network = match Tool::find() {
            None => {
                Err(Missing { what: "neither slirp4netns nor pasta is installed".into(), fix: "apt-get install -y slirp4netns" })
            }
            Some(_) if !root && !tunnels() => {
                Err(Missing { what: "/dev/net/tun may not be opened by this user".into(), fix: "chmod 666 /dev/net/tun" })
            }
            Some(tool) => Ok(tool),
        };
        Self { root, refused, groups, images, mapped, network, inotify }
    }

    pub(crate) fn capabilities(&self, templates: Vec<String>) -> Capabilities {
        Capabilities {
            reset: true,
            snapshot: true,
            // Asked when it is first needed.
            live_fork: false,
            live_fork_reason: String::new(),
            archive: true,
            network: self.network.is_ok(),
            cpu_limit: self.groups.limits_cpu(),
            memory_limit: self.groups.limits_memory(),
            disk_limit: self.images.is_ok(),
            volumes: true,
            templates,
        }
    }

    pub(crate) fn checks(&self) -> Vec<Check> {
        let line = |what: &str, good: bool, detail: String, fix: Option<&str>| Check {
            what: what.into(),
            good,
            detail,
            fix: fix.filter(|_| !good).map(Into::into),
        };
        let refused = self.refused.clone();
        vec![
            line(
                "namespaces",
                refused.is_none(),
                refused.unwrap_or_else(|| {
                    let who = if self.root { "as root, each desk with users of its own" } else { "without root" };
                    format!("can be made, {who}")
                }),
                Some("sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=65536"),
            ),
            line(
                "owners of files",
                self.mapped.is_ok() || !self.root,
                match &self.mapped {
                    Ok(()) => "shifted by the mount".into(),
                    Err(_) if !self.root => "all files belong to this user".into(),
                    Err(reason) => format!("each template is copied once with shifted owners: {reason}"),
                },
                Some("use Linux 5.19 or newer, with templates and data on ext4, xfs or btrfs"),
            ),
            line(
                "limits of CPU, memory and processes",
                self.groups.limits_memory() && self.groups.limits_cpu() && self.groups.limits_processes(),
                match self.groups.describe() {
                    "none" if !self.root => "control groups need root; desks share the machine without limits".into(),
                    "none" => "no control group tree can be written".into(),
                    version => format!("control groups, {version}"),
                },
                Some(if self.root { "mount -t cgroup2 none /sys/fs/cgroup" } else { "run hotdesk as root" }),
            ),
            line(
                "hard limit of the disk",
                self.images.is_ok(),
                match &self.images {
                    Ok(()) => "an ext4 image per desk".into(),
                    Err(reason) => format!("{reason}; the size is only watched"),
                },
                Some(if self.root { "modprobe loop" } else { "run hotdesk as root" }),
            ),
            line(
                "network of desks",
                self.network.is_ok(),
                match &self.network {
                    Ok(tool) => format!("{}, without rights", tool.name()),
                    Err(missing) => format!("{}; desks have no network", missing.what),
                },
                self.network.as_ref().err().map(|missing| missing.fix),
            ),
            line(
                "inotify instances",
                self.inotify >= INOTIFY_INSTANCES,
                format!("{} for all desks that share a user's count; a desk takes two or more", self.inotify),
                Some("sysctl -w fs.inotify.max_user_instances=8192"),
            ),
        ]
    }
}

/// How many of them a user has. Copies of running desks share one user's count, and so do all desks where root lacks
/// rights; the usual 128 would be used up by forty of them. So root raises it.
fn inotify_instances(root: bool) -> u64 {
    const FILE: &str = "/proc/sys/fs/inotify/max_user_instances";
    let read = || std::fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if root && read() < INOTIFY_INSTANCES && std::fs::write(FILE, INOTIFY_INSTANCES.to_string()).is_ok() {
        tracing::info!(instances = INOTIFY_INSTANCES, "the limit of inotify instances per user was raised");
    }
    read()
}

/// Who the users of a desk would be, for a try.
fn own_ids() -> Ids {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() { Ids::shifted() } else { Ids::Single { uid: uid.as_raw(), gid: gid.as_raw() } }
}

/// Lets the helper try it: only a process of one thread can.
fn attempt(context: &Context, ids: Ids, shift: Vec<PathBuf>) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("{} can't be started: {e}", context.binary.display());
    let task = serde_json::to_vec(&Task::Probe(Probe { ids, shift })).map_err(|e| failed(&e))?;
    let (reader, mut writer) = std::io::pipe().map_err(|e| failed(&e))?;
    // A plan is far smaller than what a pipe holds.
    writer.write_all(&task).map_err(|e| failed(&e))?;
    drop(writer);
    let output = Command::new(&context.binary).arg("sandbox").stdin(reader).output().map_err(|e| failed(&e))?;
    match serde_json::from_slice(&output.stdout) {
        Ok(Answer::Failed(trouble)) => Err(trouble.text),
        Ok(_) => Ok(()),
        Err(_) => Err(failed(&output.status)),
    }
}

/// Linux 5.19 has them.
fn overlays_on_shifted_mounts() -> Result<(), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 19) { Ok(()) } else { Err(format!("Linux {release} can't; 5.19 can")) }
}

fn tunnels() -> bool {
    let wanted = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    rustix::fs::access("/dev/net/tun", wanted).is_ok()
}

/// Why no user namespace can be made, if so.
fn refusal() -> Option<String> {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    if !std::path::Path::new("/proc/self/ns/user").exists() {
        return Some("this kernel has no user namespaces".into());
    }
    if read("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return Some("user namespaces are switched off (user.max_user_namespaces is 0)".into());
    }
    let root = rustix::process::geteuid().is_root();
    if !root && read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return Some("only root may make user namespaces (kernel.unprivileged_userns_clone is 0)".into());
    }
    if !root && read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return Some("AppArmor lets only root make user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let images = std::sync::Arc::new(hotdesk_image::Library::open(folder.path().join("images")).unwrap());
        let context = Context { fleet: "test".into(), data: folder.path().into(), binary: "/nowhere/hotdesk".into(), images };
        let mut ability = Ability::probe(&context, &directory, &Config::default());
        assert!(ability.refused.as_ref().is_some_and(|reason| reason.contains("/nowhere/hotdesk")));
        ability.network = Err(Missing { what: "nothing is installed".into(), fix: "install something" });
        ability.images = Err("there are no loop devices".into());
        ability.groups = Trees::default();
        let capabilities = ability.capabilities(vec!["bare".into()]);
        assert!(!capabilities.network && !capabilities.disk_limit && !capabilities.memory_limit && capabilities.reset);
        for check in ability.checks() {
            assert!(!check.detail.is_empty());
            assert_eq!(check.good, check.fix.is_none(), "{check:?}");
        }
    }
}
