//! What can be asked of one desk.

use super::{Filter, Fleet, Who};
use crate::clock::{ms, rfc3339};
use crate::engine::{Engine, Note};
use crate::error::{Error, Result};
use crate::keys::Deed;
use crate::life::Busy;
use crate::limits::{Wanted, request};
use crate::state::{self, Intent, Next};
use crate::store::Record;
use crate::telemetry::word;
use crate::view::Entry;
use hotdesk_api::desk::{Desk, DeskChange, State};
use hotdesk_api::fleet::Scope;
use hotdesk_provider::{Door, Error as ProviderError, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A request that has to wait for a step waits so long, then it is refused.
const STEP_WAIT: Duration = Duration::from_secs(60);
/// What a provider is asked about a desk while a client waits.
const ASK_LIMIT: Duration = Duration::from_secs(10);
const MOST_LABELS: usize = 64;
/// Ten years.
const LONGEST_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl Fleet {
    /// Waits until the desk has left every state between, at most `limit`; then as it is.
    pub async fn wait(&self, who: &Who, id: &str, limit: Duration) -> Result<Desk> {
        let entry = match self.find(who, id, Deed::See) {
            Ok(entry) => entry,
            Err(e) => return self.deleted(who, id).await?.ok_or(e),
        };
        let _ = tokio::time::timeout(limit, entry.settled()).await;
        Ok(self.engine.shown(&entry))
    }

    /// By id or by name.
    pub async fn desk(&self, who: &Who, id: &str) -> Result<Desk> {
        self.catch_up(who, id).await?;
        Ok(self.engine.shown(&*self.find(who, id, Deed::See)?))
    }

    /// Whether a desk was given a network; none if it is not known here.
    pub fn has_network(&self, id: &str) -> Option<bool> {
        self.engine.view.get(id).map(|entry| entry.record().spec.network)
    }

    /// What another orchestrator has just done is known here a moment later; whoever asks here right after asking there must not see the
    /// desk as it was.
    async fn catch_up(&self, who: &Who, id: &str) -> Result<()> {
        if self.engine.alone {
            return Ok(());
        }
        match self.find(who, id, Deed::See) {
            Ok(entry) => self.engine.refresh(&entry.id).await,
            Err(_) if request::is_id(id) => self.engine.refresh(id).await,
            Err(_) => Ok(()),
        }
    }

    /// Oldest first.
    pub async fn desks(&self, who: &Who, filter: Filter) -> Result<Vec<Desk>> {
        let mut found = Vec::new();
        self.engine.view.for_each(|entry, r| {
            let theirs =
                who.sees(&r.project, &r.id) && (r.pool.is_none() || filter.project.as_deref() == Some(crate::pools::PROJECT));
            let wanted = filter.project.as_ref().is_none_or(|p| *p == r.project)
                && filter.state.is_none_or(|s| s == r.state)
                && filter.labels.iter().all(|(k, v)| r.spec.labels.get(k) == Some(v));
            if theirs && wanted {
                found.push((r.created_ms, self.engine.shown(entry)));
            }
        });
        found.sort_by(|(a, x), (b, y)| (a, &x.id).cmp(&(b, &y.id)));
        Ok(found.into_iter().map(|(_, desk)| desk).collect())
    }

    pub async fn start(&self, who: &Who, id: &str) -> Result<Desk> {
        self.request(who, id, Intent::Start).await
    }

    pub async fn stop(&self, who: &Who, id: &str) -> Result<Desk> {
        self.request(who, id, Intent::Stop).await
    }

    pub async fn reset(&self, who: &Who, id: &str) -> Result<Desk> {
        self.request(who, id, Intent::Reset).await
    }

    pub async fn archive(&self, who: &Who, id: &str) -> Result<Desk> {
        self.request(who, id, Intent::Archive).await
    }

    /// Deleting again what is deleted is no error.
    pub async fn delete(&self, who: &Who, id: &str) -> Result<Desk> {
        match self.request(who, id, Intent::Delete).await {
            Err(e @ Error::NotFound { .. }) => self.deleted(who, id).await?.ok_or(e),
            other => other,
        }
    }

    /// Writes down what is wanted and has it done.
    async fn request(&self, who: &Who, id: &str, intent: Intent) -> Result<Desk> {
        let deed = match intent {
            Intent::Delete => Deed::Delete,
            Intent::Archive => Deed::Save,
            _ => Deed::Run,
        };
        let entry = self.find(who, id, deed)?;
        let engine = Arc::clone(&self.engine);
        let by = who.name.clone();
        let asked = Arc::clone(&entry);
        self.engine.detached(async move { ask(&engine, &asked, intent, &by).await }).await?;
        Ok(self.engine.shown(&entry))
    }

    /// A desk that was deleted not long ago, if it was theirs.
    async fn deleted(&self, who: &Who, id: &str) -> Result<Option<Desk>> {
        if !request::is_id(id) {
            return Ok(None);
        }
        let record = self.engine.store.desk(id).await?;
        let record = record.filter(|r| who.sees(&r.project, &r.id));
        Ok(record.map(|r| self.engine.shown_record(&r)))
    }

    /// Moves the end of its life to `by` from now, or sets one; never to an earlier time. Counts as a sign of work.
    pub async fn extend(&self, who: &Who, id: &str, by: Duration) -> Result<Desk> {
        if by.is_zero() || by > LONGEST_LIFE {
            return Err(Error::Invalid("a life is extended by 1 second to 10 years".into()));
        }
        let entry = self.find(who, id, Deed::Change)?;
        let now = self.engine.clock.now_ms();
        entry.live.touch(now);
        let (engine, name, id) = (Arc::clone(&self.engine), who.name.clone(), entry.id.clone());
        self.engine
            .detached(async move {
                let change = |r: &mut Record| {
                    alive(r)?;
                    r.expires_ms = Some(r.expires_ms.unwrap_or(0).max(now.saturating_add(ms(by))));
                    r.active_ms = r.active_ms.max(now);
                    Ok(Some(Note::of("extended", &name)))
                };
                engine.change(&id, change).await
            })
            .await?;
        Ok(self.engine.shown(&entry))
    }

    /// Sets the end of its life to so long from now, earlier or later than it was; none: it has no end.
    pub async fn set_end(&self, who: &Who, id: &str, after: Option<Duration>) -> Result<Desk> {
        if after.is_some_and(|after| after > LONGEST_LIFE) {
            return Err(Error::Invalid("a life ends after 10 years at the latest".into()));
        }
        let entry = self.find(who, id, Deed::Change)?;
        let (engine, name, id) = (Arc::clone(&self.engine), who.name.clone(), entry.id.clone());
        let now = self.engine.clock.now_ms();
        self.engine
            .detached(async move {
                let change = |r: &mut Record| {
                    alive(r)?;
                    r.expires_ms = after.map(|after| now.saturating_add(ms(after)));
                    Ok(Some(Note::of("extended", &name)))
                };
                let changed = engine.change(&id, change).await;
                engine.ends.notify_one();
                changed
            })
            .await?;
        Ok(self.engine.shown(&entry))
    }

    /// Changes name, labels (a value of `null` removes one) and policy.
    pub async fn update(&self, who: &Who, id: &str, change: DeskChange) -> Result<Desk> {
        request::change(&change)?;
        let entry = self.find(who, id, Deed::Change)?;
        let (engine, name, id) = (Arc::clone(&self.engine), who.name.clone(), entry.id.clone());
        self.engine
            .detached(async move {
                let write = |r: &mut Record| {
                    alive(r)?;
                    if let Some(name) = &change.name {
                        r.name = Some(name.clone());
                    }
                    for (key, value) in &change.labels {
                        match value {
                            Some(value) => drop(r.spec.labels.insert(key.clone(), value.clone())),
                            None => drop(r.spec.labels.remove(key)),
                        }
                    }
                    if r.spec.labels.len() > MOST_LABELS {
                        return Err(Error::Invalid(format!("a desk has at most {MOST_LABELS} labels")));
                    }
                    if let Some(asked) = change.policy {
                        let policy = asked.or(r.policy);
                        if policy.ttl_s != r.policy.ttl_s {
                            r.expires_ms = super::create::expiry(r.created_ms, &policy);
                        }
                        r.policy = policy;
                    }
                    Ok(Some(Note::of("changed", &name)))
                };
                engine.change(&id, write).await
            })
            .await?;
        Ok(self.engine.shown(&entry))
    }

    pub async fn usage(&self, who: &Who, id: &str) -> Result<Usage> {
        let record = self.find(who, id, Deed::See)?.record();
        let provider = self.engine.providers.choose(Some(&record.provider))?;
        within(provider.usage(&record.id), "asking what the desk uses").await
    }

    /// What the desk's server printed, as far as its provider keeps it.
    pub async fn logs(&self, who: &Who, id: &str, lines: usize) -> Result<String> {
        let record = self.find(who, id, Deed::See)?.record();
        let provider = self.engine.providers.choose(Some(&record.provider))?;
        within(provider.logs(&record.id, lines), "reading the desk's log").await
    }

    /// Where a running desk is and the secret that opens it; counts as a sign of work.
    ///
    /// The gateway asks this for every request that it passes on, so it does not touch the store.
    pub async fn door(&self, who: &Who, id: &str) -> Result<Door> {
        let (door, entry) = self.way_in(who, id).await?;
        entry.live.call(self.engine.clock.now_ms());
        Ok(door)
    }

    /// The variables that commands in a desk get, with their values: for who starts commands there, and could read them there.
    pub fn environment(&self, who: &Who, id: &str) -> Result<BTreeMap<String, String>> {
        let record = self.find(who, id, Deed::Use)?.record();
        let mut all = record.spec.env.clone();
        all.extend(record.commands_env.clone());
        Ok(all)
    }

    /// The same for somebody who only looks: it counts as no work, so the desk can go to sleep.
    pub async fn glance(&self, who: &Who, id: &str) -> Result<Door> {
        Ok(self.way_in(who, id).await?.0)
    }

    async fn way_in(&self, who: &Who, id: &str) -> Result<(Door, Arc<Entry>)> {
        let mut entry = self.find(who, id, Deed::Use);
        if !entry.as_ref().is_ok_and(|entry| entry.record().state == State::Running) {
            self.catch_up(who, id).await?;
            entry = self.find(who, id, Deed::Use);
        }
        let entry = entry?;
        let record = entry.record();
        match &record.placed {
            Some(placed) if record.state == State::Running => {
                let door = Door { address: placed.address.clone(), secret: record.spec.secret.clone() };
                Ok((door, entry.clone()))
            }
            _ => {
                let hint = match record.state {
                    State::Stopped | State::Archived => "; start it first",
                    s if state::is_step(s) && s != State::Deleting => "; wait for it",
                    _ => "",
                };
                Err(Error::Conflict(format!(
                    "the desk {} is {}, not running ({}){hint}",
                    entry.id,
                    word(record.state),
                    record.reason
                )))
            }
        }
    }

    /// A live view or a long request: the desk is busy while the guard lives.
    pub fn busy(&self, id: &str, why: &'static str) -> Busy {
        Busy::new(self.engine.view.get(id), self.engine.clock, why)
    }
}

fn alive(record: &Record) -> Result<()> {
    match record.state {
        State::Deleting | State::Deleted => Err(Error::Conflict("the desk is deleted; make a new one".into())),
        _ => Ok(()),
    }
}

async fn within<T>(work: impl Future<Output = hotdesk_provider::Result<T>>, what: &str) -> Result<T> {
    match tokio::time::timeout(ASK_LIMIT, work).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Timeout { what: what.into(), limit: ASK_LIMIT }),
    }
}

