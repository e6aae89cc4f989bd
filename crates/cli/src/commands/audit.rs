//! `hotdesk audit`: who asked for what, and how it ended.

use crate::exit::Exit;
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// How many of the latest
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 100)]
    lines: u32,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: AuditArgs) -> Exit {
    reach::run(async move {
        let lines = args.reach.client()?.audit(args.lines).await?;
        if args.json {
            return out::json(&lines);
        }
        let mut rows = Rows::new(&["TIME", "KEY", "FROM", "METHOD", "PATH", ">STATUS"]);
        // The newest stands last, next to the prompt.
        for line in lines.into_iter().rev() {
            let at = line.at.get(..19).unwrap_or(&line.at).replace('T', " ");
            rows.push([at, line.key, line.from, line.method, line.path, line.status.to_string()]);
        }
        Ok(rows.print())
    })
}
