//! The file tree of a sandbox, as the host's root lays it out on the stage.
//!
//! ```text
//! /        overlay: layers below, the desk's disk above; no devices, no setuid unless the template has a root
//! /dev     tmpfs: null, zero, full, random, urandom, tty, links; pts is mounted inside
//! /dev/shm tmpfs, at most half of the desk's memory
//! /run     tmpfs: user/1000, lock; hotdesk: the desk's directory `run` on the host
//! /usr/local/bin/hotdesk   the binary, read-only
//! …        volumes, where they were asked for
//! ```
//!
//! `/tmp` lies on the disk, unlike on many systems: there the quota holds, memory is spared, and a fork takes it along with
//! the other files. It is emptied at each start, as a tmpfs would be, unless the template keeps it.
//!
//! The desk's own files are on this tree when the root of the host walks it, and they may contain links that lead
//! anywhere. So every step below resolves names without following links, beneath the tree.

use super::{Outcome, Plan, Step, volumes};
use crate::local::disk::{self, Disk, Loop};
use crate::local::ids::{Ids, USER};
use linux_raw_sys::general::{
    MOUNT_ATTR_IDMAP, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, mount_attr,
};
use nix::libc;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, mount, mount_bind, move_mount, open_tree,
};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Name, major and minor number. Whatever a desk needs, and nothing that leads to hardware.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// `/dev` and `/run` hold names and sockets, not data.
const SMALL: &str = "1m";
const RUN: &str = "16m";
/// A layer must mean the same wherever it is used: no files that are only references, no directories under other names.
/// Overlays of ordinary users have neither anyway.
const PLAIN: &str = "metacopy=off,redirect_dir=off";
/// An overlay that just died is taken apart in the background and holds its directories so long.
const BUSY_LIMIT: Duration = Duration::from_secs(20);
const BUSY_LOOK: Duration = Duration::from_millis(2);

/// Lays the tree at `STAGE/root` and makes it the working directory. The number of the loop device, if there is one.
/// With `users`, the layers are shifted by that namespace.
pub(crate) fn lay(plan: &Plan, users: Option<BorrowedFd<'_>>) -> Outcome<Option<u32>> {
    enter_stage(&plan.stage)?;
    let shift = users.filter(|_| matches!(plan.ids, Ids::Mapped { .. }));
    let loop_device = lay_disk(&plan.desk, &plan.disk, plan.ids, shift)?;
    // As the host's root, who owns what is above them.
    let volumes = volumes::open(plan, shift)?;
    // Overlays make files as whoever mounted them; on shifted layers that must be somebody whom they know.
    let _acting = Acting::as_root_of(plan.ids)?;
    overlay(plan, shift)?;
    std::env::set_current_dir("root").step(|| "enter the root".into())?;
    let root = rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the root".into())?;
    for (name, mode) in [("proc", 0o555), ("sys", 0o555), ("tmp", 0o1777)] {
        directory(root.as_fd(), name, mode)?;
    }
    devices(plan, root.as_fd())?;
    run(plan, root.as_fd())?;
    binary(plan, root.as_fd())?;
    for (tree, at) in volumes {
        let target = directory(root.as_fd(), at, 0o755)?;
        attach_onto(tree.as_fd(), target.as_fd()).step(|| format!("mount a volume at /{at}"))?;
    }
    Ok(loop_device)
}

/// Covers the stage with a small file system of its own and enters it.
pub(crate) fn enter_stage(stage: &Path) -> Outcome<()> {
    mount("hotdesk", stage, "tmpfs", MountFlags::NODEV, Some(c"mode=0755,size=1m")).step(|| "mount the stage".into())?;
    std::env::set_current_dir(stage).step(|| "enter the stage".into())
}

/// Mounts the disk at `disk` of the working directory, its directories `upper` and `work` made.
pub(crate) fn lay_disk(desk: &Path, disk: &Disk, ids: Ids, shift: Option<BorrowedFd<'_>>) -> Outcome<Option<u32>> {
    let path = desk.join(disk.name());
    for name in ["raw", "disk"] {
        std::fs::create_dir(name).step(|| "make a place for the disk".into())?;
    }
    let loop_device = match disk {
        Disk::Image(_) => {
            let image = disk::open_alone(&path).step(|| format!("open the disk {}", path.display()))?;
            let device = Loop::attach(&image).step(|| "attach the disk to a loop device".into())?;
            mount_image(&device.path())?;
            Some(device.number)
        }
        Disk::Directory(_) => {
            mount_bind(&path, "raw").step(|| format!("mount {}", path.display()))?;
            None
        }
    };
    for name in ["raw/upper", "raw/work"] {
        match std::fs::create_dir(name) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e).step(|| format!("make {name} on the disk")),
            Err(_) => continue,
            Ok(()) => {}
        }
        let mode = rustix::fs::Mode::from_raw_mode(0o755);
        rustix::fs::chmod(name, mode).step(|| format!("open {name}"))?;
        if matches!(ids, Ids::Shifted { .. }) {
            std::os::unix::fs::chown(name, Some(ids.uid(0)), Some(ids.gid(0))).step(|| format!("give {name} to the desk"))?;
        }
    }
    let tree = copy_of(Path::new("raw"))?;
    if let Some(users) = shift {
        change(tree.as_fd(), MOUNT_ATTR_IDMAP.into(), Some(users)).step(|| "shift the owners of the disk".into())?;
    }
    attach(tree.as_fd(), rustix::fs::CWD, "disk").step(|| "mount the disk".into())?;
    Ok(loop_device)
}

