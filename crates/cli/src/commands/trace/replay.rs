//! Doing the steps of a trace again.

use super::words::what;
use super::{BranchArgs, ReplayArgs};
use crate::commands::steps::{self, finish};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach;
use crate::text::safe;
use crate::waiting::{Waiting, say};
use hotdesk_api::access::{Act, FindRequest};
use hotdesk_api::action::{Action, Batch, Size};
use hotdesk_api::desk::NewDesk;
use hotdesk_api::screen::SettledRequest;
use hotdesk_api::trace::{Deed, ElementName, OtherDeed, StartTrace, Step, StepResult};
use hotdesk_client::{Client, Create};
use std::time::Duration;
use tokio::time::Instant;

/// What a masked text became.
const BULLETS: &str = "••••••••";
/// How long a window or an element may take to be there, as it was when the trace was recorded.
const APPEARS_WITHIN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn replay(args: ReplayArgs) -> Outcome {
    let (_folder, reader) = args.source.reader().await?;
    let (trace, all) = (reader.info(), super::source::all(&reader)?);
    let client = args.source.reach.client()?;
    let id = match &args.on {
        Some(desk) => reach::desk(&client, desk).await?.id,
        None => {
            let screen = (trace.width > 0).then_some(Size { width: trace.width, height: trace.height });
            make(&client, NewDesk { template: args.template, screen, ..NewDesk::default() }).await?
        }
    };
    let desk = client.desk(&id);
    if args.record {
        let name = Some(format!("replay of {}", trace.name.unwrap_or(trace.id)));
        desk.start_trace(&StartTrace { name, ..StartTrace::default() }).await?;
    }
    let missed = again(&desk, &all, args.fast).await;
    if args.record {
        say(&format!("recorded as {}", desk.stop_trace().await?.id));
    }
    report(missed?, &id)
}

pub(super) async fn branch(args: BranchArgs) -> Outcome {
    let all = args.source.steps().await?;
    let until: Vec<Step> = all.into_iter().take_while(|step| step.number <= args.step).collect();
    if until.last().is_none_or(|step| step.number != args.step) {
        return Err(
            Failure::new(Exit::NotFound, format!("the trace has no step {}", args.step)).hint("hotdesk trace show lists them")
        );
    }
    let from = until.iter().rposition(|step| step.snapshot.is_some());
    let Some((from, Some(snapshot))) = from.map(|from| (from, until[from].snapshot.clone())) else {
        return Err(Failure::new(Exit::NotFound, format!("no snapshot was taken up to step {}", args.step))
            .hint("hotdesk trace start --snapshot-every N takes some, and so does hotdesk snapshot during a recording"));
    };
    let client = args.source.reach.client()?;
    let id = make(&client, NewDesk { snapshot: Some(snapshot), name: args.name, ..NewDesk::default() }).await?;
    let missed = again(&client.desk(&id), &until[from + 1..], true).await?;
    report(missed, &id)
}

async fn make(client: &Client, new: NewDesk) -> Outcome<String> {
    let waiting = Waiting::new("making a desk", false);
    let create = Create { wait: steps::first_wait(false), ..Create::default() };
    let done = client.create_with(&new, &create).await.map_err(|e| Failure::from(e).during("the desk was not made"))?;
    Ok(finish(client, done, &waiting, steps::LONGEST).await?.id)
}

