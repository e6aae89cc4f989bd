//! Volumes whose files are in a bucket (`s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`): rclone mounts it on the volume's directory.
//!
//! rclone goes on by itself when the orchestrator ends, as desks do. Who may use the bucket is said by the orchestrator's
//! environment (`AWS_…`, `RCLONE_…`, `GOOGLE_APPLICATION_CREDENTIALS`), so only keys of the whole fleet make such volumes.

use crate::error::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// A bucket that is not there by then is not reached at all.
const MOUNT_LIMIT: Duration = Duration::from_secs(60);
const LOOK_LIMIT: Duration = Duration::from_secs(30);
const LONGEST: usize = 512;
/// What others wrote into the bucket is seen after so long.
const FRESH: &str = "10s";
/// The user of desks.
const USER: &str = "1000";

/// Whether such a source can be mounted here, and if not, why.
pub(super) fn check(source: &str) -> Result<()> {
    remote(source)?;
    for (tool, package) in [("rclone", "rclone"), ("fusermount3", "fuse3")] {
        if find(tool).is_none() {
            return Err(Error::Invalid(format!(
                "the source {source} needs {tool}, which is not installed on the fleet's machine: apt-get install {package}"
            )));
        }
    }
    Ok(())
}

/// Mounts the source, unless it is mounted. Afterwards it can be read.
pub(super) async fn mount(source: &str, directory: &Path) -> Result<()> {
    let failed = |why: String| Error::Provider(hotdesk_provider::Error::Failed(format!("{source} can't be mounted: {why}")));
    if is_mounted(directory) {
        match readable(directory).await {
            Ok(()) => return Ok(()),
            // Its rclone died.
            Err(_) => unmount(directory).await?,
        }
    }
    let log = directory.with_extension("log");
    let talk = std::fs::File::create(&log).map_err(|e| failed(e.to_string()))?;
    let mut command = Command::new("rclone");
    command.arg("mount").arg(remote(source)?).arg(directory);
    command.args(["--daemon", "--allow-other", "--config", "/dev/null", "--vfs-cache-mode", "writes"]);
    command.args(["--dir-cache-time", FRESH, "--umask", "022", "--uid", USER, "--gid", USER]);
    // rclone's own transport can't take it; certificates are found where the system has them.
    command.env_remove("AWS_CA_BUNDLE");
    if let Some(endpoint) = endpoint() {
        command.env("RCLONE_S3_ENDPOINT", endpoint);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(talk).process_group(0).kill_on_drop(true);
    let status = tokio::time::timeout(MOUNT_LIMIT, command.status()).await;
    let mounted = match status {
        Ok(Ok(status)) if status.success() => readable(directory).await,
        Ok(Ok(_)) => Err(last_line(&log)),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("rclone took longer than {} s", MOUNT_LIMIT.as_secs())),
    };
    if let Err(why) = mounted {
        let _ = unmount(directory).await;
        return Err(failed(why));
    }
    Ok(())
}

/// Takes it down. What is in the bucket stays.
pub(super) async fn unmount(directory: &Path) -> Result<()> {
    for how in ["-u", "-uz"] {
        if !is_mounted(directory) {
            return Ok(());
        }
        let mut command = Command::new("fusermount3");
        command.arg(how).arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = tokio::time::timeout(LOOK_LIMIT, command.status()).await;
    }
    match is_mounted(directory) {
        false => Ok(()),
        true => Err(Error::Conflict(format!("{} can't be unmounted; is somebody at work in it?", directory.display()))),
    }
}

/// Whether something is mounted on the directory: it is on another device than the one above it, or can't be asked.
pub(super) fn is_mounted(directory: &Path) -> bool {
    let Some(above) = directory.parent().and_then(|above| above.metadata().ok()) else { return false };
    match std::fs::symlink_metadata(directory) {
        Ok(data) => data.dev() != above.dev(),
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}

async fn readable(directory: &Path) -> Result<(), String> {
    let directory = directory.to_owned();
    let look = tokio::task::spawn_blocking(move || std::fs::read_dir(directory)?.next().transpose().map(drop));
    match tokio::time::timeout(LOOK_LIMIT, look).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(e))) => Err(format!("the bucket can't be listed: {e}")),
        _ => Err(format!("the bucket was not listed within {} s", LOOK_LIMIT.as_secs())),
    }
}

/// rclone's name of the source. It has a syntax of its own for settings in names, so only plain names are passed on.
fn remote(source: &str) -> Result<String> {
    let wrong = || {
        Error::Invalid(format!(
            "a source is s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of letters, digits, dots, dashes, underscores and slashes, and {source:?} is not"
        ))
    };
    let (kind, path) = source.split_once("://").ok_or_else(wrong)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    let good = |part: &str| !part.is_empty() && part != "." && part != "..";
    let path = path.trim_end_matches('/');
    if source.len() > LONGEST || !path.chars().all(plain) || !path.split('/').all(good) {
        return Err(wrong());
    }
    match kind {
        "s3" => {
            let provider = if endpoint().is_some() { "Other" } else { "AWS" };
            Ok(format!(":s3,env_auth=true,provider={provider}:{path}"))
        }
        "gs" => Ok(format!(":gcs,env_auth=true,bucket_policy_only=true:{path}")),
        _ => Err(wrong()),
    }
}

/// Of a server other than Amazon's.
fn endpoint() -> Option<std::ffi::OsString> {
    ["RCLONE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
        .into_iter()
        .find_map(std::env::var_os)
        .filter(|url| !url.is_empty())
}

fn find(tool: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(tool)).find(|path| path.is_file())
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("rclone failed without a word").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_plain() {
        assert!(remote("s3://bucket/some/prefix/").unwrap().ends_with(":bucket/some/prefix"));
        assert!(remote("gs://bucket").unwrap().starts_with(":gcs,"));
        for source in
            ["", "bucket", "s3://", "s3://a,b:c", "s3://a/../b", "s3://a b", "file:///etc", "s3:///x", "s3://a//b", "s3://a\"b"]
        {
            assert!(remote(source).is_err(), "{source}");
        }
    }
}
