//! Every call of the store, once for both databases.

use super::body::{self, desk_columns, readable, record, written_over};
use super::driver::{Driver, Durability, Row, Transaction};
use super::seal::{close_note, open_note};
use super::steps::*;
use super::{Alert, Along, Audit, Change, Claimed, DELETED, KEEP, Once, Record, Spend, Store, StoredKey, facts};
use crate::error::{Error, Result};
use async_trait::async_trait;
use hotdesk_api::desk::{Event, Snapshot};
use hotdesk_api::fleet::{Budget, PoolSpec, Scope, Volume};
use std::time::Duration;
use tokio::time::Instant;

/// Other orchestrators' events are looked for at least so often, should their call get lost.
const LOOK: Duration = Duration::from_secs(1);
/// Rows that are forgotten in one transaction, so that nobody waits long for it.
const PRUNED_AT_ONCE: i64 = 1000;

const PUT_KEY: &str = "INSERT INTO keys (id, hash, ended_ms, revoked, admin, used_ms, change, body) VALUES ($1, $2, $3, $4, $5, NULL, $6, $7) \
     ON CONFLICT (id) DO UPDATE SET hash = excluded.hash, ended_ms = excluded.ended_ms, revoked = excluded.revoked, admin = excluded.admin, \
     change = excluded.change, body = excluded.body WHERE keys.revoked = 0";

const BURY: &str = "INSERT INTO notes (kind, name, until_ms, body) VALUES ($1, $2, (SELECT now_ms FROM clock) + $3, '') \
     ON CONFLICT (kind, name) DO UPDATE SET until_ms = excluded.until_ms";

/// What [`Store::prune`] forgets; `$1` is the time, `$2` the most rows.
const PRUNE: [&str; 8] = [
    "DELETE FROM events WHERE number IN (SELECT number FROM events WHERE at_ms < $1 LIMIT $2)",
    "DELETE FROM audit WHERE number IN (SELECT number FROM audit WHERE at_ms < $1 LIMIT $2)",
    "DELETE FROM answers WHERE (scope, key) IN (SELECT scope, key FROM answers WHERE at_ms < $1 LIMIT $2)",
    "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE done_ms IS NOT NULL AND at_ms < $1 LIMIT $2)",
    "DELETE FROM desks WHERE id IN (SELECT id FROM desks WHERE state = 'deleted' AND changed_ms < $1 LIMIT $2)",
    "DELETE FROM leases WHERE what IN (SELECT what FROM leases WHERE until_ms < $1 LIMIT $2)",
    "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE ended_ms < $1 AND (revoked = 0 OR admin = 0) LIMIT $2)",
    "DELETE FROM notes WHERE (kind, name) IN (SELECT kind, name FROM notes WHERE until_ms < $1 LIMIT $2)",
];

#[async_trait]
impl<D: Driver> Store for D {
    fn key_for(&self, purpose: &str) -> Option<[u8; 32]> {
        self.seal()?.key_for(purpose)
    }

