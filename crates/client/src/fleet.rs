//! What concerns the whole fleet: making and finding desks, snapshots, pools, keys, money, templates.

use crate::desk::Desk;
use crate::events::Events;
use crate::transport::Client;
use crate::wire::Done;
use crate::{Error, Result};
use hotdesk_api::calls::{
    AuditLine, AuditList, BudgetList, DeskList, EventList, KeyList, OrphanList, PoolList, SnapshotList, TemplateInfo,
    TemplateList, VolumeList,
};
use hotdesk_api::desk::{Event, NewDesk, Snapshot, State};
use hotdesk_api::fleet::{
    Adopt, Adopted, Budget, Costs, FleetInfo, Key, MadeKey, NewKey, NewVolume, Orphan, Pool, PoolSpec, Volume,
};
use rand::distr::{Alphanumeric, SampleString};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use std::collections::BTreeMap;
use std::time::Duration;

/// The fleet's own default; longer waits are for the caller to repeat.
const WAIT: Duration = Duration::from_secs(60);
/// Beyond the wait that was asked for: the answer itself needs time on a busy machine.
pub(crate) const AFTER_WAIT: Duration = Duration::from_secs(30);
/// Building a template downloads and unpacks hundreds of packages.
const BUILD: Duration = Duration::from_secs(3600);

/// Which desks are wanted.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub project: Option<String>,
    pub state: Option<State>,
    pub labels: BTreeMap<String, String>,
}

/// How a desk is made.
#[derive(Debug, Clone)]
pub struct Create {
    /// How long to wait until it runs; zero answers at once.
    pub wait: Duration,
    /// Two requests with the same key make one desk; a fresh one is taken if this is left out.
    pub idempotency_key: Option<String>,
}

impl Default for Create {
    fn default() -> Self {
        Self { wait: WAIT, idempotency_key: None }
    }
}

impl Client {
    /// One desk, by id or name. Nothing is sent yet.
    pub fn desk(&self, id: &str) -> Desk {
        Desk::new(self.clone(), id)
    }

    /// Makes a desk and waits until it runs.
    pub async fn create(&self, desk: &NewDesk) -> Result<hotdesk_api::desk::Desk> {
        let wait = Create::default();
        let done = self.create_with(desk, &wait).await?;
        match done.over {
            true => Ok(done.desk),
            false => Err(Error::Late(wait.wait)),
        }
    }

    /// Makes a desk, or claims a ready one. Can be repeated without making two.
    pub async fn create_with(&self, desk: &NewDesk, how: &Create) -> Result<Done> {
        let key = how.idempotency_key.clone().unwrap_or_else(idempotency_key);
        let key = HeaderValue::from_str(&key).map_err(|_| Error::Local("the idempotency key is no header".into()))?;
        let call = self.call(Method::POST, &["v1", "desks"]).query("wait", how.wait.as_secs()).json(&asked(desk)?)?;
        let call = call.header(HeaderName::from_static("idempotency-key"), key).idempotent();
        let (status, desk) = call.within(Some(how.wait + AFTER_WAIT)).answer_with_status().await?;
        Ok(Done { desk, over: status != StatusCode::ACCEPTED })
    }

    pub async fn desks(&self, filter: &Filter) -> Result<Vec<hotdesk_api::desk::Desk>> {
        let mut call = self.call(Method::GET, &["v1", "desks"]);
        if let Some(project) = &filter.project {
            call = call.query("project", project);
        }
        if let Some(state) = filter.state {
            call = call.queries(&BTreeMap::from([("state", state)]));
        }
        for (name, value) in &filter.labels {
            call = call.query("label", format!("{name}={value}"));
        }
        call.answer::<DeskList>().await.map(|list| list.desks)
    }

    pub async fn fleet(&self) -> Result<FleetInfo> {
        self.get(&["v1", "fleet"]).await
    }

    /// Whether the fleet can work: its store answers and it knows its desks. Needs no key.
    pub async fn ready(&self) -> Result<()> {
        self.call(Method::GET, &["ready"]).within(Some(Duration::from_secs(10))).done().await
    }

    /// Past events: after a number, of one desk, at most so many.
    pub async fn events(&self, after: i64, desk: Option<&str>, limit: u32) -> Result<Vec<Event>> {
        let mut call = self.call(Method::GET, &["v1", "events"]).query("after", after).query("limit", limit);
        if let Some(desk) = desk {
            call = call.query("desk", desk);
        }
        call.answer::<EventList>().await.map(|list| list.events)
    }