/// Mounts an ext4 at `raw`. Space of deleted files goes back to the host.
pub(crate) fn mount_image(device: &Path) -> Outcome<()> {
    let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
    mount(device, "raw", "ext4", flags, Some(c"discard")).step(|| "mount the disk".into())
}

fn overlay(plan: &Plan, shift: Option<BorrowedFd<'_>>) -> Outcome<()> {
    let mut lower = Vec::new();
    for (number, layer) in plan.layers.iter().enumerate() {
        let name = format!("l{number}");
        std::fs::create_dir(&name).step(|| "make a place for a layer".into())?;
        let tree = copy_of(layer)?;
        change(tree.as_fd(), (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID).into(), None)
            .step(|| format!("protect the layer {}", layer.display()))?;
        if let Some(users) = shift {
            change(tree.as_fd(), MOUNT_ATTR_IDMAP.into(), Some(users))
                .step(|| format!("shift the owners of the layer {}", layer.display()))?;
        }
        attach(tree.as_fd(), rustix::fs::CWD, &name).step(|| format!("mount the layer {}", layer.display()))?;
        lower.push(name);
    }
    std::fs::create_dir("root").step(|| "make a place for the root".into())?;
    let common = format!("lowerdir={},upperdir=disk/upper,workdir=disk/work", lower.join(":"));
    // With an index and handles a saved desk can be restored that watches files; not every layer can have them.
    let choices = match plan.ids {
        Ids::Single { .. } => vec![format!("{common},userxattr")],
        _ => vec![format!("{common},{PLAIN},index=on,nfs_export=on"), format!("{common},{PLAIN}")],
    };
    let mut flags = MountFlags::NODEV | MountFlags::NOATIME;
    // Without root there is nobody to become.
    if !plan.root || plan.ids.is_rootless() {
        flags |= MountFlags::NOSUID;
    }
    let mut last = None;
    for options in choices {
        let options = std::ffi::CString::new(options).map_err(std::io::Error::from).step(|| "name the layers".into())?;
        match when_free(|| mount("overlay", "root", "overlay", flags, Some(options.as_c_str()))) {
            Ok(()) => return Ok(()),
            Err(e) => last = Some(e),
        }
    }
    last.map_or(Ok(()), Err).step(|| "mount the overlay".into())
}

fn when_free(mut mount: impl FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    let end = Instant::now() + BUSY_LIMIT;
    loop {
        match mount() {
            Err(rustix::io::Errno::BUSY) if Instant::now() < end => std::thread::sleep(BUSY_LOOK),
            done => return done,
        }
    }
}

fn devices(plan: &Plan, root: BorrowedFd<'_>) -> Outcome<()> {
    let what = || "make /dev".to_owned();
    let dev = tmpfs(plan.ids, SMALL, "0755", MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    let target = directory(root, "dev", 0o755)?;
    if plan.ids.is_rootless() {
        // Without rights on the host, devices can't be made, only borrowed; that needs a mounted place.
        attach_onto(dev.as_fd(), target.as_fd()).step(what)?;
    }
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        if plan.ids.is_rootless() {
            rustix::fs::mknodat(&dev, name, FileType::RegularFile, mode, 0).step(what)?;
            attach(copy_of(&Path::new("/dev").join(name))?.as_fd(), dev.as_fd(), name).step(what)?;
        } else {
            let device = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(&dev, name, FileType::CharacterDevice, mode, device).step(what)?;
            rustix::fs::chmodat(&dev, name, mode, AtFlags::empty()).step(what)?;
        }
    }
    for (name, to) in LINKS {
        rustix::fs::symlinkat(to, &dev, name).step(what)?;
    }
    for name in ["pts", "shm"] {
        rustix::fs::mkdirat(&dev, name, Mode::from_raw_mode(0o755)).step(what)?;
    }
    if !plan.ids.is_rootless() {
        attach_onto(dev.as_fd(), target.as_fd()).step(what)?;
    }
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let shared = tmpfs(plan.ids, &(plan.limits.memory_bytes / 2).to_string(), "1777", flags)?;
    attach(shared.as_fd(), dev.as_fd(), "shm").step(|| "mount /dev/shm".into())
}

