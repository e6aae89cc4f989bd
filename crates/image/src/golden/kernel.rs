//! The kernel of a disk: Debian's for clouds, from the host's own package sources, and what it needs to find its disk.
//!
//! Nothing is installed on the host: packages are unpacked into the directory of the build. Which kernel runs below a tree does
//! not depend on the tree's release, so the host's newest is taken.

use super::tool;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Small (no drivers of real hardware), with everything that virtual machines have.
const KERNEL: &str = "linux-image-cloud-amd64";
/// What runs before the root is mounted: one static program.
const SHELL: &str = "busybox-static";

/// Loaded before the root is looked for, each after what it needs: disks and network cards of QEMU and of clouds, the settings that
/// QEMU hands in, the power button, and random numbers. What the kernel has built in (ext4, NVMe) need not be here.
const MODULES: [&str; 14] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_scsi",
    "sd_mod",
    "ata_piix",
    "virtio_net",
    "gve",
    "ena",
    "qemu_fw_cfg",
    "button",
    "evdev",
    "virtio_rng",
    "virtio_console",
    "virtio_balloon",
];

/// A package with its exact version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
}

impl Package {
    /// The name under which apt keeps it.
    fn file_name(&self) -> String {
        format!("{}_{}_amd64.deb", self.name, self.version.replace(':', "%3a"))
    }

    fn of_file_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix("_amd64.deb")?.splitn(2, '_');
        Some(Self { name: parts.next()?.into(), version: parts.next()?.replace("%3a", ":") })
    }
}

/// The kernel and the shell of the first minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) kernel: Package,
    pub(super) shell: Package,
}

/// What apt would install now; or, where apt knows nothing, what was used before.
pub(super) async fn choose(debs: &Path) -> Result<Chosen> {
    let kernel = match show(KERNEL).await {
        Some(stanza) => field(&stanza, "Depends").as_deref().and_then(first_dependency),
        None => None,
    };
    let kernel = kernel.or_else(|| kept(debs, |name| name.starts_with("linux-image-") && name.ends_with("-cloud-amd64")));
    let shell = match show(SHELL).await {
        Some(stanza) => field(&stanza, "Version").map(|version| Package { name: SHELL.into(), version }),
        None => None,
    };
    let shell = shell.or_else(|| kept(debs, |name| name == SHELL));
    match (kernel, shell) {
        (Some(kernel), Some(shell)) => Ok(Chosen { kernel, shell }),
        _ => Err(Error::Failed(format!(
            "a disk needs the packages {KERNEL} and {SHELL}, which apt on this machine does not know; `apt-get update` must work first"
        ))),
    }
}

/// The parts of a disk that are not in the tree.
pub(super) struct Parts {
    pub(super) kernel: PathBuf,
    pub(super) shell: PathBuf,
    /// In the order in which they must be loaded.
    pub(super) modules: Vec<(String, Vec<u8>)>,
}

pub(super) async fn unpack(chosen: &Chosen, debs: &Path, work: &Path) -> Result<Parts> {
    let mut roots = Vec::new();
    for package in [&chosen.kernel, &chosen.shell] {
        let deb = fetch(package, debs, work).await?;
        let root = work.join(&package.name);
        tool::run(tool::command("dpkg-deb").arg("-x").args([&deb, &root]), &format!("unpacking {}", package.name)).await?;
        roots.push(root);
    }
    let release = chosen.kernel.name.trim_start_matches("linux-image-");
    let all = module_files(&roots[0]);
    let mut modules = Vec::new();
    for name in MODULES {
        add(name, &all, &mut modules).await?;
    }
    Ok(Parts { kernel: roots[0].join(format!("boot/vmlinuz-{release}")), shell: roots[1].join("bin/busybox"), modules })
}

async fn fetch(package: &Package, debs: &Path, work: &Path) -> Result<PathBuf> {
    let kept = debs.join(package.file_name());
    if kept.is_file() {
        return Ok(kept);
    }
    let wanted = format!("{}={}", package.name, package.version);
    let mut command = tool::command("apt-get");
    command.args(["-o", "APT::Sandbox::User=root", "-q", "download", &wanted]).current_dir(work);
    tool::run(&mut command, &format!("fetching {wanted}")).await?;
    let fetched = work.join(package.file_name());
    std::fs::rename(&fetched, &kept).map_err(|e| Error::Failed(format!("{}: {e}", fetched.display())))?;
    Ok(kept)
}

