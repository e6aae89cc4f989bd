//! The first process of a sandbox, from its birth to the moment it becomes the desk.
//!
//! It is root of its own namespaces and of nothing else: what must be done by the host's root is done before.

use super::{Outcome, Plan, Step, Trouble, drop, mounts};
use crate::local::ids::USER;
use crate::local::network;
use nix::libc;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind, move_mount, open_tree, unmount};
use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Parts of `/proc` that a desk has no business with. The kernel guards them by ownership too; this is the second wall.
const READ_ONLY: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];
const HIDDEN_FILES: [&str; 5] = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kallsyms"];
const HIDDEN_FOLDERS: [&str; 6] =
    ["/proc/acpi", "/proc/scsi", "/sys/firmware", "/sys/kernel", "/sys/fs", "/sys/devices/virtual/powercap"];
/// The desk's socket, inside; and the door, another name of it, by which others reach it.
pub(crate) const SOCKET: &str = "/run/hotdesk/server.sock";
const DOOR: &str = "/run/hotdesk/desk.sock";
const RUN: &str = "/run/hotdesk";
/// Where the desk's server reads its secret: a pipe that is empty afterwards, so that no program of the desk finds it.
pub(crate) const SECRET: &str = "/proc/self/fd/4";
const SECRET_NUMBER: i32 = 4;
/// Said to the helper when the socket is open; it then takes the directory of the socket away from the desk.
pub(super) const LISTENS: u8 = b'L';
/// Where a process finds sockets that were opened for it.
const FIRST_HANDED: i32 = 3;
/// Above all descriptors that are handed on.
const OUT_OF_THE_WAY: i32 = 10;
/// Connections that wait to be taken.
const BACKLOG: i32 = 1024;

/// Does everything and becomes the desk; returns only if something failed, which the helper has been told.
pub(super) fn main(plan: &Plan, helper: &UnixStream) {
    // The numbers from 3 on are for what the desk inherits.
    let Ok(helper) = rustix::io::fcntl_dupfd_cloexec(helper, OUT_OF_THE_WAY) else { return };
    let mut helper = UnixStream::from(helper);
    // The helper has mapped the users and noted who we are. If it died instead, nobody knows of us.
    if helper.read_exact(&mut [0]).is_err() {
        return;
    }
    let Err(trouble) = become_the_desk(plan, &mut helper);
    let _ = helper.write_all(&serde_json::to_vec(&trouble).unwrap_or_default());
}

fn become_the_desk(plan: &Plan, helper: &mut UnixStream) -> Outcome<std::convert::Infallible> {
    // First of its session, as a restored one must be, and without whatever keys the host's session has.
    let _ = nix::unistd::setsid();
    // SAFETY: a plain system call that replaces the session's keyring by a new one.
    unsafe { libc::syscall(libc::SYS_keyctl, 1, 0) };
    if plan.ids.is_rootless() {
        mounts::lay(plan, None)?;
    } else {
        drop::become_root()?;
    }
    nix::unistd::sethostname(&plan.id).map_err(std::io::Error::from).step(|| "set the host name".into())?;
    network::prepare(plan.network.as_ref()).step(|| "set up the network".into())?;
    own_file_systems(plan)?;
    change_root()?;
    settings_of_the_kernel();
    guard()?;
    empty(Path::new("/tmp"), plan.keep_tmp);
    let listener = listen()?;
    seal(plan, helper)?;
    names(plan)?;
    standard_streams()?;
    drop::everything(plan)?;
    execute(plan, listener)
}

/// What only the owner of the namespaces can mount.
fn own_file_systems(plan: &Plan) -> Outcome<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None).step(|| {
        "mount /proc (inside a container whose own /proc is masked the kernel refuses it; run hotdesk on the host, or the \
         container with an unmasked /proc)"
            .into()
    })?;
    // A container's masks over /sys make the kernel refuse another one; desks live without.
    let _ = mount("sysfs", "sys", "sysfs", flags | MountFlags::RDONLY, None);
    let group = if plan.ids.is_rootless() { USER } else { 5 };
    let options = CString::new(format!("newinstance,ptmxmode=0666,mode=0620,gid={group}")).unwrap_or_default();
    mount("devpts", "dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, Some(options.as_c_str()))
        .step(|| "mount /dev/pts".into())
}