fn run(plan: &Plan, root: BorrowedFd<'_>) -> Outcome<()> {
    let what = || "make /run".to_owned();
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let run = tmpfs(plan.ids, RUN, "0755", flags)?;
    for (name, mode) in [("lock", 0o1777), ("user", 0o755), ("hotdesk", 0o755)] {
        directory(run.as_fd(), name, mode)?;
    }
    let user = directory(run.as_fd(), &format!("user/{USER}"), 0o700)?;
    let (uid, gid) = (Uid::from_raw(plan.ids.uid(USER)), Gid::from_raw(plan.ids.gid(USER)));
    if !plan.ids.is_rootless() {
        rustix::fs::chownat(&user, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH).step(what)?;
    }
    let target = directory(root, "run", 0o755)?;
    attach_onto(run.as_fd(), target.as_fd()).step(what)?;
    let desk = copy_of(&plan.desk.join("run"))?;
    // As soon as the desk's socket is in it, nobody in the desk can change it.
    change(desk.as_fd(), (MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC).into(), None).step(what)?;
    attach(desk.as_fd(), run.as_fd(), "hotdesk").step(|| "mount /run/hotdesk".into())
}

fn binary(plan: &Plan, root: BorrowedFd<'_>) -> Outcome<()> {
    let what = || format!("mount the binary {}", plan.binary.display());
    let folder = directory(root, "usr/local/bin", 0o755)?;
    let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&folder, "hotdesk", flags, Mode::from_raw_mode(0o755)).step(what)?;
    let file = copy_of(&plan.binary)?;
    change(file.as_fd(), (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID).into(), None).step(what)?;
    attach(file.as_fd(), folder.as_fd(), "hotdesk").step(what)
}

/// A new tmpfs that is not mounted anywhere yet and belongs to the desk's root.
fn tmpfs(ids: Ids, size: &str, mode: &str, flags: MountAttrFlags) -> Outcome<OwnedFd> {
    let made = (|| {
        let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let (uid, gid) = if ids.is_rootless() { (USER, USER) } else { (ids.uid(0), ids.gid(0)) };
        for (key, value) in [("size", size), ("mode", mode), ("uid", &uid.to_string()), ("gid", &gid.to_string())] {
            fsconfig_set_string(fs.as_fd(), key, value)?;
        }
        fsconfig_create(fs.as_fd())?;
        fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
    })();
    made.step(|| "make a tmpfs".into())
}

/// Opens a directory beneath a tree, making what is missing, never by way of a link.
fn directory(tree: BorrowedFd<'_>, path: &str, mode: u32) -> Outcome<OwnedFd> {
    let what = || format!("open /{path} of the desk");
    let mut at = tree.try_clone_to_owned().step(what)?;
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        let mode = Mode::from_raw_mode(if parts.peek().is_none() { mode } else { 0o755 });
        match rustix::fs::mkdirat(&at, part, mode) {
            // The mode that was asked for, whatever the mask of the process is.
            Ok(()) => rustix::fs::chmodat(&at, part, mode, AtFlags::empty()).step(what)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e).step(what),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at =
            rustix::fs::openat2(&at, part, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS).step(what)?;
    }
    Ok(at)
}

/// A copy of what is mounted at a path, not mounted anywhere yet.
pub(crate) fn copy_of(path: &Path) -> Outcome<OwnedFd> {
    open_tree(rustix::fs::CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
        .step(|| format!("open {}", path.display()))
}

fn attach(tree: BorrowedFd<'_>, at: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    move_mount(tree, "", at, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn attach_onto(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> rustix::io::Result<()> {
    move_mount(tree, "", target, "", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
}

/// Sets attributes of a mount; with `users`, shifts its owners by that namespace.
pub(crate) fn change(tree: BorrowedFd<'_>, set: u64, users: Option<BorrowedFd<'_>>) -> std::io::Result<()> {
    let attributes = mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.map_or(0, |users| u64::try_from(users.as_raw_fd()).unwrap_or(0)),
    };
    let empty: &CStr = c"";
    // SAFETY: the pointers are to a string and a structure that live until the call returns, and the size is the structure's.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// While it lives, files are made as the desk's root, with all rights of the host's root.
struct Acting(bool);

impl Acting {
    fn as_root_of(ids: Ids) -> Outcome<Self> {
        if ids.is_rootless() {
            return Ok(Self(false));
        }
        // Without this, changing the user would take rights away.
        let bits = rustix::thread::CapabilitiesSecureBits::NO_SETUID_FIXUP;
        rustix::thread::set_capabilities_secure_bits(bits).step(|| "keep the rights".into())?;
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(ids.uid(0)));
        nix::unistd::setfsgid(nix::unistd::Gid::from_raw(ids.gid(0)));
        Ok(Self(true))
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if self.0 {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(0));
            nix::unistd::setfsgid(nix::unistd::Gid::from_raw(0));
            let _ = rustix::thread::set_capabilities_secure_bits(rustix::thread::CapabilitiesSecureBits::empty());
        }
    }
}
