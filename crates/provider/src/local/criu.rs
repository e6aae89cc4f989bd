//! Running desks saved with their memory, and copies of them, by CRIU.
//!
//! ```text
//!   dump      the desk's server closes what leads out of the sandbox (POST /v1/freeze)
//!             criu stops all its processes, writes them down and holds them
//!                 └─ meanwhile its files are saved: files and memory belong to one moment
//!             criu lets them go; the server is told to go on (file `thaw`)
//!   restore   a new sandbox, empty, on the saved files
//!             criu makes the processes in it
//!             the server finds the file `thaw` with its new secret, and listens
//! ```
//!
//! Everything in the sandbox's mount table but its root, `/proc` and `/dev/pts` is *external* to CRIU: at a restore it is
//! taken from the new sandbox, mounted there as for any new desk. So nothing of the host, and nothing of the desk that was
//! saved, is in the saved state; and CRIU has no file system to pack, which would double the time.

pub(crate) mod dump;
pub(crate) mod image;
mod live;
pub(crate) mod restore;
pub(crate) mod talk;
mod trial;
mod words;

pub(crate) use live::mend_door;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// The first version that knows the address space of kernels from 6.13 on.
const LEAST: (u32, u32) = (4, 1);
/// Names the program.
const SETTING: &str = "HOTDESK_CRIU";
/// `criu check` takes a tenth of a second.
const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// A CRIU that works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Criu {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

/// A CRIU with which running desks can be saved and restored here, or the reason why there is none.
/// What was found to work is remembered in `data` until the next boot.
pub(crate) async fn available(data: &Path) -> Result<Criu, String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("saving running programs needs root".into());
    }
    let criu = find().await?;
    let proof = data.join("criu-works");
    let key = key(&criu).map_err(|e| format!("{}: {e}", criu.program.display()))?;
    if std::fs::read_to_string(&proof).is_ok_and(|known| known == key) {
        return Ok(criu);
    }
    check(&criu).await?;
    trial::run(&criu).await?;
    if let Err(reason) = std::fs::write(&proof, &key) {
        tracing::debug!(%reason, "that CRIU works can't be remembered");
    }
    Ok(criu)
}

/// The first program of the setting, the path, and the cache of `scripts/criu` that is new enough.
async fn find() -> Result<Criu, String> {
    let mut too_old = None;
    for program in candidates() {
        match version(&program).await {
            Some(version) if new_enough(&version) => return Ok(Criu { program, version }),
            Some(version) => too_old = too_old.or(Some((program, version))),
            None => {}
        }
    }
    let (major, minor) = LEAST;
    Err(match too_old {
        Some((program, version)) => format!(
            "{} is CRIU {version}, and {major}.{minor} or newer is needed; run scripts/criu, which builds one",
            program.display()
        ),
        None => format!("CRIU is not installed; run scripts/criu, which builds version {major}.{minor} or newer"),
    })
}

fn candidates() -> Vec<PathBuf> {
    let named = std::env::var_os(SETTING).filter(|value| !value.is_empty()).map(PathBuf::from);
    // Whoever names one wants that one.
    if let Some(named) = named {
        return vec![named];
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join("criu"))
        .filter(|program| program.is_file());
    let mut built: Vec<_> = cache()
        .and_then(|tools| std::fs::read_dir(tools).ok())
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("criu-"))
        .map(|entry| entry.path().join("criu"))
        .filter(|program| program.is_file())
        .collect();
    built.sort();
    installed.take(1).chain(built.into_iter().rev()).collect()
}

/// Where `scripts/criu` puts what it builds.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").or_else(|| nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.dir));
    Some(set("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache")))?.join("hotdesk/tools"))
}

async fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(std::process::Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(CHECK_LIMIT, output).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("Version:")).map(|version| version.trim().to_owned())
}

fn new_enough(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= LEAST
}

