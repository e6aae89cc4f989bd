//! What the fleet remembers: SQLite in the data directory, or PostgreSQL for several orchestrators over one fleet.
//!
//! A row carries a version: a write that was based on an older one is refused ([`Stale`]), so two writers never
//! overwrite each other. A desk is acted on only by the orchestrator that holds its lease.

pub mod postgres;
pub mod sqlite;

use crate::error::Result;
use async_trait::async_trait;
use hotdesk_api::desk::Policy;
use hotdesk_api::desk::{Event, Snapshot, State};
use hotdesk_api::fleet::{Budget, Key, PoolSpec};
use hotdesk_provider::{DeskSpec, Placed};
use serde::{Deserialize, Serialize};

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
    /// Money spent until `changed_ms`, in millionths.
    pub cost_micro: i64,
    /// Of the archive that holds it.
    pub archive: Option<ArchiveRef>,
    /// Grows with each write.
    pub version: i64,
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

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Adds a desk and its first event in one transaction. `Conflict` if the name is taken in its project.
    async fn insert(&self, record: &Record, event: Event) -> Result<()>;
    /// Writes a desk and an event in one transaction, if `record.version` is still the stored one; returns the new version. `Conflict` if it is not.
    async fn update(&self, record: &Record, event: Option<Event>) -> Result<i64>;
    async fn desk(&self, id: &str) -> Result<Option<Record>>;
    /// By name in a project.
    async fn named(&self, project: &str, name: &str) -> Result<Option<Record>>;
    /// All that are not deleted, oldest first.
    async fn desks(&self) -> Result<Vec<Record>>;
    /// Takes, in one step, a ready desk of that pool for a new owner; at most one caller gets each.
    async fn claim(&self, pool: &str) -> Result<Option<Record>>;

    /// Holds the right to act on a desk for `ttl_ms`, or renews it; false if another orchestrator holds it.
    async fn lease(&self, desk: &str, owner: &str, ttl_ms: i64) -> Result<bool>;
    async fn release(&self, desk: &str, owner: &str) -> Result<()>;
    /// Holds a named right of the whole fleet (reconciling, pools), or renews it.
    async fn lead(&self, what: &str, owner: &str, ttl_ms: i64) -> Result<bool>;

    async fn event(&self, event: Event) -> Result<i64>;
    async fn events(&self, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>>;

    /// Remembers the answer to an idempotency key: the desk that it made. Returns the desk of an earlier call, if there was one.
    async fn remember(&self, scope: &str, key: &str, desk: &str) -> Result<Option<String>>;

    async fn put_key(&self, key: &StoredKey) -> Result<()>;
    async fn keys(&self) -> Result<Vec<StoredKey>>;
    async fn put_pool(&self, pool: &PoolSpec) -> Result<()>;
    async fn remove_pool(&self, template: &str) -> Result<()>;
    async fn pools(&self) -> Result<Vec<PoolSpec>>;
    async fn put_snapshot(&self, snapshot: &Snapshot) -> Result<()>;
    async fn remove_snapshot(&self, id: &str) -> Result<()>;
    async fn snapshots(&self) -> Result<Vec<Snapshot>>;
    async fn put_budget(&self, budget: &Budget) -> Result<()>;
    async fn budgets(&self) -> Result<Vec<Budget>>;
    /// Adds money (millionths) to a project's day.
    async fn spend(&self, project: &str, day: &str, micro: i64) -> Result<()>;
    /// `(project, day, millionths)`.
    async fn spent(&self) -> Result<Vec<(String, String, i64)>>;
    async fn audit(&self, line: Audit) -> Result<()>;
    async fn audits(&self, limit: u32) -> Result<Vec<Audit>>;
    /// Answers at all; for `/ready`.
    async fn ping(&self) -> Result<()>;
}
