//! What the fleet remembers: SQLite in the data directory, or PostgreSQL for several orchestrators over one fleet.
//!
//! **Writes.** A desk and the event that tells of its change are written in one transaction, and so is the money that
//! the change settles. When a call has returned, what it wrote survives `kill -9` and a power cut. Only leases, audit
//! lines and the time of a key's last use are written lazily: they survive `kill -9`, and their loss in a power cut
//! harms nobody.
//!
//! **Versions.** A row carries a version: a write that was based on an older one is refused with [`Error::Conflict`],
//! so two writers never overwrite each other. A call that fails with [`Error::Store`] may still have been committed
//! (the connection broke while the answer was on its way): read the desk again before you repeat it.
//!
//! **Leases and fencing.** A desk is acted on only by the orchestrator that holds its lease; time is the database's,
//! because the clocks of orchestrators differ. Taking over a lease that ran out raises the desk's version in the same
//! transaction. So an orchestrator that slept through the end of its lease can still believe in it, but its next write
//! is refused, and by the rule that each step is written down before it is done, it does not act. Whoever gets a lease
//! reads the desk afterwards, never before.
//!
//! **Events** are numbered by a counter row inside their transaction. Its lock is held until the commit, so numbers
//! are committed in order and without gaps: a reader that asks for what came `after` n misses nothing.
//! [`Store::changed`] waits for news: of this process at once, of another orchestrator by `NOTIFY`, and by a look
//! each second whatever happens.

pub mod postgres;
pub mod sqlite;

mod body;
mod copy;
mod driver;
mod fault;
mod migrations;
mod seal;
mod statements;
mod steps;
#[cfg(test)]
pub(crate) mod tests;

pub use copy::{backup, restore};

use crate::config::Config;
use crate::error::{Error, Result};
use async_trait::async_trait;
use hotdesk_api::desk::Policy;
use hotdesk_api::desk::{Event, Snapshot, State};
use hotdesk_api::fleet::{Budget, Key, PoolSpec, Volume};
use hotdesk_provider::{DeskSpec, Placed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long events, audit lines, answers to idempotency keys and deleted desks are kept; for [`Store::prune`].
pub const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);

/// The kind of note that says what was ours and is deleted; its name is `snapshot/ID`.
pub const DELETED: &str = "deleted";

/// Names of facts ([`Store::put_fact`]).
pub mod facts {
    /// Which fleet this is.
    pub const IDENTITY: &str = "identity";
    /// The least format of rows that an orchestrator must know.
    pub const FORMAT: &str = "format";
    /// The name of the key that secrets are sealed with.
    pub const SEAL: &str = "seal";
    /// Since when (milliseconds) this is an older copy that was put back; until an admin settles it, nothing is removed.
    pub const PUT_BACK: &str = "put_back";
}

/// Opens the store that the settings name with the key of its secrets, and brings its tables up to date.
pub async fn open(config: &Config) -> Result<Arc<dyn Store>> {
    let url = config.store.as_str();
    let key = config.secrets_file();
    if let Some(path) = copy::file(config) {
        let store = sqlite::Sqlite::open(path).await?;
        seal::attach(&store, &key).await?;
        return Ok(Arc::new(store));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let store = postgres::Postgres::connect(url).await?;
        seal::attach(&store, &key).await?;
        return Ok(Arc::new(store));
    }
    // The address may hold a password, so it is not repeated here.
    Err(Error::Invalid(
        "the setting `store` is no address of a database: write postgres://USER@HOST/DATABASE, or leave it out for SQLite in the data directory".into(),
    ))
}

/// Everything that is known of one desk. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    pub name: Option<String>,
    pub project: String,
    /// The key that made it.
    pub key: String,
    pub provider: String,
    pub spec: DeskSpec,
    pub policy: Policy,
    pub state: State,
    pub reason: String,
    pub placed: Option<Placed>,
    /// The pool that it waits in, unclaimed.
    pub pool: Option<String>,
    pub created_ms: i64,
    pub changed_ms: i64,
    /// When it was last seen at work.
    pub active_ms: i64,
    pub expires_ms: Option<i64>,
    /// Money spent until `cost_until_ms`, in millionths.
    pub cost_micro: i64,
    /// Until when the money is counted; [`crate::money`] moves it.
    #[serde(default)]
    pub cost_until_ms: i64,
    /// Of the archive that holds it.
    pub archive: Option<ArchiveRef>,
    /// Variables of the commands that a dialect starts in it. Its own programs do not have them, so a desk of a pool can get them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands_env: BTreeMap<String, String>,
    /// The hash of the request with an idempotency key that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// Grows with each write.
    pub version: i64,
    /// What a newer version wrote into the row, kept as it is.
    #[serde(skip)]
    pub unknown: Option<Arc<serde_json::Value>>,
    /// Its row can't be understood: it is shown, and nothing is written or done.
    #[serde(skip)]
    pub unreadable: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveRef {
    pub location: String,
    pub sha256: String,
    pub bytes: u64,
}