/// The newest version, in apt's words.
async fn show(package: &str) -> Option<String> {
    let mut command = tool::command("apt-cache");
    command.args(["show", "--no-all-versions", package]);
    tool::run(&mut command, package).await.ok().filter(|text| !text.trim().is_empty())
}

fn field(stanza: &str, name: &str) -> Option<String> {
    stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(|value| value.trim().to_owned())
}

/// `a (= 1), b` names a, version 1.
fn first_dependency(list: &str) -> Option<Package> {
    let (name, rest) = list.split(',').next()?.trim().split_once(" (= ")?;
    Some(Package { name: name.into(), version: rest.strip_suffix(')')?.into() })
}

/// The newest package of a kind that was downloaded before.
fn kept(debs: &Path, is: impl Fn(&str) -> bool) -> Option<Package> {
    let entries = std::fs::read_dir(debs).into_iter().flatten().flatten();
    let packages = entries.filter_map(|entry| {
        let package = Package::of_file_name(entry.file_name().to_str()?)?;
        is(&package.name).then_some((entry.metadata().and_then(|data| data.modified()).ok()?, package))
    });
    packages.max_by_key(|(time, _)| *time).map(|(_, package)| package)
}

/// Every module of a kernel by its name, in the spelling with underscores.
fn module_files(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut open = vec![root.join("lib/modules"), root.join("usr/lib/modules")];
    let mut found = BTreeMap::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if let Some((name, _)) = entry.file_name().to_str().and_then(|name| name.split_once(".ko")) {
                found.insert(name.replace('-', "_"), path);
            }
        }
    }
    found
}

/// Adds a module after those that it needs. One that is not there is built into the kernel.
async fn add(name: &str, all: &BTreeMap<String, PathBuf>, to: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let Some(path) = all.get(name) else { return Ok(()) };
    if to.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let fail = |e: std::io::Error| Error::Failed(format!("{}: {e}", path.display()));
    let mut bytes = std::fs::read(path).map_err(fail)?;
    if path.extension().is_some_and(|end| end == "xz") {
        let plain = path.with_extension("");
        tool::run(tool::command("xz").args(["-d", "-k"]).arg(path), "unpacking a module").await?;
        bytes = std::fs::read(&plain).map_err(fail)?;
    }
    for needed in dependencies(&bytes) {
        Box::pin(add(&needed, all, to)).await?;
    }
    to.push((name.to_owned(), bytes));
    Ok(())
}

/// A module says itself what it needs.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_the_names_that_apt_gives_them() {
        let package = Package { name: "busybox-static".into(), version: "1:1.35.0-4+b1".into() };
        assert_eq!(package.file_name(), "busybox-static_1%3a1.35.0-4+b1_amd64.deb");
        assert_eq!(Package::of_file_name(&package.file_name()), Some(package));
        let kernel = first_dependency("linux-image-6.1.0-9-cloud-amd64 (= 6.1.1-1), other").unwrap();
        assert_eq!((kernel.name.as_str(), kernel.version.as_str()), ("linux-image-6.1.0-9-cloud-amd64", "6.1.1-1"));
    }

    #[tokio::test]
    async fn modules_come_after_what_they_need() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("lib/modules/1/kernel");
        std::fs::create_dir_all(&folder).unwrap();
        for (name, needs) in [("net-a", "b,c-d"), ("b", "c-d"), ("c-d", "")] {
            std::fs::write(folder.join(format!("{name}.ko")), format!("x\0depends={needs}\0y")).unwrap();
        }
        let all = module_files(directory.path());
        let mut modules = Vec::new();
        for name in ["net_a", "c_d", "built_in"] {
            add(name, &all, &mut modules).await.unwrap();
        }
        let names: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["c_d", "b", "net_a"]);
    }
}
