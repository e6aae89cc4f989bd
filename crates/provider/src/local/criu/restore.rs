//! Making a desk out of a saved one: the helper's part.
//!
//! The tree of files is laid on the stage as for any desk. CRIU takes its root without what is mounted on it, and each of
//! those mounts by itself: in a user namespace the kernel lets nobody take a mount away from under another.

use super::dump::write_script;
use super::image::{self, Saved};
use super::{common_words, memory_for_run, talk, words};
use crate::local::directory;
use crate::local::ids::{COUNT, Ids};
use crate::local::network;
use crate::local::sandbox::{Outcome, Plan, Step, Trouble, drop, inside, spawn};
use hotdesk_api::freeze::Thaw;
use nix::libc;
use rustix::mount::{MountFlags, mount, mount_bind};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The new namespace's root, who is nobody on the host, must reach the mounts that it takes; the stage lies where nobody gets.
/// In the helper's namespace another place is as good; one of these is on every system.
const YARDS: [&str; 5] = ["/mnt", "/media", "/srv", "/opt", "/tmp"];
const LOG: &str = "restore.log";
/// CRIU writes the number of the first process there.
const PID: &str = "pid";

/// Names the desk's directory `run` to the script below.
const RUN: &str = "HOTDESK_RUN";
/// CRIU runs this at several steps; at this one everything is restored, and no program goes on yet.
const TAKE_BACK: &str = "#!/bin/sh\n[ \"$CRTOOLS_SCRIPT_ACTION\" != post-restore ] || exec chown -h 0:0 \"$HOTDESK_RUN\"\n";

/// What a plan needs besides, to begin with a saved desk.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Restore {
    pub(crate) criu: PathBuf,
    /// The directory of the saved state.
    pub(crate) from: PathBuf,
    pub(crate) thaw: Thaw,
}

