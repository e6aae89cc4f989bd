//! `hotdesk logs`: what a desk's server printed.

use crate::exit::{Exit, print};
use crate::reach::{self, Reach};
use crate::text::safe_lines;
use clap::Args;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);
/// Of which a new look finds where the last one ended.
const FOLLOWED: usize = 1000;

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The desk, by id, name or the beginning of either [default: the only one that runs]
    desk: Option<String>,

    /// How many lines
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 200)]
    lines: usize,

    /// Go on until Ctrl-C
    #[arg(long, short)]
    follow: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: LogsArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = reach::desk_or_only(&client, args.desk.as_deref()).await?;
        let desk = client.desk(&desk.id);
        let mut seen = desk.console(args.lines).await?;
        let exit = print(safe_lines(&seen).as_bytes());
        if !args.follow || exit != Exit::Success {
            return Ok(exit);
        }
        loop {
            tokio::time::sleep(LOOK).await;
            let now = desk.console(FOLLOWED).await?;
            let exit = print(safe_lines(fresh(&seen, &now)).as_bytes());
            if exit != Exit::Success {
                return Ok(exit);
            }
            seen = now;
        }
    })
}

/// What of `now` was not there yet: all behind the longest end of `seen` that `now` holds.
fn fresh<'a>(seen: &str, now: &'a str) -> &'a str {
    let mut ends = seen.match_indices('\n').map(|(end, _)| &seen[end + 1..]);
    let mut tail = seen;
    loop {
        if tail.is_empty() {
            return if seen == now { "" } else { now };
        }
        if let Some(rest) = now.strip_prefix(tail) {
            return rest;
        }
        // The lines that were asked for the first time may be fewer than those of now.
        if let Some(at) = now.find(tail).filter(|at| *at == 0 || now.as_bytes()[at - 1] == b'\n') {
            return &now[at + tail.len()..];
        }
        tail = ends.next().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::fresh;

    #[test]
    fn only_new_lines_are_shown() {
        assert_eq!(fresh("a\nb\n", "a\nb\n"), "");
        assert_eq!(fresh("a\nb\n", "a\nb\nc\n"), "c\n");
        assert_eq!(fresh("a\nb\n", "b\nc\n"), "c\n");
        assert_eq!(fresh("b\n", "a\nb\nc\n"), "c\n");
        assert_eq!(fresh("", "a\n"), "a\n");
        assert_eq!(fresh("x\n", "a\n"), "a\n", "a new start");
    }
}