/// Makes the working directory the root, and forgets the host's.
fn change_root() -> Outcome<()> {
    let what = || "change the root".to_owned();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let host = rustix::fs::open("/", flags, Mode::empty()).step(what)?;
    // What was inherited from the host's namespace can't be moved, but a copy of it can.
    let copy = open_tree(
        rustix::fs::CWD,
        ".",
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE,
    )
    .step(what)?;
    move_mount(&copy, "", rustix::fs::CWD, ".", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).step(what)?;
    rustix::process::fchdir(&copy).step(what)?;
    rustix::process::pivot_root(".", ".").step(what)?;
    rustix::process::fchdir(&host).step(what)?;
    unmount(".", UnmountFlags::DETACH).step(|| "let go of the host's files".into())?;
    rustix::process::chdir("/").step(what)
}

/// Puts what is dangerous out of reach.
fn guard() -> Outcome<()> {
    let there = |path: &&'static str| Path::new(path).exists();
    for path in READ_ONLY.into_iter().filter(there) {
        mount_bind(path, path).step(|| format!("guard {path}"))?;
        let tree = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).step(|| format!("guard {path}"))?;
        let flags = linux_raw_sys::general::MOUNT_ATTR_RDONLY;
        mounts::change(tree.as_fd(), flags.into(), None).step(|| format!("guard {path}"))?;
    }
    for path in HIDDEN_FILES.into_iter().filter(there) {
        mount_bind("/dev/null", path).step(|| format!("hide {path}"))?;
    }
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for path in HIDDEN_FOLDERS.into_iter().filter(there) {
        mount("tmpfs", path, "tmpfs", flags, Some(c"size=4k,nr_inodes=2,mode=0555")).step(|| format!("hide {path}"))?;
    }
    Ok(())
}

/// Empties a directory. Whatever is in it belongs to the desk, and the desk's root is the root of this process.
fn empty(path: &Path, keep: bool) {
    // Sockets and locks of programs that are gone are of no use to anybody.
    let stale =
        |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".X") || name.as_encoded_bytes().starts_with(b".ICE");
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if keep && !stale(&entry.file_name()) {
            continue;
        }
        let _ = crate::local::directory::remove_all(&entry.path());
    }
}

/// The desk's socket, opened before any program of the desk runs: so no program needs the right to make files in
/// this directory, which lies on the host's disk.
fn listen() -> Outcome<UnixListener> {
    let what = || "open the desk's socket".to_owned();
    for name in [DOOR, SOCKET] {
        let _ = std::fs::remove_file(name);
    }
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC | nix::sys::socket::SockFlag::SOCK_NONBLOCK,
        None,
    )
    .map_err(std::io::Error::from)
    .step(what)?;
    let address = nix::sys::socket::UnixAddr::new(SOCKET).map_err(std::io::Error::from).step(what)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &address).map_err(std::io::Error::from).step(what)?;
    // Only the owner of the directory on the host gets this far anyway.
    rustix::fs::chmodat(rustix::fs::CWD, SOCKET, Mode::from_raw_mode(0o600), AtFlags::empty()).step(what)?;
    let backlog = nix::sys::socket::Backlog::new(BACKLOG).map_err(std::io::Error::from).step(what)?;
    nix::sys::socket::listen(&socket, backlog).map_err(std::io::Error::from).step(what)?;
    // Taken away while the desk is saved with its memory, so that nobody comes in.
    std::fs::hard_link(SOCKET, DOOR).step(what)?;
    Ok(socket.into())
}

/// Nothing can be made, changed or removed any more in the directory that lies on the host's disk: it belongs to the host's
/// root, who is nobody here. Where the desk's user is the host's own, who owns it, it is mounted read-only; not elsewhere, because a
/// saved desk could not be restored: CRIU mounts first and opens sockets then.
fn seal(plan: &Plan, helper: &mut UnixStream) -> Outcome<()> {
    let what = || format!("seal {RUN}");
    helper.write_all(&[LISTENS]).step(what)?;
    helper.read_exact(&mut [0]).step(what)?;
    if !plan.ids.is_rootless() {
        return Ok(());
    }
    let tree = rustix::fs::open(RUN, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).step(what)?;
    mounts::change(tree.as_fd(), linux_raw_sys::general::MOUNT_ATTR_RDONLY.into(), None).step(what)
}

