//! Desks: made, listed, started, stopped, reset, forked, deleted, handed to a person.

use super::Server;
use super::tools::{Outcome, says};
use crate::dialects::native::{Ask, Native, problem};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use hotdesk_api::Problem;
use hotdesk_api::action::Size;
use hotdesk_api::calls::{DeskList, TemplateList};
use hotdesk_api::desk::{Desk, State};
use hotdesk_api::fleet::{MadeKey, NewKey, Scope};
use hotdesk_api::lease::{Lease, TakeLease};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;

/// How long a step is waited for. Many clients give a tool a minute.
const WAIT: u64 = 45;
const LONGEST_WAIT: u64 = 600;
/// Desks that are told one by one.
const MOST_LISTED: usize = 100;
/// How long a person may use a desk that was handed over, in minutes.
const HANDED_OVER: u32 = 60;
/// How long a desk is kept free for a person who was sent for. Whoever comes has their own limit from then on.
const KEPT_FREE: Duration = Duration::from_secs(600);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// A name for it, unique; it can be used in place of the id.
    #[serde(default)]
    name: Option<String>,
    /// What it is made from, one of those that list_desks names; `base` if left out.
    #[serde(default)]
    template: Option<String>,
    /// Width of the screen in pixels; the template's own if left out.
    #[serde(default)]
    #[schemars(range(min = 64, max = 7680))]
    width: Option<u32>,
    /// Height of the screen in pixels.
    #[serde(default)]
    #[schemars(range(min = 64, max = 4320))]
    height: Option<u32>,
    /// Whether it may reach the network; yes if left out.
    #[serde(default)]
    network: Option<bool>,
    /// Seconds to wait until it can be used; 45 if left out.
    #[serde(default)]
    #[schemars(range(min = 0, max = 600))]
    wait: Option<u64>,
}

