//! New desks: admission, then a claim from a pool or a record that a driver turns into a desk.

use super::{Fleet, Who};
use crate::engine::{Engine, Note};
use crate::error::{Error, Result};
use crate::limits::{Place, Wanted, request};
use crate::store::{Along, Claimed, Once, Record};
use crate::telemetry;
use hotdesk_api::action::Size;
use hotdesk_api::desk::{Desk, NewDesk, Policy, Resources, ResourcesRequest, Snapshot, SnapshotState, State};
use hotdesk_api::fleet::{Capabilities, Scope};
use hotdesk_provider::{DeskSpec, Door, Error as ProviderError, Progress, Provider, SnapshotRef, VolumePlace};
use rand::RngExt;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A template that is not found good by then is looked at by the driver, with progress.
const PREPARE_LIMIT: Duration = Duration::from_secs(2);
/// 60 bits of chance.
const ID_LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const ID_LENGTH: usize = 12;
/// 256 bits of chance.
const SECRET_BYTES: usize = 32;

pub(crate) fn random_id(kind: &str) -> String {
    let mut rng = rand::rng();
    let letters = (0..ID_LENGTH).map(|_| char::from(ID_LETTERS[rng.random_range(0..ID_LETTERS.len())]));
    format!("{kind}-{}", letters.collect::<String>())
}

fn secret() -> String {
    let bytes: [u8; SECRET_BYTES] = rand::rng().random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A desk that is about to be written down.
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) project: String,
    pub(crate) key: String,
    pub(crate) provider: String,
    pub(crate) template: String,
    pub(crate) snapshot: Option<SnapshotRef>,
    pub(crate) resources: Resources,
    pub(crate) policy: Policy,
    pub(crate) screen: Size,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) commands_env: BTreeMap<String, String>,
    pub(crate) asked: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) network: bool,
    pub(crate) vnc_password: Option<String>,
    pub(crate) pool: Option<String>,
    pub(crate) volumes: Vec<VolumePlace>,
}

impl Draft {
    pub(crate) fn new(engine: &Engine, provider: &str, template: &str) -> Self {
        Self {
            id: random_id("d"),
            name: None,
            project: crate::DEFAULT_PROJECT.into(),
            key: String::new(),
            provider: provider.into(),
            template: template.into(),
            snapshot: None,
            resources: engine.default_resources(provider, template),
            policy: engine.config.policy,
            screen: engine.default_screen(provider, template),
            env: BTreeMap::new(),
            commands_env: BTreeMap::new(),
            asked: None,
            labels: BTreeMap::new(),
            network: false,
            vnc_password: None,
            pool: None,
            volumes: Vec::new(),
        }
    }

    pub(crate) fn record(self, engine: &Engine, reason: &str) -> Record {
        let now = engine.clock.now_ms();
        Record {
            name: self.name,
            project: self.project,
            key: self.key,
            provider: self.provider,
            policy: self.policy,
            state: State::Creating,
            reason: reason.into(),
            placed: None,
            pool: self.pool,
            created_ms: now,
            changed_ms: now,
            active_ms: now,
            expires_ms: expiry(now, &self.policy),
            cost_micro: 0,
            cost_until_ms: now,
            archive: None,
            commands_env: self.commands_env,
            asked: self.asked,
            version: 1,
            unknown: None,
            unreadable: false,
            spec: DeskSpec {
                id: self.id.clone(),
                template: self.template,
                snapshot: self.snapshot,
                resources: self.resources,
                screen: self.screen,
                env: self.env,
                labels: self.labels,
                network: self.network,
                vnc_password: self.vnc_password,
                secret: secret(),
                volumes: self.volumes,
            },
            id: self.id,
        }
    }
}

/// When a desk that is made now ends by its time to live.
pub(crate) fn expiry(now_ms: i64, policy: &Policy) -> Option<i64> {
    (policy.ttl_s > 0).then(|| now_ms.saturating_add(i64::try_from(policy.ttl_s).unwrap_or(i64::MAX / 2000).saturating_mul(1000)))
}

impl Engine {
    /// What is asked for, and the rest as that template or the fleet has it.
    pub(crate) fn resources_of(&self, asked: ResourcesRequest, provider: &str, template: &str) -> Resources {
        asked.or(self.default_resources(provider, template))
    }