/// What is better set for a desk, which works without.
fn settings_of_the_kernel() {
    // `ping` for everybody, without the right to raw packets, which no desk has.
    let _ = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 65535");
}

/// The files by which programs know names.
pub(crate) fn names(plan: &Plan) -> Outcome<()> {
    let id = &plan.id;
    let resolver = if plan.network.is_some() { network::RESOLVER } else { "" };
    for (path, text) in [
        ("/etc/hostname", format!("{id}\n")),
        ("/etc/hosts", format!("127.0.0.1 localhost {id}\n::1 localhost ip6-localhost ip6-loopback\n")),
        ("/etc/resolv.conf", resolver.to_owned()),
    ] {
        // The same content is not written again: it would only grow the desk's layer. Anything but a file, a pipe that nobody
        // writes to, say, is not read.
        let plain = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
        if plain && std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
            continue;
        }
        let _ = std::fs::remove_file(path);
        std::fs::write(path, text).step(|| format!("write {path}"))?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(path, mode).step(|| format!("write {path}"))?;
    }
    Ok(())
}

fn standard_streams() -> Outcome<()> {
    let what = || "open the log".to_owned();
    let nowhere = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).step(what)?;
    // For reading too: then writing does not fail while nobody listens at the other end.
    let log = rustix::fs::open("/run/hotdesk/log", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).step(what)?;
    for (number, file) in [(0, &nowhere), (1, &log), (2, &log)] {
        replace(number, file.as_fd()).step(what)?;
    }
    Ok(())
}

/// Puts a copy of a descriptor at a number, where it is inherited.
fn replace(number: i32, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    // SAFETY: what was at that number is not used after this.
    let mut target = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::dup2(file, &mut target)
}

/// A pipe with the desk's secret in it. It is made by the desk's user, who could not open somebody else's.
fn secret(plan: &Plan) -> Outcome<OwnedFd> {
    let what = || "hand over the desk's secret".to_owned();
    let (reader, mut writer) = std::io::pipe().step(what)?;
    let reader = rustix::io::fcntl_dupfd_cloexec(&reader, OUT_OF_THE_WAY).step(what)?;
    // Far smaller than what a pipe holds.
    writer.write_all(plan.secret.as_bytes()).step(what)?;
    Ok(reader)
}

fn execute(plan: &Plan, listener: UnixListener) -> Outcome<std::convert::Infallible> {
    let what = || "start the desk".to_owned();
    // Out of the way of the numbers that are handed on.
    let listener = rustix::io::fcntl_dupfd_cloexec(&listener, OUT_OF_THE_WAY).step(what)?;
    let secret = secret(plan)?;
    replace(FIRST_HANDED, listener.as_fd()).step(what)?;
    replace(SECRET_NUMBER, secret.as_fd()).step(what)?;
    let strings = |list: &[String]| -> Outcome<Vec<CString>> {
        list.iter().map(|text| CString::new(text.as_str()).map_err(std::io::Error::from).step(what)).collect()
    };
    let words = strings(&plan.command)?;
    let program = words.first().ok_or_else(|| Trouble::new("there is no command"))?;
    let mut env: Vec<String> = plan.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    env.extend(["LISTEN_FDS=1".to_owned(), "LISTEN_PID=1".to_owned()]);
    let env = strings(&env)?;
    let home = plan.env.iter().find(|(name, _)| name == "HOME").map_or("/", |(_, home)| home.as_str());
    let _ = std::env::set_current_dir(home);
    // Everything else that happens to be open ends here.
    // SAFETY: only a flag is set on descriptors; the standard ones, the socket and the secret are below.
    unsafe { libc::syscall(libc::SYS_close_range, SECRET_NUMBER + 1, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    let failed = match nix::unistd::execve(program, &words, &env) {
        Err(e) => std::io::Error::from(e),
        Ok(never) => return Ok(never),
    };
    Err(failed).step(|| format!("start {}", plan.command.first().map_or("the desk", String::as_str)))
}
