//! A desk as E2B describes a sandbox.

use super::labels::Kept;
use super::{ENVD_VERSION, names, token};
use crate::app::App;
use crate::refusal::Result;
use hotdesk_api::desk::{Desk, State};
use hotdesk_fleet::Who;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Which of E2B's clients made it; there is one.
const CLIENT: &str = "hotdesk";

/// Whether clients may know of a desk.
pub(super) fn is_there(desk: &Desk) -> bool {
    !matches!(desk.state, State::Deleting | State::Deleted | State::Error)
}

/// E2B has two states.
pub(super) fn state(desk: &Desk) -> &'static str {
    match desk.state {
        State::Stopping | State::Stopped | State::Archiving | State::Archived => "paused",
        _ => "running",
    }
}

/// What a client needs to use a sandbox that runs.
pub(super) async fn opened(app: &App, who: &Who, desk: &Desk) -> Result<Value> {
    // It runs, or the answer would be of no use.
    app.fleet.door(who, &desk.id).await?;
    let access = token::of(app, &desk.id).await?;
    let traffic = match Kept::of(desk).private {
        true => Some(token::of_traffic(app, &desk.id).await?),
        false => None,
    };
    Ok(json!({
        "templateID": desk.template,
        "sandboxID": names::sandbox(&desk.id),
        "clientID": CLIENT,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": access,
        "trafficAccessToken": traffic,
        "domain": app.config.e2b.domain,
        "alias": desk.template,
    }))
}

/// A line of a list.
pub(super) fn listed(desk: &Desk) -> Value {
    json!({
        "templateID": desk.template,
        "alias": desk.template,
        "sandboxID": names::sandbox(&desk.id),
        "clientID": CLIENT,
        "startedAt": started(desk).to_string(),
        "endAt": ends(desk).to_string(),
        "cpuCount": cpus(desk),
        "memoryMB": desk.resources.memory_mib,
        "diskSizeMB": desk.resources.disk_mib,
        "state": state(desk),
        "envdVersion": ENVD_VERSION,
        "metadata": Kept::of(desk).metadata,
    })
}

/// All about a sandbox.
pub(super) async fn detailed(app: &App, who: &Who, desk: &Desk) -> Value {
    let mut all = listed(desk);
    if app.fleet.door(who, &desk.id).await.is_ok()
        && let Ok(access) = token::of(app, &desk.id).await
    {
        all["envdAccessToken"] = json!(access);
    }
    all["domain"] = json!(app.config.e2b.domain);
    all["lifecycle"] = json!({ "autoResume": false, "onTimeout": if desk.policy.end_stops { "pause" } else { "kill" } });
    all
}

/// Whole processors, as E2B counts them.
pub(super) fn cpus(desk: &Desk) -> u32 {
    // Sizes of desks are small numbers.
    (desk.resources.cpus.ceil() as u32).max(1)
}

/// Since when it runs, or when it was made if it does not.
pub(super) fn started(desk: &Desk) -> Timestamp {
    let text = if desk.state == State::Running { &desk.changed_at } else { &desk.created_at };
    text.parse().unwrap_or_default()
}

/// When its time is over; of a paused one, when it was paused. One that has no end has one in the far future, because clients want one.
fn ends(desk: &Desk) -> Timestamp {
    let far = || started(desk).checked_add(SignedDuration::from_hours(24 * 365)).unwrap_or_default();
    match &desk.expires_at {
        Some(end) => end.parse().unwrap_or_default(),
        None if state(desk) == "paused" => desk.changed_at.parse().unwrap_or_default(),
        None => far(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desk_is_described() {
        let mut desk = super::super::labels::tests::desk([("user".to_owned(), "me".to_owned())].into());
        desk.expires_at = Some("2026-01-01T00:05:01.000Z".into());
        let told = listed(&desk);
        assert_eq!(told["sandboxID"], "iabcdefgh2345");
        assert_eq!((told["state"].as_str(), told["cpuCount"].as_u64()), (Some("running"), Some(2)));
        assert_eq!(
            (told["startedAt"].as_str(), told["endAt"].as_str()),
            (Some("2026-01-01T00:00:01Z"), Some("2026-01-01T00:05:01Z"))
        );
        assert_eq!(told["metadata"]["user"], "me");
        desk.state = State::Stopped;
        desk.expires_at = None;
        assert_eq!(
            (listed(&desk)["state"].as_str(), listed(&desk)["endAt"].as_str()),
            (Some("paused"), Some("2026-01-01T00:00:01Z"))
        );
    }
}