/// A request, through the table of states: written down, or waiting for the step under way.
async fn ask(engine: &Arc<Engine>, entry: &Arc<Entry>, intent: Intent, by: &str) -> Result<()> {
    if !engine.alone {
        engine.refresh(&entry.id).await?;
    }
    let record = entry.record();
    able(engine, &record, intent).await?;
    // A desk that is to run again needs a place on the machine.
    let starts = matches!(intent, Intent::Start | Intent::Reset) && !state::is_up(record.state);
    let mut place = if starts { Some(engine.admit(room_for(engine, &record)?, Duration::ZERO).await?) } else { None };
    let deadline = tokio::time::Instant::now() + STEP_WAIT;
    loop {
        let mut wait = false;
        let written = engine
            .change(&entry.id, |r| {
                wait = false;
                match state::next(r.state, intent)? {
                    Next::To(to) => {
                        r.state = to;
                        r.reason = "asked for".into();
                        Ok(Some(Note::state(by)))
                    }
                    Next::Stay => Ok(None),
                    Next::Wait => {
                        wait = true;
                        Ok(None)
                    }
                }
            })
            .await?;
        if !wait {
            drop(place);
            if state::is_step(written.state) {
                engine.kick(&entry.id);
            }
            return Ok(());
        }
        if let Some(place) = &mut place {
            place.let_others();
        }
        if tokio::time::timeout_at(deadline, entry.settled()).await.is_err() {
            return Err(Error::Conflict(format!("the desk is still {}; ask again when it is done", word(written.state))));
        }
    }
}

