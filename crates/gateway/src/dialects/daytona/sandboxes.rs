//! Sandboxes: found, listed, started, stopped, changed, deleted.

use super::create::{self, START_LIMIT};
use super::reply::{Failure, Reply, empty, ok};
use super::{Call, Query, labels, view};
use crate::app::App;
use crate::entrance::Caller;
use crate::v1::{arrived, to_its_end};
use axum::http::StatusCode;
use hotdesk_api::desk::{Desk, DeskChange, NewDesk, State};
use hotdesk_fleet::{Error, Filter};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a stop or a delete waits; SDKs ask again afterwards.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Of a list, when nothing is said, and at most.
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;

/// A sandbox by id or name. One that was deleted not long ago is still known by its id.
pub(crate) async fn find(call: &Call, id: &str) -> Reply<Desk> {
    match call.app.fleet.desk(&call.caller.who, id).await {
        Err(Error::NotFound { .. }) => Ok(call.app.fleet.wait(&call.caller.who, id, Duration::ZERO).await?),
        other => Ok(other?),
    }
}

fn answer(app: &App, caller: &Caller, desk: &Desk) -> Reply {
    ok(view::sandbox(app, caller, desk))
}

pub(crate) async fn get(call: Call, id: &str) -> Reply {
    let desk = find(&call, id).await?;
    answer(&call.app, &call.caller, &desk)
}

// ── lists ──

/// Sandboxes that fit what is asked for, the newest last.
async fn wanted(call: &Call, query: &Query) -> Reply<Vec<Desk>> {
    let mut filter = Filter::default();
    if let Some(text) = query.get("labels").filter(|text| !text.is_empty()) {
        let labels: Option<BTreeMap<String, String>> =
            serde_json::from_str(text).map_err(|e| Failure::bad_request(format!("labels is not JSON: {e}")))?;
        filter.labels = labels.unwrap_or_default();
    }
    let mut desks = call.app.fleet.desks(&call.caller.who, filter).await?;
    let any = |name: &str, of: &dyn Fn(&Desk) -> Option<String>, desk: &Desk| {
        let mut asked = query.all(name).peekable();
        asked.peek().is_none() || of(desk).is_some_and(|value| asked.any(|wanted| wanted == value))
    };
    let begins = |name: &str, value: &str| query.get(name).is_none_or(|wanted| value.starts_with(wanted));
    desks.retain(|desk| {
        !matches!(desk.state, State::Deleting | State::Deleted)
            && any("states", &|desk| Some(view::state_of(&call.app, desk).into()), desk)
            && any("snapshots", &|desk| view::snapshot(desk).map(str::to_owned), desk)
            && begins("id", &desk.id)
            && begins("name", desk.name.as_deref().unwrap_or(&desk.id))
    });
    match query.get("sort") {
        Some("name") => desks.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id))),
        Some("updatedAt") => desks.sort_by(|a, b| (&a.changed_at, &a.id).cmp(&(&b.changed_at, &b.id))),
        Some("state") => desks.sort_by(|a, b| (a.state, &a.id).cmp(&(b.state, &b.id))),
        _ => {}
    }
    if query.get("order").is_some_and(|order| order.eq_ignore_ascii_case("desc")) {
        desks.reverse();
    }
    Ok(desks)
}

fn views(call: &Call, desks: &[Desk]) -> Vec<Value> {
    desks.iter().map(|desk| view::sandbox(&call.app, &call.caller, desk)).collect()
}

fn page_size(query: &Query) -> Reply<usize> {
    match query.number::<usize>("limit")? {
        Some(0) => Err(Failure::bad_request("limit must be at least 1")),
        limit => Ok(limit.unwrap_or(PAGE).min(LARGEST_PAGE)),
    }
}

