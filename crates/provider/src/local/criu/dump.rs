//! Saving a desk with its memory: the helper's part.
//!
//! All of it is done by the helper, which holds the desk's lock and outlives the orchestrator: whatever becomes of whoever
//! asked, the desk goes on. What is not whole has no name and is swept up.

use super::image::{self, Mount, Saved};
use super::{common_words, memory_for_run, talk, words};
use crate::local::directory;
use crate::local::disk;
use crate::local::ids::Ids;
use crate::local::process::Process;
use crate::local::sandbox::work::Save;
use crate::local::sandbox::{Outcome, Step, Trouble};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Deleted files that programs hold open are saved up to this size. Browsers keep caches and shared memory that way.
const LARGEST_DELETED: &str = "256M";
/// Somebody who came in just before the door was closed may be in the queue of the desk's socket, which CRIU refuses; the
/// next time the queue is empty.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// CRIU makes such names, while it saves, for files that programs hold and that have lost the name by which they were opened.
const GIVEN_BACK: &str = "link_remap.";

/// The task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Dump {
    pub(crate) criu: PathBuf,
    pub(crate) version: String,
    pub(crate) init: Process,
    pub(crate) ids: Ids,
    /// The desk's directory `run`.
    pub(crate) run: PathBuf,
    pub(crate) token: String,
    /// How its files are saved.
    pub(crate) files: Save,
    /// Where the memory goes; does not exist yet.
    pub(crate) to: PathBuf,
    /// Files that may be the desk's binary: it is shared with them, else copied.
    pub(crate) binaries: Vec<PathBuf>,
}

impl Dump {
    /// Saves everything; bytes that it takes.
    pub(crate) fn run(&self) -> Outcome<u64> {
        let upper = self.files.upper()?;
        directory::make_private(&self.to).step(|| format!("make {}", self.to.display()))?;
        self.keep_binary()?;
        let mounts = image::mounts(self.init.pid).step(|| "read the desk's mounts".into())?;
        let door = Door::close(&self.run)?;
        let files = self.dump(&mounts, &upper);
        drop(door);
        let files = files?;
        let saved =
            Saved { mounts, version: self.version.clone(), kernel: image::kernel(), token: self.token.clone(), ids: self.ids };
        directory::write(&self.to.join(image::FILE), &saved).step(|| "note what was saved".into())?;
        Ok(files + disk::size(&self.to).saturating_sub(self.shared()))
    }

