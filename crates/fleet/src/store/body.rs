//! Rows of other versions. A newer orchestrator may write fields that this one does not know: they are kept when the row is
//! written back. A row that can't be understood at all is one desk in error, which nobody touches, and not a fleet that stands still.

use super::driver::Row;
use super::seal::Seal;
use super::{DELETED, Record};
use crate::error::{Error, Result};
use hotdesk_api::action::Size;
use hotdesk_api::desk::{Event, Policy, Resources, ResourcesRequest, Snapshot, SnapshotState, State};
use hotdesk_api::fleet::{Budget, PoolSpec};
use hotdesk_provider::DeskSpec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The format of rows that this version writes. It grows when an older version must not touch them any more.
/// 2: secrets are sealed ([`super::seal`]).
pub(super) const FORMAT: i64 = 2;

/// The secrets of a [`DeskSpec`], and of a [`Record`]. The hash of a request is one: a short password could be guessed by it.
const SECRETS: [&str; 3] = ["env", "secret", "vnc_password"];
const OWN_SECRETS: [&str; 2] = ["commands_env", "asked"];
/// Where they are when they are sealed.
const SEALED: &str = "sealed";
/// Secrets of a newer version, between reading and writing a row.
const STRANGE_SECRETS: &str = "$sealed";

/// The columns of a desk that [`record`] reads.
macro_rules! desk_columns {
    () => {
        "body, version, id, project, name, created_ms, changed_ms, state"
    };
}
pub(super) use desk_columns;

pub(super) fn check_format(format: Option<&str>) -> Result<()> {
    let format = format.and_then(|text| text.parse::<i64>().ok()).unwrap_or(FORMAT);
    if format <= FORMAT {
        return Ok(());
    }
    Err(Error::Store(format!(
        "the database was written by a newer hotdesk (its rows have format {format}, this one knows {FORMAT}); run that version or a newer one"
    )))
}

/// A row with [`desk_columns`].
pub(super) fn record(seal: Option<&Seal>, row: &Row) -> Result<Record> {
    let version = row.int(1)?;
    match read(seal, row.text(2)?, row.text(0)?) {
        Ok((record, unknown)) => Ok(Record { version, unknown, ..record }),
        Err(e) => {
            let id = row.text(2)?.to_owned();
            tracing::error!(desk = id, error = %e, "the row of a desk can't be read; was it written by another version or by hand?");
            unreadable(row, id, version, &e.to_string())
        }
    }
}

/// The body of a desk as it is written: what this version does not know of it stays in it.
pub(super) fn written(seal: Option<&Seal>, record: &Record) -> Result<String> {
    if record.unreadable {
        return Err(Error::Conflict(format!(
            "the row of the desk {} can't be read by this version of hotdesk; nothing is done to it. Run the version that wrote it, or put back a copy",
            record.id
        )));
    }
    let mut body = serde_json::to_value(record).map_err(failed)?;
    if let Some(unknown) = &record.unknown {
        merge(&mut body, unknown);
    }
    if let Some(seal) = seal {
        close(seal, &record.id, &mut body)?;
    }
    serde_json::to_string(&body).map_err(failed)
}

fn failed(e: serde_json::Error) -> Error {
    Error::Invalid(format!("this can't be written down: {e}"))
}

/// Puts what is secret of a desk's body out of sight. The fields are gone, not empty: a version that does not know of seals must not take
/// nothing for the secret.
fn close(seal: &Seal, id: &str, body: &mut Value) -> Result<()> {
    let Value::Object(body) = body else { return Ok(()) };
    let mut secrets = match body.remove(STRANGE_SECRETS) {
        Some(Value::Object(strange)) => strange,
        _ => Map::new(),
    };
    let spec = body.get_mut("spec").and_then(Value::as_object_mut);
    secrets.extend(spec.into_iter().flat_map(|spec| SECRETS.iter().filter_map(|name| spec.remove_entry(*name))));
    secrets.extend(OWN_SECRETS.iter().filter_map(|name| body.remove_entry(*name)));
    let text = serde_json::to_string(&secrets).map_err(failed)?;
    body.insert(SEALED.into(), seal.close(&desk_row(id), &text)?.into());
    Ok(())
}

