//! What a machine is made of, and the words by which QEMU makes it.

use super::accel::Accel;
use hotdesk_api::action::Size;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What must be the same in a machine and in all that resume its memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub program: PathBuf,
    pub accel: Accel,
    pub cpus: u32,
    pub memory_mib: u64,
    pub screen: Size,
    /// The kernel to start with; none: whatever the disk's boot sector says.
    pub direct: Option<Direct>,
    /// Another firmware than QEMU's own, such as OVMF.
    pub firmware: Option<PathBuf>,
}

/// A kernel that QEMU itself loads, which saves firmware and boot loader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direct {
    pub kernel: PathBuf,
    pub initrd: Option<PathBuf>,
    pub command_line: String,
}

/// What a guest may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing.
    Off,
    /// The outside, never this machine.
    #[default]
    Outside,
}

/// Where the guest's memory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// In QEMU's own.
    Own,
    /// In a file, which others can resume from when it is saved.
    Kept { ram: PathBuf },
    /// Saved by another machine; what is written stays our own.
    Resumed { ram: PathBuf, state: PathBuf },
    /// Saved as one stream, to be put into a file as the one above needs it.
    Unpacked { ram: PathBuf, stream: PathBuf },
}

impl Memory {
    pub(crate) fn is_incoming(&self) -> bool {
        matches!(self, Self::Resumed { .. } | Self::Unpacked { .. })
    }
}

/// The sockets that QEMU is born with, by number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sockets {
    pub(crate) monitor: i32,
    pub(crate) console: i32,
    /// Frames from the guest.
    pub(crate) frames: i32,
    /// Those of them that may go on.
    pub(crate) allowed: i32,
    /// Frames of the keeper for the guest.
    pub(crate) keeper: i32,
}

/// The name of the live view's socket, in QEMU's directory.
pub(crate) const VIEW: &str = "view.sock";
/// The file of the desk's token, in QEMU's directory. The guest reads it as `opt/hotdesk/token`.
pub(crate) const TOKEN: &str = "token";
/// Settings for the desk inside, the same way as `opt/hotdesk/settings`.
pub(crate) const SETTINGS: &str = "settings";
/// All guests have the same; none sees another.
const MAC: &str = "52:54:00:68:64:01";

/// QEMU's arguments. Paths are relative to its directory but for those that were given absolute.
pub(crate) fn arguments(
    name: &str,
    machine: &Machine,
    disk: &Path,
    memory: &Memory,
    network: Network,
    sockets: Sockets,
) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut put = |words: &[&str]| all.extend(words.iter().map(OsString::from));
    put(&["-name", &format!("guest={name}"), "-nodefaults", "-no-user-config", "-display", "none"]);
    // What a guest that broke out could do with the kernel.
    put(&["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"]);
    let accel = machine.accel.words();
    put(&accel.each_ref().map(String::as_str));
    put(&["-smp", &machine.cpus.to_string(), "-m", &format!("{}M", machine.memory_mib)]);
    put(&["-machine", "pc,memory-backend=ram,vmport=off", "-rtc", "base=utc,clock=host"]);
    let size = format!("id=ram,size={}M", machine.memory_mib);
    let file = |ram: &Path, share: &str| format!("memory-backend-file,{size},mem-path={},share={share}", escaped(ram));
    let backend = match memory {
        Memory::Own => format!("memory-backend-ram,{size}"),
        Memory::Kept { ram } | Memory::Unpacked { ram, .. } => file(ram, "on"),
        Memory::Resumed { ram, .. } => file(ram, "off"),
    };
    put(&["-object", &backend]);
    put(&["-blockdev", &format!("driver=qcow2,node-name=disk,discard=unmap,file.driver=file,file.filename={}", escaped(disk))]);
    put(&["-device", "virtio-blk-pci,drive=disk,bootindex=1"]);
    network_words(&mut put, network, sockets);
    put(&["-device", &format!("virtio-net-pci,netdev=net,romfile=,mac={MAC}"), "-device", "virtio-rng-pci"]);
    // New random numbers for every machine that goes on from one memory.
    put(&["-device", "vmgenid,guid=auto"]);
    put(&["-device", &format!("VGA,edid=on,xres={},yres={}", machine.screen.width, machine.screen.height)]);
    put(&["-device", "virtio-tablet-pci", "-vnc", &format!("unix:{VIEW},share=ignore")]);
    put(&["-chardev", &format!("socket,id=monitor,fd={}", sockets.monitor), "-mon", "chardev=monitor,mode=control"]);
    put(&["-chardev", &format!("socket,id=console,fd={}", sockets.console), "-serial", "chardev:console"]);
    put(&["-fw_cfg", &format!("name=opt/hotdesk/token,file={TOKEN}")]);
    put(&["-fw_cfg", &format!("name=opt/hotdesk/settings,file={SETTINGS}")]);
    if let Some(firmware) = &machine.firmware {
        put(&["-bios", &firmware.to_string_lossy()]);
    }
    if let Some(direct) = &machine.direct {
        put(&["-kernel", &direct.kernel.to_string_lossy(), "-append", &direct.command_line]);
        if let Some(initrd) = &direct.initrd {
            put(&["-initrd", &initrd.to_string_lossy()]);
        }
    }
    if memory.is_incoming() {
        put(&["-S", "-incoming", "defer"]);
    }
    all
}