    /// A program's memory belongs to the file that it was started from, so the same file is needed for a restore.
    fn keep_binary(&self) -> Outcome<()> {
        let running = format!("/proc/{}/exe", self.init.pid);
        let what = || "keep the desk's program".to_owned();
        let (kept, meta) = (self.to.join(image::BINARY), std::fs::metadata(&running).step(what)?);
        let same =
            |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (meta.dev(), meta.ino()));
        if let Some(path) = self.binaries.iter().find(same)
            && std::fs::hard_link(path, &kept).is_ok()
        {
            return Ok(());
        }
        std::fs::copy(&running, &kept).step(what)?;
        Ok(())
    }

    /// Bytes of the binary, if others have it too.
    fn shared(&self) -> u64 {
        let kept = std::fs::metadata(self.to.join(image::BINARY));
        kept.ok().filter(|meta| meta.nlink() > 1).map_or(0, |meta| meta.blocks() * 512)
    }

    fn dump(&self, mounts: &[Mount], upper: &Path) -> Outcome<u64> {
        let mut tries = 0;
        loop {
            talk::freeze(&self.run, &self.token)
                .map_err(|e| self.ended_or(Trouble::new(format!("the desk can't be prepared: {e}"))))?;
            tries += 1;
            match self.dump_once(mounts, upper) {
                Err(Stopped::Again(_)) if tries < TRIES => std::thread::sleep(PAUSE),
                Err(Stopped::Again(trouble) | Stopped::For(trouble)) => return Err(self.ended_or(trouble)),
                Ok(files) => return Ok(files),
            }
        }
    }

    /// A desk that is gone is the better reason.
    fn ended_or(&self, trouble: Trouble) -> Trouble {
        if self.init.is_alive() { trouble } else { Trouble::new("the desk ended while it was saved") }
    }

    fn dump_once(&self, mounts: &[Mount], upper: &Path) -> Result<u64, Stopped> {
        let (mut steps, tell) = std::io::pipe().step(|| "make a pipe".into())?;
        let (wait, mut go_on) = std::io::pipe().step(|| "make a pipe".into())?;
        let script = self.to.join("hold");
        write_script(&script, &steps_script(tell.as_raw_fd(), wait.as_raw_fd())).step(|| "write a script".into())?;
        for end in [tell.as_fd(), wait.as_fd()] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty()).step(|| "hand on a pipe".into())?;
        }
        let mut command = Command::new(&self.criu);
        command.args(self.words(mounts, &script)).env("PATH", super::PATH);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        super::show_memory_as_run(memory_for_run().as_deref())?;
        let mut child = command.spawn().step(|| format!("start {}", self.criu.display()))?;
        drop((tell, wait));
        let _watch = rustix::process::pidfd_open(rustix::process::Pid::from_child(&child), rustix::process::PidfdFlags::empty())
            .map(|criu| {
                std::thread::spawn({
                    let init = self.init.pid;
                    move || end_with(init, &criu)
                })
            });
        // A byte for each step, the end of the pipe if CRIU ended before.
        let mut reached = || matches!(steps.read(&mut [0]), Ok(1));
        let files = if reached() { self.save_files(upper, reached) } else { Ok(0) };
        if files.is_ok() {
            // If CRIU is not waiting, it failed.
            let _ = go_on.write_all(b"go\n");
        }
        drop(go_on);
        let status = child.wait().step(|| "wait for CRIU".into())?;
        let files = files?;
        if status.success() {
            let _ = std::fs::remove_file(&script);
            return Ok(files);
        }
        let log = std::fs::read_to_string(self.to.join(LOG)).unwrap_or_default();
        let reason = words::errors(&log).unwrap_or_else(|| status.to_string());
        let trouble = Trouble { full: words::is_full(&log), text: format!("the desk's programs can't be saved: {reason}") };
        Err(if words::may_pass(&log) { Stopped::Again(trouble) } else { Stopped::For(trouble) })
    }

    /// While nothing moves, and CRIU writes the memory; `written` waits for the end of that.
    fn save_files(&self, upper: &Path, mut written: impl FnMut() -> bool) -> Outcome<u64> {
        let copy = || {
            // A try before this one may have left its copy.
            directory::remove_all(&self.files.to).step(|| format!("remove {}", self.files.to.display()))?;
            self.files.copy(upper)
        };
        let files = copy()?;
        if !written() {
            return Ok(files);
        }
        image::save_memory_files(self.init.pid, self.ids, &self.to)?;
        if given_back(upper).step(|| "look through the desk's files".into())? { copy() } else { Ok(files) }
    }

    fn words(&self, mounts: &[Mount], script: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["dump".into(), "-t".into(), self.init.pid.to_string().into()];
        words.extend(common_words(&self.to, &self.to, LOG));
        // Connections are closed in the copy, and go on here: nothing is to be held up.
        words.extend(
            ["--leave-running", "--network-lock", "skip", "--skip-in-flight", "--ghost-limit", LARGEST_DELETED].map(Into::into),
        );
        words.extend(["--action-script".into(), script.into()]);
        for mount in mounts {
            words.extend(["--external".into(), format!("mnt[{0}]:{0}", mount.point.display()).into()]);
        }
        words
    }
}

const LOG: &str = "dump.log";

/// Ends CRIU when the desk has begun to end. Its first process then waits for the others, which wait for CRIU to let go of them,
/// and CRIU waits for the first: for ever.
fn end_with(init: i32, criu: &std::os::fd::OwnedFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let look = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    while matches!(poll(&mut [PollFd::new(criu, PollFlags::IN)], Some(&look)), Ok(0) | Err(rustix::io::Errno::INTR)) {
        // What has begun to end has no memory any more, and so no command line.
        if std::fs::read(format!("/proc/{init}/cmdline")).map_or(true, |words| words.is_empty()) {
            let _ = rustix::process::pidfd_send_signal(criu, rustix::process::Signal::KILL);
            return;
        }
    }
}

/// CRIU runs this at several steps. We are told when everything stands still, and when everything is written; then we are
/// waited for. If we are gone, the end of the pipe is read, and everything goes on.
fn steps_script(tell: i32, wait: i32) -> String {
    format!(
        "#!/bin/sh\n\
         case $CRTOOLS_SCRIPT_ACTION in\n\
         network-lock) echo >/proc/$PPID/fd/{tell} ;;\n\
         post-dump) echo >/proc/$PPID/fd/{tell} && read go </proc/$PPID/fd/{wait} && [ \"$go\" = go ] ;;\n\
         esac\n"
    )
}

/// Whether CRIU has given a file a name.
fn given_back(folder: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(GIVEN_BACK)
            || (entry.file_type()?.is_dir() && given_back(&entry.path())?)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Why it was not saved.
enum Stopped {
    For(Trouble),
    Again(Trouble),
}

impl From<Trouble> for Stopped {
    fn from(trouble: Trouble) -> Self {
        Self::For(trouble)
    }
}

pub(super) fn write_script(path: &Path, text: &str) -> std::io::Result<()> {
    let _ = std::fs::remove_file(path);
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)?.write_all(text.as_bytes())
}

/// Nobody can come in as long as it is closed.
struct Door<'a>(&'a Path);

impl<'a> Door<'a> {
    fn close(run: &'a Path) -> Outcome<Self> {
        let _ = std::fs::remove_file(run.join(talk::DOOR));
        Ok(Self(run))
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        let _ = talk::open_door(self.0);
    }
}
