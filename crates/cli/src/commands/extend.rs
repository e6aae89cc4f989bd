//! `hotdesk extend`: lets desks live longer.

use crate::exit::Exit;
use crate::out;
use crate::reach::{self, Reach};
use crate::text::{parse_span, span, until};
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct ExtendArgs {
    /// Desks, by id, name or the beginning of either
    #[arg(value_name = "DESK", required = true)]
    desks: Vec<String>,

    /// How long from now
    #[arg(long, short, value_name = "TIME", default_value = "1h", value_parser = parse_span)]
    by: Duration,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: ExtendArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let mut extended = Vec::new();
        for text in &args.desks {
            let desk = reach::desk(&client, text).await?;
            extended.push(client.desk(&desk.id).extend(args.by).await?);
        }
        if args.json {
            return out::json(&extended);
        }
        for desk in &extended {
            let left = desk.expires_at.as_deref().and_then(until).and_then(|left| u64::try_from(left).ok());
            let end = left.map_or_else(|| "has no end".to_owned(), |left| format!("ends in {}", span(left)));
            out::line(&format!("{}  {end}", desk.id));
        }
        Ok(Exit::Success)
    })
}
