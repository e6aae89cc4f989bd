//! `hotdesk snapshot` and `hotdesk snapshots`: saved desks.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{self, Rows};
use crate::reach::{self, Reach, title};
use crate::text::{ago, size};
use crate::waiting::Waiting;
use clap::{Args, Subcommand};
use hotdesk_api::calls::NewSnapshot;
use hotdesk_api::desk::SnapshotState;

#[derive(Debug, Args)]
#[command(after_help = "A desk is made from it with: hotdesk new --from-snapshot SNAPSHOT")]
pub(crate) struct SnapshotArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// A name for the snapshot
    #[arg(long, short, value_name = "NAME")]
    name: Option<String>,

    /// Only the files, even where programs and their memory could be saved
    #[arg(long, conflicts_with = "memory")]
    files_only: bool,

    /// With programs and their memory, or not at all
    #[arg(long)]
    memory: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotsArgs {
    #[command(subcommand)]
    action: Option<SnapshotsAction>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum SnapshotsAction {
    /// List snapshots
    Ls {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove snapshots
    Rm {
        /// Ids or names
        #[arg(value_name = "SNAPSHOT", required = true)]
        snapshots: Vec<String>,
        #[command(flatten)]
        reach: Reach,
    },
}

pub(crate) fn make(args: SnapshotArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = reach::desk(&client, &args.desk).await?;
        let memory = match (args.files_only, args.memory) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        };
        let waiting = Waiting::new(&format!("saving {}", title(&desk)), args.json);
        let made = client.desk(&desk.id).snapshot(&NewSnapshot { name: args.name, memory }).await;
        drop(waiting);
        let made = made.map_err(|error| Failure::from(error).during(format!("{} was not saved", title(&desk))))?;
        if args.json { out::json(&made) } else { Ok(out::line(&made.id)) }
    })
}

pub(crate) fn run(args: SnapshotsArgs) -> Exit {
    reach::run(async move {
        match args.action {
            None => list(&args.reach, args.json).await,
            Some(SnapshotsAction::Ls { json, reach }) => list(&reach, json).await,
            Some(SnapshotsAction::Rm { snapshots, reach }) => remove(&reach, &snapshots).await,
        }
    })
}

async fn list(reach: &Reach, json: bool) -> Outcome {
    let snapshots = reach.client()?.snapshots().await?;
    if json {
        return out::json(&snapshots);
    }
    let mut rows = Rows::new(&["ID", "NAME", "DESK", "TEMPLATE", "HOLDS", ">SIZE", "AGE", "STATE", "?NOTE"]);
    for snapshot in snapshots {
        let state = match snapshot.state {
            SnapshotState::Creating => "creating",
            SnapshotState::Ready => "ready",
            SnapshotState::Deleting => "deleting",
            SnapshotState::Error => "error",
        };
        let note = if snapshot.state == SnapshotState::Error { snapshot.reason } else { String::new() };
        let holds = if snapshot.memory { "files and programs" } else { "files" };
        rows.push([
            snapshot.id,
            snapshot.name.unwrap_or_default(),
            snapshot.desk,
            snapshot.template,
            holds.into(),
            size(snapshot.size_bytes),
            ago(&snapshot.created_at),
            state.into(),
            note,
        ]);
    }
    Ok(rows.print())
}

async fn remove(reach: &Reach, wanted: &[String]) -> Outcome {
    let client = reach.client()?;
    let known = client.snapshots().await?;
    let mut found = Vec::new();
    for text in wanted {
        let fits = |id: &str, name: Option<&str>| id == text || name == Some(text);
        let snapshot = known.iter().find(|snapshot| fits(&snapshot.id, snapshot.name.as_deref()));
        let snapshot = snapshot.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("there is no snapshot {text}")).hint("hotdesk snapshots lists them")
        })?;
        found.push(&snapshot.id);
    }
    for id in found {
        client.delete_snapshot(id).await?;
        out::line(id);
    }
    Ok(Exit::Success)
}
