//! What is told about a disk: to whoever boots it (`disk.json`), and to `hotdesk boot` on it.

use super::DiskFormat;
use crate::{DESK_SETTINGS, Error, Result, Template};
use serde::{Deserialize, Serialize};

/// Read by `hotdesk boot`.
pub(super) const BOOT_SETTINGS: &str = "/etc/hotdesk/boot.toml";

/// The kernel's command line on the disk: the root by its label, whatever the disk is called; messages on the serial
/// console; after a crash of the kernel it starts again.
pub(super) const COMMAND_LINE: &str = "root=LABEL=hotdesk rw console=tty0 console=ttyS0,115200 quiet panic=10";
/// The same for a kernel that QEMU loads. The network is that of QEMU's user mode, so nobody has to be asked for an
/// address; protection of processes against each other inside one desk is not worth its time under emulation.
pub(super) const DIRECT_COMMAND_LINE: &str = "root=/dev/vda1 rw console=ttyS0,115200 quiet panic=-1 mitigations=off no_timer_check hotdesk.net=10.0.2.15/24,10.0.2.2,10.0.2.3";

/// The port of the desk's server, on all addresses of the machine.
const PORT: u16 = 5000;
/// MiB with which a desk without programs is comfortable.
const MEMORY: u64 = 1024;

/// A disk and how it is booted: `disk.json`. Names of files are relative to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskInfo {
    pub template: String,
    /// Names the disk by all that went into it.
    pub digest: String,
    /// The digest of the tree that is on it.
    pub rootfs: String,
    pub format: DiskFormat,
    /// How large the disk is for the machine that it is in.
    pub size_bytes: u64,
    /// The file of the disk.
    pub disk: String,
    pub kernel: KernelInfo,
    /// The file with what the kernel starts first.
    pub initrd: String,
    pub boot: Boot,
}

impl DiskInfo {
    pub(super) fn to_json(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| Error::Failed(format!("the disk's description: {e}")))?;
        text.push(b'\n');
        Ok(text)
    }
}

/// The kernel, as a file beside the disk. The same one is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelInfo {
    pub file: String,
    pub package: String,
    pub version: String,
}

/// How the disk is booted and what it does then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// What boots the disk by itself: a PC's BIOS (QEMU's default).
    pub firmware: String,
    /// For `-append`, when QEMU loads kernel and initrd itself, the disk is its first virtio drive (`-drive if=virtio`) and
    /// the network is its user mode's (`-netdev user`, `-device virtio-net-pci`). Leave `hotdesk.net=…` out to ask by DHCP.
    pub command_line: String,
    /// The partition that is the root, and its label.
    pub root: String,
    pub label: String,
    /// Where messages go, and the lines that tell how far it is, in order.
    pub console: String,
    pub stages: Vec<String>,
    /// The desk's server: HTTP, on all addresses of the machine, after the last stage.
    pub port: u16,
    /// Other ports on which programs of the desk serve something.
    pub ports: Vec<u16>,
    /// The desk's token is taken from this file of QEMU's `-fw_cfg name=…,file=…`. Without one whoever reaches the
    /// port can use the desk.
    pub token_fw_cfg: String,
    /// Whom the desk runs as.
    pub user: String,
    pub uid: u32,
    /// MiB that it should have at least.
    pub memory_mib: u64,
}

impl Boot {
    pub(super) fn of(template: &Template) -> Self {
        Self {
            firmware: "bios".into(),
            command_line: DIRECT_COMMAND_LINE.into(),
            root: "/dev/vda1".into(),
            label: super::filesystem::LABEL.into(),
            console: "ttyS0".into(),
            stages: ["kernel", "network", "session", "ready"].map(|stage| format!("hotdesk: {stage}")).into(),
            port: PORT,
            ports: template.ports.clone(),
            token_fw_cfg: "opt/hotdesk/token".into(),
            user: template.user.name.clone(),
            uid: template.user.uid,
            memory_mib: template.resources.as_ref().map_or(MEMORY, |resources| resources.memory_mib.min(2 * MEMORY)),
        }
    }
}

/// The file that tells `hotdesk boot` what it runs, and as whom.
pub(super) fn boot_settings(template: &Template) -> Result<String> {
    #[derive(Serialize)]
    struct Settings<'a> {
        user: &'a str,
        uid: u32,
        home: String,
        config: &'a str,
        port: u16,
        sudo: bool,
    }
    let settings = Settings {
        user: &template.user.name,
        uid: template.user.uid,
        home: template.user.home(),
        config: DESK_SETTINGS,
        port: PORT,
        sudo: template.user.sudo,
    };
    toml::to_string(&settings).map_err(|e| Error::Failed(format!("the settings of the disk: {e}")))
}