pub(super) async fn create(server: Server, what: Create) -> Outcome {
    let mut new = Map::new();
    let mut set = |name: &str, value: Option<Value>| value.map(|value| new.insert(name.into(), value));
    set("name", what.name.map(Value::from));
    set("template", what.template.map(Value::from));
    set("network", what.network.map(Value::from));
    match (what.width, what.height) {
        (Some(width), Some(height)) => drop(set("screen", Some(json!(Size { width, height })))),
        (None, None) => {}
        _ => return Err(problem(400, "invalid", "`width` and `height` are given together, or neither")),
    }
    let wait = what.wait.unwrap_or(WAIT).min(LONGEST_WAIT);
    let once = format!("mcp-{:032x}", rand::random::<u128>());
    let once = HeaderValue::try_from(once).map_err(|e| problem(500, "internal", e.to_string()))?;
    let ask = Ask::post(&["v1", "desks"]).json(&new).header(HeaderName::from_static("idempotency-key"), once);
    let (desk, over) = step(&server.native, ask, wait).await?;
    says(match over {
        true => format!("the desk {} runs; its screen is {}×{}", title(&desk), desk.screen.width, desk.screen.height),
        false => on_its_way(&desk),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

pub(super) async fn list(server: Server, _: Nothing) -> Outcome {
    let list: DeskList = server.native.value(Ask::get(&["v1", "desks"])).await?;
    let mut text = String::new();
    for desk in list.desks.iter().take(MOST_LISTED) {
        let Size { width, height } = desk.screen;
        let _ = write!(text, "{}: {}, made from {}, screen {width}×{height}", title(desk), state(desk.state), desk.template);
        if let Some(stage) = &desk.stage {
            let _ = write!(text, ", {stage}");
        }
        if !desk.reason.is_empty() && desk.state == State::Error {
            let _ = write!(text, ", because {}", desk.reason);
        }
        text.push('\n');
    }
    match list.desks.len() {
        0 => text.push_str("there are no desks yet\n"),
        count if count > MOST_LISTED => drop(writeln!(text, "[… {} more desks left out …]", count - MOST_LISTED)),
        _ => {}
    }
    // Only told; a key may be too small to see them.
    if let Ok(templates) = server.native.value::<TemplateList>(Ask::get(&["v1", "templates"])).await {
        text.push_str("templates for create_desk:\n");
        for template in templates.templates {
            let built = if template.built { "" } else { " (its first desk takes minutes)" };
            let _ = writeln!(text, "{}: {}{built}", template.name, template.description);
        }
    }
    says(text)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// The desk, by id or name.
    desk: String,
}

pub(super) async fn start(server: Server, which: Which) -> Outcome {
    verb(server, &which.desk, "start").await
}

pub(super) async fn stop(server: Server, which: Which) -> Outcome {
    verb(server, &which.desk, "stop").await
}

pub(super) async fn reset(server: Server, which: Which) -> Outcome {
    verb(server, &which.desk, "reset").await
}

async fn verb(server: Server, desk: &str, verb: &str) -> Outcome {
    let (desk, over) = step(&server.native, Ask::post(&["v1", "desks", desk, verb]), WAIT).await?;
    says(if over { format!("the desk {} is {}", title(&desk), state(desk.state)) } else { on_its_way(&desk) })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    /// The desk to make another one of, by id or name.
    desk: String,
    /// A name for the new one.
    #[serde(default)]
    name: Option<String>,
    /// Whether programs go on running in the new one. Where that is possible they do if this is left out.
    #[serde(default)]
    memory: Option<bool>,
}

pub(super) async fn fork(server: Server, what: Fork) -> Outcome {
    let mut how = Map::new();
    how.extend(what.name.map(|name| ("name".to_owned(), name.into())));
    how.extend(what.memory.map(|memory| ("memory".to_owned(), memory.into())));
    let (desk, over) = step(&server.native, Ask::post(&["v1", "desks", &what.desk, "fork"]).json(&how), WAIT).await?;
    says(if over { format!("the desk {} runs", title(&desk)) } else { on_its_way(&desk) })
}

pub(super) async fn delete(server: Server, which: Which) -> Outcome {
    let (desk, over) = step(&server.native, Ask::new(Method::DELETE, &["v1", "desks", &which.desk]), WAIT).await?;
    says(if over { format!("the desk {} is deleted", title(&desk)) } else { on_its_way(&desk) })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HandOver {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// How long the key is good; 60 minutes if left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1440))]
    minutes: Option<u32>,
}

pub(super) async fn hand_over(server: Server, what: HandOver) -> Outcome {
    let named = server.meant(what.desk).await?;
    let desk: Desk = server.native.value(Ask::get(&["v1", "desks", &named])).await?;
    let minutes = what.minutes.unwrap_or(HANDED_OVER);
    if minutes == 0 || minutes > 1440 {
        return Err(problem(400, "invalid", format!("`minutes` is {minutes}, but must be from 1 to 1440")));
    }
    let kept = keep_free(&server.native, &desk.id).await;
    let new = NewKey {
        name: format!("handed over: {}", desk.id),
        scope: Scope::Desk { desk: desk.id.clone() },
        ttl_s: u64::from(minutes) * 60,
        max_desks: None,
    };
    let key = match server.native.value::<MadeKey>(Ask::post(&["v1", "keys"]).json(&new)).await {
        Ok(made) => made.secret,
        Err(problem) if problem.status == 403 => return says(format!("{}\n{kept}", without_key(&desk))),
        Err(problem) => return Err(problem),
    };
    let mut text =
        format!("the desk {} can be used by a person for {minutes} minutes; the key opens this desk alone\n", title(&desk));
    let Some(address) = server.native.address() else {
        let _ = writeln!(text, "in a terminal on the fleet's machine: HOTDESK_KEY={key} hotdesk open --vnc {}", desk.id);
        text.push_str(&kept);
        return says(text);
    };
    let _ = writeln!(text, "in a browser: {address}/desks/{}#key={key}", desk.id);
    let _ = writeln!(text, "in a VNC viewer: HOTDESK_URL={address} HOTDESK_KEY={key} hotdesk open --vnc {}", desk.id);
    text.push_str("give the person one of them, and look again when they are done\n");
    text.push_str(&kept);
    says(text)
}

/// Takes the lease for whoever comes, and says what that means for the model.
async fn keep_free(native: &Native, desk: &str) -> String {
    let how = TakeLease { idle_s: Some(KEPT_FREE.as_secs()), ..TakeLease::default() };
    match native.value::<Lease>(Ask::new(Method::PUT, &["v1", "desks", desk, "lease"]).json(&how)).await {
        Ok(_) => format!(
            "the person drives from now on: clicks and keys of yours are refused until they give the desk back or nobody does \
             anything for {} minutes; screenshots work",
            KEPT_FREE.as_secs() / 60
        ),
        Err(problem) => format!("the person shares mouse and keyboard with you: {}", problem.detail),
    }
}

fn without_key(desk: &Desk) -> String {
    format!(
        "the key of this connection may not make others, so the person needs one of their own: `hotdesk open {}` shows them the desk",
        desk.id
    )
}

/// A step of a desk's life, waited for so many seconds; whether it is over.
async fn step(native: &Native, ask: Ask, wait: u64) -> Result<(Desk, bool), Problem> {
    let answer = native.answer(ask.query("wait", wait).waiting(Duration::from_secs(wait))).await?;
    let desk = serde_json::from_slice(&answer.body);
    let desk = desk.map_err(|e| problem(502, "strange", format!("the answer can't be understood: {e}")))?;
    Ok((desk, answer.status != StatusCode::ACCEPTED))
}

fn on_its_way(desk: &Desk) -> String {
    let stage = desk.stage.as_deref().map(|stage| format!(" ({stage})")).unwrap_or_default();
    let state = state(desk.state);
    format!("the desk {} is on its way, in the state {state}{stage}; list_desks tells when that is over", title(desk))
}

/// What a model calls it: the id, and the name if it has one.
fn title(desk: &Desk) -> String {
    match &desk.name {
        Some(name) => format!("{} ({name})", desk.id),
        None => desk.id.clone(),
    }
}

fn state(state: State) -> String {
    serde_json::to_value(state).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}
