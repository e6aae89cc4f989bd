//! A small process in namespaces of its own, saved and restored: whether the kernel lets us do it is seen by doing it.

use super::{Criu, common_words, words};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// Each of the steps takes some ten milliseconds.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);
/// Nobody waits for it that long; it ends by itself if we are killed.
const LIFE: &str = "300";

/// Shows `/` as a root of its own and starts a process there, first of its namespaces. `$1` is the place of that root.
const BEGIN: &str = r#"mount --bind / "$1" || exit 1
exec unshare --user --map-root-user --mount --pid --ipc --uts --net --fork setsid sh -c '
mount --rbind "$1" "$1" && mount -t proc proc "$1/proc" && cd "$1" && pivot_root . . && umount -l . && cd / || exit 1
echo ready; exec <&- >&- 2>&-; exec sleep "$2"' sh "$1" "$2""#;

/// Restores it there. `$1` is the root; the rest is the command.
const AGAIN: &str = r#"mount --bind / "$1" || exit 1
shift; exec "$@""#;

pub(super) async fn run(criu: &Criu) -> Result<(), String> {
    let folder = tempfile_folder().map_err(|e| format!("no room for a trial: {e}"))?;
    let result = tokio::time::timeout(LIMIT, save_and_restore(criu, &folder)).await;
    let _ = std::fs::remove_dir_all(&folder);
    result.unwrap_or_else(|_| Err(format!("a trial took longer than {} s", LIMIT.as_secs())))
}

fn tempfile_folder() -> std::io::Result<std::path::PathBuf> {
    let folder = std::env::temp_dir().join(format!("hotdesk-criu-{:016x}", rand::random::<u64>()));
    std::fs::create_dir(&folder)?;
    for name in ["root", "images"] {
        std::fs::create_dir(folder.join(name))?;
    }
    Ok(folder)
}

async fn save_and_restore(criu: &Criu, folder: &Path) -> Result<(), String> {
    let (root, images) = (folder.join("root"), folder.join("images"));
    let mut process = in_own_mounts(BEGIN)
        .arg(&root)
        .arg(LIFE)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("unshare can't be started: {e}"))?;
    let first = match first_process(&mut process).await {
        Ok(first) => first,
        Err(reason) => return Err(format!("a process in namespaces of its own can't be started: {reason}")),
    };
    let mut dump = Command::new(&criu.program);
    dump.arg("dump").arg("-t").arg(first.to_string()).args(common_words(&images, &images, "dump.log"));
    dump.args(["--network-lock", "skip"]);
    let saved = finish(dump, &images.join("dump.log"), "saved").await;
    let _ = kill(Pid::from_raw(first), Signal::SIGKILL);
    let _ = process.wait().await;
    saved?;
    let mut restore = in_own_mounts(AGAIN);
    restore.arg(&root).arg(&criu.program).args(["restore", "--restore-detached", "--pidfile", "pid", "--root"]).arg(&root);
    restore.args(common_words(&images, &images, "restore.log"));
    let restored = finish(restore, &images.join("restore.log"), "restored").await;
    let pid = std::fs::read_to_string(images.join("pid")).ok().and_then(|text| text.trim().parse().ok());
    if let Some(pid) = pid {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    restored?;
    pid.map(drop).ok_or_else(|| "a process was restored, but nobody knows which".to_owned())
}

/// A shell in a mount namespace of its own, whose mounts nobody else sees.
fn in_own_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).stdin(Stdio::null()).kill_on_drop(true);
    // What whoever started us left open for everybody leads out of the trial.
    // SAFETY: one plain system call between fork and exec, which sets a flag.
    unsafe {
        command.pre_exec(|| {
            nix::libc::syscall(nix::libc::SYS_close_range, 3, nix::libc::c_uint::MAX, nix::libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    command
}

/// The one that the script has become, once it says that it is ready.
async fn first_process(process: &mut Child) -> Result<i32, String> {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
    let mut line = String::new();
    if let Some(stdout) = process.stdout.take() {
        let _ = BufReader::new(stdout).read_line(&mut line).await;
    }
    if line.trim() != "ready" {
        let mut text = String::new();
        if let Some(mut stderr) = process.stderr.take() {
            let _ = stderr.read_to_string(&mut text).await;
        }
        return Err(text.lines().next().unwrap_or("it ended").to_owned());
    }
    let outer = process.id().ok_or("it ended")?;
    let children = format!("/proc/{outer}/task/{outer}/children");
    loop {
        let child = std::fs::read_to_string(&children)
            .ok()
            .and_then(|text| text.split_whitespace().next().and_then(|pid| pid.parse::<i32>().ok()))
            .ok_or("it ended")?;
        // Between the word and the program that it becomes, it still has the shell's descriptors.
        if std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name.trim() == "sleep") {
            return Ok(child);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn finish(mut command: Command, log: &Path, done: &str) -> Result<(), String> {
    let output =
        command.stdin(Stdio::null()).kill_on_drop(true).output().await.map_err(|e| format!("criu can't be started: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = std::fs::read_to_string(log).unwrap_or_default() + &String::from_utf8_lossy(&output.stderr);
    Err(format!("a small process could not be {done}: {}", words::errors(&text).unwrap_or_else(|| output.status.to_string())))
}
