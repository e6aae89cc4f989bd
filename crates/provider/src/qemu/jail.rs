//! Where a machine's processes live when the orchestrator is root: as a user of their own, who is nobody else on this machine, in a
//! file system that holds what this machine needs and nothing else.
//!
//! QEMU emulates devices for a guest that nobody trusts; whoever breaks out of it should find as little as possible. The keeper goes in
//! first, before it has any thread, and starts QEMU inside. The network stays the host's: QEMU carries the guest's connections out
//! as its own, and the keeper decides which (`filter`).

use crate::local::ids::Ids;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, mknod};
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The user within a desk's range: far from those that desks of other providers use.
const USER: u32 = 65_000;
/// What programs need of this machine, as far as it is there.
const SYSTEM: [&str; 8] =
    ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/resolv.conf", "/etc/qemu", "/etc/alternatives"];
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"];
const KVM: &str = "/dev/kvm";

/// The mode of a memory that others resume, in a directory of root's.
pub(crate) const SHARED: u32 = 0o666;

/// Who the processes of a machine are, and what they see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jail {
    pub(crate) uid: u32,
    /// An empty directory of root, which becomes the processes' root.
    pub(crate) root: PathBuf,
    /// Files and directories that may be read.
    pub(crate) read: Vec<PathBuf>,
    /// Those that may be written, as far as their owners allow it.
    pub(crate) write: Vec<PathBuf>,
}

/// The user of a desk's machine; none where we are not root and can't be anybody else.
pub(crate) fn uid(fleet: &str, desk: &str) -> Option<u32> {
    rustix::process::geteuid().is_root().then(|| Ids::mapped(fleet, &format!("vm/{desk}")).uid(USER))
}

impl Jail {
    /// Goes in for good. The process has one thread.
    pub(crate) fn enter(&self) -> io::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        std::fs::create_dir_all(&self.root)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("tmpfs"), &self.root, Some("tmpfs"), flags, Some("mode=0755,size=1m"))?;
        let system = SYSTEM.iter().map(PathBuf::from).filter(|path| path.exists());
        for path in system.chain(self.read.iter().cloned()) {
            self.bind(&path, MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV)?;
        }
        for path in &self.write {
            self.bind(path, flags)?;
        }
        let devices = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        let dev = self.root.join("dev");
        std::fs::create_dir(&dev)?;
        mount(Some("tmpfs"), &dev, Some("tmpfs"), devices, Some("mode=0755,size=64k"))?;
        for path in DEVICES.iter().map(Path::new).filter(|path| path.exists()) {
            self.bind(path, devices)?;
        }
        let groups = self.give_kvm(devices)?;
        self.bind(Path::new("/proc"), flags)?;
        std::env::set_current_dir(&self.root)?;
        match nix::unistd::pivot_root(".", ".") {
            Ok(()) => umount2(".", MntFlags::MNT_DETACH)?,
            // The first root of a kernel can't be exchanged; a change of root does as well for who has no right to change it back.
            Err(_) => nix::unistd::chroot(".")?,
        }
        std::env::set_current_dir("/")?;
        self.become_user(&groups)
    }

    /// A node of its own for KVM, whoever may use the machine's. Where none can be made, the machine's, and the group that may use it.
    fn give_kvm(&self, flags: MsFlags) -> io::Result<Vec<Gid>> {
        let Ok(meta) = std::fs::metadata(KVM) else { return Ok(Vec::new()) };
        let at = self.root.join("dev/kvm");
        if mknod(&at, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, meta.rdev()).is_ok() {
            give(&at, self.uid)?;
            return Ok(Vec::new());
        }
        self.bind(Path::new(KVM), flags)?;
        // The group of root is no group for this.
        Ok(Some(meta.gid()).filter(|gid| *gid != 0).map(Gid::from_raw).into_iter().collect())
    }

    /// Shows a file or directory under the same name.
    fn bind(&self, path: &Path, flags: MsFlags) -> io::Result<()> {
        let within = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let at = self.root.join(path.strip_prefix("/").map_err(|e| io::Error::other(e.to_string()))?);
        let is_folder = std::fs::metadata(path).map_err(within)?.is_dir();
        if is_folder {
            std::fs::create_dir_all(&at).map_err(within)?;
        } else if !at.exists() {
            std::fs::create_dir_all(at.parent().unwrap_or(&self.root)).map_err(within)?;
            std::fs::write(&at, "").map_err(within)?;
        }
        let none = None::<&str>;
        mount(Some(path), &at, none, MsFlags::MS_BIND, none).map_err(|e| within(e.into()))?;
        mount(none, &at, none, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags, none).map_err(|e| within(e.into()))
    }

    fn become_user(&self, groups: &[Gid]) -> io::Result<()> {
        // SAFETY: plain system calls; what they change is this process alone.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.uid));
        rustix::thread::set_thread_groups(groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        // No capability outlives the change of every one of the user's numbers.
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}

/// Gives a file or directory to a machine's user. Links are not followed.
pub(crate) fn give(path: &Path, uid: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid))
}