    pub(crate) fn policy_of(&self, request: &NewDesk) -> Policy {
        request.policy.or(self.config.policy)
    }
}

impl Fleet {
    /// Makes a desk, or claims a ready one. Answers as soon as it is written down; `wait` waits for it to run.
    pub async fn create(&self, who: &Who, request: NewDesk, idempotency: Option<&str>) -> Result<Desk> {
        let begun = tokio::time::Instant::now();
        request::new_desk(&request)?;
        let project = project_of(who, request.project.as_deref())?;
        let engine = &self.engine;
        let scope = format!("key:{}", who.key);
        let asked = idempotency.map(|_| hash(&request));
        if let Some(key) = idempotency {
            check_idempotency(key)?;
            if let Some(before) = engine.store.remembered(&scope, key).await? {
                return self.made_before(&before, asked.as_deref()).await;
            }
        }
        let origin = match &request.snapshot {
            Some(id) => Some(self.usable_snapshot(who, id).await?),
            None => None,
        };
        let provider = match (&origin, &request.provider) {
            (Some(snapshot), Some(asked)) if *asked != snapshot.provider => {
                return Err(Error::Invalid(format!(
                    "the snapshot {} is at {}; leave the provider out",
                    snapshot.id, snapshot.provider
                )));
            }
            (Some(snapshot), _) => engine.providers.choose(Some(&snapshot.provider))?,
            (None, asked) => engine.providers.choose(asked.as_deref())?,
        };
        if let Some(reason) = engine.providers.away(provider.name()) {
            return Err(ProviderError::Unavailable { provider: provider.name(), reason }.into());
        }
        engine.money.can_spend(&project, engine.clock.now_ms()).await?;
        let capabilities = provider.capabilities().await;
        capable(provider.name(), &capabilities, &request)?;
        if origin.as_ref().is_some_and(|snapshot| snapshot.memory) && has_volumes(&request) {
            return Err(Error::Invalid(
                "a desk that goes on from a snapshot with memory can't have volumes that it did not have; leave them out".into(),
            ));
        }
        let queue = Duration::from_secs(request.queue_s);
        let mut wanted = Wanted {
            project: project.clone(),
            key: who.key.clone(),
            key_max: engine.keys.max_desks(&who.key),
            counted: true,
            cpu_and_memory: None,
            disk_mib: 0,
        };

        if let Some(pool) = engine.pool_for(&request, provider.name(), capabilities.network) {
            let place = engine.admit(wanted.clone(), queue).await?;
            let once = idempotency.map(|key| (scope.clone(), key.to_owned()));
            let claimed = Taken { project: project.clone(), pool: pool.clone(), request: request.clone(), asked: asked.clone() };
            let claim = claim(Arc::clone(engine), place, who.clone(), claimed, once);
            match engine.detached(claim).await? {
                Claimed::Desk(record) => {
                    telemetry::claim(&pool, true);
                    telemetry::stage(provider.name(), "claim", begun.elapsed());
                    return self.shown_by_id(&record.id);
                }
                Claimed::Before(id) => return self.made_before(&id, asked.as_deref()).await,
                Claimed::Empty => engine.pool_missed(&pool),
            }
        }

        let template = origin
            .as_ref()
            .map_or_else(|| request.template.clone().unwrap_or_else(|| engine.config.template.clone()), |s| s.template.clone());
        if origin.is_none() {
            prepared(engine, provider, &template).await?;
        }
        let mut draft = Draft::new(engine, provider.name(), &template);
        draft.project = project;
        draft.key.clone_from(&who.key);
        draft.snapshot = origin.map(|s| SnapshotRef { id: s.id, memory: s.memory });
        draft.resources = engine.resources_of(request.resources, provider.name(), &template);
        draft.policy = engine.policy_of(&request);
        draft.screen = request.screen.unwrap_or(draft.screen);
        draft.network = request.network.unwrap_or(capabilities.network);
        draft.name = request.name;
        draft.env = request.env.unwrap_or_default();
        draft.commands_env = request.commands_env.unwrap_or_default();
        draft.labels = request.labels.unwrap_or_default();
        draft.asked.clone_from(&asked);
        draft.vnc_password = request.vnc_password;
        wanted.cpu_and_memory = Some(draft.resources);
        wanted.disk_mib = draft.resources.disk_mib;

        // Unknown or taken volumes are told before a place is waited for.
        let mounts = request.volumes.unwrap_or_default();
        engine.volume_places(&draft.project, &mounts).await?;
        let place = engine.admit(wanted.at(provider.as_ref()), queue).await?;
        let once = idempotency.map(|key| (scope, key.to_owned()));
        let (owner, insert) = (who.name.clone(), Arc::clone(engine));
        let id = draft.id.clone();
        let written = async move {
            draft.volumes = insert.volume_places(&draft.project, &mounts).await?;
            write(&insert, draft, place, &owner, once).await
        };
        let before = engine.detached(written).await?;
        match before {
            Some(before) => self.made_before(&before, asked.as_deref()).await,
            None => self.shown_by_id(&id),
        }
    }

