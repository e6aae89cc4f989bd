//! `hotdesk provider`: where desks can live, and what each place can do.

mod check;

use crate::exit::Exit;
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// List providers and what they can do
    Ls(LsArgs),
    /// Try a provider with a desk of its own, step by step, and leave nothing behind
    ///
    /// Makes a desk, looks at it, stops, starts, saves, resets and removes it, with the key and the settings that `hotdesk serve`
    /// would use. At a vendor this costs money: minutes of one desk. Ctrl-C removes what was made.
    Check(check::CheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(command: ProviderCommand) -> Exit {
    match command {
        ProviderCommand::Ls(args) => list(args),
        ProviderCommand::Check(args) => reach::run(check::run(args)),
    }
}

fn list(args: LsArgs) -> Exit {
    reach::run(async move {
        let providers = args.reach.client()?.fleet().await?.providers;
        if args.json {
            return out::json(&providers);
        }
        let mut rows = Rows::new(&["PROVIDER", "READY", "CAN", "CAN NOT", "?NOTE"]);
        for provider in providers {
            let can = provider.capabilities;
            let all = [
                ("reset", can.reset),
                ("snapshot", can.snapshot),
                ("live fork", can.live_fork),
                ("archive", can.archive),
                ("network", can.network),
                ("CPU limit", can.cpu_limit),
                ("memory limit", can.memory_limit),
                ("disk limit", can.disk_limit),
                ("volumes", can.volumes),
            ];
            let list = |wanted: bool| {
                let names: Vec<_> = all.iter().filter(|(_, can)| *can == wanted).map(|(name, _)| *name).collect();
                if names.is_empty() { "-".into() } else { names.join(", ") }
            };
            let mut notes = vec![provider.reason];
            if !can.live_fork && !can.live_fork_reason.is_empty() {
                notes.push(format!("no live fork: {}", can.live_fork_reason));
            }
            notes.retain(|note| !note.is_empty());
            let ready = if provider.ready { "yes" } else { "no" };
            rows.push([provider.name, ready.into(), list(true), list(false), notes.join("; ")]);
        }
        Ok(rows.print())
    })
}
