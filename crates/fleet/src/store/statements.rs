//! Every statement of the store, once for both databases.
//!
//! Locks are taken in one order (answer, desk, spending, counter, the counter always last), so transactions never wait for each
//! other in a circle, and the counter, which all of them want, is held for the shortest time.

use super::driver::{Driver, Durability, Row, Transaction, Value};
use super::{Alert, Along, Audit, Change, Claimed, Once, Record, Spend, Store, StoredKey};
use crate::error::{Error, Result};
use async_trait::async_trait;
use hotdesk_api::desk::{Event, Snapshot, State};
use hotdesk_api::fleet::{Budget, PoolSpec, Scope};
use jiff::Timestamp;
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// Other orchestrators' events are looked for at least so often, should their call get lost.
const LOOK: Duration = Duration::from_secs(1);
/// Rows that are forgotten in one transaction, so that nobody waits long for it.
const PRUNED_AT_ONCE: i64 = 1000;

const DESK: &str = "SELECT body, version FROM desks WHERE id = $1";
const ADD_DESK: &str = "INSERT INTO desks (id, project, name, state, pool, created_ms, changed_ms, version, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const CHANGE_DESK: &str = "UPDATE desks SET project = $2, name = $3, state = $4, pool = $5, changed_ms = $6, body = $7, version = version + 1 \
     WHERE id = $1 AND version = $8 RETURNING version";
const ADD_ANSWER: &str =
    "INSERT INTO answers (scope, key, desk, at_ms) VALUES ($1, $2, $3, (SELECT now_ms FROM clock)) ON CONFLICT DO NOTHING";
const ANSWER: &str = "SELECT desk FROM answers WHERE scope = $1 AND key = $2";
const NUMBER: &str = "UPDATE counters SET value = value + 1 WHERE name = $1 RETURNING value";
const SPEND: &str = "INSERT INTO spending (project, day, micro) VALUES ($1, $2, $3) \
     ON CONFLICT (project, day) DO UPDATE SET micro = spending.micro + excluded.micro";

const RENEW: &str = "UPDATE leases SET until_ms = (SELECT now_ms FROM clock) + $3 WHERE what = $1 AND owner = $2";
const TAKE: &str =
    "INSERT INTO leases (what, owner, until_ms) VALUES ($1, $2, (SELECT now_ms FROM clock) + $3) ON CONFLICT DO NOTHING";
const TAKE_OVER: &str = "UPDATE leases SET owner = $2, until_ms = (SELECT now_ms FROM clock) + $3 \
     WHERE what = $1 AND until_ms <= (SELECT now_ms FROM clock)";
const FENCE: &str = "UPDATE desks SET version = version + 1 WHERE id = $1";

const PUT_KEY: &str = "INSERT INTO keys (id, hash, ended_ms, revoked, admin, used_ms, change, body) VALUES ($1, $2, $3, $4, $5, NULL, $6, $7) \
     ON CONFLICT (id) DO UPDATE SET hash = excluded.hash, ended_ms = excluded.ended_ms, revoked = excluded.revoked, admin = excluded.admin, \
     change = excluded.change, body = excluded.body WHERE keys.revoked = 0";

/// What [`Store::prune`] forgets; `$1` is the time, `$2` the most rows.
const PRUNE: [&str; 7] = [
    "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE at_ms < $1 LIMIT $2)",
    "DELETE FROM audit WHERE number IN (SELECT number FROM audit WHERE at_ms < $1 LIMIT $2)",
    "DELETE FROM answers WHERE (scope, key) IN (SELECT scope, key FROM answers WHERE at_ms < $1 LIMIT $2)",
    "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE done_ms IS NOT NULL AND at_ms < $1 LIMIT $2)",
    "DELETE FROM desks WHERE id IN (SELECT id FROM desks WHERE state = 'deleted' AND changed_ms < $1 LIMIT $2)",
    "DELETE FROM leases WHERE what IN (SELECT what FROM leases WHERE until_ms < $1 LIMIT $2)",
    "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE ended_ms < $1 AND (revoked = 0 OR admin = 0) LIMIT $2)",
];

