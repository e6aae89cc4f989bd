//! What exists of the fleet in the cluster, followed by watches.
//!
//! Two watches by label, one for Pods and one for the claims of homes, keep a small picture of each; whoever waits for a desk is woken by
//! its own events. When a watch breaks it begins anew by itself; until it does, nothing is said about what exists, so nothing is taken
//! for lost.

use super::cluster::{Cluster, away, chain};
use super::{LABEL_DESK, LABEL_FLEET};
use crate::Result;
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, PodCondition};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A watch is renewed so often; a connection that died in silence is found out within it.
const WATCH_S: u32 = 60;
/// How long the first look at everything may take.
const FIRST_LOOK: Duration = Duration::from_secs(20);
/// The container of a desk.
pub(super) const CONTAINER: &str = "desk";
/// What the taint manager writes into a Pod that it gives up because of its node.
const GIVEN_UP: &str = "DeletionByTaintManager";

/// What counts of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) phase: Phase,
    pub(super) ip: Option<IpAddr>,
    pub(super) node: Option<String>,
    /// Somebody deleted it; it may run for some seconds more.
    pub(super) going: bool,
    /// Its node is silent; nobody there will confirm its end.
    pub(super) node_lost: bool,
    /// Why no node takes it.
    pub(super) no_node: Option<String>,
    /// Why its container does not run yet, or not again: Kubernetes' word and more.
    pub(super) waiting: Option<(String, String)>,
    /// How it ended, in words.
    pub(super) ended: Option<String>,
    pub(super) restarts: i32,
    /// The name of the Secret that it mounts.
    pub(super) secret: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Over,
}

impl Seen {
    pub(super) fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let container = status.container_statuses.iter().flatten().find(|c| c.name == CONTAINER);
        let holding = status.init_container_statuses.iter().flatten().chain(container).find_map(waiting_of);
        let phase = match status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded" | "Failed") => Phase::Over,
            _ => Phase::Pending,
        };
        let condition = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let given_up = condition("DisruptionTarget").filter(|c| c.status == "True");
        let going = pod.meta().deletion_timestamp.is_some();
        Self {
            uid: pod.uid().unwrap_or_default(),
            phase,
            ip: status.pod_ip.and_then(|ip| ip.parse().ok()),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            going,
            node_lost: going && given_up.is_some_and(|c| c.reason.as_deref() == Some(GIVEN_UP)),
            no_node: condition("PodScheduled").filter(|c| c.status == "False").map(words_of),
            waiting: holding,
            ended: ended(status.reason, status.message, given_up, container),
            restarts: container.map_or(0, |c| c.restart_count),
            secret: secret_of(pod),
        }
    }

    /// Whether the desk is up, as far as its Pod tells.
    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running && !self.going && self.ip.is_some() && !self.is_looping()
    }

    /// It ends as often as it is started.
    pub(super) fn is_looping(&self) -> bool {
        self.waiting.as_ref().is_some_and(|(reason, _)| reason == "CrashLoopBackOff")
    }

    /// It won't come up any more.
    pub(super) fn is_over(&self) -> bool {
        self.going || self.phase == Phase::Over || self.is_looping()
    }

    /// Why it does not run, for people.
    pub(super) fn why(&self) -> String {
        let node = self.node.as_deref().unwrap_or("no node");
        match &self.ended {
            Some(ended) => format!("{ended} (on {node})"),
            None if self.node_lost => format!("the node {node} was lost"),
            None if self.going => "its pod was deleted".into(),
            None => "its pod ended".into(),
        }
    }
}

fn secret_of(pod: &Pod) -> Option<String> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).find_map(|volume| volume.secret.as_ref()?.secret_name.clone())
}

fn words_of(condition: &PodCondition) -> String {
    condition.message.clone().or_else(|| condition.reason.clone()).unwrap_or_default()
}

fn waiting_of(container: &ContainerStatus) -> Option<(String, String)> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()))
}

fn ended(
    reason: Option<String>,
    message: Option<String>,
    given_up: Option<&PodCondition>,
    container: Option<&ContainerStatus>,
) -> Option<String> {
    if let Some(reason) = reason {
        let message = message.map(|m| format!(": {m}")).unwrap_or_default();
        return Some(format!("its pod was ended by the cluster: {reason}{message}"));
    }
    if let Some(given_up) = given_up {
        return Some(format!("its pod was given up by the cluster: {}", words_of(given_up)));
    }
    let container = container?;
    let now = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    let end = now.or_else(|| container.last_state.as_ref().and_then(|state| state.terminated.as_ref()))?;
    Some(match end.reason.as_deref() {
        Some("OOMKilled") => "its container ran out of memory".into(),
        _ => format!("its container ended with status {}", end.exit_code),
    })
}

