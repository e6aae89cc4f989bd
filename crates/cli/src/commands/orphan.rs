//! `hotdesk orphan` and `hotdesk adopt`: what providers have and the fleet has no record of.

use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use crate::text::{ago, span, until};
use clap::{Args, Subcommand};
use hotdesk_api::fleet::{Adopt, Adopted};

#[derive(Debug, Subcommand)]
pub(crate) enum OrphanCommand {
    /// List what has no record
    Ls(LsArgs),
    /// Remove it for good, now
    Rm(RmArgs),
    /// Let go of what nobody adopted: it is stopped, and removed in a week
    ///
    /// After an older copy of the database was put back, nothing that the copy does not know is touched before this.
    Settle(SettleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The orphans, by id
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The desk or snapshot that no record knows, by id
    id: String,

    /// Its name from now on
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Whose it is from now on [default: default]
    #[arg(long, value_name = "NAME")]
    project: Option<String>,

    /// The template that it was made from [default: the fleet's]
    #[arg(long, short, value_name = "NAME")]
    template: Option<String>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(command: OrphanCommand) -> Exit {
    reach::run(async move {
        match command {
            OrphanCommand::Ls(args) => list(args).await,
            OrphanCommand::Rm(args) => remove(args).await,
            OrphanCommand::Settle(args) => {
                args.reach.client()?.settle_orphans().await?;
                Ok(Exit::Success)
            }
        }
    })
}

pub(crate) fn adopt(args: AdoptArgs) -> Exit {
    reach::run(async move {
        let how = Adopt { name: args.name, project: args.project, template: args.template };
        let adopted = args.reach.client()?.adopt(&args.id, &how).await?;
        if args.json {
            return out::json(&adopted);
        }
        Ok(out::line(match &adopted {
            Adopted::Desk(desk) => &desk.id,
            Adopted::Snapshot(snapshot) => &snapshot.id,
        }))
    })
}

async fn list(args: LsArgs) -> Outcome {
    let orphans = args.reach.client()?.orphans().await?;
    if args.json {
        return out::json(&orphans);
    }
    let mut rows = Rows::new(&["ID", "WHAT", "PROVIDER", "FOUND", "REMOVED", "REASON"]);
    for orphan in orphans {
        let left = orphan.removed_at.as_deref().map(|end| until(end).and_then(|left| u64::try_from(left).ok()).unwrap_or(0));
        let end = left.map_or_else(|| "when you say so".to_owned(), |left| format!("in {}", span(left)));
        rows.push([orphan.id, orphan.kind.word().to_owned(), orphan.provider, ago(&orphan.found_at), end, orphan.reason]);
    }
    Ok(rows.print())
}

async fn remove(args: RmArgs) -> Outcome {
    let client = args.reach.client()?;
    for id in &args.ids {
        client.remove_orphan(id).await?;
        out::line(id);
    }
    Ok(Exit::Success)
}