#[async_trait]
impl<D: Driver> Store for D {
    async fn insert(&self, record: &Record, event: Event) -> Result<()> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            add_desk(&mut transaction, record).await?;
            add_event::<D>(&mut transaction, event).await
        };
        let result = result.await;
        tell(self, transaction, result).await.map(drop)
    }

    async fn insert_once(&self, record: &Record, event: Event, once: Once<'_>) -> Result<Option<String>> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            let before = answer(&mut transaction, once, &record.id).await?;
            if before.is_none() {
                add_desk(&mut transaction, record).await?;
                add_event::<D>(&mut transaction, event).await?;
            }
            Ok(before)
        };
        let result = result.await;
        tell(self, transaction, result).await
    }

    async fn update(&self, record: &Record, event: Option<Event>) -> Result<i64> {
        self.update_and_spend(record, event, &[]).await
    }

    async fn update_and_spend(&self, record: &Record, event: Option<Event>, spends: &[Spend]) -> Result<i64> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            let version = change_desk(&mut transaction, record).await?;
            write_along::<D>(&mut transaction, Along { event, spends: spends.to_vec() }).await?;
            Ok(version)
        };
        let result = result.await;
        tell(self, transaction, result).await
    }

    async fn desk(&self, id: &str) -> Result<Option<Record>> {
        self.read(DESK, vec![id.into()]).await?.first().map(record).transpose()
    }

    async fn named(&self, project: &str, name: &str) -> Result<Option<Record>> {
        let statement = "SELECT body, version FROM desks WHERE project = $1 AND name = $2 AND state <> 'deleted'";
        self.read(statement, vec![project.into(), name.into()]).await?.first().map(record).transpose()
    }

    async fn desks(&self) -> Result<Vec<Record>> {
        let statement = "SELECT body, version FROM desks WHERE state <> 'deleted' ORDER BY created_ms, id";
        self.read(statement, vec![]).await?.iter().map(record).collect()
    }

    async fn claim(&self, pool: &str) -> Result<Option<Record>> {
        let claimed = self.claim_with(pool, None, &|_| Along::default()).await?;
        Ok(if let Claimed::Desk(record) = claimed { Some(*record) } else { None })
    }

    async fn claim_with(&self, pool: &str, once: Option<Once<'_>>, change: Change<'_>) -> Result<Claimed> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = claim::<D>(&mut transaction, pool, once, change).await;
        tell(self, transaction, result).await
    }

    async fn lease(&self, desk: &str, owner: &str, ttl_ms: i64) -> Result<bool> {
        hold(self, &format!("desk:{desk}"), owner, ttl_ms, Some(desk)).await
    }

    async fn release(&self, desk: &str, owner: &str) -> Result<()> {
        let statement = "DELETE FROM leases WHERE what = $1 AND owner = $2";
        alone(self, Durability::Lazy, statement, vec![format!("desk:{desk}").into(), owner.into()]).await.map(drop)
    }

    async fn renew(&self, owner: &str, ttl_ms: i64) -> Result<Vec<String>> {
        let mut transaction = self.begin(Durability::Lazy).await?;
        let statement =
            "UPDATE leases SET until_ms = (SELECT now_ms FROM clock) + $2 WHERE owner = $1 AND what LIKE 'desk:%' RETURNING what";
        let result = transaction.rows(statement, vec![owner.into(), ttl_ms.into()]).await;
        let rows = end(transaction, result).await?;
        rows.iter().map(|row| Ok(row.text(0)?.trim_start_matches("desk:").to_owned())).collect()
    }

    async fn lead(&self, what: &str, owner: &str, ttl_ms: i64) -> Result<bool> {
        hold(self, &format!("fleet:{what}"), owner, ttl_ms, None).await
    }

    async fn event(&self, event: Event) -> Result<i64> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = add_event::<D>(&mut transaction, event).await;
        tell(self, transaction, result).await
    }

    async fn events(&self, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        let limit = i64::from(limit).into();
        let rows = match desk {
            Some(desk) => {
                let statement = "SELECT number, body FROM events WHERE desk = $1 AND number > $2 ORDER BY number LIMIT $3";
                self.read(statement, vec![desk.into(), after.into(), limit]).await?
            }
            None => {
                let statement = "SELECT number, body FROM events WHERE number > $1 ORDER BY number LIMIT $2";
                self.read(statement, vec![after.into(), limit]).await?
            }
        };
        rows.iter().map(|row| Ok(Event { number: row.int(0)?, ..row.json(1)? })).collect()
    }

    async fn newest(&self) -> Result<i64> {
        let rows = self.read("SELECT value FROM counters WHERE name = 'events'", vec![]).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }

    async fn changed(&self, after: i64, limit: u32, wait: Duration) -> Result<Vec<Event>> {
        let end = Instant::now() + wait;
        let mut news = self.news().subscribe();
        loop {
            news.mark_unchanged();
            let events = self.events(after, None, limit).await?;
            let left = end.saturating_duration_since(Instant::now());
            if !events.is_empty() || left.is_zero() {
                return Ok(events);
            }
            // Whether it was called or looks by itself makes no difference.
            let _ = tokio::time::timeout(left.min(LOOK), news.changed()).await;
        }
    }

    async fn remember(&self, scope: &str, key: &str, desk: &str) -> Result<Option<String>> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = answer(&mut transaction, Once { scope, key }, desk).await;
        end(transaction, result).await
    }

    async fn remembered(&self, scope: &str, key: &str) -> Result<Option<String>> {
        let rows = self.read(ANSWER, vec![scope.into(), key.into()]).await?;
        rows.first().map(|row| row.text(0).map(str::to_owned)).transpose()
    }

    async fn put_key(&self, key: &StoredKey) -> Result<()> {
        let expires = key.key.expires_at.as_deref().and_then(milliseconds);
        let revoked = key.key.revoked_at.as_deref().and_then(milliseconds);
        let ended = [expires, revoked].into_iter().flatten().min();
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            let change = number(&mut transaction, "keys").await?;
            let values = vec![
                key.key.id.as_str().into(),
                key.hash.as_str().into(),
                ended.into(),
                i64::from(revoked.is_some()).into(),
                i64::from(key.key.scope == Scope::Admin).into(),
                change.into(),
                json(&key.key)?.into(),
            ];
            match transaction.run(PUT_KEY, values).await? {
                0 => Err(Error::Conflict(format!("key {} is revoked; make a new one", key.key.id))),
                _ => Ok(()),
            }
        };
        let result = result.await;
        end(transaction, result).await
    }

    async fn keys(&self) -> Result<Vec<StoredKey>> {
        self.read("SELECT body, hash, used_ms FROM keys ORDER BY id", vec![]).await?.iter().map(stored_key).collect()
    }

    async fn key_changes(&self, after: i64) -> Result<(i64, Vec<StoredKey>)> {
        let statement = "SELECT body, hash, used_ms, change FROM keys WHERE change > $1 ORDER BY change";
        let rows = self.read(statement, vec![after.into()]).await?;
        let newest = rows.last().map_or(Ok(after), |row| row.int(3))?;
        Ok((newest, rows.iter().map(stored_key).collect::<Result<_>>()?))
    }

    async fn touch_keys(&self, used: &[(String, i64)]) -> Result<()> {
        let mut transaction = self.begin(Durability::Lazy).await?;
        let mut used: Vec<_> = used.iter().collect();
        used.sort();
        let result = async {
            for (id, at) in used {
                let statement = "UPDATE keys SET used_ms = $2 WHERE id = $1 AND COALESCE(used_ms, 0) < $2";
                transaction.run(statement, vec![id.as_str().into(), (*at).into()]).await?;
            }
            Ok(())
        };
        let result = result.await;
        end(transaction, result).await
    }

    async fn put_pool(&self, pool: &PoolSpec) -> Result<()> {
        let statement =
            "INSERT INTO pools (template, body) VALUES ($1, $2) ON CONFLICT (template) DO UPDATE SET body = excluded.body";
        alone(self, Durability::Full, statement, vec![pool.template.as_str().into(), json(pool)?.into()]).await.map(drop)
    }

    async fn remove_pool(&self, template: &str) -> Result<()> {
        alone(self, Durability::Full, "DELETE FROM pools WHERE template = $1", vec![template.into()]).await.map(drop)
    }

    async fn pools(&self) -> Result<Vec<PoolSpec>> {
        self.read("SELECT body FROM pools ORDER BY template", vec![]).await?.iter().map(|row| row.json(0)).collect()
    }

    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        let statement = "INSERT INTO snapshots (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body";
        alone(self, Durability::Full, statement, vec![snapshot.id.as_str().into(), json(snapshot)?.into()]).await.map(drop)
    }

    async fn remove_snapshot(&self, id: &str) -> Result<()> {
        alone(self, Durability::Full, "DELETE FROM snapshots WHERE id = $1", vec![id.into()]).await.map(drop)
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.read("SELECT body FROM snapshots ORDER BY id", vec![]).await?.iter().map(|row| row.json(0)).collect()
    }

    async fn put_budget(&self, budget: &Budget) -> Result<()> {
        let statement =
            "INSERT INTO budgets (project, body) VALUES ($1, $2) ON CONFLICT (project) DO UPDATE SET body = excluded.body";
        alone(self, Durability::Full, statement, vec![budget.project.as_str().into(), json(budget)?.into()]).await.map(drop)
    }

    async fn remove_budget(&self, project: &str) -> Result<()> {
        alone(self, Durability::Full, "DELETE FROM budgets WHERE project = $1", vec![project.into()]).await.map(drop)
    }

    async fn budgets(&self) -> Result<Vec<Budget>> {
        self.read("SELECT body FROM budgets ORDER BY project", vec![]).await?.iter().map(|row| row.json(0)).collect()
    }

    async fn spend(&self, project: &str, day: &str, micro: i64) -> Result<()> {
        alone(self, Durability::Full, SPEND, vec![project.into(), day.into(), micro.into()]).await.map(drop)
    }

    async fn spent(&self) -> Result<Vec<(String, String, i64)>> {
        let rows = self.read("SELECT project, day, micro FROM spending ORDER BY project, day", vec![]).await?;
        rows.iter().map(|row| Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned(), row.int(2)?))).collect()
    }

    async fn spent_by(&self, project: &str, day: &str) -> Result<(i64, i64)> {
        let statement = "SELECT CAST(COALESCE(SUM(CASE WHEN day = $2 THEN micro ELSE 0 END), 0) AS BIGINT), \
             CAST(COALESCE(SUM(micro), 0) AS BIGINT) FROM spending WHERE project = $1";
        let rows = self.read(statement, vec![project.into(), day.into()]).await?;
        rows.first().map_or(Ok((0, 0)), |row| Ok((row.int(0)?, row.int(1)?)))
    }

    async fn put_alert(&self, alert: &Alert) -> Result<bool> {
        let statement = "INSERT INTO alerts (id, at_ms, done_ms, body) VALUES ($1, $2, NULL, $3) ON CONFLICT DO NOTHING";
        let values = vec![alert.id.as_str().into(), alert.at_ms.into(), json(alert)?.into()];
        Ok(alone(self, Durability::Full, statement, values).await? == 1)
    }

    async fn alerts(&self) -> Result<Vec<Alert>> {
        let statement = "SELECT body FROM alerts WHERE done_ms IS NULL ORDER BY at_ms, id";
        self.read(statement, vec![]).await?.iter().map(|row| row.json(0)).collect()
    }

    async fn alert_done(&self, id: &str) -> Result<()> {
        let statement = "UPDATE alerts SET done_ms = (SELECT now_ms FROM clock) WHERE id = $1";
        alone(self, Durability::Full, statement, vec![id.into()]).await.map(drop)
    }

    async fn audit(&self, line: Audit) -> Result<()> {
        self.audit_all(&[line]).await
    }

    async fn audit_all(&self, lines: &[Audit]) -> Result<()> {
        let mut transaction = self.begin(Durability::Lazy).await?;
        let result = async {
            for line in lines {
                let statement = "INSERT INTO audit (at_ms, body) VALUES ($1, $2)";
                transaction.run(statement, vec![line.at_ms.into(), json(line)?.into()]).await?;
            }
            Ok(())
        };
        let result = result.await;
        end(transaction, result).await
    }

    async fn audits(&self, limit: u32) -> Result<Vec<Audit>> {
        let rows = self.read("SELECT body FROM audit ORDER BY number DESC LIMIT $1", vec![i64::from(limit).into()]).await?;
        rows.iter().map(|row| row.json(0)).collect()
    }

    async fn prune(&self, before_ms: i64) -> Result<u64> {
        let mut all = 0;
        for statement in PRUNE {
            loop {
                let gone = alone(self, Durability::Lazy, statement, vec![before_ms.into(), PRUNED_AT_ONCE.into()]).await?;
                all += gone;
                if gone < PRUNED_AT_ONCE.unsigned_abs() {
                    break;
                }
            }
        }
        Ok(all)
    }

    async fn ping(&self) -> Result<()> {
        self.read("SELECT value FROM counters LIMIT 1", vec![]).await.map(drop)
    }
}

