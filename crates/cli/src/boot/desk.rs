//! The desk as a child of process 1.

use super::network::Network;
use super::{End, Settings, metadata, say};
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid};
use std::ffi::CString;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the desk says that it is ready.
const NOTIFY: &str = "/run/hotdesk/notify";
const TOKEN: &str = "/run/hotdesk/token";
/// QEMU's `-fw_cfg name=opt/hotdesk/settings,…`: the desk's settings, as TOML.
const OWN_SETTINGS: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/hotdesk/settings/raw";
/// The same as an attribute of a machine of Google's.
const OWN_SETTINGS_ATTRIBUTE: &str = "hotdesk-settings";
const LARGEST_SETTINGS: usize = 1 << 20;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games";
/// A desk that shall end gets so long.
const GRACE: Duration = Duration::from_secs(5);

/// Who may use the desk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// Whoever has the token.
    Token(String),
    /// Whoever reaches the port: only those whom the owner of the machine lets through.
    Open,
    /// Nobody from outside.
    Loopback,
}

impl Access {
    /// Without a token the port is open only where nobody reaches it but through a door that the machine's owner made: QEMU's
    /// user network, or no network at all.
    pub(super) fn choose(token: Option<String>, network: Network, opened: bool) -> Self {
        match token {
            Some(token) => Self::Token(token),
            None if opened || network != Network::Outside => Self::Open,
            None => Self::Loopback,
        }
    }

    pub(super) fn hint(&self) -> Option<&'static str> {
        (*self == Self::Loopback).then_some(
            "there is no token, so the desk listens on loopback only; give it one by QEMU's fw_cfg (opt/hotdesk/token), by \
             hotdesk.token= on the kernel's command line, or as the metadata attribute hotdesk-token",
        )
    }
}

/// Tells when the desk is ready.
pub(super) fn follow_readiness(settings: &Settings) -> Result<(), String> {
    let _ = std::fs::remove_file(NOTIFY);
    let socket = UnixDatagram::bind(NOTIFY).map_err(|e| format!("{NOTIFY}: {e}"))?;
    chown(NOTIFY, Some(settings.uid), Some(settings.uid)).map_err(|e| format!("{NOTIFY}: {e}"))?;
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok(length) = socket.recv(&mut buffer) {
            if buffer[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                say("ready");
            }
        }
    });
    Ok(())
}

pub(super) fn start(settings: &Settings, access: &Access) -> Result<Pid, String> {
    let program = std::env::current_exe().map_err(|e| format!("the program can't be found: {e}"))?;
    let mut command = Command::new(program);
    command.arg("desk").arg("--config").arg(&settings.config);
    let everywhere = if *access == Access::Loopback { "127.0.0.1" } else { "0.0.0.0" };
    command.arg("--listen").arg(format!("{everywhere}:{}", settings.port));
    match access {
        Access::Token(token) => {
            write_token(token, settings.uid).map_err(|e| format!("{TOKEN}: {e}"))?;
            command.args(["--token-file", TOKEN]);
        }
        Access::Open => drop(command.arg("--open")),
        Access::Loopback => {}
    }
    command.env_clear().env("PATH", PATH).env("HOME", &settings.home).env("NOTIFY_SOCKET", NOTIFY);
    command.env("USER", &settings.user).env("LOGNAME", &settings.user).env("NO_COLOR", "1");
    command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", settings.uid));
    command.current_dir(&settings.home).stdin(Stdio::null());
    become_user(&mut command, settings);
    let child = command.spawn().map_err(|e| format!("the desk can't be started: {e}"))?;
    i32::try_from(child.id()).map(Pid::from_raw).map_err(|e| e.to_string())
}

/// In a session of its own, as the user, and without a way back unless the template gives the user one.
fn become_user(command: &mut Command, settings: &Settings) {
    let (uid, gid) = (Uid::from_raw(settings.uid), Gid::from_raw(settings.uid));
    let name = CString::new(settings.user.as_str()).unwrap_or_default();
    let groups = nix::unistd::getgrouplist(&name, gid).unwrap_or_else(|_| vec![gid]);
    let keep_rights = settings.sudo;
    let started = move || {
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        nix::unistd::setsid()?;
        nix::unistd::setgroups(&groups)?;
        nix::unistd::setresgid(gid, gid, gid)?;
        nix::unistd::setresuid(uid, uid, uid)?;
        // SAFETY: a plain system call.
        if !keep_rights && unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; the list of groups was made before.
    unsafe { command.pre_exec(started) };
}

/// The settings of this one desk, from whoever started the machine; they take the place of those on the disk.
pub(super) fn own_settings(uid: u32) -> Option<std::path::PathBuf> {
    let text = std::fs::read(OWN_SETTINGS).ok().or_else(|| metadata::attribute(OWN_SETTINGS_ATTRIBUTE).map(String::into_bytes));
    let text = text.filter(|text| !text.is_empty() && text.len() <= LARGEST_SETTINGS)?;
    let path = std::path::PathBuf::from("/run/hotdesk/own.toml");
    let _ = std::fs::remove_file(&path);
    let file = std::fs::File::options().create_new(true).write(true).mode(0o400).open(&path).ok()?;
    std::io::Write::write_all(&mut &file, &text).ok()?;
    chown(&path, Some(uid), Some(uid)).ok()?;
    Some(path)
}

fn write_token(token: &str, uid: u32) -> std::io::Result<()> {
    let _ = std::fs::remove_file(TOKEN);
    let file = std::fs::File::options().create_new(true).write(true).mode(0o400).open(TOKEN)?;
    std::io::Write::write_all(&mut &file, token.as_bytes())?;
    chown(TOKEN, Some(uid), Some(uid))
}

pub(super) enum Watched {
    Died(String),
    Asked(End),
}

/// Reaps whoever is dead, until the desk is among them or the machine shall go down.
pub(super) fn watch(desk: Pid, signals: &SigSet) -> Watched {
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(how) = reap(desk) {
                    return Watched::Died(how);
                }
            }
            Ok(Signal::SIGINT) => return Watched::Asked(End::Again),
            Ok(_) => return Watched::Asked(End::Off),
            Err(_) => {}
        }
    }
}

/// How the desk ended, if it did.
fn reap(desk: Pid) -> Option<String> {
    let mut how = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == desk => how = Some(format!("status {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == desk => how = Some(format!("signal {signal}")),
            Ok(WaitStatus::StillAlive) | Err(_) => return how,
            Ok(_) => {}
        }
    }
}

pub(super) fn stop(desk: Pid) {
    let _ = kill(desk, Signal::SIGTERM);
    let begun = Instant::now();
    while begun.elapsed() < GRACE && reap(desk).is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desk_without_a_token_is_open_only_where_nobody_comes() {
        assert_eq!(Access::choose(None, Network::QemuUser, false), Access::Open);
        assert_eq!(Access::choose(None, Network::None, false), Access::Open);
        assert_eq!(Access::choose(None, Network::Outside, false), Access::Loopback);
        assert_eq!(Access::choose(None, Network::Outside, true), Access::Open);
        assert_eq!(Access::choose(Some("t".into()), Network::QemuUser, true), Access::Token("t".into()));
        assert!(Access::Loopback.hint().is_some() && Access::Open.hint().is_none());
    }
}
