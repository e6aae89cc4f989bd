//! The steps that transactions are made of.
//!
//! Locks are taken in one order (an answer, volumes, a desk, then spending, the counter always last), so transactions never wait for each
//! other in a circle, and the counter, which all of them want, is held for the shortest time.

use super::body::{desk_columns, record, sealed_body, written};
use super::driver::{Driver, Durability, Row, Transaction, Value};
use super::seal::{Seal, sealed_note};
use super::{Along, Change, Claimed, Once, Record, StoredKey};
use crate::error::{Error, Result};
use hotdesk_api::desk::{Event, State};
use hotdesk_api::fleet::{Key, Scope, Volume};
use jiff::Timestamp;
use serde::Serialize;

pub(super) const DESK: &str = concat!("SELECT ", desk_columns!(), " FROM desks WHERE id = $1");
const SET_ASIDE: &str = "UPDATE desks SET state = 'error' WHERE id = $1";
const ADD_DESK: &str = "INSERT INTO desks (id, project, name, state, pool, created_ms, changed_ms, version, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const CHANGE_DESK: &str = "UPDATE desks SET project = $2, name = $3, state = $4, pool = $5, changed_ms = $6, body = $7, version = version + 1 \
     WHERE id = $1 AND version = $8 RETURNING version";
pub(super) const ANSWER: &str = "SELECT desk FROM answers WHERE scope = $1 AND key = $2";
const ADD_ANSWER: &str =
    "INSERT INTO answers (scope, key, desk, at_ms) VALUES ($1, $2, $3, (SELECT now_ms FROM clock)) ON CONFLICT DO NOTHING";
const FILL_ANSWER: &str = "UPDATE answers SET desk = $3 WHERE scope = $1 AND key = $2";
const DROP_ANSWER: &str = "DELETE FROM answers WHERE scope = $1 AND key = $2";
pub(super) const SPEND: &str = "INSERT INTO spending (project, day, micro) VALUES ($1, $2, $3) \
     ON CONFLICT (project, day) DO UPDATE SET micro = spending.micro + excluded.micro";
const NUMBER: &str = "UPDATE counters SET value = value + 1 WHERE name = $1 RETURNING value";
const RENEW: &str = "UPDATE leases SET until_ms = (SELECT now_ms FROM clock) + $3 WHERE what = $1 AND owner = $2";
const TAKE: &str =
    "INSERT INTO leases (what, owner, until_ms) VALUES ($1, $2, (SELECT now_ms FROM clock) + $3) ON CONFLICT DO NOTHING";
const TAKE_OVER: &str = "UPDATE leases SET owner = $2, until_ms = (SELECT now_ms FROM clock) + $3 \
     WHERE what = $1 AND until_ms <= (SELECT now_ms FROM clock)";
/// Locks the row until the end of the transaction, so that nobody else gives the volume out or deletes it.
pub(super) const LOCK_VOLUME: &str = "UPDATE volumes SET project = project WHERE id = $1 RETURNING body";
pub(super) const USERS: &str = "SELECT desk FROM volume_uses WHERE volume = $1 ORDER BY desk";
const USE: &str = "INSERT INTO volume_uses (volume, desk) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const USE_NONE: &str = "DELETE FROM volume_uses WHERE desk = $1";
const FENCE: &str = "UPDATE desks SET version = version + 1 WHERE id = $1";

pub(super) async fn add_desk(seal: Option<&Seal>, transaction: &mut impl Transaction, record: &Record) -> Result<()> {
    let values = vec![
        record.id.as_str().into(),
        record.project.as_str().into(),
        record.name.as_deref().into(),
        state(record.state)?.into(),
        record.pool.as_deref().into(),
        record.created_ms.into(),
        record.changed_ms.into(),
        record.version.into(),
        written(seal, record)?.into(),
    ];
    use_volumes(transaction, record).await?;
    transaction.run(ADD_DESK, values).await.map_err(|e| taken(e, record)).map(drop)
}

/// Notes which volumes a desk has, if they are there and free.
async fn use_volumes(transaction: &mut impl Transaction, record: &Record) -> Result<()> {
    let mut volumes: Vec<&str> = record.spec.volumes.iter().map(|place| place.volume.as_str()).collect();
    // In one order, so that two desks with the same volumes never wait for each other.
    volumes.sort_unstable();
    volumes.dedup();
    for id in volumes {
        let rows = transaction.rows(LOCK_VOLUME, vec![id.into()]).await?;
        let volume: Volume = rows.first().ok_or_else(|| Error::NotFound { what: "volume", id: id.to_owned() })?.json(0)?;
        let users = transaction.rows(USERS, vec![id.into()]).await?;
        if let (true, Some(user)) = (volume.exclusive, users.first()) {
            return Err(in_use(&volume.name, user.text(0)?));
        }
        transaction.run(USE, vec![id.into(), record.id.as_str().into()]).await?;
    }
    Ok(())
}

pub(super) fn in_use(volume: &str, desk: &str) -> Error {
    Error::Conflict(format!("the volume {volume} is for one desk at a time, and {desk} has it"))
}

