//! Blocks that the file systems inside a disk do not use, found by e2fsck, which knows best.
//!
//! An empty overlay is laid over the disk; qemu-storage-daemon shows both as one file (FUSE); `e2fsck -E discard` tells
//! that file what is free, and the overlay notes it as zeros. The disk itself is never written.

use super::chain::{Link, args_of};
use super::qcow2::header::Header;
use super::qcow2::writer::Writer;
use super::{Chain, Meter, Unfinished, at, tools};
use crate::{Error, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// To appear, and to go away: both take milliseconds.
const SOON: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(20);

/// Adds a layer that hides free blocks to a chain of files. The layer's file lasts as long as the guard that is returned.
/// Also returns what is to be told about file systems that were left alone.
pub(crate) fn hide(
    links: Vec<Link>,
    size: u64,
    output: &Path,
    starts: &[u64],
    meter: &Meter,
) -> Result<(Chain, Unfinished, Vec<String>)> {
    let overlay = Unfinished::beside(output, "free")?;
    Writer::new(overlay.create()?, size, None).finish().map_err(|e| at(overlay.path(), &e))?;
    let mut notes = Vec::new();
    {
        let shown = Shown::new(&links, overlay.path(), size, meter)?;
        for (index, start) in starts.iter().enumerate() {
            meter.begin(&format!("looking for free space, file system {} of {}", index + 1, starts.len()), 0);
            if let Err(why) = discard(&shown.point.path().join(POINT), *start, meter) {
                meter.check()?;
                notes.push(format!("the file system at byte {start} was left as it is: {why}"));
            }
        }
        shown.end()?;
    }
    let file = std::fs::File::open(overlay.path()).map_err(|e| at(overlay.path(), &e))?;
    let mut head = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(&file, 4096), &mut head).map_err(|e| at(overlay.path(), &e))?;
    let length = file.metadata().map_err(|e| at(overlay.path(), &e))?.len();
    let header = Header::parse(&head, length).map_err(|why| super::invalid(overlay.path(), &why))?;
    let mut chain = vec![Link { path: overlay.path().to_owned(), format: super::Format::Qcow2, header: Some(header), file }];
    chain.extend(links);
    Ok((chain, overlay, notes))
}

fn discard(disk: &Path, start: u64, meter: &Meter) -> Result<()> {
    let place = format!("{}?offset={start}", disk.display());
    // Repairs that need no decision are made (in the overlay), as at every boot.
    let output = tools::run("e2fsck", &["-f", "-p", "-E", "discard", &place], meter)?;
    match output.code {
        Some(0..=2) => Ok(()),
        _ => Err(Error::Failed(format!("e2fsck does not trust it: {}", output.text.lines().last().unwrap_or_default()))),
    }
}

const POINT: &str = "disk";

/// The disk with its overlay as one file, while it lasts.
struct Shown {
    daemon: Child,
    point: tempfile::TempDir,
    ended: bool,
}

impl Shown {
    fn new(links: &[Link], overlay: &Path, size: u64, meter: &Meter) -> Result<Self> {
        let program = tools::find("qemu-storage-daemon")?;
        tools::find("e2fsck")?;
        if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
            return Err(Error::Failed("/dev/fuse can't be opened here".into()));
        }
        let overlay = overlay.canonicalize().map_err(|e| at(overlay, &e))?;
        let point = tempfile::Builder::new().prefix("hotdesk-disk-").tempdir().map_err(|e| at(&std::env::temp_dir(), &e))?;
        let file = point.path().join(POINT);
        std::fs::write(&file, b"").map_err(|e| at(&file, &e))?;
        let node = serde_json::json!({
            "driver": "qcow2", "node-name": "disk", "discard": "unmap",
            "file": { "driver": "file", "filename": overlay, "discard": "unmap" },
            "backing": args_of(links)?.blockdev,
        });
        let export = serde_json::json!({
            "type": "fuse", "id": "shown", "node-name": "disk", "mountpoint": file, "writable": true, "growable": false,
        });
        let log = std::fs::File::create(point.path().join("log")).map_err(|e| at(point.path(), &e))?;
        let mut command = Command::new(program);
        command.arg("--blockdev").arg(node.to_string()).arg("--export").arg(export.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        // SAFETY: only a system call is made between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?));
        }
        let daemon = command.spawn().map_err(|e| Error::Failed(format!("qemu-storage-daemon can't be started: {e}")))?;
        let mut shown = Self { daemon, point, ended: false };
        shown.wait(&file, size, meter)?;
        Ok(shown)
    }

    /// Until the file has the size of the disk.
    fn wait(&mut self, file: &PathBuf, size: u64, meter: &Meter) -> Result<()> {
        let end = Instant::now() + SOON;
        loop {
            meter.check()?;
            if std::fs::metadata(file).is_ok_and(|data| data.len() == size) {
                return Ok(());
            }
            if matches!(self.daemon.try_wait(), Ok(Some(_)) | Err(_)) {
                let log = std::fs::read_to_string(self.point.path().join("log")).unwrap_or_default();
                let hint = if log.contains("fuse") { " (apt-get install fuse3)" } else { "" };
                return Err(Error::Failed(format!("qemu-storage-daemon can't show the disk{hint}: {}", log.trim())));
            }
            if Instant::now() > end {
                return Err(Error::Failed(format!("qemu-storage-daemon did not show the disk within {} s", SOON.as_secs())));
            }
            std::thread::sleep(MOMENT);
        }
    }

    /// Takes it down in good order, so that everything is in the overlay.
    fn end(mut self) -> Result<()> {
        self.ended = true;
        if self.terminate() { Ok(()) } else { Err(Error::Failed("qemu-storage-daemon did not end in good order".into())) }
    }

    fn terminate(&mut self) -> bool {
        if let Some(pid) = rustix::process::Pid::from_raw(self.daemon.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.daemon.try_wait() {
                return status.success();
            }
            std::thread::sleep(MOMENT);
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        // What a killed one leaves mounted.
        let point = self.point.path().join(POINT);
        let _ = Command::new("fusermount3").arg("-uz").arg(point).stdout(Stdio::null()).stderr(Stdio::null()).status();
        false
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if !self.ended {
            self.terminate();
        }
    }
}