pub(super) struct World {
    state: Mutex<State>,
    /// Whether both watches have seen everything.
    complete: watch::Sender<bool>,
    news: Notify,
    follows_claims: bool,
    tasks: Mutex<Vec<AbortHandle>>,
}

#[derive(Default)]
struct State {
    pods: HashMap<String, Arc<Seen>>,
    /// Desks that have a home in a claim.
    homes: HashSet<String>,
    /// Pods whose end we ordered: it is no news.
    ours: HashSet<String>,
    waiters: HashMap<String, Arc<Notify>>,
    /// What a watch sees while it begins anew.
    new_pods: HashMap<String, Arc<Seen>>,
    new_homes: HashSet<String>,
    pods_complete: bool,
    homes_complete: bool,
    /// Why a watch is broken.
    broken: Option<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl World {
    /// Begins to watch.
    pub(super) fn follow(cluster: &Arc<Cluster>, fleet: &str, claims: bool) -> Arc<Self> {
        let state = State { homes_complete: !claims, ..State::default() };
        let world = Arc::new(Self {
            state: Mutex::new(state),
            complete: watch::Sender::new(false),
            news: Notify::new(),
            follows_claims: claims,
            tasks: Mutex::default(),
        });
        let wanted = watcher::Config::default().labels(&format!("{LABEL_FLEET}={fleet}")).timeout(WATCH_S);
        let pods = kube::runtime::watcher(cluster.api::<Pod>(), wanted.clone()).default_backoff();
        let mut tasks = vec![tokio::spawn(keep(Arc::downgrade(&world), pods, World::pod_event)).abort_handle()];
        if claims {
            let claims = cluster.api::<PartialObjectMeta<PersistentVolumeClaim>>();
            let claims = kube::runtime::watcher(claims, wanted).default_backoff();
            tasks.push(tokio::spawn(keep(Arc::downgrade(&world), claims, World::claim_event)).abort_handle());
        }
        *world.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        world
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything was seen once.
    pub(super) async fn synced(&self) -> Result<()> {
        let mut complete = self.complete.subscribe();
        let seen = tokio::time::timeout(FIRST_LOOK, complete.wait_for(|complete| *complete)).await;
        match seen {
            Ok(Ok(_)) => Ok(()),
            _ => Err(away(self.state().broken.clone().unwrap_or_else(|| "the watch has not seen everything yet".into()))),
        }
    }

    /// Returns when a Pod that ran does not any more, and we have not ended it.
    pub(super) async fn changed(&self) {
        self.news.notified().await;
    }

    pub(super) fn is_broken(&self) -> bool {
        self.state().broken.is_some()
    }

    /// The API server answers again; the watch goes on by itself.
    pub(super) fn mend(&self) {
        self.state().broken = None;
    }

    /// Desks that exist, with their Pod if there is one.
    pub(super) fn all(&self) -> Result<Vec<(String, Option<Arc<Seen>>)>> {
        let state = self.state();
        if let Some(reason) = &state.broken {
            return Err(away(reason.clone()));
        }
        let mut all: Vec<_> = state.pods.iter().map(|(id, seen)| (id.clone(), Some(Arc::clone(seen)))).collect();
        all.extend(state.homes.iter().filter(|id| !state.pods.contains_key(*id)).map(|id| (id.clone(), None)));
        Ok(all)
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Seen>> {
        self.state().pods.get(id).cloned()
    }

    /// A Pod that we know before the watch tells.
    pub(super) fn note(&self, id: &str, pod: &Pod) -> Arc<Seen> {
        let seen = Arc::new(Seen::of(pod));
        let mut state = self.state();
        state.ours.remove(id);
        match state.pods.get(id) {
            Some(known) if known.uid == seen.uid => Arc::clone(known),
            _ => {
                state.pods.insert(id.to_owned(), Arc::clone(&seen));
                seen
            }
        }
    }

    /// A Pod that we know to be gone before the watch tells.
    pub(super) fn forget(&self, id: &str, uid: &str) {
        let mut state = self.state();
        if state.pods.get(id).is_some_and(|seen| seen.uid == uid) {
            state.pods.remove(id);
        }
    }

    /// We are about to end its Pod.
    pub(super) fn expect_end(&self, id: &str) {
        self.state().ours.insert(id.to_owned());
    }

    pub(super) fn note_home(&self, id: &str, exists: bool) {
        let mut state = self.state();
        if exists && self.follows_claims {
            state.homes.insert(id.to_owned());
        } else {
            state.homes.remove(id);
        }
    }

    /// Waits until `done` has an answer about a desk's Pod.
    pub(super) async fn wait<T>(&self, id: &str, until: Instant, mut done: impl FnMut(Option<&Seen>) -> Option<T>) -> Option<T> {
        let wake = Arc::clone(self.state().waiters.entry(id.to_owned()).or_default());
        let answer = loop {
            let told = wake.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let seen = self.get(id);
            if let Some(answer) = done(seen.as_deref()) {
                break Some(answer);
            }
            if tokio::time::timeout_at(until, told).await.is_err() {
                break done(self.get(id).as_deref());
            }
        };
        let mut state = self.state();
        // The map's and ours.
        if Arc::strong_count(&wake) <= 2 {
            state.waiters.remove(id);
        }
        answer
    }

    fn pod_event(&self, event: Event<Pod>) {
        let mut state = self.state();
        match event {
            Event::Init => state.new_pods.clear(),
            Event::InitApply(pod) => {
                if let Some(id) = id_of(&pod) {
                    state.new_pods.insert(id, Arc::new(Seen::of(&pod)));
                }
            }
            Event::InitDone => {
                let new = std::mem::take(&mut state.new_pods);
                let old = std::mem::replace(&mut state.pods, new);
                state.pods_complete = true;
                for id in old.keys().chain(state.pods.keys()) {
                    if let Some(wake) = state.waiters.get(id) {
                        wake.notify_waiters();
                    }
                }
                self.news.notify_one();
            }
            Event::Apply(pod) => {
                let Some(id) = id_of(&pod) else { return };
                let seen = Arc::new(Seen::of(&pod));
                let ran = state.pods.get(&id).is_some_and(|old| old.is_running());
                if ran && !seen.is_running() && !state.ours.contains(&id) {
                    self.news.notify_one();
                }
                state.pods.insert(id.clone(), seen);
                state.wake(&id);
            }
            Event::Delete(pod) => {
                let Some(id) = id_of(&pod) else { return };
                let uid = pod.uid().unwrap_or_default();
                if state.pods.get(&id).is_some_and(|seen| seen.uid == uid) {
                    let ran = state.pods.remove(&id).is_some_and(|old| old.is_running());
                    if !state.ours.remove(&id) && ran {
                        self.news.notify_one();
                    }
                }
                state.wake(&id);
            }
        }
        self.tell_complete(&state);
    }

    fn claim_event<K: Resource>(&self, event: Event<K>) {
        let mut state = self.state();
        match event {
            Event::Init => state.new_homes.clear(),
            // One that is being deleted is no home any more.
            Event::InitApply(claim) => {
                if let Some(id) = id_of(&claim).filter(|_| claim.meta().deletion_timestamp.is_none()) {
                    state.new_homes.insert(id);
                }
            }
            Event::InitDone => {
                state.homes = std::mem::take(&mut state.new_homes);
                state.homes_complete = true;
            }
            Event::Apply(claim) if claim.meta().deletion_timestamp.is_none() => {
                if let Some(id) = id_of(&claim) {
                    state.homes.insert(id);
                }
            }
            Event::Apply(claim) | Event::Delete(claim) => {
                if let Some(id) = id_of(&claim) {
                    state.homes.remove(&id);
                }
            }
        }
        self.tell_complete(&state);
    }

    fn tell_complete(&self, state: &State) {
        if state.pods_complete && state.homes_complete {
            self.complete.send_if_modified(|complete| !std::mem::replace(complete, true));
        }
    }
}

impl State {
    fn wake(&self, id: &str) {
        if let Some(wake) = self.waiters.get(id) {
            wake.notify_waiters();
        }
    }
}

/// The desk that an object belongs to. Claims of volumes belong to none.
fn id_of(object: &impl Resource) -> Option<String> {
    object.meta().labels.as_ref()?.get(LABEL_DESK).cloned()
}

/// Takes the events of one watch until nobody is interested any more.
async fn keep<K: Send>(
    world: std::sync::Weak<World>,
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
    take: impl Fn(&World, Event<K>) + Send,
) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let Some(world) = world.upgrade() else { return };
        match event {
            Ok(event) => {
                // A watch that begins anew says so before it has seen anything.
                let begins = matches!(event, Event::Init);
                take(&world, event);
                if !begins {
                    world.state().broken = None;
                }
            }
            Err(error) => {
                let reason = chain(&error);
                tracing::warn!(reason, "a watch is broken; it begins anew");
                world.state().broken = Some(reason);
            }
        }
    }
}
