//! `hotdesk fork`: a desk like another one, as it is right now.

use super::new::{Wishes, tell};
use super::steps::{self, finish};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::reach::{self, Reach, title};
use crate::waiting::Waiting;
use clap::Args;
use hotdesk_api::calls::ForkDesk;

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    #[command(flatten)]
    wishes: Wishes,

    /// Only the files, even where programs and their memory could come along
    #[arg(long, conflicts_with = "memory_too")]
    files_only: bool,

    /// With programs and their memory, or not at all
    #[arg(long = "memory-too")]
    memory_too: bool,

    /// Do not wait until the fork runs
    #[arg(long)]
    no_wait: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: ForkArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = reach::desk(&client, &args.desk).await?;
        let memory = match (args.files_only, args.memory_too) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        };
        let waiting = Waiting::new(&format!("forking {}", title(&desk)), args.json);
        let how = ForkDesk { memory, desk: args.wishes.desk() };
        let done = client.desk(&desk.id).fork_within(&how, steps::first_wait(args.no_wait)).await;
        let done = done.map_err(|error| Failure::from(error).during(format!("{} was not forked", title(&desk))))?;
        let fork = match args.no_wait {
            true => done.desk,
            false => finish(&client, done, &waiting, steps::LONGEST).await?,
        };
        drop(waiting);
        tell(&fork, args.json)
    })
}
