//! `hotdesk start`, `stop`, `reset`, `archive` and `rm`: steps in the life of one desk or of many.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{self, Rows};
use crate::reach::{self, Reach, title};
use crate::text;
use crate::waiting::Waiting;
use clap::Args;
use futures_util::{StreamExt, stream};
use hotdesk_api::desk::{Desk, State};
use hotdesk_client::{Client, Done, Filter};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The fleet answers within this time if the step is short; from then on its stages are shown.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(200);
/// Steps under way at once; more would only stand in line at the fleet.
const AT_ONCE: usize = 8;
/// A step that takes longer needs a look at the desk's log.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);

#[derive(Debug, Args)]
pub(crate) struct StepArgs {
    /// Desks, by id, name or the beginning of either
    #[arg(value_name = "DESK", required_unless_present = "all")]
    desks: Vec<String>,

    /// All desks that the key may touch
    #[arg(long, conflicts_with = "desks")]
    all: bool,

    /// Do not ask before touching all desks
    #[arg(long, short)]
    yes: bool,

    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Start,
    Stop,
    Reset,
    Archive,
    Remove,
}

impl Step {
    fn doing(self) -> &'static str {
        match self {
            Self::Start => "starting",
            Self::Stop => "stopping",
            Self::Reset => "resetting",
            Self::Archive => "archiving",
            Self::Remove => "deleting",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Reset => "reset",
            Self::Archive => "archive",
            Self::Remove => "delete",
        }
    }

    /// Whether it would do anything to a desk in that state; only asked when all desks are meant.
    fn concerns(self, state: State) -> bool {
        match self {
            Self::Start => matches!(state, State::Stopped | State::Archived),
            Self::Stop | Self::Reset => state == State::Running,
            Self::Archive => state == State::Stopped,
            Self::Remove => true,
        }
    }
}

pub(crate) fn run(step: Step, args: StepArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desks = chosen(&client, step, &args).await?;
        let what = match &desks[..] {
            [one] => format!("{} {}", step.doing(), title(one)),
            many => format!("{} {}", step.doing(), text::desks(many.len())),
        };
        let waiting = Waiting::new(&what, args.json);
        let (client, waiting_for) = (&client, &waiting);
        let steps = desks.iter().map(|desk| async move { (desk, take(client, step, desk, args.no_wait, waiting_for).await) });
        let ended: Vec<_> = stream::iter(steps).buffered(AT_ONCE).collect().await;
        drop(waiting);
        let (mut good, mut exit) = (Vec::new(), Exit::Success);
        for (desk, outcome) in ended {
            match outcome {
                Ok(desk) => good.push(desk),
                Err(failure) => {
                    let told = failure.during(format!("{} was not {}", title(desk), done_word(step))).tell();
                    if exit == Exit::Success {
                        exit = told;
                    }
                }
            }
        }
        let printed = if args.json { out::json(&good)? } else { tell(&good) };
        Ok(if exit == Exit::Success { printed } else { exit })
    })
}

fn done_word(step: Step) -> &'static str {
    match step {
        Step::Start => "started",
        Step::Stop => "stopped",
        Step::Reset => "reset",
        Step::Archive => "archived",
        Step::Remove => "deleted",
    }
}

fn tell(desks: &[Desk]) -> Exit {
    let lines = desks.iter().map(|desk| format!("{}  {}\n", desk.id, word(desk.state)));
    crate::exit::print(lines.collect::<String>().as_bytes())
}

async fn chosen(client: &Client, step: Step, args: &StepArgs) -> Outcome<Vec<Desk>> {
    if !args.all {
        // Found one after the other: what is misspelt is told before anything is done.
        let mut desks: Vec<Desk> = Vec::new();
        for text in &args.desks {
            let desk = reach::desk(client, text).await?;
            if !desks.iter().any(|other| other.id == desk.id) {
                desks.push(desk);
            }
        }
        return Ok(desks);
    }
    let mut desks = client.desks(&Filter::default()).await?;
    desks.retain(|desk| step.concerns(desk.state));
    if desks.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("there is no desk to {}", step.verb())));
    }
    if step != Step::Start && !args.yes {
        confirm(&format!("{} {}", step.verb(), text::desks(desks.len())), &desks)?;
    }
    Ok(desks)
}