impl std::fmt::Debug for Restore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restore").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Restore {
    /// Makes the processes on the tree that was laid at `STAGE/root`. The first of them, which is a child of ours.
    pub(crate) fn begin(&self, plan: &Plan) -> Outcome<i32> {
        let saved = Saved::read(&self.from).step(|| format!("read the saved state {}", self.from.display()))?;
        talk::remove_door(&plan.desk.join("run"));
        let work = plan.desk.join("restore");
        directory::remove_all(&work).step(|| "make room for the restore".into())?;
        directory::make_private(&work).step(|| "make room for the restore".into())?;
        let begun = self.restore(plan, &saved, &work);
        let _ = directory::remove_all(&work);
        spawn::take_back(&plan.desk.join("run"), plan.ids)?;
        begun
    }

    fn restore(&self, plan: &Plan, saved: &Saved, work: &Path) -> Outcome<i32> {
        let images = work.join("images");
        let (Ids::Mapped { base } | Ids::Shifted { base }) = plan.ids else {
            return Err(Trouble::new("restoring programs needs root"));
        };
        image::with_users(&self.from, &images, base, COUNT).step(|| "prepare the saved state".into())?;
        std::env::set_current_dir(&plan.stage).step(|| "enter the stage".into())?;
        let yard = YARDS.iter().map(Path::new).find(|path| path.is_dir()).ok_or_else(|| Trouble::new("there is no /mnt"))?;
        let externals = self.take_apart(plan, saved, yard)?;
        // The restored server opens its socket there, as the desk's root. Before any program goes on, the directory is the
        // host's again.
        let (run, script) = (plan.desk.join("run"), work.join("take-back"));
        write_script(&script, TAKE_BACK).step(|| "write a script".into())?;
        spawn::lend(&run, plan.ids)?;
        let mut words: Vec<OsString> = vec!["restore".into()];
        words.extend(common_words(&images, work, LOG));
        words.extend(["--restore-detached", "--restore-sibling", "--skip-file-rwx-check", "--pidfile", PID].map(Into::into));
        words.extend(["--root".into(), yard.join("clean").into()]);
        words.extend(["--action-script".into(), script.into()]);
        for (point, source) in externals {
            let mut value = OsString::from(format!("mnt[{}]:", point.display()));
            value.push(source);
            words.extend(["--external".into(), value]);
        }
        super::show_memory_as_run(memory_for_run().as_deref())?;
        let mut command = Command::new(&self.criu);
        command.args(words).env_clear().env("PATH", super::PATH).env(RUN, &run).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if plan.group.is_some() {
            // What it restores sees its own group as the root of all groups.
            // SAFETY: one plain system call between fork and exec.
            unsafe { command.pre_exec(own_groups) };
        }
        let status = command.status().step(|| format!("start {}", self.criu.display()))?;
        let first = std::fs::read_to_string(work.join(PID)).ok().and_then(|text| text.trim().parse().ok());
        match first {
            Some(first) if status.success() => Ok(first),
            _ => {
                let log = std::fs::read_to_string(work.join(LOG)).unwrap_or_default();
                let reason = words::errors(&log).unwrap_or_else(|| status.to_string());
                Err(Trouble { full: words::is_full(&log), text: format!("the saved programs can't be restored: {reason}") })
            }
        }
    }

    /// Each mount by itself, with the files that were in it.
    fn take_apart(&self, plan: &Plan, saved: &Saved, yard: &Path) -> Outcome<Vec<(PathBuf, PathBuf)>> {
        let what = || "take the stage apart".to_owned();
        mount("hotdesk", yard, "tmpfs", MountFlags::NODEV, Some(c"mode=0755,size=1m")).step(what)?;
        let (clean, hidden) = (yard.join("clean"), yard.join("hidden"));
        for path in [&clean, &hidden] {
            std::fs::create_dir(path).step(what)?;
        }
        mount_bind("root", &clean).step(what)?;
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", &hidden, "tmpfs", flags, Some(c"size=0,nr_inodes=2,mode=0555")).step(what)?;
        let mut externals = Vec::new();
        for (number, mount) in saved.mounts.iter().enumerate() {
            let place = Path::new("root").join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
            if mount.in_memory {
                image::restore_memory_files(&self.from, number, plan.ids, &place)
                    .step(|| format!("restore the files in {}", mount.point.display()))?;
            }
            let source = match (mount.hides(), mount.folder) {
                (false, _) => place,
                (true, true) => hidden.clone(),
                (true, false) => "root/dev/null".into(),
            };
            let part = yard.join(number.to_string());
            if mount.folder { std::fs::create_dir(&part) } else { std::fs::write(&part, "") }.step(what)?;
            mount_bind(&source, &part).step(|| format!("provide {}, which the saved desk has", mount.point.display()))?;
            externals.push((mount.point.clone(), part));
        }
        Ok(externals)
    }

    /// Closes what the restored desk must not reach. It has no way out yet.
    pub(crate) fn fence(&self, plan: &Plan, first: i32) -> Outcome<()> {
        inside_of(first, || {
            drop::become_root()?;
            network::prepare(plan.network.as_ref()).step(|| "set up the network".into())
        })
    }

    /// Makes the restored desk another one than that which was saved, and lets callers in.
    pub(crate) fn finish(&self, plan: &Plan, first: i32) -> Outcome<()> {
        inside_of(first, || {
            drop::become_root()?;
            nix::unistd::sethostname(&plan.id).map_err(std::io::Error::from).step(|| "set the host name".into())?;
            inside::names(plan)
        })?;
        let run = plan.desk.join("run");
        let saved = Saved::read(&self.from).step(|| "read the saved state".into())?;
        talk::thaw(&run, &saved.token, &self.thaw)
            .map_err(|e| Trouble::new(format!("the restored desk does not answer: {e}")))?;
        talk::open_door(&run).step(|| "open the desk's door".into())
    }
}

/// Enters a control-group namespace whose root is the group that the process is in.
fn own_groups() -> std::io::Result<()> {
    // SAFETY: a plain system call of a process with one thread.
    match unsafe { libc::unshare(libc::CLONE_NEWCGROUP) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Does something in a child that has the namespaces of a process, as their root.
fn inside_of(pid: i32, body: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let what = || "enter the restored sandbox".to_owned();
    let (mut reader, mut writer) = std::io::pipe().step(what)?;
    let handle = rustix::process::Pid::from_raw(pid).ok_or_else(|| Trouble::new("the sandbox has no process"))?;
    let handle = rustix::process::pidfd_open(handle, rustix::process::PidfdFlags::empty()).step(what)?;
    // SAFETY: the helper has one thread, so no lock is held; the child leaves by _exit.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error()).step(what),
        0 => {
            std::mem::drop(reader);
            let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
            // SAFETY: a plain system call.
            let entered = match unsafe { libc::setns(handle.as_raw_fd(), namespaces) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            };
            if let Err(trouble) = entered.step(what).and_then(|()| body()) {
                use std::io::Write;
                let _ = writer.write_all(&serde_json::to_vec(&trouble).unwrap_or_default());
            }
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    std::mem::drop(writer);
    let mut text = Vec::new();
    let read = std::io::Read::read_to_end(&mut reader, &mut text);
    if let Some(child) = rustix::process::Pid::from_raw(child) {
        let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
    }
    read.step(what)?;
    if text.is_empty() {
        return Ok(());
    }
    Err(serde_json::from_slice(&text).unwrap_or_else(|_| Trouble::new(String::from_utf8_lossy(&text))))
}