pub(super) async fn change_desk(seal: Option<&Seal>, transaction: &mut impl Transaction, record: &Record) -> Result<i64> {
    let values = vec![
        record.id.as_str().into(),
        record.project.as_str().into(),
        record.name.as_deref().into(),
        state(record.state)?.into(),
        record.pool.as_deref().into(),
        record.changed_ms.into(),
        written(seal, record)?.into(),
        record.version.into(),
    ];
    let rows = transaction.rows(CHANGE_DESK, values).await.map_err(|e| taken(e, record))?;
    if let Some(row) = rows.first() {
        let version = row.int(0)?;
        if record.state == State::Deleted && !record.spec.volumes.is_empty() {
            transaction.run(USE_NONE, vec![record.id.as_str().into()]).await?;
        }
        return Ok(version);
    }
    match transaction.rows(DESK, vec![record.id.as_str().into()]).await?.first() {
        None => Err(Error::NotFound { what: "desk", id: record.id.clone() }),
        Some(row) => Err(Error::Conflict(format!(
            "desk {} was changed by somebody else meanwhile (version {}, expected {}); look at it and ask again",
            record.id,
            row.int(1)?,
            record.version
        ))),
    }
}

/// The only thing of a desk that can be taken, but for its random id, is its name.
pub(super) fn taken(error: Error, record: &Record) -> Error {
    match (error, &record.name) {
        (Error::Conflict(_), Some(name)) => {
            Error::Conflict(format!("the name {name} is taken in project {}; choose another one", record.project))
        }
        (error, _) => error,
    }
}

pub(super) async fn claim<D: Driver>(
    seal: Option<&Seal>,
    transaction: &mut D::Transaction,
    pool: &str,
    once: Option<Once<'_>>,
    change: Change<'_>,
) -> Result<Claimed> {
    // The key is written before the pool is looked at, and the desk filled in below: requests with one key wait here for each other.
    // Without it each of them would lock a desk of its own, and the next one would find the pool empty (`SKIP LOCKED`).
    if let Some(once) = once
        && let Some(before) = answer(transaction, once, "").await?
    {
        return Ok(Claimed::Before(before));
    }
    let Some(mut desk) = ready::<D>(seal, transaction, pool).await? else {
        if let Some(once) = once {
            transaction.run(DROP_ANSWER, vec![once.scope.into(), once.key.into()]).await?;
        }
        return Ok(Claimed::Empty);
    };
    if let Some(once) = once {
        transaction.run(FILL_ANSWER, vec![once.scope.into(), once.key.into(), desk.id.as_str().into()]).await?;
    }
    desk.pool = None;
    let along = change(&mut desk);
    desk.version = change_desk(seal, transaction, &desk).await?;
    write_along::<D>(transaction, along).await?;
    Ok(Claimed::Desk(Box::new(desk)))
}

/// The oldest ready desk of a pool. One whose row can't be read is set aside, so that it does not keep the others waiting.
async fn ready<D: Driver>(seal: Option<&Seal>, transaction: &mut D::Transaction, pool: &str) -> Result<Option<Record>> {
    loop {
        let rows = transaction.rows(D::CLAIM, vec![pool.into()]).await?;
        match rows.first().map(|row| record(seal, row)).transpose()? {
            Some(desk) if desk.unreadable => transaction.run(SET_ASIDE, vec![desk.id.into()]).await.map(drop)?,
            other => return Ok(other),
        }
    }
}

pub(super) async fn write_along<D: Driver>(transaction: &mut D::Transaction, along: Along) -> Result<()> {
    let mut spends = along.spends;
    spends.sort_by(|a, b| (&a.project, &a.day).cmp(&(&b.project, &b.day)));
    for spend in spends {
        transaction.run(SPEND, vec![spend.project.into(), spend.day.into(), spend.micro.into()]).await?;
    }
    match along.event {
        Some(event) => add_event::<D>(transaction, event).await.map(drop),
        None => Ok(()),
    }
}

/// The last thing in its transaction, because all others wait for the counter until the commit.
pub(super) async fn add_event<D: Driver>(transaction: &mut D::Transaction, mut event: Event) -> Result<i64> {
    event.number = 0;
    let at = milliseconds(&event.at).unwrap_or_else(|| Timestamp::now().as_millisecond());
    let body = json(&event)?;
    if let Some(announce) = D::ANNOUNCE {
        transaction.rows(announce, vec![]).await?;
    }
    let number = number(transaction, "events").await?;
    let statement = "INSERT INTO events (number, at_ms, desk, project, body) VALUES ($1, $2, $3, $4, $5)";
    let (desk, project) = (event.desk.as_deref().into(), event.project.as_deref().into());
    transaction.run(statement, vec![number.into(), at.into(), desk, project, body.into()]).await?;
    Ok(number)
}

/// Commits what worked and undoes what did not, before the answer: a lock that is still held would look like somebody else's.
pub(super) async fn end<T>(transaction: impl Transaction, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => transaction.commit().await.map(|()| value),
        Err(error) => {
            transaction.undo().await;
            Err(error)
        }
    }
}

