//! What one desk needs: `hotdesk desk` on this machine itself.

use super::{Check, Section};
use hotdesk_desk::session::tools::TOOLS;
use std::path::Path;

/// Chromium and others keep whole frames there.
const SMALLEST_SHM: u64 = 64 * 1024 * 1024;

pub(super) fn examine() -> Section {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut checks: Vec<Check> = TOOLS
        .iter()
        .map(|tool| {
            let found = tool.find(&path);
            Check {
                name: tool.name.into(),
                purpose: tool.purpose.into(),
                needed: tool.needed,
                ok: found.is_some(),
                fix: found.is_none().then(|| tool.hint()),
                found: found.map(|path| path.to_string_lossy().into_owned()),
            }
        })
        .collect();
    // Another X server does as well.
    let other_server = checks.iter().any(|check| check.name == "Xtigervnc" && check.ok);
    for check in &mut checks {
        if check.name == "Xvfb" && other_server {
            check.needed = false;
        }
    }
    checks.push(sockets());
    checks.push(home());
    checks.push(shared_memory());
    Section { ok: checks.iter().all(|check| check.ok || !check.needed), checks }
}

fn sockets() -> Check {
    let folder = Path::new("/tmp/.X11-unix");
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let ok = if folder.exists() { writable(folder) } else { writable(Path::new("/tmp")) };
    Check {
        name: "X sockets".into(),
        purpose: "the place where programs find the display".into(),
        needed: true,
        ok,
        found: Some(folder.display().to_string()),
        fix: (!ok).then(|| "mkdir -p /tmp/.X11-unix && chmod 1777 /tmp /tmp/.X11-unix".to_owned()),
    }
}

fn home() -> Check {
    let home = std::env::var("HOME").unwrap_or_default();
    let ok = rustix::fs::access(Path::new(&home), rustix::fs::Access::WRITE_OK).is_ok();
    Check {
        name: "home".into(),
        purpose: "settings and files of programs".into(),
        needed: false,
        ok,
        fix: (!ok).then(|| "export HOME=/some/directory/that/can/be/written (or use --home)".to_owned()),
        found: Some(home),
    }
}

fn shared_memory() -> Check {
    let size = rustix::fs::statvfs("/dev/shm").map(|fs| fs.f_blocks.saturating_mul(fs.f_frsize)).unwrap_or(0);
    let ok = size >= SMALLEST_SHM;
    Check {
        name: "shared memory".into(),
        purpose: "browsers and fast screenshots".into(),
        needed: false,
        ok,
        found: Some(format!("{} MiB in /dev/shm", size / 1024 / 1024)),
        fix: (!ok).then(|| "mount -o remount,size=256M /dev/shm (Docker: run with --shm-size=256m)".to_owned()),
    }
}