/// Asks on the terminal; without one the answer is no.
fn confirm(what: &str, desks: &[Desk]) -> Outcome<()> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!("would {what}, and there is nobody to ask")).hint("say --yes"));
    }
    let mut rows = Rows::new(&["ID", "NAME", "STATE"]);
    for desk in desks {
        rows.push([desk.id.clone(), desk.name.clone().unwrap_or_default(), word(desk.state).into()]);
    }
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{}{what}? [y/N] ", rows.text());
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Failure, "nothing was done")),
    }
}

async fn take(client: &Client, step: Step, desk: &Desk, no_wait: bool, waiting: &Waiting) -> Outcome<Desk> {
    let wait = if no_wait { Duration::ZERO } else { FIRST_WAIT };
    let handle = client.desk(&desk.id);
    let done = match step {
        Step::Start => handle.start_within(wait).await,
        Step::Stop => handle.stop_within(wait).await,
        Step::Reset => handle.reset_within(wait).await,
        Step::Archive => handle.archive_within(wait).await,
        Step::Remove => handle.delete_within(wait).await,
    };
    let done = done?;
    if no_wait {
        return Ok(done.desk);
    }
    finish(client, done, waiting, LONGEST).await
}

/// How long the first request of a step waits by itself.
pub(crate) fn first_wait(no_wait: bool) -> Duration {
    if no_wait { Duration::ZERO } else { FIRST_WAIT }
}

/// Waits until a step is over, and shows its stages meanwhile.
pub(crate) async fn finish(client: &Client, done: Done, waiting: &Waiting, limit: Duration) -> Outcome<Desk> {
    let begin = Instant::now();
    let mut desk = done.desk;
    if done.over && !between(desk.state) {
        return settled(desk);
    }
    loop {
        if !between(desk.state) {
            return settled(desk);
        }
        waiting.stage(&desk.stage.as_deref().unwrap_or(word(desk.state)).replace('_', " "));
        if begin.elapsed() > limit {
            let message = format!("{} is still {} after {}", desk.id, word(desk.state), text::span(limit.as_secs()));
            return Err(Failure::new(Exit::Late, message).hint(format!("hotdesk logs {} tells more", desk.id)));
        }
        tokio::time::sleep(LOOK).await;
        let deleting = desk.state == State::Deleting;
        match client.desk(&desk.id).get().await {
            // What is deleted is soon forgotten.
            Err(error) if deleting && error.is_not_found() => {
                desk.state = State::Deleted;
                return Ok(desk);
            }
            other => desk = other?,
        }
    }
}

fn settled(desk: Desk) -> Outcome<Desk> {
    match desk.state {
        State::Error => {
            let failure = Failure::new(Exit::Failure, format!("{} failed: {}", title(&desk), desk.reason));
            Err(failure.hint(format!("hotdesk logs {0} shows its log, hotdesk rm {0} removes it", desk.id)))
        }
        _ => Ok(desk),
    }
}

fn between(state: State) -> bool {
    use State::{Archiving, Creating, Deleting, Resetting, Restoring, Starting, Stopping};
    matches!(state, Creating | Starting | Stopping | Resetting | Archiving | Restoring | Deleting)
}

/// A state as it is written in the API.
pub(crate) fn word(state: State) -> &'static str {
    match state {
        State::Creating => "creating",
        State::Running => "running",
        State::Stopping => "stopping",
        State::Stopped => "stopped",
        State::Starting => "starting",
        State::Resetting => "resetting",
        State::Archiving => "archiving",
        State::Archived => "archived",
        State::Restoring => "restoring",
        State::Deleting => "deleting",
        State::Deleted => "deleted",
        State::Error => "error",
    }
}