    async fn insert(&self, record: &Record, event: Event) -> Result<()> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            add_desk(self.seal(), &mut transaction, record).await?;
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
                add_desk(self.seal(), &mut transaction, record).await?;
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
            let version = change_desk(self.seal(), &mut transaction, record).await?;
            write_along::<D>(&mut transaction, Along { event, spends: spends.to_vec() }).await?;
            Ok(version)
        };
        let result = result.await;
        tell(self, transaction, result).await
    }

    async fn desk(&self, id: &str) -> Result<Option<Record>> {
        self.read(DESK, vec![id.into()]).await?.first().map(|row| record(self.seal(), row)).transpose()
    }

    async fn named(&self, project: &str, name: &str) -> Result<Option<Record>> {
        let statement =
            concat!("SELECT ", desk_columns!(), " FROM desks WHERE project = $1 AND name = $2 AND state <> 'deleted'");
        self.read(statement, vec![project.into(), name.into()]).await?.first().map(|row| record(self.seal(), row)).transpose()
    }

    async fn desks(&self) -> Result<Vec<Record>> {
        let statement = concat!("SELECT ", desk_columns!(), " FROM desks WHERE state <> 'deleted' ORDER BY created_ms, id");
        self.read(statement, vec![]).await?.iter().map(|row| record(self.seal(), row)).collect()
    }

    async fn claim(&self, pool: &str) -> Result<Option<Record>> {
        let claimed = self.claim_with(pool, None, &|_| Along::default()).await?;
        Ok(if let Claimed::Desk(record) = claimed { Some(*record) } else { None })
    }

    async fn claim_with(&self, pool: &str, once: Option<Once<'_>>, change: Change<'_>) -> Result<Claimed> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = claim::<D>(self.seal(), &mut transaction, pool, once, change).await;
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
        rows.iter().map(body::event).collect()
    }

    async fn events_of(&self, project: &str, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        let limit = i64::from(limit).into();
        let rows = match desk {
            Some(desk) => {
                let statement =
                    "SELECT number, body FROM events WHERE desk = $1 AND project = $2 AND number > $3 ORDER BY number LIMIT $4";
                self.read(statement, vec![desk.into(), project.into(), after.into(), limit]).await?
            }
            None => {
                let statement = "SELECT number, body FROM events WHERE project = $1 AND number > $2 ORDER BY number LIMIT $3";
                self.read(statement, vec![project.into(), after.into(), limit]).await?
            }
        };
        rows.iter().map(body::event).collect()
    }

    async fn newest(&self) -> Result<i64> {
        let rows = self.read("SELECT value FROM counters WHERE name = 'events'", vec![]).await?;
        rows.first().map_or(Ok(0), |row| row.int(0))
    }

    async fn raise_events(&self, to: i64) -> Result<()> {
        let statement = "UPDATE counters SET value = $1 WHERE name = 'events' AND value < $1";
        alone(self, Durability::Full, statement, vec![to.into()]).await.map(drop)
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

    async fn put_fact(&self, name: &str, value: &str, replace: bool) -> Result<bool> {
        let statement = match replace {
            true => "INSERT INTO facts (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            false => "INSERT INTO facts (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        };
        Ok(alone(self, Durability::Full, statement, vec![name.into(), value.into()]).await? == 1)
    }

    async fn fact(&self, name: &str) -> Result<Option<String>> {
        let rows = self.read("SELECT value FROM facts WHERE name = $1", vec![name.into()]).await?;
        rows.first().map(|row| row.text(0).map(str::to_owned)).transpose()
    }

    async fn remove_fact(&self, name: &str) -> Result<()> {
        alone(self, Durability::Full, "DELETE FROM facts WHERE name = $1", vec![name.into()]).await.map(drop)
    }

    async fn put_key(&self, key: &StoredKey) -> Result<()> {
        let expires = key.key.expires_at.as_deref().and_then(milliseconds);
        let revoked = key.key.revoked_at.as_deref().and_then(milliseconds);
        let ended = [expires, revoked].into_iter().flatten().min();
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            let old = transaction.rows("SELECT body FROM keys WHERE id = $1", vec![key.key.id.as_str().into()]).await?;
            let body = written_over(old.first().map(|row| row.text(0)).transpose()?, &key.key)?;
            let change = number(&mut transaction, "keys").await?;
            let values = vec![
                key.key.id.as_str().into(),
                key.hash.as_str().into(),
                ended.into(),
                i64::from(revoked.is_some()).into(),
                i64::from(key.key.scope == Scope::Admin).into(),
                change.into(),
                body.into(),
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
        self.read("SELECT body, hash, used_ms, id FROM keys ORDER BY id", vec![]).await?.iter().map(stored_key).collect()
    }

    async fn key_changes(&self, after: i64) -> Result<(i64, Vec<StoredKey>)> {
        let statement = "SELECT body, hash, used_ms, id, change FROM keys WHERE change > $1 ORDER BY change";
        let rows = self.read(statement, vec![after.into()]).await?;
        let newest = rows.last().map_or(Ok(after), |row| row.int(4))?;
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
        Ok(body::pools(&self.read("SELECT body FROM pools ORDER BY template", vec![]).await?))
    }

    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            let old = transaction.rows("SELECT body FROM snapshots WHERE id = $1", vec![snapshot.id.as_str().into()]).await?;
            let body = written_over(old.first().map(|row| row.text(0)).transpose()?, snapshot)?;
            let statement =
                "INSERT INTO snapshots (id, body) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET body = excluded.body";
            transaction.run(statement, vec![snapshot.id.as_str().into(), body.into()]).await.map(drop)
        };
        let result = result.await;
        end(transaction, result).await
    }

    async fn remove_snapshot(&self, id: &str) -> Result<()> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            let until = i64::try_from(KEEP.as_millis()).unwrap_or(i64::MAX);
            let values = vec![DELETED.into(), format!("snapshot/{id}").into(), until.into()];
            transaction.run(BURY, values).await?;
            transaction.run("DELETE FROM snapshots WHERE id = $1", vec![id.into()]).await.map(drop)
        };
        let result = result.await;
        end(transaction, result).await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.read("SELECT id, body FROM snapshots ORDER BY id", vec![]).await?.iter().map(body::snapshot).collect()
    }

    async fn add_volume(&self, volume: &Volume) -> Result<bool> {
        let statement = "INSERT INTO volumes (id, project, name, body) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
        let Volume { id, project, name, .. } = volume;
        let values = vec![id.as_str().into(), project.as_str().into(), name.as_str().into(), json(volume)?.into()];
        Ok(alone(self, Durability::Full, statement, values).await? == 1)
    }

    async fn remove_volume(&self, id: &str) -> Result<()> {
        let mut transaction = self.begin(Durability::Full).await?;
        let result = async {
            transaction.rows(LOCK_VOLUME, vec![id.into()]).await?;
            let users = transaction.rows(USERS, vec![id.into()]).await?;
            if !users.is_empty() {
                let users: Vec<_> = users.iter().map(|row| row.text(0)).collect::<Result<_>>()?;
                return Err(Error::Conflict(format!("the volume {id} is mounted in {}; delete them first", users.join(", "))));
            }
            transaction.run("DELETE FROM volumes WHERE id = $1", vec![id.into()]).await.map(drop)
        };
        let result = result.await;
        end(transaction, result).await
    }

    async fn volumes(&self) -> Result<Vec<Volume>> {
        Ok(readable(&self.read("SELECT body FROM volumes ORDER BY project, name", vec![]).await?, 0, "volume"))
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
        Ok(body::budgets(&self.read("SELECT body FROM budgets ORDER BY project", vec![]).await?))
    }

    async fn put_note(&self, kind: &str, name: &str, body: &str, until_ms: Option<i64>, replace: bool) -> Result<bool> {
        let statement = match replace {
            true => {
                "INSERT INTO notes (kind, name, until_ms, body) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (kind, name) DO UPDATE SET until_ms = excluded.until_ms, body = excluded.body"
            }
            false => "INSERT INTO notes (kind, name, until_ms, body) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        };
        let body = close_note(self.seal(), kind, name, body)?;
        let values = vec![kind.into(), name.into(), until_ms.into(), body.into()];
        Ok(alone(self, Durability::Full, statement, values).await? == 1)
    }

    async fn note(&self, kind: &str, name: &str) -> Result<Option<String>> {
        let rows = self.read("SELECT body FROM notes WHERE kind = $1 AND name = $2", vec![kind.into(), name.into()]).await?;
        rows.first().map(|row| open_note(self.seal(), kind, name, row.text(0)?)).transpose()
    }

    async fn notes(&self, kind: &str) -> Result<Vec<(String, String)>> {
        let rows = self.read("SELECT name, body FROM notes WHERE kind = $1 ORDER BY name", vec![kind.into()]).await?;
        let read = |row: &Row| Ok((row.text(0)?.to_owned(), open_note(self.seal(), kind, row.text(0)?, row.text(1)?)?));
        rows.iter().map(read).collect()
    }

    async fn remove_note(&self, kind: &str, name: &str) -> Result<bool> {
        let statement = "DELETE FROM notes WHERE kind = $1 AND name = $2";
        Ok(alone(self, Durability::Full, statement, vec![kind.into(), name.into()]).await? == 1)
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
        Ok(readable(&self.read(statement, vec![]).await?, 0, "alert"))
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
        Ok(readable(&rows, 0, "audit"))
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
        // Also whether another orchestrator has brought it to a format that this one does not know.
        body::check_format(self.fact(facts::FORMAT).await?.as_deref())
    }
}