/// Puts them back. Those that a newer version sealed are kept apart, or they would be written in clear.
fn open(seal: Option<&Seal>, id: &str, body: &mut Value) -> Result<()> {
    let Value::Object(body) = body else { return Ok(()) };
    let Some(sealed) = body.remove(SEALED) else { return Ok(()) };
    let keyless = || Error::Store("its secrets are sealed, and the store was opened without their key".into());
    let text = seal.ok_or_else(keyless)?.open(&desk_row(id), sealed.as_str().unwrap_or_default())?;
    let mut secrets: Map<String, Value> = serde_json::from_str(&text).map_err(failed)?;
    body.extend(OWN_SECRETS.iter().filter_map(|name| secrets.remove_entry(*name)));
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.extend(SECRETS.iter().filter_map(|name| secrets.remove_entry(*name)));
    }
    if !secrets.is_empty() {
        body.insert(STRANGE_SECRETS.into(), secrets.into());
    }
    Ok(())
}

fn desk_row(id: &str) -> String {
    format!("desk {id}")
}

/// The body of a desk with its secrets sealed, if they are clear.
pub(super) fn sealed_body(seal: &Seal, id: &str, text: &str) -> Option<String> {
    let mut body: Value = serde_json::from_str(text).ok()?;
    if !body.is_object() || body.get(SEALED).is_some() {
        return None;
    }
    close(seal, id, &mut body).ok()?;
    serde_json::to_string(&body).ok()
}

/// The same for rows that are written without having been read: `old` is the body of before.
pub(super) fn written_over<T: Serialize + DeserializeOwned>(old: Option<&str>, new: &T) -> Result<String> {
    let mut body = serde_json::to_value(new).map_err(failed)?;
    if let Some(old) = old.and_then(|text| serde_json::from_str::<Value>(text).ok())
        && let Some(known) = serde_json::from_value::<T>(old.clone()).ok().and_then(|old| serde_json::to_value(old).ok())
        && let Some(unknown) = difference(&old, &known)
    {
        merge(&mut body, &unknown);
    }
    serde_json::to_string(&body).map_err(failed)
}

fn read(seal: Option<&Seal>, id: &str, text: &str) -> Result<(Record, Option<Arc<Value>>)> {
    let odd = |e: serde_json::Error| Error::Store(e.to_string());
    let mut whole: Value = serde_json::from_str(text).map_err(odd)?;
    open(seal, id, &mut whole)?;
    let mut known = whole.clone();
    // Requests with fields that are not known are refused, so these types refuse them; a row is no request.
    keep_known(known.pointer_mut("/policy"), &serde_json::to_value(Policy::default()).map_err(odd)?);
    keep_known(known.pointer_mut("/spec/resources"), &serde_json::to_value(Resources::default()).map_err(odd)?);
    let record: Record = serde_json::from_value(known).map_err(odd)?;
    let unknown = difference(&whole, &serde_json::to_value(&record).map_err(odd)?);
    Ok((record, unknown.map(Arc::new)))
}

fn keep_known(value: Option<&mut Value>, known: &Value) {
    if let Some(Value::Object(fields)) = value {
        fields.retain(|name, _| known.get(name).is_some());
    }
}

/// The fields of objects that only the first one has. Lists that were understood have as many parts in both.
fn difference(whole: &Value, known: &Value) -> Option<Value> {
    if let (Value::Array(whole), Value::Array(known)) = (whole, known) {
        let parts: Vec<_> = whole.iter().zip(known).map(|(whole, known)| difference(whole, known)).collect();
        return parts.iter().any(Option::is_some).then(|| parts.into_iter().map(Option::unwrap_or_default).collect());
    }
    let (Value::Object(whole), Value::Object(known)) = (whole, known) else { return None };
    let mut left = Map::new();
    for (name, value) in whole {
        let only = match known.get(name) {
            None => (!value.is_null()).then(|| value.clone()),
            Some(known) => difference(value, known),
        };
        left.extend(only.map(|value| (name.clone(), value)));
    }
    (!left.is_empty()).then_some(Value::Object(left))
}

fn merge(into: &mut Value, unknown: &Value) {
    if let (Value::Array(into), Value::Array(unknown)) = (&mut *into, unknown) {
        // One that was changed since is another list.
        if into.len() == unknown.len() {
            into.iter_mut().zip(unknown).for_each(|(into, unknown)| merge(into, unknown));
        }
        return;
    }
    let (Value::Object(into), Value::Object(unknown)) = (into, unknown) else { return };
    for (name, value) in unknown {
        match into.get_mut(name) {
            Some(there) => merge(there, value),
            None => {
                into.insert(name.clone(), value.clone());
            }
        }
    }
}