/// Does steps; returns those that can't be done again, each with the reason.
async fn again(desk: &hotdesk_client::Desk, all: &[Step], fast: bool) -> Outcome<Vec<String>> {
    let mut missed = Vec::new();
    let begun = Instant::now();
    let first = all.first().map_or(0, |step| step.offset_ms);
    for step in all.iter().filter(|step| step.result == StepResult::Done) {
        if !fast {
            tokio::time::sleep_until(begun + Duration::from_millis(step.offset_ms.saturating_sub(first))).await;
        }
        let failed = |e| Failure::from(e).during(format!("step {} could not be done: {}", step.number, safe(&what(step))));
        let mut hands: Vec<Action> = Vec::new();
        for deed in &step.actions {
            match deed {
                Deed::Hands(Action::Type { text, .. }) if text == BULLETS => {
                    missed.push(format!("step {}: its text was masked", step.number));
                }
                Deed::Hands(action) => hands.push(action.clone()),
                Deed::Other(OtherDeed::Copy { text: Some(text), .. }) if text != BULLETS => {
                    desk.set_clipboard(text).await.map_err(failed)?;
                }
                Deed::Other(OtherDeed::Snapshot { .. }) => {}
                Deed::Other(other) => {
                    // In their order: what hands did before it may have made what it is about.
                    act(desk, std::mem::take(&mut hands), fast).await.map_err(failed)?;
                    if let Some(why) = other_again(desk, other).await.map_err(failed)? {
                        missed.push(format!("step {}: {why}", step.number));
                    }
                }
            }
        }
        act(desk, hands, fast).await.map_err(failed)?;
    }
    Ok(missed)
}

async fn act(desk: &hotdesk_client::Desk, hands: Vec<Action>, fast: bool) -> hotdesk_client::Result<()> {
    if hands.is_empty() {
        return Ok(());
    }
    let settle = fast.then_some(SettledRequest { quiet_ms: None, limit_ms: None });
    desk.input(&Batch { actions: hands, settle, screenshot: None }).await.map(drop)
}

/// What is done without hands, to windows and elements of the same names. The reason why not, where it can't be.
async fn other_again(desk: &hotdesk_client::Desk, deed: &OtherDeed) -> hotdesk_client::Result<Option<String>> {
    match deed {
        OtherDeed::Window { title: Some(title), change, .. } => match window(desk, title).await? {
            Some(id) => desk.change_window(id, *change).await.map(|()| None),
            None => Ok(Some(format!("no window is called {}", safe(title)))),
        },
        OtherDeed::PlaceWindow { title: Some(title), area, .. } => match window(desk, title).await? {
            Some(id) => desk.place_window(id, area).await.map(|()| None),
            None => Ok(Some(format!("no window is called {}", safe(title)))),
        },
        OtherDeed::Element { act: Act::SetText { text, .. }, .. } if text == BULLETS => Ok(Some("its text was masked".into())),
        OtherDeed::Element { act, element: Some(element) } => match find(desk, element).await? {
            Some(id) => desk.act_on(&act.clone().on(id)).await.map(|_| None),
            None => Ok(Some(format!("there is no {} called {}", element.role, safe(&element.name)))),
        },
        OtherDeed::ClearClipboard { .. } => desk.set_clipboard("").await.map(|()| None),
        _ => Ok(Some("what it was about has no name that holds on another desk".into())),
    }
}

/// A window by its title, which it may get a moment later.
async fn window(desk: &hotdesk_client::Desk, title: &str) -> hotdesk_client::Result<Option<u32>> {
    soon(async || Ok(desk.windows().await?.into_iter().find(|window| window.title == title).map(|window| window.id))).await
}

async fn find(desk: &hotdesk_client::Desk, element: &ElementName) -> hotdesk_client::Result<Option<String>> {
    let request = FindRequest {
        app: Some(element.app.clone()),
        role: Some(element.role.clone()),
        name: Some(element.name.clone()),
        hidden: true,
        limit: Some(element.nth + 1),
        ..FindRequest::default()
    };
    soon(async || Ok(desk.find_elements(&request).await?.found.into_iter().nth(element.nth).map(|found| found.id))).await
}

/// Looks until there is something, for a while.
async fn soon<T>(look: impl AsyncFn() -> hotdesk_client::Result<Option<T>>) -> hotdesk_client::Result<Option<T>> {
    let end = Instant::now() + APPEARS_WITHIN;
    loop {
        let found = look().await?;
        if found.is_some() || Instant::now() > end {
            return Ok(found);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn report(missed: Vec<String>, desk: &str) -> Outcome {
    for line in &missed {
        say(&format!("left out: {line}"));
    }
    out::line(desk);
    Ok(Exit::Success)
}
