//! What makes a PC's BIOS start the disk: GRUB's first sector and its core, put where a BIOS looks, without installing
//! anything. The first sector as it is built loads the core from the sector after it, so nothing has to be patched.
//!
//! ```text
//!   sector 0       first program, table of partitions      GRUB's boot.img
//!   sector 1 …     GRUB's core, which can read ext4         grub-mkimage
//!   sector 2048 …  the one partition: the root, ext4
//! ```

use super::{FIRST_SECTOR, SECTOR, tool};
use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What the core does: there is no menu, and nothing to wait for.
pub(super) const SCRIPT: &str = "set root=(hd0,msdos1)\nlinux /boot/vmlinuz COMMAND_LINE\ninitrd /boot/initrd\nboot\n";
/// The core's abilities: the BIOS's disks, the table of partitions, the file system, Linux.
const MODULES: [&str; 5] = ["biosdisk", "part_msdos", "ext2", "linux", "boot"];

/// The first program ends here; the disk's signature and the table of partitions follow.
const PROGRAM_SIZE: usize = 440;
const TABLE: usize = 446;
/// The disk's own number, by which some systems tell disks apart.
const SIGNATURE: u32 = 0x6865_7364;
const ACTIVE: u8 = 0x80;
const LINUX: u8 = 0x83;
/// Says "beyond what cylinders can count": all who read this count sectors.
const NO_CYLINDER: [u8; 3] = [0xfe, 0xff, 0xff];

/// Names the boot loader's parts.
pub(super) fn digest() -> Result<String> {
    let modules = MODULES.map(|name| format!("{name}.mod"));
    let mut hash = Sha256::new();
    for name in ["boot.img", "diskboot.img", "kernel.img"].into_iter().chain(modules.iter().map(String::as_str)) {
        let path = Path::new(tool::LOADER_PARTS).join(name);
        hash.update(std::fs::read(&path).map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?);
    }
    Ok(crate::digest::hex(&hash.finalize()))
}

/// GRUB's core for a kernel's command line.
pub(super) async fn core(work: &Path, command_line: &str) -> Result<Vec<u8>> {
    let (script, core) = (work.join("grub.cfg"), work.join("core.img"));
    let fail = |path: &Path, e: std::io::Error| Error::Failed(format!("{}: {e}", path.display()));
    std::fs::write(&script, SCRIPT.replace("COMMAND_LINE", command_line)).map_err(|e| fail(&script, e))?;
    let mut command = tool::command("grub-mkimage");
    command.args(["-O", "i386-pc", "-d", tool::LOADER_PARTS, "-p", "(hd0,msdos1)/boot/grub"]);
    command.arg("-c").arg(&script).arg("-o").arg(&core).args(MODULES);
    tool::run(&mut command, "making the boot loader").await?;
    std::fs::read(&core).map_err(|e| fail(&core, e))
}

/// Writes everything that lies before the partition.
pub(super) fn write(disk: &File, sectors: u64, core: &[u8]) -> Result<()> {
    let path = Path::new(tool::LOADER_PARTS).join("boot.img");
    let program = std::fs::read(&path).map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?;
    let room = (FIRST_SECTOR - 1) * SECTOR;
    if program.len() < PROGRAM_SIZE || core.len() as u64 > room {
        return Err(Error::Failed(format!("the boot loader has {} bytes, and there is room for {room}", core.len())));
    }
    let first = first_sector(&program[..PROGRAM_SIZE], sectors);
    let fail = |e: std::io::Error| Error::Failed(format!("the boot loader can't be written: {e}"));
    disk.write_all_at(&first, 0).map_err(fail)?;
    disk.write_all_at(core, SECTOR).map_err(fail)
}

fn first_sector(program: &[u8], sectors: u64) -> Vec<u8> {
    let mut first = program.to_vec();
    first.extend(SIGNATURE.to_le_bytes());
    first.resize(TABLE, 0);
    // A table of this kind counts in 32 bits: 2 TiB, which is more than a desk's disk has.
    let count = u32::try_from(sectors - FIRST_SECTOR).unwrap_or(u32::MAX);
    first.push(ACTIVE);
    first.extend(NO_CYLINDER);
    first.push(LINUX);
    first.extend(NO_CYLINDER);
    first.extend((FIRST_SECTOR as u32).to_le_bytes());
    first.extend(count.to_le_bytes());
    first.resize(SECTOR as usize - 2, 0);
    first.extend([0x55, 0xaa]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sector_names_the_partition() {
        let first = first_sector(&[1; PROGRAM_SIZE], 8 << 21);
        assert_eq!(first.len(), 512);
        assert_eq!(&first[510..], [0x55, 0xaa]);
        assert_eq!(first[446], 0x80);
        assert_eq!(&first[454..458], 2048_u32.to_le_bytes());
        assert_eq!(&first[458..462], ((8_u32 << 21) - 2048).to_le_bytes());
    }
}
