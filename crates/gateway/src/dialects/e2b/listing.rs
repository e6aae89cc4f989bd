//! Lists of sandboxes: filtered, sorted, cut into pages.

use super::control::decoded;
use super::files::pairs;
use super::labels::{Kept, Pairs, is_sandbox};
use super::names;
use super::sandbox::{is_there, listed, started, state};
use crate::app::App;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hotdesk_api::desk::{Desk, State};
use hotdesk_fleet::{Filter, Who};
use jiff::Timestamp;

const MOST: usize = 100;
const NEXT: &str = "x-next-token";
const RUNNING: &str = "x-total-running";

/// Which sandboxes are wanted.
#[derive(Debug, Default)]
struct Wish {
    metadata: Pairs,
    states: Vec<String>,
    template: Option<String>,
    after: Option<Timestamp>,
    oldest_first: bool,
    /// After which the page begins.
    from: Option<(String, String)>,
    limit: usize,
}

impl Wish {
    fn read(query: &str, version: u32) -> Result<Self> {
        let mut wish = Self { limit: MOST, ..Self::default() };
        // Before there were pages, what is paused was not listed.
        if version == 1 {
            wish.limit = usize::MAX;
            wish.states = vec!["running".into()];
        }
        for (name, value) in pairs(query) {
            match name.as_str() {
                "metadata" => wish.metadata = metadata(&value),
                "state" => wish.states.extend(value.split(',').filter(|s| !s.is_empty()).map(str::to_owned)),
                "template" if !value.is_empty() => wish.template = Some(value),
                "startedAfter" => {
                    let time = value.replace(' ', "+").parse();
                    wish.after = Some(time.map_err(|_| Refusal::invalid("`startedAfter` is no time of RFC 3339"))?);
                }
                "order" => wish.oldest_first = value == "asc",
                "nextToken" if !value.is_empty() => {
                    wish.from = Some(cursor(&value).ok_or_else(|| Refusal::invalid("`nextToken` is none of ours"))?);
                }
                "limit" => {
                    let limit = value.parse::<usize>().ok().filter(|limit| (1..=MOST).contains(limit));
                    wish.limit = limit.ok_or_else(|| Refusal::invalid(format!("`limit` must be from 1 to {MOST}")))?;
                }
                _ => {}
            }
        }
        Ok(wish)
    }

    fn wants(&self, app: &App, desk: &Desk) -> bool {
        let kept = Kept::of(desk);
        self.metadata.iter().all(|(name, value)| kept.metadata.get(name) == Some(value))
            && (self.states.is_empty() || self.states.iter().any(|wanted| wanted == state(desk)))
            && self.template.as_ref().is_none_or(|name| names::template(&app.config.e2b, name) == desk.template)
            && self.after.is_none_or(|after| started(desk) >= after)
    }
}

pub(super) async fn list(app: &App, who: &Who, query: &str, version: u32) -> Result<Response> {
    let wish = Wish::read(query, version)?;
    let mut desks = app.fleet.desks(who, Filter::default()).await?;
    desks.retain(|desk| is_sandbox(desk) && is_there(desk));
    let running = desks.iter().filter(|desk| desk.state == State::Running).count();
    desks.retain(|desk| wish.wants(app, desk));
    let key = |desk: &Desk| (desk.created_at.clone(), desk.id.clone());
    desks.sort_by_key(key);
    if !wish.oldest_first {
        desks.reverse();
    }
    if let Some(from) = &wish.from {
        desks.retain(|desk| if wish.oldest_first { key(desk) > *from } else { key(desk) < *from });
    }
    let more = desks.len() > wish.limit;
    desks.truncate(wish.limit);
    let mut response = Json(desks.iter().map(listed).collect::<Vec<_>>()).into_response();
    let headers = response.headers_mut();
    headers.insert(RUNNING, HeaderValue::from(running));
    if let Some(last) = desks.last().filter(|_| more) {
        let token = URL_SAFE_NO_PAD.encode(format!("{}__{}", last.created_at, last.id));
        if let Ok(token) = HeaderValue::try_from(token) {
            headers.insert(NEXT, token);
        }
    }
    Ok(response)
}

fn cursor(token: &str) -> Option<(String, String)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (time, id) = text.split_once("__")?;
    Some((time.to_owned(), id.to_owned()))
}

/// Clients encode pairs, then the whole of them, then the address: the last was undone already.
fn metadata(value: &str) -> Pairs {
    decoded(value)
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_as_often_as_it_was_encoded() {
        let pairs = |query: &str| Wish::read(query, 2).unwrap().metadata;
        assert_eq!(pairs("metadata=user%3Da%252520b"), Pairs::from([("user".into(), "a b".into())]));
        assert_eq!(
            pairs("metadata=a%25253Db%3D100%252525%26c%3Dd"),
            Pairs::from([("a=b".into(), "100%".into()), ("c".into(), "d".into())])
        );
    }

    #[test]
    fn wishes_are_read() {
        let wish = Wish::read("state=running,paused&limit=7&order=asc&startedAfter=2026-01-01T00:00:00%2B00:00", 2).unwrap();
        assert_eq!((wish.states.len(), wish.limit, wish.oldest_first), (2, 7, true));
        assert_eq!(wish.after, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        for query in ["limit=0", "limit=101", "nextToken=!", "startedAfter=soon"] {
            assert!(Wish::read(query, 2).is_err(), "{query}");
        }
    }
}