    fn shown_by_id(&self, id: &str) -> Result<Desk> {
        let entry = self.engine.view.get(id).ok_or_else(|| Error::NotFound { what: "desk", id: id.into() })?;
        Ok(self.engine.shown(&entry))
    }

    /// The desk that an idempotency key made earlier, if it was asked for in the same words.
    async fn made_before(&self, id: &str, asked: Option<&str>) -> Result<Desk> {
        if self.engine.view.get(id).is_none() {
            self.engine.refresh(id).await?;
        }
        let (before, desk) = match self.engine.view.get(id) {
            Some(entry) => (entry.record().asked.clone(), self.engine.shown(&entry)),
            None => match self.engine.store.desk(id).await? {
                Some(record) => (record.asked.clone(), self.engine.shown_record(&record)),
                None => return Err(Error::NotFound { what: "desk", id: id.into() }),
            },
        };
        // A desk that an older version made does not say.
        if before.is_some_and(|before| Some(before.as_str()) != asked) {
            return Err(Error::Conflict(format!(
                "this idempotency key made the desk {id} by a request that said something else; use a new key for another request"
            )));
        }
        Ok(desk)
    }

    /// A snapshot that a desk can start from.
    pub(crate) async fn usable_snapshot(&self, who: &Who, id: &str) -> Result<Snapshot> {
        let snapshot = self.snapshot_of(who, id).await?;
        match snapshot.state {
            SnapshotState::Ready => Ok(snapshot),
            SnapshotState::Creating => Err(Error::Conflict(format!("the snapshot {id} is not finished yet; wait for it"))),
            _ => Err(Error::Conflict(format!("the snapshot {id} can't be used: {}", snapshot.reason))),
        }
    }
}

/// Writes a desk down and has it made. The id of the desk that its idempotency key made before, if it did.
pub(super) async fn write(
    engine: &Arc<Engine>,
    draft: Draft,
    place: Place,
    by: &str,
    once: Option<(String, String)>,
) -> Result<Option<String>> {
    let record = draft.record(engine, "asked for");
    let id = record.id.clone();
    let event = engine.event(&record, "state", by);
    let begun = tokio::time::Instant::now();
    match &once {
        Some((scope, key)) => {
            if let Some(before) = engine.store.insert_once(&record, event, Once { scope, key }).await? {
                return Ok(Some(before));
            }
        }
        None => engine.store.insert(&record, event).await?,
    }
    telemetry::store("insert", begun.elapsed());
    place.fill(record);
    engine.kick(&id);
    Ok(None)
}

/// What a desk is taken out of its pool for.
struct Taken {
    project: String,
    pool: String,
    request: NewDesk,
    asked: Option<String>,
}