pub(crate) async fn list(call: Call) -> Reply {
    let query = call.query();
    let desks = wanted(&call, &query).await?;
    if call.version.lists_plainly() {
        return ok(views(&call, &desks));
    }
    // A page begins behind the last id of the page before, so that what comes and goes meanwhile shifts nothing.
    let begin = match query.get("cursor").filter(|cursor| !cursor.is_empty()) {
        None => 0,
        Some(cursor) => {
            let (at, id) = cursor.split_once('.').unwrap_or((cursor, ""));
            let at: usize = at.parse().map_err(|_| Failure::bad_request("the cursor is not one of ours"))?;
            desks.iter().position(|desk| desk.id == id).map_or(at.min(desks.len()), |place| place + 1)
        }
    };
    let end = (begin + page_size(&query)?).min(desks.len());
    let page = &desks[begin..end];
    let next = page.last().filter(|_| end < desks.len()).map(|last| format!("{end}.{}", last.id));
    ok(json!({"items": views(&call, page), "nextCursor": next}))
}

pub(crate) async fn paginated(call: Call) -> Reply {
    let query = call.query();
    let desks = wanted(&call, &query).await?;
    let (size, page) = (page_size(&query)?, query.number::<usize>("page")?.unwrap_or(1).max(1));
    let begin = (page - 1).saturating_mul(size).min(desks.len());
    let end = (begin + size).min(desks.len());
    let pages = desks.len().div_ceil(size);
    ok(json!({"items": views(&call, &desks[begin..end]), "total": desks.len(), "page": page, "totalPages": pages}))
}

// ── life ──

pub(crate) async fn start(call: Call, id: &str) -> Reply {
    let desk = find(&call, id).await?;
    if desk.state == State::Running {
        return answer(&call.app, &call.caller, &desk);
    }
    if matches!(desk.state, State::Deleting | State::Deleted) {
        return Err(Failure::bad_request(format!("Sandbox {id} is {} and can't be started", view::state(desk.state))));
    }
    let (app, who, id) = (call.app.clone(), call.caller.who.clone(), desk.id);
    let desk = to_its_end(async move {
        let desk = app.fleet.start(&who, &id).await?;
        // Tokens of the time before are over, and so is what was said about the desktop.
        let fresh = [(labels::START.to_owned(), Some(labels::fresh_start())), (labels::DESKTOP.to_owned(), None)];
        app.fleet.update(&who, &id, DeskChange { labels: fresh.into(), ..DeskChange::default() }).await?;
        arrived(&app, &who, desk, START_LIMIT).await?;
        Ok(app.fleet.desk(&who, &id).await?)
    })
    .await?;
    answer(&call.app, &call.caller, &desk)
}

pub(crate) async fn stop(call: Call, id: &str) -> Reply {
    let desk = find(&call, id).await?;
    let ephemeral = desk.policy.auto_delete_s == view::AT_ONCE_S;
    let (app, who, id) = (call.app.clone(), call.caller.who.clone(), desk.id);
    let desk = to_its_end(async move {
        let desk = match ephemeral {
            true => app.fleet.delete(&who, &id).await?,
            false => app.fleet.stop(&who, &id).await?,
        };
        arrived(&app, &who, desk, STOP_LIMIT).await
    })
    .await?;
    answer(&call.app, &call.caller, &desk)
}

pub(crate) async fn archive(call: Call, id: &str) -> Reply {
    let desk = find(&call, id).await?;
    if desk.state != State::Stopped {
        return Err(Failure::bad_request(format!(
            "Sandbox {id} is {}: only a stopped one can be archived",
            view::state(desk.state)
        )));
    }
    let desk = call.app.fleet.archive(&call.caller.who, &desk.id).await?;
    answer(&call.app, &call.caller, &desk)
}

/// A sandbox that failed gets another start.
pub(crate) async fn recover(call: Call, id: &str) -> Reply {
    let desk = find(&call, id).await?;
    if desk.state != State::Error {
        return Err(Failure::bad_request(format!(
            "Sandbox {id} is {}: there is nothing to recover from",
            view::state(desk.state)
        )));
    }
    start(call, id).await
}

pub(crate) async fn delete(call: Call, id: &str) -> Reply {
    let desk = find(&call, id).await?;
    let (app, who, id) = (call.app.clone(), call.caller.who.clone(), desk.id);
    let desk = to_its_end(async move {
        let desk = app.fleet.delete(&who, &id).await?;
        arrived(&app, &who, desk, STOP_LIMIT).await
    })
    .await?;
    answer(&call.app, &call.caller, &desk)
}

#[derive(Debug, Default, Deserialize)]
struct Fork {
    name: Option<String>,
}