fn room_for(engine: &Engine, record: &Record) -> Result<Wanted> {
    let provider = engine.providers.choose(Some(&record.provider))?;
    let wanted = Wanted {
        project: record.project.clone(),
        key: record.key.clone(),
        key_max: None,
        // It is counted already.
        counted: false,
        cpu_and_memory: Some(record.spec.resources),
        disk_mib: if state::has_files(record.state) { 0 } else { record.spec.resources.disk_mib },
    };
    Ok(wanted.at(provider.as_ref()))
}

/// What the provider can't do is refused before it is written down.
async fn able(engine: &Engine, record: &Record, intent: Intent) -> Result<()> {
    let provider = engine.providers.choose(Some(&record.provider))?;
    let unsupported = |what: &str| {
        let reason = "the provider has no way to do it".into();
        Err(ProviderError::Unsupported { provider: provider.name(), what: what.into(), reason }.into())
    };
    match intent {
        Intent::Stop if !provider.keeps_files() => {
            let reason = "its files would be gone; delete it, or give the provider a place for files".into();
            Err(ProviderError::Unsupported { provider: provider.name(), what: "stop".into(), reason }.into())
        }
        Intent::Reset if !provider.capabilities().await.reset => unsupported("reset"),
        Intent::Archive if !provider.capabilities().await.archive => unsupported("archive"),
        Intent::Start if record.state == State::Stopped || record.state == State::Archived => {
            engine.money.can_spend(&record.project, engine.clock.now_ms()).await
        }
        _ => Ok(()),
    }
}

