//! `hotdesk events`: what happened in the fleet, and what happens.

use super::steps::word;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{json_line, line};
use crate::reach::{self, Reach};
use clap::Args;
use hotdesk_api::desk::Event;

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only of this desk
    desk: Option<String>,

    /// Go on until Ctrl-C
    #[arg(long, short)]
    follow: bool,

    /// How many of the latest
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 100)]
    lines: u32,

    /// Only after this number
    #[arg(long, value_name = "NUMBER")]
    after: Option<i64>,

    /// Print a JSON object per line instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

/// The most that the fleet hands out at once.
const PAGE: u32 = 1000;

pub(crate) fn run(args: EventsArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = match &args.desk {
            // A desk that is gone still has its events.
            Some(text) => Some(reach::desk(&client, text).await.map_or_else(|_| text.clone(), |desk| desk.id)),
            None => None,
        };
        let mut last = args.after.unwrap_or(0);
        let mut kept: Vec<Event> = Vec::new();
        loop {
            let page = client.events(last, desk.as_deref(), PAGE).await?;
            let Some(end) = page.last() else { break };
            last = end.number;
            let full = page.len() >= PAGE as usize;
            kept.extend(page);
            if args.after.is_none() && kept.len() > args.lines as usize {
                kept.drain(..kept.len() - args.lines as usize);
            }
            if !full {
                break;
            }
        }
        for event in &kept {
            if show(event, args.json)? != Exit::Success {
                return Ok(Exit::Success);
            }
        }
        if !args.follow {
            return Ok(Exit::Success);
        }
        let mut events = client.follow(Some(last), desk.as_deref());
        loop {
            let event = events.next().await?;
            if show(&event, args.json)? != Exit::Success {
                return Ok(Exit::Success);
            }
        }
    })
}

fn show(event: &Event, json: bool) -> Outcome {
    if json {
        return json_line(event);
    }
    let what = event.state.map_or(event.kind.as_str(), |state| word(state));
    let desk = event.desk.as_deref().unwrap_or("-");
    let at = event.at.get(..19).unwrap_or(&event.at).replace('T', " ");
    Ok(line(&format!("{:>6}  {at}  {desk:14}  {what:10}  {}  ({})", event.number, event.reason, event.by)))
}
