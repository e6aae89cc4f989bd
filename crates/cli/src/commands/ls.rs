//! `hotdesk ls`: the desks, how they are, what they cost.

use super::steps::word;
use crate::exit::{Exit, print};
use crate::failure::{Failure, Outcome};
use crate::live::Live;
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use crate::text::{money, parse_pair, span, until};
use clap::Args;
use hotdesk_api::desk::{Desk, State};
use hotdesk_client::{Client, Filter};
use std::time::Duration;

/// Longer notes are for `--json` and `hotdesk events`.
const LONGEST_NOTE: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only ids
    #[arg(long, short)]
    quiet: bool,

    /// Show them again and again until q or Ctrl-C
    #[arg(long, short, conflicts_with_all = ["quiet", "json"])]
    watch: bool,

    /// Only desks with this label; can be given several times
    #[arg(long = "label", short, value_name = "NAME=VALUE", value_parser = parse_pair)]
    labels: Vec<(String, String)>,

    /// Only desks in this state: running, stopped, archived, error, …
    #[arg(long, short, value_name = "STATE", value_parser = parse_state)]
    state: Option<State>,

    /// Only desks of this project
    #[arg(long, value_name = "NAME")]
    project: Option<String>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

fn parse_state(text: &str) -> Result<State, String> {
    serde_json::from_value(text.into()).map_err(|_| {
        "the states are creating, running, stopping, stopped, starting, resetting, archiving, archived, restoring, deleting and error"
            .to_owned()
    })
}

pub(crate) fn run(args: LsArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let filter = Filter { project: args.project, state: args.state, labels: args.labels.into_iter().collect() };
        if args.watch {
            return watch(&client, &filter).await;
        }
        let desks = client.desks(&filter).await?;
        if args.json {
            return out::json(&desks);
        }
        if args.quiet {
            return Ok(print(desks.iter().flat_map(|desk| [&desk.id, "\n"]).collect::<String>().as_bytes()));
        }
        let exit = table(&desks).print();
        if desks.is_empty() {
            crate::waiting::say("there are no desks; hotdesk new makes one");
        }
        Ok(exit)
    })
}

async fn watch(client: &Client, filter: &Filter) -> Outcome {
    const PAUSE: Duration = Duration::from_secs(1);
    let mut live = Live::begin().map_err(|e| Failure::usage(format!("--watch needs a terminal: {e}")))?;
    loop {
        live.show(&table(&client.desks(filter).await?).text());
        if live.pause(PAUSE).await {
            return Ok(Exit::Success);
        }
    }
}

fn table(desks: &[Desk]) -> Rows {
    let mut rows = Rows::new(&["ID", "NAME", "TEMPLATE", "STATE", "IDLE", "EXPIRES", ">COST", "?NOTE"]);
    for desk in desks {
        let expires = desk.expires_at.as_deref().and_then(until).map_or("-".to_owned(), |left| match u64::try_from(left) {
            Ok(left) => format!("in {}", span(left)),
            Err(_) => "now".into(),
        });
        rows.push([
            desk.id.clone(),
            desk.name.clone().unwrap_or_else(|| "-".into()),
            desk.template.clone(),
            word(desk.state).to_owned(),
            idle(desk),
            expires,
            money(desk.cost),
            note(desk),
        ]);
    }
    rows
}

/// How long nothing happened, or why it counts as busy.
pub(crate) fn idle(desk: &Desk) -> String {
    match (&desk.busy, desk.idle_s) {
        (Some(why), _) => format!("busy: {why}"),
        (None, Some(seconds)) => span(seconds),
        (None, None) => "-".into(),
    }
}

/// What goes on, or what went wrong.
fn note(desk: &Desk) -> String {
    let note = match (desk.state, &desk.stage) {
        (State::Error, _) => desk.reason.as_str(),
        (State::Running | State::Stopped | State::Archived, _) | (_, None) => "",
        (_, Some(stage)) => stage,
    };
    match note.char_indices().nth(LONGEST_NOTE) {
        Some((end, _)) => format!("{}…", &note[..end]),
        None => note.to_owned(),
    }
}