/// Whether this kernel has what it needs.
async fn check(criu: &Criu) -> Result<(), String> {
    let output = Command::new(&criu.program).arg("check").stdin(std::process::Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(CHECK_LIMIT, output)
        .await
        .map_err(|_| "criu check did not end".to_owned())?
        .map_err(|e| format!("{} can't be started: {e}", criu.program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Err(format!("criu check says: {}", words::errors(&text).unwrap_or_else(|| text.trim().to_owned())))
}

/// What must be the same for a proof to hold.
fn key(criu: &Criu) -> io::Result<String> {
    let meta = std::fs::metadata(&criu.program)?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(format!("{} {} {} {}", criu.program.display(), meta.size(), meta.mtime(), boot.trim()))
}

/// The line about it for people.
pub(crate) fn check_line(criu: &Result<Criu, String>) -> crate::Check {
    crate::Check {
        what: "snapshots and forks of running desks".into(),
        good: criu.is_ok(),
        detail: match criu {
            Ok(criu) => format!("CRIU {} ({})", criu.version, criu.program.display()),
            Err(reason) => format!("{reason}; snapshots and forks are of files alone"),
        },
        fix: criu.is_err().then(|| "scripts/criu".into()),
    }
}

/// Words that both commands need.
fn common_words(images: &Path, work: &Path, log: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    for (name, value) in [("-D", images.as_os_str()), ("-W", work.as_os_str()), ("-o", log.as_ref())] {
        words.extend([name.into(), value.to_owned()]);
    }
    let fixed = [
        // Errors and warnings; more would cost a tenth of the time.
        "-v2",
        // Neither a setting of the machine's nor one of a user's is meant for us.
        "--no-default-config",
        // A copy's network is a new one.
        "--empty-ns",
        "net",
        // Who restores is in the group of the new desk already.
        "--manage-cgroups=ignore",
        // Whoever was at the other end of a connection can't be at two ends now.
        "--tcp-close",
        "--file-locks",
        "--link-remap",
        // The layers below can't change, and programs are replaced, not written over.
        "--file-validation",
        "filesize",
    ];
    words.extend(fixed.map(OsString::from));
    words
}

/// For the shell of the script that CRIU runs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Shows a directory as `/run`, in the helper's own namespace of mounts.
fn show_memory_as_run(memory: Option<&Path>) -> super::sandbox::Outcome<()> {
    use super::sandbox::Step;
    memory.map_or(Ok(()), |memory| rustix::mount::mount_bind(memory, "/run")).step(|| "show memory as /run".into())
}

/// CRIU asks the kernel what it can, which takes 15 ms, and remembers the answer only if `/run` is in memory. Where it is
/// not, this directory, which is, is shown to it as `/run`.
fn memory_for_run() -> Option<PathBuf> {
    const TMPFS: nix::libc::c_long = 0x0102_1994;
    let in_memory = |path: &str| rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type as nix::libc::c_long == TMPFS);
    if in_memory("/run") || !in_memory("/dev/shm") {
        return None;
    }
    let path = PathBuf::from("/dev/shm/hotdesk-criu");
    let _ = std::fs::DirBuilder::new().mode(0o700).create(&path);
    let meta = std::fs::symlink_metadata(&path).ok()?;
    // Everybody may write to that place; what CRIU believes must be ours.
    (meta.is_dir() && meta.uid() == 0 && meta.permissions().mode() & 0o077 == 0).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, good) in
            [("4.1", true), ("4.2.1", true), ("4.10", true), ("5.0", true), ("4.0", false), ("3.17.1", false), ("", false)]
        {
            assert_eq!(new_enough(version), good, "{version}");
        }
    }

    #[tokio::test]
    async fn one_that_works_is_remembered() {
        let data = tempfile::tempdir().unwrap();
        let criu = available(data.path()).await.expect("CRIU works here; scripts/criu builds one");
        let proof = std::fs::read_to_string(data.path().join("criu-works")).unwrap();
        assert!(proof.contains(&*criu.program.to_string_lossy()));
        assert_eq!(available(data.path()).await.unwrap(), criu);
    }
}
