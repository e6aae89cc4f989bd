//! The file systems that are made at every boot.

use super::Settings;
use nix::libc;
use std::ffi::CString;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::Path;

/// What is mounted where: type, options. The initrd has done the first three already.
const MOUNTS: [(&str, &str, &str, libc::c_ulong); 7] = [
    ("/proc", "proc", "", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC),
    ("/sys", "sysfs", "", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC),
    ("/dev", "devtmpfs", "mode=0755", libc::MS_NOSUID),
    ("/dev/pts", "devpts", "mode=0620,gid=5,ptmxmode=0666", libc::MS_NOSUID | libc::MS_NOEXEC),
    ("/dev/shm", "tmpfs", "mode=1777", libc::MS_NOSUID | libc::MS_NODEV),
    ("/run", "tmpfs", "mode=0755", libc::MS_NOSUID | libc::MS_NODEV),
    ("/tmp", "tmpfs", "mode=1777", libc::MS_NOSUID | libc::MS_NODEV),
];

pub(super) fn all() -> Result<(), String> {
    for (place, kind, options, flags) in MOUNTS {
        let _ = std::fs::create_dir_all(place);
        let there = mounted(place);
        if !there {
            mount(kind, place, kind, flags, options).map_err(|e| format!("{place} can't be mounted: {e}"))?;
        }
    }
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        let _ = std::os::unix::fs::symlink(target, Path::new("/dev").join(name));
    }
    std::fs::create_dir_all("/run/lock").map_err(|e| format!("/run/lock: {e}"))
}

/// The directories that belong to the desk's user.
pub(super) fn for_user(settings: &Settings) -> Result<(), String> {
    for (place, mode) in [(format!("/run/user/{}", settings.uid), 0o700), ("/run/hotdesk".to_owned(), 0o755)] {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&place);
        made.and_then(|()| chown(&place, Some(settings.uid), Some(settings.uid)))
            .and_then(|()| std::fs::set_permissions(&place, std::fs::Permissions::from_mode(mode)))
            .map_err(|e| format!("{place}: {e}"))?;
    }
    Ok(())
}

/// Before anything can be written no more.
pub(super) fn read_only_root() {
    // SAFETY: plain system calls with constant strings.
    unsafe {
        libc::sync();
        let flags = libc::MS_REMOUNT | libc::MS_RDONLY;
        libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null());
    }
}

fn mounted(place: &str) -> bool {
    let list = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    list.lines().any(|line| line.split(' ').nth(1) == Some(place))
}

fn mount(source: &str, place: &str, kind: &str, flags: libc::c_ulong, options: &str) -> std::io::Result<()> {
    let [source, place, kind, options] = [source, place, kind, options].map(|text| CString::new(text).unwrap_or_default());
    // SAFETY: all strings end with a zero and live until the call returns.
    let done = unsafe { libc::mount(source.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
