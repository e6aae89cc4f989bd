//! The fleet as its callers see it.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::store::Store;
use hotdesk_api::desk::{Desk, DeskChange, Event, NewDesk, Snapshot, State};
use hotdesk_api::fleet::{Budget, Costs, FleetInfo, Key, MadeKey, NewKey, Pool, PoolSpec, Scope};
use hotdesk_provider::{Door, Provider, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Id of the key.
    pub key: String,
    pub name: String,
    pub scope: Scope,
}

/// Which desks are wanted.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub project: Option<String>,
    pub state: Option<State>,
    pub labels: BTreeMap<String, String>,
}

/// The fleet. Cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    store: Arc<dyn Store>,
    #[expect(dead_code)]
    providers: Arc<BTreeMap<String, Arc<dyn Provider>>>,
    #[expect(dead_code)]
    config: Arc<Config>,
}

#[expect(unused_variables, clippy::unused_async)]
impl Fleet {
    /// Opens the fleet: adopts what lives, finishes what was begun, removes orphans, and keeps doing so in the background.
    pub async fn open(config: Config, store: Arc<dyn Store>, providers: Vec<Arc<dyn Provider>>) -> Result<Self> {
        let providers = providers.into_iter().map(|p| (p.name().to_owned(), p)).collect();
        Ok(Self { store, providers: Arc::new(providers), config: Arc::new(config) })
    }

    /// Ends the background work; desks keep running.
    pub async fn close(&self) {}

    /// Makes a desk, or claims a ready one. Answers as soon as it is written down; `wait` waits for it to run.
    pub async fn create(&self, who: &Who, request: NewDesk, idempotency: Option<&str>) -> Result<Desk> {
        Err(Error::Invalid("create".into()))
    }

    /// Waits until the desk has left every state between, at most `limit`.
    pub async fn wait(&self, who: &Who, id: &str, limit: Duration) -> Result<Desk> {
        Err(Error::Invalid("wait".into()))
    }

    /// By id or by name.
    pub async fn desk(&self, who: &Who, id: &str) -> Result<Desk> {
        Err(Error::Invalid("desk".into()))
    }

    pub async fn desks(&self, who: &Who, filter: Filter) -> Result<Vec<Desk>> {
        Err(Error::Invalid("desks".into()))
    }

    pub async fn start(&self, who: &Who, id: &str) -> Result<Desk> {
        Err(Error::Invalid("start".into()))
    }

    pub async fn stop(&self, who: &Who, id: &str) -> Result<Desk> {
        Err(Error::Invalid("stop".into()))
    }

    pub async fn reset(&self, who: &Who, id: &str) -> Result<Desk> {
        Err(Error::Invalid("reset".into()))
    }

    pub async fn archive(&self, who: &Who, id: &str) -> Result<Desk> {
        Err(Error::Invalid("archive".into()))
    }

    pub async fn delete(&self, who: &Who, id: &str) -> Result<Desk> {
        Err(Error::Invalid("delete".into()))
    }

    /// Moves the end of its life, or sets one: `by` seconds from now.
    pub async fn extend(&self, who: &Who, id: &str, by: Duration) -> Result<Desk> {
        Err(Error::Invalid("extend".into()))
    }

    /// Changes name, labels (a value of `null` removes one) and policy.
    pub async fn update(&self, who: &Who, id: &str, change: DeskChange) -> Result<Desk> {
        Err(Error::Invalid("update".into()))
    }

    pub async fn usage(&self, who: &Who, id: &str) -> Result<Usage> {
        Err(Error::Invalid("usage".into()))
    }

    /// What the desk's server printed, as far as its provider keeps it.
    pub async fn logs(&self, who: &Who, id: &str, lines: usize) -> Result<String> {
        Err(Error::Invalid("logs".into()))
    }

    pub async fn snapshot(&self, who: &Who, id: &str, name: Option<String>, memory: bool) -> Result<Snapshot> {
        Err(Error::Invalid("snapshot".into()))
    }

    pub async fn snapshots(&self, who: &Who) -> Result<Vec<Snapshot>> {
        Err(Error::Invalid("snapshots".into()))
    }

    pub async fn delete_snapshot(&self, who: &Who, id: &str) -> Result<()> {
        Err(Error::Invalid("delete_snapshot".into()))
    }

    /// A snapshot and a desk from it in one step.
    pub async fn fork(&self, who: &Who, id: &str, memory: bool, request: NewDesk) -> Result<Desk> {
        Err(Error::Invalid("fork".into()))
    }

    /// Where a running desk is and the secret that opens it; counts as a sign of work.
    ///
    /// The gateway asks this for every request that it passes on, so it must not touch the store when nothing changed.
    pub async fn door(&self, who: &Who, id: &str) -> Result<Door> {
        Err(Error::Invalid("door".into()))
    }

    /// A live view or a long request: the desk is busy while the guard lives.
    pub fn busy(&self, id: &str, why: &'static str) -> crate::life::Busy {
        crate::life::Busy {}
    }

    pub fn watch(&self) -> broadcast::Receiver<Event> {
        broadcast::channel(1).1
    }

    pub async fn events(&self, who: &Who, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        self.store.events(after, desk, limit).await
    }

    pub async fn pools(&self, who: &Who) -> Result<Vec<Pool>> {
        Err(Error::Invalid("pools".into()))
    }

    pub async fn set_pool(&self, who: &Who, spec: PoolSpec) -> Result<Pool> {
        Err(Error::Invalid("set_pool".into()))
    }

    pub async fn remove_pool(&self, who: &Who, template: &str) -> Result<()> {
        Err(Error::Invalid("remove_pool".into()))
    }

    /// The key that a secret belongs to, if it is good. Constant time.
    pub async fn who(&self, secret: &str) -> Result<Who> {
        Err(Error::Denied("who".into()))
    }

    pub async fn make_key(&self, who: &Who, new: NewKey) -> Result<MadeKey> {
        Err(Error::Invalid("make_key".into()))
    }

    pub async fn keys(&self, who: &Who) -> Result<Vec<Key>> {
        Err(Error::Invalid("keys".into()))
    }

    pub async fn rotate_key(&self, who: &Who, id: &str) -> Result<MadeKey> {
        Err(Error::Invalid("rotate_key".into()))
    }

    pub async fn revoke_key(&self, who: &Who, id: &str) -> Result<()> {
        Err(Error::Invalid("revoke_key".into()))
    }

    pub async fn costs(&self, who: &Who) -> Result<Costs> {
        Err(Error::Invalid("costs".into()))
    }

    pub async fn budgets(&self, who: &Who) -> Result<Vec<Budget>> {
        Err(Error::Invalid("budgets".into()))
    }

    pub async fn set_budget(&self, who: &Who, budget: Budget) -> Result<()> {
        Err(Error::Invalid("set_budget".into()))
    }

    pub async fn info(&self) -> Result<FleetInfo> {
        Err(Error::Invalid("info".into()))
    }

    /// For `/ready`: the store answers and the first reconciliation is over.
    pub async fn ready(&self) -> Result<()> {
        self.store.ping().await
    }

    /// Writes down who asked for what, and how it ended. Never waits for the disk; a line may be lost when the machine dies.
    pub fn audit(&self, line: crate::store::Audit) {}

    /// For the records' own modules.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}