/// The same, and there may be new events.
pub(super) async fn tell<D: Driver, T>(driver: &D, transaction: D::Transaction, result: Result<T>) -> Result<T> {
    let value = end(transaction, result).await?;
    driver.news().send_modify(|count| *count += 1);
    Ok(value)
}

pub(super) async fn number(transaction: &mut impl Transaction, counter: &'static str) -> Result<i64> {
    let rows = transaction.rows(NUMBER, vec![counter.into()]).await?;
    rows.first().ok_or_else(|| Error::Store(format!("the counter {counter} is gone; put back a copy of the database")))?.int(0)
}

/// Notes the answer to an idempotency key, or finds the one that was noted.
pub(super) async fn answer(transaction: &mut impl Transaction, once: Once<'_>, desk: &str) -> Result<Option<String>> {
    if transaction.run(ADD_ANSWER, vec![once.scope.into(), once.key.into(), desk.into()]).await? == 1 {
        return Ok(None);
    }
    let rows = transaction.rows(ANSWER, vec![once.scope.into(), once.key.into()]).await?;
    rows.first().map(|row| row.text(0).map(str::to_owned)).transpose()
}

/// Renews, takes, or takes over; the last one fences the holder of before.
pub(super) async fn hold<D: Driver>(driver: &D, what: &str, owner: &str, ttl_ms: i64, desk: Option<&str>) -> Result<bool> {
    let values = || -> Vec<Value> { vec![what.into(), owner.into(), ttl_ms.into()] };
    let mut transaction = driver.begin(Durability::Lazy).await?;
    let result = async {
        if transaction.run(RENEW, values()).await? == 1 || transaction.run(TAKE, values()).await? == 1 {
            return Ok(true);
        }
        let held = transaction.run(TAKE_OVER, values()).await? == 1;
        if let (true, Some(desk)) = (held, desk) {
            transaction.run(FENCE, vec![desk.into()]).await?;
        }
        Ok(held)
    };
    let result = result.await;
    end(transaction, result).await
}

/// Seals what an older version left clear, of desks, also deleted ones, and of notes.
pub(super) async fn seal_clear_rows<D: Driver>(driver: &D) -> Result<()> {
    let Some(seal) = driver.seal() else { return Ok(()) };
    for row in driver.read("SELECT id, body FROM desks", vec![]).await? {
        let (id, clear) = (row.text(0)?, row.text(1)?);
        if let Some(sealed) = sealed_body(seal, id, clear) {
            // Without a new version: nothing of the desk is different. Whoever wrote it meanwhile has sealed it.
            let statement = "UPDATE desks SET body = $2 WHERE id = $1 AND body = $3";
            alone(driver, Durability::Full, statement, vec![id.into(), sealed.into(), clear.into()]).await?;
        }
    }
    for row in driver.read("SELECT kind, name, body FROM notes WHERE body <> ''", vec![]).await? {
        let (kind, name, clear) = (row.text(0)?, row.text(1)?, row.text(2)?);
        if let Some(sealed) = sealed_note(seal, kind, name, clear)? {
            let statement = "UPDATE notes SET body = $3 WHERE kind = $1 AND name = $2 AND body = $4";
            alone(driver, Durability::Full, statement, vec![kind.into(), name.into(), sealed.into(), clear.into()]).await?;
        }
    }
    Ok(())
}

/// One statement in a transaction of its own.
pub(super) async fn alone<D: Driver>(
    driver: &D,
    durability: Durability,
    statement: &'static str,
    values: Vec<Value>,
) -> Result<u64> {
    let mut transaction = driver.begin(durability).await?;
    let result = transaction.run(statement, values).await;
    end(transaction, result).await
}

/// `body, hash, used_ms, id`.
pub(super) fn stored_key(row: &Row) -> Result<StoredKey> {
    let mut key = row.json(0).or_else(|e| unreadable_key(row, &e))?;
    key.last_used_at = row.maybe_int(2)?.and_then(|ms| Timestamp::from_millisecond(ms).ok()).map(|at| at.to_string());
    Ok(StoredKey { key, hash: row.text(1)?.to_owned() })
}

/// A key whose row can't be read lets nobody in, also where it was known before: the change may have been its end.
fn unreadable_key(row: &Row, why: &Error) -> Result<Key> {
    let id = row.text(3)?.to_owned();
    tracing::error!(key = id, error = %why, "the row of a key can't be read; it counts as revoked");
    Ok(Key {
        id,
        name: "its row can't be read by this version".into(),
        scope: Scope::Desk { desk: String::new() },
        created_at: Timestamp::UNIX_EPOCH.to_string(),
        expires_at: None,
        revoked_at: Some(Timestamp::UNIX_EPOCH.to_string()),
        last_used_at: None,
        max_desks: None,
    })
}

/// The word that the API uses for a state.
pub(super) fn state(state: State) -> Result<String> {
    Ok(json(&state)?.trim_matches('"').to_owned())
}

pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Invalid(format!("this can't be written down: {e}")))
}

/// Of an RFC 3339 time.
pub(super) fn milliseconds(at: &str) -> Option<i64> {
    at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}