/// Gives a machine's own directory with all that is in it, which an earlier version may have made as root. No process of the machine
/// runs; what one has left there as a second name for another file is removed, not given.
pub(crate) fn give_folder(path: &Path, uid: u32) -> io::Result<()> {
    give(path, uid)?;
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let meta = std::fs::symlink_metadata(&path)?;
        if !meta.is_dir() && meta.nlink() > 1 {
            std::fs::remove_file(&path)?;
        } else {
            give(&path, uid)?;
        }
    }
    Ok(())
}

/// Takes what a machine has written: from now on nobody changes it, and every machine that is shown it can read it. One that resumes a
/// memory opens it for writing, though it maps a copy of its own; `writable` lets it.
pub(crate) fn take(from: &Path, to: &Path, writable: bool) -> io::Result<()> {
    std::fs::rename(from, to)?;
    let meta = std::fs::symlink_metadata(to)?;
    if !meta.is_file() || meta.nlink() != 1 {
        let _ = std::fs::remove_file(to);
        return Err(io::Error::other(format!("{} is no plain file", to.display())));
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(to, Some(0), Some(0))?;
        let mode = if writable { SHARED } else { 0o444 };
        std::fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}

/// Reads a file that a machine's processes have written, and may have replaced by anything.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = std::fs::File::options().read(true).custom_flags(flags).open(path)?;
    let (meta, folder) = (file.metadata()?, std::fs::symlink_metadata(path.parent().unwrap_or(Path::new("/")))?);
    // A second name for a file of somebody else is no file of the machine.
    if !meta.is_file() || meta.uid() != folder.uid() {
        return Err(io::Error::other(format!("{} is no plain file of its own", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_wrote_is_read_without_following_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("plain"), "text").unwrap();
        assert_eq!(read(&at("plain"), 3).unwrap(), b"tex");
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for name in ["link", "pipe", "folder", "none"] {
            assert!(read(&at(name), 10).is_err(), "{name}");
        }
        if rustix::process::geteuid().is_root() {
            give(folder.path(), 12345).unwrap();
            assert!(read(&at("plain"), 10).is_err(), "a file of somebody else");
            give(&at("plain"), 12345).unwrap();
            assert!(read(&at("plain"), 10).is_ok());
        }
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("file"), "of another").unwrap();
        std::fs::hard_link(elsewhere.path().join("file"), at("second")).unwrap();
        give_folder(folder.path(), rustix::process::geteuid().as_raw()).unwrap();
        assert!(!at("second").exists() && at("plain").exists(), "a second name for a file elsewhere is not given");
        std::os::unix::fs::symlink("/etc/passwd", at("state")).unwrap();
        assert!(take(&at("state"), &at("taken"), false).is_err() && !at("taken").exists());
        take(&at("plain"), &at("taken"), false).unwrap();
    }
}
