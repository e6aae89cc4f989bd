//! Shapes of requests and answers that only a client needs to name.

use hotdesk_api::desk::{Desk, Event, Snapshot};
use hotdesk_api::fleet::{Budget, Key, Pool};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer to a step of a desk: done, or still on its way.
#[derive(Debug, Clone)]
pub struct Done {
    pub desk: Desk,
    /// False if the step was not over when the wait was.
    pub over: bool,
}

/// What a desk uses right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Seconds of CPU since the desk was started.
    pub cpu_s: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub processes: u32,
}

/// A template that the fleet knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Template {
    pub name: String,
    pub description: String,
    pub built: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

/// A line of the audit log: who asked for what, and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditLine {
    /// RFC 3339, where the fleet writes it that way.
    pub at: String,
    pub at_ms: i64,
    pub key: String,
    pub method: String,
    pub path: String,
    pub status: u16,
    pub from: String,
}

/// What differs from the default, so that the fleet's own defaults count for the rest.
pub(crate) fn sparse<T: Serialize + Default>(value: &T) -> serde_json::Result<Value> {
    Ok(differing(serde_json::to_value(value)?, &serde_json::to_value(T::default())?))
}

fn differing(value: Value, default: &Value) -> Value {
    match (value, default) {
        (Value::Object(fields), Value::Object(defaults)) => fields
            .into_iter()
            .filter(|(name, field)| defaults.get(name) != Some(field))
            .map(|(name, field)| match defaults.get(&name) {
                Some(default) => {
                    let field = differing(field, default);
                    (name, field)
                }
                None => (name, field),
            })
            .collect(),
        (value, _) => value,
    }
}

#[derive(Deserialize)]
pub(crate) struct Desks {
    pub(crate) desks: Vec<Desk>,
}

#[derive(Deserialize)]
pub(crate) struct EventList {
    pub(crate) events: Vec<Event>,
}

#[derive(Deserialize)]
pub(crate) struct Snapshots {
    pub(crate) snapshots: Vec<Snapshot>,
}

#[derive(Deserialize)]
pub(crate) struct Pools {
    pub(crate) pools: Vec<Pool>,
}

#[derive(Deserialize)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<Key>,
}

#[derive(Deserialize)]
pub(crate) struct Budgets {
    pub(crate) budgets: Vec<Budget>,
}

#[derive(Deserialize)]
pub(crate) struct Templates {
    pub(crate) templates: Vec<Template>,
}

#[derive(Deserialize)]
pub(crate) struct Lines {
    pub(crate) lines: Vec<AuditLine>,
}

#[cfg(test)]
mod tests {
    use super::sparse;
    use hotdesk_api::desk::{NewDesk, Resources};
    use serde_json::json;

    #[test]
    fn only_what_was_said_is_sent() {
        assert_eq!(sparse(&NewDesk::default()).unwrap(), json!({}));
        let mut desk = NewDesk { name: Some("a".into()), ..NewDesk::default() };
        desk.resources = Resources { cpus: 1.0, ..Resources::default() };
        desk.labels.insert("k".into(), "v".into());
        let sent = sparse(&desk).unwrap();
        assert_eq!(sent, json!({"name": "a", "resources": {"cpus": 1.0}, "labels": {"k": "v"}}));
        assert_eq!(serde_json::from_value::<NewDesk>(sent).unwrap(), desk);
    }
}