/// What is known of a desk whose row can't be read: enough to show it and to leave it alone.
fn unreadable(row: &Row, id: String, version: i64, why: &str) -> Result<Record> {
    let body: Value = serde_json::from_str(row.text(0)?).unwrap_or_default();
    let (created_ms, changed_ms) = (row.int(5)?, row.int(6)?);
    let spec = body.get("spec").cloned().and_then(|spec| serde_json::from_value(spec).ok());
    let spec = spec.unwrap_or_else(|| DeskSpec {
        id: id.clone(),
        template: text(&body, "/spec/template"),
        snapshot: None,
        resources: Resources::default(),
        screen: Size { width: 1920, height: 1080 },
        env: BTreeMap::new(),
        labels: BTreeMap::new(),
        network: false,
        vnc_password: None,
        secret: String::new(),
        volumes: Vec::new(),
    });
    Ok(Record {
        id,
        name: row.maybe_text(4)?.map(str::to_owned),
        project: row.text(3)?.to_owned(),
        key: text(&body, "/key"),
        provider: text(&body, "/provider"),
        spec,
        policy: Policy { auto_stop_s: 0, auto_archive_s: 0, auto_delete_s: 0, ttl_s: 0, end_stops: false },
        // A deleted desk stays deleted, or reconciliation would keep what is left of it for ever.
        state: if row.text(7)? == DELETED { State::Deleted } else { State::Error },
        reason: format!("its row in the database can't be read by this version ({why})"),
        placed: None,
        pool: None,
        created_ms,
        changed_ms,
        active_ms: changed_ms,
        expires_ms: None,
        cost_micro: 0,
        cost_until_ms: changed_ms,
        archive: None,
        commands_env: BTreeMap::new(),
        asked: None,
        version,
        unknown: None,
        unreadable: true,
    })
}

fn text(body: &Value, at: &str) -> String {
    body.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Those rows that can be read; the others are told.
pub(super) fn readable<T: DeserializeOwned>(rows: &[Row], column: usize, what: &'static str) -> Vec<T> {
    let read = |row: &Row| match row.json(column) {
        Ok(value) => Some(value),
        Err(e) => {
            tracing::error!(what, error = %e, "a row is left out");
            None
        }
    };
    rows.iter().filter_map(read).collect()
}

pub(super) fn pools(rows: &[Row]) -> Vec<PoolSpec> {
    let example = PoolSpec {
        template: String::new(),
        provider: None,
        min: 0,
        max: 0,
        resources: ResourcesRequest::default(),
        max_hourly: None,
        cool_down_s: 0,
    };
    known_parts(rows, &example, "pool")
}

pub(super) fn budgets(rows: &[Row]) -> Vec<Budget> {
    let example = Budget { project: String::new(), per_day: None, total: None, alert_at: 0.0, webhook: None };
    known_parts(rows, &example, "budget")
}

/// Rows of types that requests use too and that refuse what they do not know: what a newer version added is passed over, so that
/// an older one still fills its pools and keeps its budgets.
fn known_parts<T: Serialize + DeserializeOwned>(rows: &[Row], example: &T, what: &'static str) -> Vec<T> {
    let known = serde_json::to_value(example).unwrap_or_default();
    let read = |row: &Row| {
        let mut body: Value = row.json(0)?;
        keep_known(Some(&mut body), &known);
        serde_json::from_value(body).map_err(|e| Error::Store(e.to_string()))
    };
    let told = |row: &Row| read(row).inspect_err(|e| tracing::error!(what, error = %e, "a row is left out")).ok();
    rows.iter().filter_map(told).collect()
}

/// An event keeps its number, or whoever follows would wait for it for ever.
pub(super) fn event(row: &Row) -> Result<Event> {
    let number = row.int(0)?;
    let odd = |_| Event {
        number,
        at: String::new(),
        desk: None,
        project: None,
        kind: "unreadable".into(),
        state: None,
        reason: "its row can't be read by this version".into(),
        by: "store".into(),
    };
    Ok(Event { number, ..row.json(1).unwrap_or_else(odd) })
}

/// A snapshot whose row can't be read is known all the same: without a record it would be taken for nobody's.
pub(super) fn snapshot(row: &Row) -> Result<Snapshot> {
    let odd = |e: Error| {
        tracing::error!(error = %e, "the row of a snapshot can't be read");
        let body: Value = row.text(1).ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Snapshot {
            id: String::new(),
            name: None,
            project: text(&body, "/project"),
            desk: text(&body, "/desk"),
            template: text(&body, "/template"),
            provider: text(&body, "/provider"),
            memory: false,
            size_bytes: 0,
            created_at: text(&body, "/created_at"),
            state: SnapshotState::Error,
            reason: "its row in the database can't be read by this version".into(),
        }
    };
    Ok(Snapshot { id: row.text(0)?.to_owned(), ..row.json(1).unwrap_or_else(odd) })
}
