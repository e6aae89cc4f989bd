//! Programs of the host that make a disk. They are ended when the build is given up.

use crate::{Error, Result};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// Programs and the package that has each. All of them work without root.
const TOOLS: [(&str, &str); 5] = [
    ("mke2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("grub-mkimage", "grub-common"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
];
/// The boot loader's parts for a PC's BIOS.
pub(super) const LOADER_PARTS: &str = "/usr/lib/grub/i386-pc";
const QEMU_IMG: (&str, &str) = ("qemu-img", "qemu-utils");
/// So much of what a program complained about is told.
const LAST_LINES: usize = 8;

/// Whether everything is there; asked before anything is done.
pub(super) fn check(qcow2: bool) -> Result<()> {
    let wanted = TOOLS.into_iter().chain(qcow2.then_some(QEMU_IMG));
    let mut missing: Vec<&str> = wanted.filter(|(tool, _)| path_of(tool).is_none()).map(|(_, package)| package).collect();
    if !Path::new(LOADER_PARTS).join("boot.img").is_file() {
        missing.push("grub-pc-bin");
    }
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    Err(Error::Failed(format!("making a disk needs {list}, which is not installed; `apt-get install {list}` installs it")))
}

/// A program of the host; also where an ordinary user's PATH does not lead.
pub(super) fn command(tool: &str) -> Command {
    let mut command = Command::new(path_of(tool).unwrap_or_else(|| tool.into()));
    // Tools that write the time of day into what they make take this one instead.
    command.env("LC_ALL", "C.UTF-8").env("E2FSPROGS_FAKE_TIME", super::EPOCH.to_string());
    command.env("SOURCE_DATE_EPOCH", super::EPOCH.to_string()).env("MKE2FS_CONFIG", "/dev/null");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs it; what it printed.
pub(super) async fn run(command: &mut Command, what: &str) -> Result<String> {
    let output = command.output().await.map_err(|e| Error::Failed(format!("{what}: it can't be started: {e}")))?;
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Ok(said.into_owned());
    }
    if complained.contains("No space left on device") {
        return Err(Error::Full(format!("{what}: the disk ran full")));
    }
    let lines: Vec<&str> = complained.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("; ");
    Err(Error::Failed(format!("{what} failed ({}): {last}", output.status)))
}

fn path_of(tool: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|directory| directory.join(tool)).find(|path| path.is_file())
}
