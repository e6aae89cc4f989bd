//! `hotdesk doctor`: what works on this machine, what is used instead of the rest, and the one line that mends it.

mod desk;
mod fleet;

use crate::exit::{Exit, print};
use crate::failure::Outcome;
use crate::reach;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// The data directory that a fleet would use
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Where built templates are
    #[arg(long, env = "HOTDESK_IMAGES", hide_env_values = true, value_name = "DIR")]
    images: Option<PathBuf>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    purpose: String,
    /// Without it nothing works at all.
    needed: bool,
    ok: bool,
    /// What was found, or what is used instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    /// The one line that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// A way to run desks.
#[derive(Debug, Serialize)]
struct Section {
    /// It works here.
    ok: bool,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    /// Desks can be run here, one way or the other.
    ok: bool,
    /// One desk on this machine itself: `hotdesk desk`.
    desk: Section,
    /// Many desks, each in a place of its own: `hotdesk serve`.
    fleet: Section,
}

pub(crate) fn run(args: &DoctorArgs) -> Exit {
    reach::run(async {
        let (desk, fleet) = (desk::examine(), fleet::examine(args).await);
        let report = Report { version: env!("CARGO_PKG_VERSION"), ok: desk.ok || fleet.ok, desk, fleet };
        tell(&report, args.json)
    })
}

fn tell(report: &Report, json: bool) -> Outcome {
    let told = if json { crate::out::json(report)? } else { print(text(report).as_bytes()) };
    Ok(if told == Exit::Success && !report.ok { Exit::Missing } else { told })
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let all = report.fleet.checks.iter().chain(&report.desk.checks);
    let width = all.map(|check| check.name.chars().count()).max().unwrap_or(0);
    let sections = [
        (
            "A fleet (hotdesk up, hotdesk serve)",
            &report.fleet,
            "Fleets can be run here: hotdesk up",
            "No fleet can be run here until what is missing is mended.",
        ),
        (
            "One desk on this machine itself (hotdesk desk)",
            &report.desk,
            "A desk can be run here: hotdesk desk",
            "No desk can be run here until what is missing is mended.",
        ),
    ];
    for (title, section, good, bad) in sections {
        let _ = writeln!(text, "{title}\n");
        for check in &section.checks {
            let mark = match (check.ok, check.needed) {
                (true, _) => "ok     ",
                (false, true) => "missing",
                (false, false) => "without",
            };
            let _ = write!(text, "{mark}  {:width$}  {}", check.name, check.purpose);
            if let Some(found) = check.found.as_ref().filter(|found| !found.is_empty()) {
                let _ = if check.purpose.is_empty() { write!(text, "{found}") } else { write!(text, " ({found})") };
            }
            let _ = writeln!(text);
            if let Some(fix) = &check.fix {
                let _ = writeln!(text, "         {:width$}  fix: {fix}", "");
            }
        }
        let _ = writeln!(text, "\n{}\n", if section.ok { good } else { bad });
    }
    text.truncate(text.trim_end().len());
    crate::text::safe_lines(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whatever_is_wrong_has_a_fix() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| Some(folder.path().join(name));
        let args = DoctorArgs { json: false, data: place("data"), images: place("images") };
        let (desk, fleet) = (desk::examine(), fleet::examine(&args).await);
        for check in desk.checks.iter().chain(&fleet.checks) {
            assert_eq!(check.ok, check.fix.is_none(), "{check:?}");
        }
        assert!(!folder.path().join("data").exists(), "looking changes nothing");
        let text = text(&Report { version: "", ok: true, desk, fleet });
        for word in ["ffmpeg", "Xvfb", "mmdebstrap", "local", "docker", "PostgreSQL"] {
            assert!(text.contains(word), "{word} is not told:\n{text}");
        }
    }
}