pub(crate) async fn fork(mut call: Call, id: &str) -> Reply {
    let new: Fork = call.json().await?;
    let source = find(&call, id).await?;
    let (app, who) = (call.app.clone(), call.caller.who.clone());
    let desk = to_its_end(async move {
        let memory = crate::v1::memory(&app, &who, &source.id, None).await?;
        let mut labels = source.labels.clone();
        labels.insert(labels::START.into(), labels::fresh_start());
        let new = NewDesk { name: new.name.filter(|name| !name.is_empty()), labels: Some(labels), ..NewDesk::default() };
        let desk = app.fleet.fork(&who, &source.id, memory, new).await?;
        arrived(&app, &who, desk, START_LIMIT).await
    })
    .await?;
    answer(&call.app, &call.caller, &desk)
}

// ── settings ──

async fn change(call: &Call, desk: &Desk, change: DeskChange) -> Reply<Desk> {
    Ok(call.app.fleet.update(&call.caller.who, &desk.id, change).await?)
}

#[derive(Debug, Default, Deserialize)]
struct NewLabels {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The new ones take the place of all that there were.
pub(crate) async fn set_labels(mut call: Call, id: &str) -> Reply {
    let NewLabels { mut labels } = call.json().await?;
    labels.retain(|name, _| !labels::hidden(name));
    let desk = find(&call, id).await?;
    let mut changes: BTreeMap<String, Option<String>> =
        desk.labels.keys().filter(|name| !labels::hidden(name)).map(|name| (name.clone(), None)).collect();
    changes.extend(labels.into_iter().map(|(name, value)| (name, Some(value))));
    let desk = change(&call, &desk, DeskChange { labels: changes, ..DeskChange::default() }).await?;
    ok(json!({"labels": labels::seen(&desk)}))
}

pub(crate) async fn set_label(call: &Call, desk: &Desk, name: &str, value: Option<&str>) -> Reply<Desk> {
    let labels = BTreeMap::from([(name.to_owned(), value.map(str::to_owned))]);
    change(call, desk, DeskChange { labels, ..DeskChange::default() }).await
}

pub(crate) async fn set_public(call: Call, id: &str, value: &str) -> Reply {
    let value = match value {
        "true" => Some("true"),
        "false" => None,
        _ => return Err(Failure::bad_request("a sandbox is public or not: true or false")),
    };
    let desk = find(&call, id).await?;
    let desk = set_label(&call, &desk, labels::PUBLIC, value).await?;
    answer(&call.app, &call.caller, &desk)
}

pub(crate) async fn set_interval(call: Call, id: &str, which: &str, minutes: &str) -> Reply {
    let minutes: i64 = minutes.parse().map_err(|_| Failure::bad_request("an interval is a number of minutes"))?;
    let desk = find(&call, id).await?;
    let mut policy = desk.policy;
    match which {
        "autostop" => policy.auto_stop_s = create::stop_seconds(minutes)?,
        "autoarchive" => policy.auto_archive_s = create::archive_seconds(minutes)?,
        "autodelete" => policy.auto_delete_s = create::delete_seconds(minutes),
        "autopause" if minutes == 0 => {}
        "autopause" => return Err(Failure::unsupported("sandboxes here are stopped, not paused: use the auto-stop interval")),
        // Counted from now there, and from the beginning here.
        _ => {
            let wanted = create::stop_seconds(minutes)?;
            let begun: Option<jiff::Timestamp> = desk.created_at.parse().ok();
            let age = begun.map_or(0, |begun| jiff::Timestamp::now().duration_since(begun).as_secs());
            policy.ttl_s = if wanted == 0 { 0 } else { wanted.saturating_add(u64::try_from(age).unwrap_or(0)) };
        }
    }
    let desk = change(&call, &desk, DeskChange { policy: Some(policy.into()), ..DeskChange::default() }).await?;
    answer(&call.app, &call.caller, &desk)
}

/// A sign of work.
pub(crate) async fn touch(call: Call, id: &str) -> Reply {
    let desk = find(&call, id).await?;
    // One that does not run needs no sign.
    let _ = call.app.fleet.door(&call.caller.who, &desk.id).await;
    empty(StatusCode::CREATED)
}