/// Takes a ready desk out of its pool, for its new owner, in one transaction.
async fn claim(engine: Arc<Engine>, place: Place, who: Who, taken: Taken, once: Option<(String, String)>) -> Result<Claimed> {
    let Taken { project, pool, request, asked } = taken;
    let now = engine.clock.now_ms();
    let policy = engine.policy_of(&request);
    let change = |record: &mut Record| {
        let spends = engine.money.settle(record, now);
        record.name.clone_from(&request.name);
        record.project.clone_from(&project);
        record.key.clone_from(&who.key);
        record.spec.labels = request.labels.clone().unwrap_or_default();
        record.commands_env = request.commands_env.clone().unwrap_or_default();
        record.asked.clone_from(&asked);
        record.policy = policy;
        record.created_ms = now;
        record.active_ms = now;
        record.changed_ms = now.max(record.changed_ms + 1);
        record.expires_ms = expiry(now, &policy);
        record.cost_micro = 0;
        record.reason = "claimed from the pool".into();
        Along { event: Some(engine.event(record, "state", &who.name)), spends }
    };
    let once = once.as_ref().map(|(scope, key)| Once { scope, key });
    let begun = tokio::time::Instant::now();
    let claimed = engine.store.claim_with(&pool, once, &change).await?;
    telemetry::store("claim", begun.elapsed());
    if let Claimed::Desk(record) = &claimed {
        place.fill(Record::clone(record));
        // A desk that died in its pool is started again before anybody is sent to it.
        let door = record.placed.as_ref().map(|p| Door { address: p.address.clone(), secret: record.spec.secret.clone() });
        let lives = match door {
            Some(door) => engine.look.answers(&door).await,
            None => false,
        };
        if !lives {
            let restart = |r: &mut Record| {
                if r.state != State::Running {
                    return Ok(None);
                }
                r.state = State::Starting;
                r.reason = "it died in its pool; started again".into();
                Ok(Some(Note::state("pool")))
            };
            engine.change(&record.id, restart).await?;
            engine.kick(&record.id);
        }
    }
    Ok(claimed)
}

/// Whose desk it will be.
pub(crate) fn project_of(who: &Who, asked: Option<&str>) -> Result<String> {
    match (&who.scope, asked) {
        (Scope::Admin, Some(crate::pools::PROJECT)) => {
            Err(Error::Invalid(format!("the project {} is the fleet's own; choose another one", crate::pools::PROJECT)))
        }
        (Scope::Admin, asked) => Ok(asked.unwrap_or(crate::DEFAULT_PROJECT).into()),
        (Scope::Project { project }, None) => Ok(project.clone()),
        (Scope::Project { project }, Some(asked)) if asked == project => Ok(project.clone()),
        (Scope::Project { project }, Some(_)) => {
            Err(Error::Denied(format!("this key makes desks of the project {project} alone; leave the project out")))
        }
        (Scope::Desk { .. }, _) => Err(Error::Denied("this key is for one desk and makes no others".into())),
    }
}

/// By which a request is known again.
fn hash(request: &NewDesk) -> String {
    let words = serde_json::to_vec(&(request, &request.commands_env)).unwrap_or_default();
    crate::keys::hex(&Sha256::digest(words))
}

fn check_idempotency(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > 255 || key.chars().any(char::is_control) {
        return Err(Error::Invalid("an idempotency key is 1 to 255 bytes without control characters".into()));
    }
    Ok(())
}

fn has_volumes(request: &NewDesk) -> bool {
    request.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty())
}

/// What the provider can't do is refused before anything is spent.
fn capable(provider: &'static str, can: &Capabilities, request: &NewDesk) -> Result<()> {
    let refuse = |what: &str, reason: &str| {
        Err(Error::Provider(ProviderError::Unsupported { provider, what: what.into(), reason: reason.into() }))
    };
    if request.network == Some(true) && !can.network {
        return refuse("a desk with a network", "there is none for desks here; `hotdesk doctor` says why");
    }
    if has_volumes(request) && !can.volumes {
        return refuse("a desk with volumes", "it has no way to mount them");
    }
    if request.resources.cpus.is_some() && !can.cpu_limit {
        return refuse("a limit of CPU", "nothing here enforces it; leave cpus out");
    }
    if request.resources.memory_mib.is_some() && !can.memory_limit {
        return refuse("a limit of memory", "nothing here enforces it; leave memory_mib out");
    }
    if request.resources.disk_mib.is_some() && !can.disk_limit {
        return refuse("a limit of disk", "nothing here enforces it; leave disk_mib out");
    }
    Ok(())
}

/// Whether the template can be used. One that takes long to find out is left to the driver.
async fn prepared(engine: &Arc<Engine>, provider: &Arc<dyn Provider>, template: &str) -> Result<()> {
    let (silent, _) = Progress::new();
    tokio::time::timeout(PREPARE_LIMIT, engine.prepare(provider, template, &silent)).await.unwrap_or(Ok(()))
}