/// The user-mode network carries what the guest sends to the outside, and listens to nobody: connections into the guest are the
/// keeper's (`wire`).
fn network_words(put: &mut impl FnMut(&[&str]), network: Network, sockets: Sockets) {
    let mut words = String::from("user,id=net,ipv6=off,hostname=desk");
    if network == Network::Off {
        words += ",restrict=on";
    }
    put(&["-netdev", &words]);
    for (name, number) in [("frames", sockets.frames), ("allowed", sockets.allowed), ("keeper", sockets.keeper)] {
        put(&["-chardev", &format!("socket,id={name},fd={number}")]);
    }
    // Frames pass through the last one first; what comes back goes on behind it.
    put(&["-object", "filter-redirector,id=back,netdev=net,queue=rx,indev=allowed"]);
    put(&["-object", "filter-redirector,id=out,netdev=net,queue=rx,outdev=frames"]);
    put(&["-object", "filter-redirector,id=in,netdev=net,queue=tx,indev=keeper"]);
}

/// A path inside a list of options, where a comma would end it.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(memory: &Memory, network: Network) -> String {
        let machine = Machine {
            program: "qemu".into(),
            accel: Accel::Tcg,
            cpus: 2,
            memory_mib: 512,
            screen: Size { width: 1024, height: 768 },
            direct: None,
            firmware: None,
        };
        let sockets = Sockets { monitor: 3, console: 4, frames: 6, allowed: 7, keeper: 8 };
        let all = arguments("hotdesk-x", &machine, Path::new("/a,b/disk"), memory, network, sockets);
        all.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_guest_that_may_go_out_is_filtered() {
        let open = words(&Memory::Own, Network::Outside);
        assert!(open.contains("outdev=frames") && !open.contains("restrict"), "{open}");
        assert!(open.find("indev=allowed") < open.find("outdev=frames"), "the order decides whether frames go in circles");
        let shut = words(&Memory::Own, Network::Off);
        assert!(shut.contains("restrict=on") && shut.contains("outdev=frames"), "{shut}");
        for words in [open, shut] {
            assert!(!words.contains("hostfwd"), "a port of this machine, open to all its users: {words}");
        }
    }

    #[test]
    fn memory_and_names() {
        let ram = PathBuf::from("/s/ram");
        let resumed = words(&Memory::Resumed { ram: ram.clone(), state: "/s/state".into() }, Network::Off);
        assert!(resumed.contains("mem-path=/s/ram,share=off") && resumed.contains("-incoming defer"), "{resumed}");
        let kept = words(&Memory::Kept { ram }, Network::Off);
        assert!(kept.contains("share=on") && !kept.contains("-incoming"), "{kept}");
        assert!(kept.contains("filename=/a,,b/disk"), "a comma in a name is no end of it");
    }
}