    /// Events as they happen, from a number on; none is missed when the connection or the fleet breaks off.
    pub fn follow(&self, after: Option<i64>, desk: Option<&str>) -> Events {
        Events::new(self.clone(), after, desk.map(str::to_owned))
    }

    pub async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.get::<SnapshotList>(&["v1", "snapshots"]).await.map(|list| list.snapshots)
    }

    pub async fn delete_snapshot(&self, id: &str) -> Result<()> {
        self.call(Method::DELETE, &["v1", "snapshots", id]).done().await
    }

    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        self.get::<VolumeList>(&["v1", "volumes"]).await.map(|list| list.volumes)
    }

    pub async fn volume(&self, id: &str) -> Result<Volume> {
        self.get(&["v1", "volumes", id]).await
    }

    pub async fn create_volume(&self, new: &NewVolume) -> Result<Volume> {
        self.call(Method::POST, &["v1", "volumes"]).json(new)?.answer().await
    }

    pub async fn delete_volume(&self, id: &str) -> Result<()> {
        self.call(Method::DELETE, &["v1", "volumes", id]).done().await
    }

    /// What providers have and the fleet has no record of.
    pub async fn orphans(&self) -> Result<Vec<Orphan>> {
        self.get::<OrphanList>(&["v1", "orphans"]).await.map(|list| list.orphans)
    }

    pub async fn adopt(&self, id: &str, how: &Adopt) -> Result<Adopted> {
        self.call(Method::POST, &["v1", "orphans", id, "adopt"]).json(how)?.answer().await
    }

    pub async fn remove_orphan(&self, id: &str) -> Result<()> {
        self.call(Method::DELETE, &["v1", "orphans", id]).done().await
    }

    /// What nobody adopted is stopped, and removed in a week.
    pub async fn settle_orphans(&self) -> Result<()> {
        self.call(Method::POST, &["v1", "orphans", "settle"]).done().await
    }

    pub async fn pools(&self) -> Result<Vec<Pool>> {
        self.get::<PoolList>(&["v1", "pools"]).await.map(|list| list.pools)
    }

    pub async fn set_pool(&self, pool: &PoolSpec) -> Result<Pool> {
        self.call(Method::PUT, &["v1", "pools"]).json(pool)?.answer().await
    }

    pub async fn remove_pool(&self, template: &str) -> Result<()> {
        self.call(Method::DELETE, &["v1", "pools", template]).done().await
    }

    pub async fn keys(&self) -> Result<Vec<Key>> {
        self.get::<KeyList>(&["v1", "keys"]).await.map(|list| list.keys)
    }

    pub async fn make_key(&self, key: &NewKey) -> Result<MadeKey> {
        self.call(Method::POST, &["v1", "keys"]).json(key)?.answer().await
    }

    /// A new secret for a key; the old one ends at once.
    pub async fn rotate_key(&self, id: &str) -> Result<MadeKey> {
        self.call(Method::POST, &["v1", "keys", id, "rotate"]).answer().await
    }

    pub async fn revoke_key(&self, id: &str) -> Result<()> {
        self.call(Method::DELETE, &["v1", "keys", id]).done().await
    }

    pub async fn costs(&self) -> Result<Costs> {
        self.get(&["v1", "costs"]).await
    }

    pub async fn budgets(&self) -> Result<Vec<Budget>> {
        self.get::<BudgetList>(&["v1", "budgets"]).await.map(|list| list.budgets)
    }

    pub async fn set_budget(&self, budget: &Budget) -> Result<()> {
        self.call(Method::PUT, &["v1", "budgets"]).json(budget)?.done().await
    }

    pub async fn audit(&self, limit: u32) -> Result<Vec<AuditLine>> {
        self.call(Method::GET, &["v1", "audit"]).query("limit", limit).answer::<AuditList>().await.map(|list| list.lines)
    }

    pub async fn templates(&self) -> Result<Vec<TemplateInfo>> {
        self.get::<TemplateList>(&["v1", "templates"]).await.map(|list| list.templates)
    }

    /// Builds a template where the fleet runs. Its stages come as events of the kind `template`.
    pub async fn build_template(&self, name: &str) -> Result<()> {
        self.call(Method::POST, &["v1", "templates", name, "build"]).idempotent().within(Some(BUILD)).done().await
    }

    pub(crate) async fn get<T: serde::de::DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.call(Method::GET, path).answer().await
    }
}

/// A request for a desk as it is sent.
pub(crate) fn asked(desk: &NewDesk) -> Result<serde_json::Value> {
    crate::wire::sparse(desk).map_err(|e| Error::Local(format!("the request can't be written: {e}")))
}

/// 160 bits: nobody draws it twice.
pub(crate) fn idempotency_key() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), 27)
}
