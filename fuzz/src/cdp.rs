//! Any answer of a program in a desk: its lists stay lists, its redirects and cookies stay at its own port.

use super::Base;
use serde_json::Value;

const PREFIX: &str = "/k/K/v1/desks/d-1/ports/9222";

pub(crate) fn run(input: &[u8]) {
    let Some((kind, input)) = input.split_first() else { return };
    let base = Base {
        https: kind & 1 != 0,
        host: "fleet:7700".into(),
        prefix: PREFIX.into(),
        bare: PREFIX.trim_start_matches("/k/K").into(),
        port: 9222,
    };
    if let Some(list) = base.rewrite(input) {
        let (before, after): (Value, Value) = (serde_json::from_slice(input).unwrap(), serde_json::from_slice(&list).unwrap());
        same_shape(&before, &after);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(place) = base.location(text) {
        assert!(place.starts_with(PREFIX), "{place}");
    }
    let cookie = base.cookie(text);
    let attributes: Vec<_> = cookie.split(';').skip(1).map(|part| part.trim().to_ascii_lowercase()).collect();
    let named = |name: &str| attributes.iter().filter(|part| part.split('=').next().map(str::trim) == Some(name)).count();
    assert_eq!((named("path"), named("domain")), (1, 0), "{cookie}");
    assert!(cookie.contains(&format!("; Path={PREFIX}/")), "{cookie}");
}

/// Texts may differ, and the last digits of numbers, nothing else.
fn same_shape(before: &Value, after: &Value) {
    match (before, after) {
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => {}
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a.iter().zip(b).for_each(|(a, b)| same_shape(a, b)),
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => a.iter().for_each(|(name, a)| same_shape(a, &b[name])),
        (a, b) => assert_eq!(a, b),
    }
}