async fn add_desk(transaction: &mut impl Transaction, record: &Record) -> Result<()> {
    let values = vec![
        record.id.as_str().into(),
        record.project.as_str().into(),
        record.name.as_deref().into(),
        state(record.state)?.into(),
        record.pool.as_deref().into(),
        record.created_ms.into(),
        record.changed_ms.into(),
        record.version.into(),
        json(record)?.into(),
    ];
    transaction.run(ADD_DESK, values).await.map_err(|e| taken(e, record)).map(drop)
}

async fn change_desk(transaction: &mut impl Transaction, record: &Record) -> Result<i64> {
    let values = vec![
        record.id.as_str().into(),
        record.project.as_str().into(),
        record.name.as_deref().into(),
        state(record.state)?.into(),
        record.pool.as_deref().into(),
        record.changed_ms.into(),
        json(record)?.into(),
        record.version.into(),
    ];
    let rows = transaction.rows(CHANGE_DESK, values).await.map_err(|e| taken(e, record))?;
    if let Some(row) = rows.first() {
        return row.int(0);
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
fn taken(error: Error, record: &Record) -> Error {
    match (error, &record.name) {
        (Error::Conflict(_), Some(name)) => {
            Error::Conflict(format!("the name {name} is taken in project {}; choose another one", record.project))
        }
        (error, _) => error,
    }
}

async fn claim<D: Driver>(
    transaction: &mut D::Transaction,
    pool: &str,
    once: Option<Once<'_>>,
    change: Change<'_>,
) -> Result<Claimed> {
    // The answer is looked for first, so that an empty pool does not hide it; it can only be written when the desk is known.
    if let Some(once) = once
        && let Some(row) = transaction.rows(ANSWER, vec![once.scope.into(), once.key.into()]).await?.first()
    {
        return Ok(Claimed::Before(row.text(0)?.to_owned()));
    }
    let rows = transaction.rows(D::CLAIM, vec![pool.into()]).await?;
    let Some(mut desk) = rows.first().map(record).transpose()? else { return Ok(Claimed::Empty) };
    if let Some(once) = once
        && let Some(before) = answer(transaction, once, &desk.id).await?
    {
        return Ok(Claimed::Before(before));
    }
    desk.pool = None;
    let along = change(&mut desk);
    desk.version = change_desk(transaction, &desk).await?;
    write_along::<D>(transaction, along).await?;
    Ok(Claimed::Desk(Box::new(desk)))
}

async fn write_along<D: Driver>(transaction: &mut D::Transaction, along: Along) -> Result<()> {
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
async fn add_event<D: Driver>(transaction: &mut D::Transaction, mut event: Event) -> Result<i64> {
    event.number = 0;
    let at = milliseconds(&event.at).unwrap_or_else(|| Timestamp::now().as_millisecond());
    let body = json(&event)?;
    if let Some(announce) = D::ANNOUNCE {
        transaction.rows(announce, vec![]).await?;
    }
    let number = number(transaction, "events").await?;
    let statement = "INSERT INTO events (number, at_ms, desk, body) VALUES ($1, $2, $3, $4)";
    transaction.run(statement, vec![number.into(), at.into(), event.desk.as_deref().into(), body.into()]).await?;
    Ok(number)
}

/// Commits what worked and undoes what did not, before the answer: a lock that is still held would look like somebody else's.
async fn end<T>(transaction: impl Transaction, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => transaction.commit().await.map(|()| value),
        Err(error) => {
            transaction.undo().await;
            Err(error)
        }
    }
}

/// The same, and there may be new events.
async fn tell<D: Driver, T>(driver: &D, transaction: D::Transaction, result: Result<T>) -> Result<T> {
    let value = end(transaction, result).await?;
    driver.news().send_modify(|count| *count += 1);
    Ok(value)
}

async fn number(transaction: &mut impl Transaction, counter: &'static str) -> Result<i64> {
    let rows = transaction.rows(NUMBER, vec![counter.into()]).await?;
    rows.first().ok_or_else(|| Error::Store(format!("the counter {counter} is gone; put back a copy of the database")))?.int(0)
}

/// Notes the answer to an idempotency key, or finds the one that was noted.
async fn answer(transaction: &mut impl Transaction, once: Once<'_>, desk: &str) -> Result<Option<String>> {
    if transaction.run(ADD_ANSWER, vec![once.scope.into(), once.key.into(), desk.into()]).await? == 1 {
        return Ok(None);
    }
    let rows = transaction.rows(ANSWER, vec![once.scope.into(), once.key.into()]).await?;
    rows.first().map(|row| row.text(0).map(str::to_owned)).transpose()
}

/// Renews, takes, or takes over; the last one fences the holder of before.
async fn hold<D: Driver>(driver: &D, what: &str, owner: &str, ttl_ms: i64, desk: Option<&str>) -> Result<bool> {
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

/// One statement in a transaction of its own.
async fn alone<D: Driver>(driver: &D, durability: Durability, statement: &'static str, values: Vec<Value>) -> Result<u64> {
    let mut transaction = driver.begin(durability).await?;
    let result = transaction.run(statement, values).await;
    end(transaction, result).await
}

fn record(row: &Row) -> Result<Record> {
    Ok(Record { version: row.int(1)?, ..row.json(0)? })
}

fn stored_key(row: &Row) -> Result<StoredKey> {
    let mut key: hotdesk_api::fleet::Key = row.json(0)?;
    key.last_used_at = row.maybe_int(2)?.and_then(|ms| Timestamp::from_millisecond(ms).ok()).map(|at| at.to_string());
    Ok(StoredKey { key, hash: row.text(1)?.to_owned() })
}

/// The word that the API uses for a state.
fn state(state: State) -> Result<String> {
    Ok(json(&state)?.trim_matches('"').to_owned())
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Invalid(format!("this can't be written down: {e}")))
}

/// Of an RFC 3339 time.
fn milliseconds(at: &str) -> Option<i64> {
    at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}
