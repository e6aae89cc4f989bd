//! `hotdesk set`: changes name, labels and policy of a desk.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach::{self, Reach};
use crate::text::parse_span;
use clap::Args;
use hotdesk_api::desk::{DeskChange, PolicyRequest};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Example: hotdesk set work --auto-stop never --label team=qa --label old-")]
pub(crate) struct SetArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// Another name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// A label, NAME=VALUE, or NAME- to remove it; can be given several times
    #[arg(long = "label", short, value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, Option<String>)>,

    /// Stop it when it was idle so long; never keeps it
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    auto_stop: Option<Duration>,

    /// Archive it when it was stopped so long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    auto_archive: Option<Duration>,

    /// Delete it when it was stopped or archived so long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    auto_delete: Option<Duration>,

    /// Delete it after so long, counted from its creation
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    ttl: Option<Duration>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

fn label(text: &str) -> Result<(String, Option<String>), String> {
    match (text.split_once('='), text.strip_suffix('-')) {
        (Some((name, value)), _) if !name.is_empty() => Ok((name.to_owned(), Some(value.to_owned()))),
        (None, Some(name)) if !name.is_empty() => Ok((name.to_owned(), None)),
        _ => Err("write it like name=value, or name- to remove it".into()),
    }
}

pub(crate) fn run(args: SetArgs) -> Exit {
    reach::run(async move { change(args).await })
}

async fn change(args: SetArgs) -> Outcome {
    let times = [args.auto_stop, args.auto_archive, args.auto_delete, args.ttl];
    let policy_changes = times.iter().any(Option::is_some);
    if args.name.is_none() && args.labels.is_empty() && !policy_changes {
        return Err(Failure::usage("nothing to change").hint("hotdesk set --help lists what can be"));
    }
    let client = args.reach.client()?;
    let desk = reach::desk(&client, &args.desk).await?;
    let mut policy = PolicyRequest::default();
    let fields = [&mut policy.auto_stop_s, &mut policy.auto_archive_s, &mut policy.auto_delete_s, &mut policy.ttl_s];
    for (field, time) in fields.into_iter().zip(times) {
        *field = time.map(|time| time.as_secs());
    }
    let change =
        DeskChange { name: args.name, labels: args.labels.into_iter().collect(), policy: policy_changes.then_some(policy) };
    let desk = client.desk(&desk.id).change(&change).await?;
    if args.json { out::json(&desk) } else { Ok(out::line(&desk.id)) }
}