/// A stored key: the secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredKey {
    pub key: Key,
    /// Hex of SHA-256.
    pub hash: String,
}

/// A line of the audit log: who asked for what, and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    pub at_ms: i64,
    pub key: String,
    pub method: String,
    pub path: String,
    pub status: u16,
    pub from: String,
}

/// Money (millionths) that a project spent on a day (`2026-01-31`, UTC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spend {
    pub project: String,
    pub day: String,
    pub micro: i64,
}

/// What is written together with a desk.
#[derive(Debug, Clone, Default)]
pub struct Along {
    pub event: Option<Event>,
    pub spends: Vec<Spend>,
}

/// Makes a claimed desk its new owner's, and says what is written along.
pub type Change<'a> = &'a (dyn Fn(&mut Record) -> Along + Send + Sync);

/// An idempotency key and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Once<'a> {
    pub scope: &'a str,
    pub key: &'a str,
}

/// What came of a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// The desk, as it is written down now.
    Desk(Box<Record>),
    /// The pool has no ready desk.
    Empty,
    /// The idempotency key already made this desk.
    Before(String),
}

/// A threshold of a budget that was crossed, and whom to tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Says which threshold of which budget in which time, so that it is told once.
    pub id: String,
    pub at_ms: i64,
    pub project: String,
    pub webhook: String,
    /// What the webhook gets.
    pub message: serde_json::Value,
}

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// A key for something outside of the store, made of the one that its secrets are sealed with; none where they are not.
    fn key_for(&self, _: &str) -> Option<[u8; 32]> {
        None
    }

    /// Adds a desk, its first event and its use of volumes in one transaction. `Conflict` if the name is taken in its project, or an
    /// exclusive volume by another desk.
    async fn insert(&self, record: &Record, event: Event) -> Result<()>;
    /// The same for a request with an idempotency key: if that key already made a desk, adds nothing and returns that desk's id.
    async fn insert_once(&self, record: &Record, event: Event, once: Once<'_>) -> Result<Option<String>>;
    /// Writes a desk and an event in one transaction, if `record.version` is still the stored one; returns the new version. `Conflict` if it is not.
    async fn update(&self, record: &Record, event: Option<Event>) -> Result<i64>;
    /// The same, and adds the money to its projects' days in the same transaction, so that nothing is counted twice or never.
    async fn update_and_spend(&self, record: &Record, event: Option<Event>, spends: &[Spend]) -> Result<i64>;
    /// Also a deleted one, until it is pruned.
    async fn desk(&self, id: &str) -> Result<Option<Record>>;
    /// By name in a project.
    async fn named(&self, project: &str, name: &str) -> Result<Option<Record>>;
    /// All that are not deleted, oldest first.
    async fn desks(&self) -> Result<Vec<Record>>;
    /// Takes, in one step, a ready desk of that pool for a new owner; at most one caller gets each.
    async fn claim(&self, pool: &str) -> Result<Option<Record>>;
    /// The same, and makes it the new owner's in the same transaction: `change` sets name, project and the rest, and says
    /// what is written along. Nothing is claimed if the name is taken (`Conflict`). `change` may run more than once.
    async fn claim_with(&self, pool: &str, once: Option<Once<'_>>, change: Change<'_>) -> Result<Claimed>;

    /// Holds the right to act on a desk for `ttl_ms`, or renews it; false if another orchestrator holds it.
    async fn lease(&self, desk: &str, owner: &str, ttl_ms: i64) -> Result<bool>;
    async fn release(&self, desk: &str, owner: &str) -> Result<()>;
    /// Renews all desks' leases of an owner in one step; returns the desks that it still holds.
    async fn renew(&self, owner: &str, ttl_ms: i64) -> Result<Vec<String>>;
    /// Holds a named right of the whole fleet (reconciling, pools), or renews it.
    async fn lead(&self, what: &str, owner: &str, ttl_ms: i64) -> Result<bool>;

    async fn event(&self, event: Event) -> Result<i64>;
    async fn events(&self, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>>;
    /// The same of one project alone.
    async fn events_of(&self, project: &str, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>>;
    /// Number of the newest event; 0 if there is none.
    async fn newest(&self) -> Result<i64>;
    /// Goes on counting events after this number, if that is higher: for a store that was put back.
    async fn raise_events(&self, to: i64) -> Result<()>;
    /// The events after a number, of all orchestrators; waits at most `wait` for the first one.
    async fn changed(&self, after: i64, limit: u32, wait: Duration) -> Result<Vec<Event>>;

    /// Remembers the answer to an idempotency key: the desk that it made. Returns the desk of an earlier call, if there was one.
    async fn remember(&self, scope: &str, key: &str, desk: &str) -> Result<Option<String>>;
    /// The desk that an idempotency key made.
    async fn remembered(&self, scope: &str, key: &str) -> Result<Option<String>>;

    /// Writes down what holds for the whole fleet; false if that is written already and `replace` is not said. Never forgotten.
    async fn put_fact(&self, name: &str, value: &str, replace: bool) -> Result<bool>;
    async fn fact(&self, name: &str) -> Result<Option<String>>;
    async fn remove_fact(&self, name: &str) -> Result<()>;
    /// Whose store this is: the first fleet that asks owns it, and everybody after it is told the name of that one.
    async fn identity(&self, fleet: &str) -> Result<String> {
        self.put_fact(facts::IDENTITY, fleet, false).await?;
        let gone = || Error::Store("the name of the fleet is gone from the database; put back a copy".into());
        self.fact(facts::IDENTITY).await?.ok_or_else(gone)
    }

    /// Adds or changes a key. A revoked key stays revoked: changing it is a `Conflict`.
    async fn put_key(&self, key: &StoredKey) -> Result<()>;
    async fn keys(&self) -> Result<Vec<StoredKey>>;
    /// Keys that were added or changed after a change's number, and the newest number.
    async fn key_changes(&self, after: i64) -> Result<(i64, Vec<StoredKey>)>;
    /// Notes when keys were last used: `(id, milliseconds)`. Lazy.
    async fn touch_keys(&self, used: &[(String, i64)]) -> Result<()>;
    async fn put_pool(&self, pool: &PoolSpec) -> Result<()>;
    async fn remove_pool(&self, template: &str) -> Result<()>;
    async fn pools(&self) -> Result<Vec<PoolSpec>>;
    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()>;
    /// Notes in the same transaction that it was ours (kind `deleted`, name `snapshot/ID`), for as long as deleted desks are kept.
    async fn remove_snapshot(&self, id: &str) -> Result<()>;
    async fn snapshots(&self) -> Result<Vec<Snapshot>>;
    /// False if its project has a volume of that name.
    async fn add_volume(&self, volume: &Volume) -> Result<bool>;
    /// `Conflict` while a desk has it.
    async fn remove_volume(&self, id: &str) -> Result<()>;
    async fn volumes(&self) -> Result<Vec<Volume>>;
    async fn put_budget(&self, budget: &Budget) -> Result<()>;
    async fn remove_budget(&self, project: &str) -> Result<()>;
    async fn budgets(&self) -> Result<Vec<Budget>>;
    /// Writes a note of some kind under a name; false if there is one and `replace` is not said. It may be forgotten some time
    /// after `until_ms`.
    async fn put_note(&self, kind: &str, name: &str, body: &str, until_ms: Option<i64>, replace: bool) -> Result<bool>;
    async fn note(&self, kind: &str, name: &str) -> Result<Option<String>>;
    /// `(name, body)`, by name.
    async fn notes(&self, kind: &str) -> Result<Vec<(String, String)>>;
    /// False if there was none.
    async fn remove_note(&self, kind: &str, name: &str) -> Result<bool>;
    /// Adds money (millionths) to a project's day.
    async fn spend(&self, project: &str, day: &str, micro: i64) -> Result<()>;
    /// `(project, day, millionths)`.
    async fn spent(&self) -> Result<Vec<(String, String, i64)>>;
    /// Millionths that one project spent on a day, and in all.
    async fn spent_by(&self, project: &str, day: &str) -> Result<(i64, i64)>;
    /// Notes an alert; false if it was noted before.
    async fn put_alert(&self, alert: &Alert) -> Result<bool>;
    /// Alerts that nobody was told of yet, oldest first.
    async fn alerts(&self) -> Result<Vec<Alert>>;
    /// The webhook knows, or never will.
    async fn alert_done(&self, id: &str) -> Result<()>;
    /// Lazy.
    async fn audit(&self, line: Audit) -> Result<()>;
    /// Many lines in one step. Lazy.
    async fn audit_all(&self, lines: &[Audit]) -> Result<()>;
    /// Newest first.
    async fn audits(&self, limit: u32) -> Result<Vec<Audit>>;
    /// Forgets what is older: events, audit lines, answers to idempotency keys, told alerts, deleted desks, leases that ran out
    /// and ended keys (but for revoked keys of the whole fleet, so that their secrets never come back). Returns how many rows went.
    async fn prune(&self, before_ms: i64) -> Result<u64>;
    /// Answers at all; for `/ready`.
    async fn ping(&self) -> Result<()>;
}