impl Engine {
    /// A desk as it is shown to its owner.
    pub(crate) fn shown(&self, entry: &Entry) -> Desk {
        let record = entry.record();
        let mut desk = self.shown_record(&record);
        if record.state == State::Running {
            let now = self.clock.now_ms();
            desk.idle_s = Some(entry.live.idle(now).as_secs());
            desk.busy = entry.live.busy(now).map(Into::into);
        }
        desk.stage = entry.live.stage();
        if let Some(why) = self.providers.away(&record.provider) {
            desk.reason = format!("{} is away: {why}", record.provider);
        }
        desk
    }

    pub(crate) fn shown_record(&self, record: &Record) -> Desk {
        Desk {
            id: record.id.clone(),
            name: record.name.clone(),
            project: record.project.clone(),
            template: record.spec.template.clone(),
            snapshot: record.spec.snapshot.as_ref().map(|s| s.id.clone()),
            provider: record.provider.clone(),
            state: record.state,
            reason: record.reason.clone(),
            labels: record.spec.labels.clone(),
            env: record.spec.env.keys().cloned().collect(),
            resources: record.spec.resources,
            policy: record.policy,
            screen: record.spec.screen,
            created_at: rfc3339(record.created_ms),
            changed_at: rfc3339(record.changed_ms),
            expires_at: record.expires_ms.map(rfc3339),
            idle_s: None,
            busy: None,
            cost: self.money.cost(record, self.clock.now_ms()),
            stage: None,
            volumes: record.spec.volumes.iter().map(mounted).collect(),
        }
    }
}

fn mounted(place: &hotdesk_provider::VolumePlace) -> hotdesk_api::fleet::VolumeMount {
    hotdesk_api::fleet::VolumeMount {
        volume: place.name.clone(),
        at: place.at.clone(),
        read_only: place.read_only,
        subpath: place.subpath.clone(),
    }
}

/// Whether an event is theirs to see.
pub(super) fn may_see(who: &Who, event: &hotdesk_api::desk::Event) -> bool {
    match &who.scope {
        Scope::Admin => true,
        Scope::Project { project } => event.project.as_deref() == Some(project),
        Scope::Desk { desk } => event.desk.as_deref() == Some(desk),
    }
}
