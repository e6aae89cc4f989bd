//! The root file system inside the disk: made by `mke2fs` from the tree and completed by `debugfs`, so nothing is
//! mounted and nobody needs to be root.

use super::{FIRST_SECTOR, SECTOR, tool};
use crate::{Error, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use tokio::process::Command;

pub(super) const LABEL: &str = "hotdesk";
/// Fixed, so that two builds are equal. Desks never see each other's disks.
const UUID: &str = "1d6fa2b0-7c55-4e0a-9d2e-68646573006b";
const HASH_SEED: &str = "4b8e7f10-52a3-4c9b-8f41-68646573006c";
/// No checksums of metadata: an emulated processor spends a noticeable part of its time on them, and the host's disk
/// has its own. Otherwise what ext4 has had for many years, so that GRUB and old kernels read it.
const FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize";
/// One inode for so many bytes: a desktop has some 25,000 files in a gigabyte.
const BYTES_PER_INODE: u32 = 32768;
/// MiB. A desk's disk is written little.
const JOURNAL: u32 = 16;

/// A file that is put into the root besides what the tree has.
pub(super) struct Extra {
    pub(super) path: &'static str,
    pub(super) from: PathBuf,
    pub(super) mode: u32,
}

/// Whose the files below a directory are, where the tree's own owners say nothing: a tree that was built without root
/// belongs to whoever built it.
pub(super) struct Home<'a> {
    pub(super) path: &'a str,
    pub(super) uid: u32,
}

pub(super) async fn make(disk: &Path, bytes: u64, tree: &Path, extras: &[Extra], home: &Home<'_>) -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let mut command = if root { tool::command("mke2fs") } else { as_root_of_nothing("mke2fs") };
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-m", "0", "-O", FEATURES]);
    command.args(["-L", LABEL, "-U", UUID, "-i", &BYTES_PER_INODE.to_string(), "-J", &format!("size={JOURNAL}")]);
    let offset = FIRST_SECTOR * SECTOR;
    command
        .arg("-E")
        .arg(format!("offset={offset},hash_seed={HASH_SEED},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0,nodiscard"));
    command.arg("-d").arg(tree).arg(disk).arg(format!("{}k", (bytes - offset) / 1024));
    tool::run(&mut command, "making the root file system").await?;
    complete(disk, offset, &script(tree, extras, (!root).then_some(home))?).await
}

/// In a user namespace of its own, where all files of the user are root's.
fn as_root_of_nothing(tool_name: &str) -> Command {
    let mut command = tool::command("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--",
        "env",
        &format!("PATH={}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()),
        tool_name,
    ]);
    command
}

/// What is done to the file system, in the words of `debugfs`.
fn script(tree: &Path, extras: &[Extra], home: Option<&Home<'_>>) -> Result<String> {
    let mut script = String::new();
    for extra in extras {
        let inside = tree.join(extra.path.trim_start_matches('/'));
        if inside.symlink_metadata().is_ok() {
            let _ = writeln!(script, "rm {}", extra.path);
        }
        let from = quote(&extra.from)?;
        let _ = writeln!(script, "write {from} {0}\nsif {0} mode 0{1:o}", extra.path, 0o100_000 | extra.mode);
        for (name, value) in [("uid", "0"), ("gid", "0"), ("mtime", &format!("@{}", super::EPOCH))] {
            let _ = writeln!(script, "sif {} {name} {value}", extra.path);
        }
    }
    let Some(home) = home else { return Ok(script) };
    for path in below(&tree.join(home.path.trim_start_matches('/'))) {
        let inside = quote(&Path::new("/").join(path.strip_prefix(tree).unwrap_or(&path)))?;
        let _ = writeln!(script, "sif {inside} uid {0}\nsif {inside} gid {0}", home.uid);
    }
    Ok(script)
}

/// A path and everything below it.
fn below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_path_buf()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        if path.symlink_metadata().is_ok_and(|data| data.is_dir()) {
            found.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        next += 1;
    }
    found
}

async fn complete(disk: &Path, offset: u64, script: &str) -> Result<()> {
    let path = disk.with_extension("commands");
    std::fs::write(&path, script).map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?;
    let mut command = tool::command("debugfs");
    command.arg("-w").arg("-f").arg(&path).arg(format!("{}?offset={offset}", disk.display()));
    command.stderr(std::process::Stdio::piped());
    let output = command.output().await.map_err(|e| Error::Failed(format!("debugfs can't be started: {e}")))?;
    // It ends well whatever happened; what went wrong it says after the command that it repeats.
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let trouble = complained
        .lines()
        .filter(|line| !line.starts_with("debugfs 1."))
        .chain(said.lines())
        .find(|line| !line.is_empty() && !line.starts_with("debugfs: ") && !line.starts_with("Allocated inode: "));
    match trouble {
        None if output.status.success() => Ok(()),
        None => Err(Error::Failed(format!("debugfs failed: {}", output.status))),
        Some(line) if line.contains("Could not allocate") || line.contains("No space") || line.contains("No free space") => {
            Err(Error::Invalid(format!("the disk is too small for what is in it ({line}); say a larger --size")))
        }
        Some(line) => Err(Error::Failed(format!("the root file system can't be completed: {line}"))),
    }
}

/// One word for debugfs, which knows double quotes and nothing within them.
fn quote(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(text) if !text.contains(['"', '\n']) => Ok(format!("\"{text}\"")),
        _ => Err(Error::Invalid(format!("{} has a name that can't be put on a disk", path.display()))),
    }
}
