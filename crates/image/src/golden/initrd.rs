//! What the kernel starts first: an archive with a shell, the modules that lead to the disk, and a script that mounts the root
//! and hands over to `hotdesk boot` on it.

use super::kernel::Parts;
use crate::{Error, Result};

/// Seconds are counted in twentieths: so often a root that has not appeared yet is looked for again, and in all for 30 s.
pub(super) const SCRIPT: &str = r#"#!/bin/sh
# Loads the modules, mounts the root, goes on there.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
echo "hotdesk: kernel"
while read -r module; do $b insmod "/modules/$module.ko" 2>/dev/null; done < /modules/order

root=LABEL=hotdesk
read -r line < /proc/cmdline
for word in $line; do
  case $word in root=*) root=${word#root=} ;; esac
done
tries=0
while :; do
  case $root in
    LABEL=* | UUID=*) device=$($b findfs "$root" 2>/dev/null) ;;
    *) device=$root ;;
  esac
  [ -b "$device" ] && break
  tries=$((tries + 1))
  if [ $tries -gt 600 ]; then
    echo "hotdesk: error: there is no disk $root; these are there:" $($b ls /sys/class/block)
    $b poweroff -f
  fi
  $b usleep 50000
done
if ! $b mount -t ext4 -o noatime "$device" /root; then
  echo "hotdesk: error: $device can't be mounted"
  $b poweroff -f
fi
for place in dev proc sys; do $b mount --move /$place /root/$place; done
exec $b switch_root /root /usr/local/bin/hotdesk boot
"#;

const DIRECTORY: u32 = 0o040755;
const PROGRAM: u32 = 0o100755;
const LINK: u32 = 0o120777;

/// The archive, not compressed: an emulated processor needs longer to unpack it than to read it.
pub(super) fn archive(parts: &Parts) -> Result<Vec<u8>> {
    let shell = std::fs::read(&parts.shell).map_err(|e| Error::Failed(format!("{}: {e}", parts.shell.display())))?;
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "modules", "proc", "root", "sys"] {
        archive.add(directory, DIRECTORY, b"");
    }
    archive.add("bin/busybox", PROGRAM, &shell);
    archive.add("bin/sh", LINK, b"busybox");
    archive.add("init", PROGRAM, SCRIPT.as_bytes());
    let mut order = String::new();
    for (name, bytes) in &parts.modules {
        order.push_str(&format!("{name}\n"));
        archive.add(&format!("modules/{name}.ko"), PROGRAM, bytes);
    }
    archive.add("modules/order", PROGRAM, order.as_bytes());
    Ok(archive.finish())
}

/// The kernel's format of archives (cpio, `newc`): a header of hexadecimal numbers, the name, the bytes, each filled up to
/// a multiple of four.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    count: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.count += 1;
        let (inode, links, name_size) = (self.count, 1, name.len() + 1);
        let size = content.len();
        self.bytes.extend_from_slice(b"070701");
        // inode, mode, owner, group, links, time, size, device (2), device of a node (2), size of the name, check
        for number in [inode as usize, mode as usize, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0] {
            self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.fill();
        self.bytes.extend_from_slice(content);
        self.fill();
    }

    fn fill(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, b"");
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_one() {
        let mut archive = Archive::default();
        archive.add("bin", DIRECTORY, b"");
        archive.add("bin/x", PROGRAM, b"12345");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("07070100000001000041ED"));
        assert!(text.contains("bin/x\0") && text.contains("12345") && text.contains("TRAILER!!!"));
        // The second header begins where the first entry ends: 110 bytes of header, 4 of name, filled up.
        assert_eq!(&bytes[116..122], b"070701");
    }

    #[test]
    fn the_script_is_one() {
        let checked = std::process::Command::new("sh").args(["-n", "-c", SCRIPT]).status().unwrap();
        assert!(checked.success());
    }
}
