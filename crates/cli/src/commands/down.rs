//! `hotdesk down`: ends what `hotdesk up` started.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::waiting::{Waiting, say};
use crate::{places, reach, text};
use clap::Args;
use futures_util::{StreamExt, stream};
use hotdesk_client::{Client, Filter, Serve, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The gateway lets requests end for 5 s and the fleet its steps for 10 s.
const PATIENCE: Duration = Duration::from_secs(40);
const AT_ONCE: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Delete all desks first; without it they keep running, and the next hotdesk up finds them
    #[arg(long)]
    desks: bool,

    /// The data directory of the fleet
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub(crate) fn run(args: DownArgs) -> Exit {
    reach::run(async move {
        let data = places::data(args.data.as_deref());
        let Some(serve) = running(&data) else {
            if args.desks {
                return Err(Failure::new(Exit::Unreachable, format!("no fleet runs in {}", data.display()))
                    .hint("desks can be deleted while it runs: hotdesk up --no-desk, then hotdesk down --desks"));
            }
            say(&format!("no fleet runs in {}", data.display()));
            return Ok(Exit::Success);
        };
        let left = desks(&data, args.desks).await?;
        stop(&serve).await?;
        match left {
            0 => say("the fleet is down"),
            many => say(&format!("the fleet is down; hotdesk up finds {} again, left as before", text::desks(many))),
        }
        Ok(Exit::Success)
    })
}

/// The process that serves the fleet in that directory, if it is really one.
pub(crate) fn running(data: &Path) -> Option<Serve> {
    let serve = Serve::read(data).filter(Serve::is_alive)?;
    // A number may have gone to another program after a crash.
    let command = std::fs::read(format!("/proc/{}/cmdline", serve.pid)).unwrap_or_default();
    command.split(|byte| *byte == 0).any(|word| word == b"serve").then_some(serve)
}

/// Deletes all desks if asked to; how many are left.
async fn desks(data: &Path, delete: bool) -> Outcome<usize> {
    let settings = Settings { data: Some(data.to_owned()), ..Settings::default() };
    let client = Client::connect(&settings.find_in(|_| None)?)?;
    let desks = match client.desks(&Filter::default()).await {
        Ok(desks) => desks,
        // It is stopped anyway.
        Err(_) if !delete => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    if !delete {
        return Ok(desks.len());
    }
    let waiting = Waiting::new(&format!("deleting {}", text::desks(desks.len())), false);
    let deleted = desks.iter().map(|desk| {
        let desk = client.desk(&desk.id);
        async move { desk.delete().await }
    });
    for outcome in stream::iter(deleted).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        outcome.map(|_| ()).or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })?;
    }
    drop(waiting);
    Ok(0)
}

/// Asks it to stop and waits until it has.
pub(crate) async fn stop(serve: &Serve) -> Outcome<()> {
    let pid = Pid::from_raw(i32::try_from(serve.pid).map_err(|_| Failure::local("serve.json names no process"))?);
    kill(pid, Signal::SIGTERM).map_err(|e| {
        Failure::new(Exit::Denied, format!("process {pid} can't be asked to stop: {e}")).hint("ask whoever started it")
    })?;
    let waiting = Waiting::new("stopping the fleet", false);
    let begin = Instant::now();
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::new(Exit::Late, format!("process {pid} did not stop in {} s", PATIENCE.as_secs()))
                .hint(format!("kill -9 {pid} ends it; desks survive that")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(waiting);
    Ok(())
}
