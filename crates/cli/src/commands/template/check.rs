//! `hotdesk template check`: a desk of the template, and the template's own checks on it.
//!
//! A build runs the same checks in the bare tree; here they meet the running desktop: display, session bus, accessibility.

use super::{Place, library, told};
use crate::commands::steps;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach::Reach;
use crate::text::safe;
use crate::waiting::Waiting;
use clap::Args;
use hotdesk_api::desk::NewDesk;
use hotdesk_api::process::RunProcess;
use hotdesk_client::{Create, Desk};
use hotdesk_image::Check;
use serde::Serialize;
use std::time::Duration;

/// A check that takes longer has failed.
const LONGEST_CHECK: Duration = Duration::from_secs(300);
/// The desk goes away by itself if we can't remove it.
const DESK_LIVES: u64 = 3600;
/// So many lines of a failed check's output are shown.
const SHOWN_LINES: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The template
    name: String,

    /// Where the desk is made: local, docker, … [default: the fleet's first]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    reach: Reach,
}

/// How a check went.
#[derive(Debug, Serialize)]
struct Checked {
    what: String,
    passed: bool,
    /// What it printed, if it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    output: String,
    took_ms: u64,
}

pub(super) async fn run(args: CheckArgs) -> Outcome {
    let template = library(&args.place, args.reach.data.as_deref())?.template(&args.name).map_err(|e| told(&e))?;
    let client = args.reach.client()?;
    let waiting = Waiting::new(&format!("checking {}", args.name), args.json);
    let mut wish = NewDesk { template: Some(args.name.clone()), provider: args.provider.clone(), ..NewDesk::default() };
    wish.policy.ttl_s = Some(DESK_LIVES);
    let done = client.create_with(&wish, &Create { wait: steps::first_wait(false), ..Create::default() }).await;
    let done = done.map_err(|error| Failure::from(error).during("the desk was not made"))?;
    let id = done.desk.id.clone();
    let desk = client.desk(&id);
    let checked = match steps::finish(&client, done, &waiting, steps::LONGEST).await {
        Ok(_) => check_all(&desk, &template.checks, &waiting).await,
        Err(failure) => Err(failure),
    };
    waiting.stage("removing the desk");
    let removed = desk.delete().await;
    drop(waiting);
    let checked = checked?;
    removed.map_err(|error| Failure::from(error).during(format!("the desk {id} was not removed")))?;
    tell(&checked, args.json)
}

async fn check_all(desk: &Desk, checks: &[Check], waiting: &Waiting) -> Outcome<Vec<Checked>> {
    let mut checked = Vec::new();
    for check in checks {
        waiting.stage(&check.what);
        let what = RunProcess {
            shell: Some(check.run.clone()),
            cwd: Some("/tmp".into()),
            timeout_ms: Some(LONGEST_CHECK.as_millis() as u64),
            merge_stderr: true,
            ..RunProcess::default()
        };
        let result = desk.run(&what).await?;
        let passed = result.exit.exit_code == Some(0);
        let lines: Vec<&str> = result.stdout.lines().collect();
        let output = if passed { String::new() } else { lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n") };
        checked.push(Checked { what: check.what.clone(), passed, output, took_ms: result.duration_ms });
    }
    Ok(checked)
}

fn tell(checked: &[Checked], json: bool) -> Outcome {
    if json {
        out::json(&checked)?;
    } else {
        for check in checked {
            out::line(&format!("{}  {}", if check.passed { "ok    " } else { "failed" }, safe(&check.what)));
            for line in check.output.lines() {
                out::line(&format!("        {}", safe(line)));
            }
        }
    }
    Ok(if checked.iter().all(|check| check.passed) { Exit::Success } else { Exit::Failure })
}
