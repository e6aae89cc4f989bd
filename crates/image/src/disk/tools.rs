//! Programs from elsewhere: found, run to their end or to the job's, and told about when they are missing.

use super::Meter;
use crate::{Error, Result};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// So often a job's end is looked for while a program runs.
const MOMENT: Duration = Duration::from_millis(50);
/// Of what a program says, this much is told.
const TALK: u64 = 4 << 10;

pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

/// The Debian package that has a program.
fn package(tool: &str) -> &'static str {
    match tool {
        "qemu-img" => "qemu-utils",
        "qemu-storage-daemon" => "qemu-system-common",
        "e2fsck" => "e2fsprogs",
        _ => "fuse3",
    }
}

/// Where a program is. System directories are looked into too: users often lack them in PATH.
pub(crate) fn find(tool: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(tool))
        .find(|path| path.is_file())
        .ok_or_else(|| Error::Failed(format!("{tool} is not installed: apt-get install {}", package(tool))))
}

/// Runs a program to its end.
pub(crate) fn run<S: AsRef<OsStr>>(tool: &str, args: &[S], meter: &Meter) -> Result<Output> {
    let mut command = Command::new(find(tool)?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("LC_ALL", "C").process_group(0);
    let mut child = command.spawn().map_err(|e| Error::Failed(format!("{tool} can't be started: {e}")))?;
    let talk = (child.stdout.take(), child.stderr.take());
    let told = std::thread::spawn(move || {
        let (out, err) = talk;
        let other = std::thread::spawn(move || last(err));
        let mut text = last(out);
        text += &other.join().unwrap_or_default();
        text
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if meter.check().is_ok() => std::thread::sleep(MOMENT),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                meter.check()?;
                return Err(Error::Failed(format!("{tool} could not be waited for")));
            }
        }
    };
    let text = told.join().unwrap_or_default().trim().to_owned();
    Ok(Output { code: status.code(), text })
}

/// The last that a program says, all of which is read.
fn last(from: Option<impl Read>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        kept.extend(&buffer[..length]);
        let surplus = kept.len().saturating_sub(TALK as usize);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
