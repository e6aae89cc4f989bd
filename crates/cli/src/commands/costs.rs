//! `hotdesk costs`: money spent.

use crate::exit::Exit;
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use crate::text::money;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct CostsArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: CostsArgs) -> Exit {
    reach::run(async move {
        let costs = args.reach.client()?.costs().await?;
        if args.json {
            return out::json(&costs);
        }
        let mut rows = Rows::new(&["WHAT", ">SPENT"]);
        let mut push = |what: String, spent: f64| rows.push([what, format!("{} {}", money(spent), costs.currency)]);
        push("in all".into(), costs.total);
        push("today".into(), costs.today);
        for (project, spent) in &costs.by_project {
            push(format!("project {project}"), *spent);
        }
        for (day, spent) in &costs.by_day {
            push(day.clone(), *spent);
        }
        Ok(rows.print())
    })
}
