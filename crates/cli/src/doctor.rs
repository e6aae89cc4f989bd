//! `hotdesk doctor`: what works on this machine, and the one line that mends the rest.

use crate::args::DoctorArgs;
use crate::exit::{Exit, print};
use hotdesk_desk::session::tools::TOOLS;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Chromium and others keep whole frames there.
const SMALLEST_SHM: u64 = 64 * 1024 * 1024;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    purpose: &'static str,
    /// Without it there is no desk at all.
    needed: bool,
    ok: bool,
    /// What was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    /// The one line that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    /// A desk can be run here.
    ok: bool,
    checks: Vec<Check>,
}

pub(crate) fn run(args: &DoctorArgs) -> Exit {
    let report = examine();
    let ok = report.ok;
    let text = if args.json { serde_json::to_string_pretty(&report).unwrap_or_default() + "\n" } else { write(&report) };
    match print(text.as_bytes()) {
        Exit::Success if !ok => Exit::Missing,
        exit => exit,
    }
}

fn examine() -> Report {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut checks: Vec<Check> = TOOLS
        .iter()
        .map(|tool| {
            let found = tool.find(&path);
            Check {
                name: tool.name,
                purpose: tool.purpose,
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
    let ok = checks.iter().all(|check| check.ok || !check.needed);
    Report { version: env!("CARGO_PKG_VERSION"), ok, checks }
}

fn sockets() -> Check {
    let folder = Path::new("/tmp/.X11-unix");
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let ok = if folder.exists() { writable(folder) } else { writable(Path::new("/tmp")) };
    Check {
        name: "X sockets",
        purpose: "the place where programs find the display",
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
        name: "home",
        purpose: "settings and files of programs",
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
        name: "shared memory",
        purpose: "browsers and fast screenshots",
        needed: false,
        ok,
        found: Some(format!("{} MiB in /dev/shm", size / 1024 / 1024)),
        fix: (!ok).then(|| "mount -o remount,size=256M /dev/shm (Docker: run with --shm-size=256m)".to_owned()),
    }
}

fn write(report: &Report) -> String {
    let mut text = String::new();
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in &report.checks {
        let mark = match (check.ok, check.needed) {
            (true, _) => "ok     ",
            (false, true) => "missing",
            (false, false) => "without",
        };
        let _ = write!(text, "{mark}  {:width$}  {}", check.name, check.purpose);
        if let Some(found) = &check.found {
            let _ = write!(text, " ({found})");
        }
        let _ = writeln!(text);
        if let Some(fix) = &check.fix {
            let _ = writeln!(text, "         {:width$}  fix: {fix}", "");
        }
    }
    let _ = writeln!(
        text,
        "\n{}",
        match report.ok {
            true => "A desk can be run here: hotdesk desk",
            false => "No desk can be run here until what is missing is mended.",
        }
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_wrong_has_a_fix() {
        let report = examine();
        assert!(!report.checks.is_empty());
        for check in &report.checks {
            assert_eq!(check.ok, check.fix.is_none(), "{check:?}");
        }
        let text = write(&report);
        assert!(text.contains("ffmpeg") && text.contains("Xvfb"));
    }
}
