//! One desk's Pod: made, waited for, found, ended.

use super::cluster::Fault;
use super::pod::{self, Recipe};
use super::world::{Phase, Seen, World};
use super::{Kubernetes, OnNodeLoss};
use crate::{DeskSpec, Door, Error, Placed, Progress, Result};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, LogParams, PostParams, Preconditions};
use rand::RngExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pulling an image that no node has takes minutes; a desk whose image is there is up in a second.
const UP_LIMIT: Duration = Duration::from_secs(240);
/// From its container's start to a desk that is ready.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// Pauses between two looks at a desk that starts. It takes some 200 ms, and there may be hundreds of them.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(400);
/// A Pod is gone so soon after its delete, unless its node does not answer.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Seconds that programs have to end when their desk is stopped.
const END_S: u32 = 3;
/// How often a Pod is made anew because another one was in the way.
const MAKE_TRIES: u32 = 5;
/// How long an image that can't be pulled is waited for: registries fail for moments.
const PULL_LIMIT: Duration = Duration::from_secs(60);
/// Lines of the log in the reason why a desk did not come up.
const LAST_LINES: i64 = 8;
/// Letters and digits in the name of a Pod's Secret.
const NAME_LETTERS: usize = 6;

impl Kubernetes {
    /// Makes the desk's Pod, or takes the one that is there, and waits until the desk is ready.
    pub(super) async fn make(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let _turn = self.turn(progress).await;
        progress.stage("making the pod");
        self.guard().await?;
        self.ensure_claims(spec).await?;
        let seen = self.ensure_pod(spec).await?;
        self.ready(spec, seen, progress).await
    }

    /// Starts a desk again, with its files if they are kept.
    pub(super) async fn start_again(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        let seen = self.find(&spec.id).await?;
        if let Some(seen) = &seen
            && !seen.is_over()
        {
            return self.make(spec, progress).await;
        }
        if self.config.storage_class.is_some() {
            if !self.has_home(&spec.id).await? {
                return Err(Error::NotFound("the claim of its home is not in the cluster any more".into()));
            }
        } else if self.config.on_node_loss == OnNodeLoss::Error {
            let why = seen.map_or_else(|| "its pod is not in the cluster any more".into(), |seen| seen.why());
            return Err(Error::NotFound(why));
        }
        self.make(spec, progress).await
    }

    async fn turn(&self, progress: &Progress) -> Option<tokio::sync::SemaphorePermit<'_>> {
        if let Ok(turn) = self.starts.try_acquire() {
            return Some(turn);
        }
        progress.stage("waiting for a turn");
        self.starts.acquire().await.ok()
    }

    /// Whether the API server answers a small question.
    pub(super) async fn answers(&self) -> bool {
        let Ok(cluster) = self.cluster().await else { return false };
        let api = cluster.api::<Pod>();
        let one = ListParams::default().limit(1);
        tokio::time::timeout(Duration::from_secs(5), api.list_metadata(&one)).await.is_ok_and(|answer| answer.is_ok())
    }

    /// The desk's Pod as the cluster has it now.
    async fn find(&self, id: &str) -> Result<Option<Arc<Seen>>> {
        let world = self.world().await?;
        if let Some(seen) = world.get(id) {
            return Ok(Some(seen));
        }
        // Made by another orchestrator a moment ago, perhaps.
        let cluster = self.cluster().await?;
        let api = cluster.api::<Pod>();
        let name = self.pod_name(id);
        match cluster.ask("look at a pod", || api.get(&name)).await {
            Ok(pod) => Ok(Some(world.note(id, &pod))),
            Err(Fault::Missing) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// A Pod that may come up, with its Secret.
    async fn ensure_pod(&self, spec: &DeskSpec) -> Result<Arc<Seen>> {
        let world = self.world().await?;
        let cluster = self.cluster().await?;
        let api = cluster.api::<Pod>();
        let name = self.pod_name(&spec.id);
        let letters: String = rand::rng()
            .sample_iter(rand::distr::Alphanumeric)
            .take(NAME_LETTERS)
            .map(|c| char::from(c.to_ascii_lowercase()))
            .collect();
        let recipe = Recipe {
            fleet: &self.context.fleet,
            secret: format!("{name}-{letters}"),
            name,
            config: &self.config,
            spec,
            template: pod::template(&self.context.images, &spec.template)?,
        };
        let wanted = recipe.pod()?;
        let params = PostParams::default();
        for _ in 0..MAKE_TRIES {
            let seen = match world.get(&spec.id) {
                Some(seen) => seen,
                None => match cluster.ask("make a pod", || api.create(&params, &wanted)).await {
                    Ok(pod) => world.note(&spec.id, &pod),
                    Err(Fault::Exists) => match self.find(&spec.id).await? {
                        Some(seen) => seen,
                        None => continue,
                    },
                    Err(fault) => return Err(explained(fault.into())),
                },
            };
            if seen.is_over() {
                self.end_pod(&spec.id).await?;
                continue;
            }
            self.ensure_secret(&recipe, &seen).await?;
            return Ok(seen);
        }
        Err(Error::Failed("its pod is deleted by somebody else as soon as it is made".into()))
    }

    async fn ensure_secret(&self, recipe: &Recipe<'_>, seen: &Seen) -> Result<()> {
        let Some(name) = seen.secret.as_deref().filter(|_| seen.phase == Phase::Pending) else { return Ok(()) };
        let secret = recipe.secret(name, &seen.uid)?;
        let cluster = self.cluster().await?;
        let api = cluster.api::<Secret>();
        let params = PostParams::default();
        match cluster.ask("make a secret", || api.create(&params, &secret)).await {
            Ok(_) | Err(Fault::Exists) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Waits until the Pod runs and its desk is ready.
    async fn ready(&self, spec: &DeskSpec, seen: Arc<Seen>, progress: &Progress) -> Result<Placed> {
        let world = self.world().await?;
        let seen = match seen.is_running() {
            true => seen,
            false => self.running(world, &spec.id, &seen, progress).await?,
        };
        self.doors.choose(seen.ip, self.cluster().await?, &self.pod_name(&spec.id)).await;
        let placed = self.placed(&spec.id, &seen)?;
        let door = Door { address: placed.address.clone(), secret: spec.secret.clone() };
        let end = Instant::now() + READY_LIMIT;
        tokio::select! {
            outcome = answers(&door, end, progress) => match outcome {
                Ok(()) => Ok(placed),
                Err(last) => Err(Error::NotReady(format!("after {} s it was still at: {last}", READY_LIMIT.as_secs()))),
            },
            Some(why) = world.wait(&spec.id, end + READY_LIMIT, |now| ended(now, &seen)) => {
                Err(Error::NotReady(self.with_last_words(&spec.id, why).await))
            }
        }
    }

    /// Waits until a node runs the Pod.
    async fn running(&self, world: &World, id: &str, first: &Seen, progress: &Progress) -> Result<Arc<Seen>> {
        let begun = Instant::now();
        let schedule = Duration::from_secs(self.config.schedule_s.into());
        loop {
            let now = world.get(id);
            if let Some(why) = ended(now.as_deref(), first) {
                return Err(Error::NotReady(self.with_last_words(id, why).await));
            }
            let Some(seen) = now else { continue };
            if seen.is_running() {
                return Ok(seen);
            }
            let (stage, limit, failure) = waiting_for(&seen, schedule);
            progress.stage(stage);
            if begun.elapsed() >= limit {
                return Err(failure);
            }
            let until = (begun + limit).min(begun + UP_LIMIT);
            world.wait(id, until, |now| (now != Some(seen.as_ref())).then_some(())).await;
        }
    }

    /// Where a running desk is.
    pub(super) fn placed(&self, id: &str, seen: &Seen) -> Result<Placed> {
        let address = self.doors.address(id, seen.ip, self.cluster.get(), &self.pod_name(id))?;
        Ok(Placed { address, handle: json!({"pod": self.pod_name(id), "uid": seen.uid, "node": seen.node}) })
    }

    /// Ends a desk's Pod and waits until it is gone.
    pub(super) async fn end_pod(&self, id: &str) -> Result<()> {
        self.doors.close(id);
        let world = self.world().await?;
        let Some(seen) = self.find(id).await? else { return Ok(()) };
        world.expect_end(id);
        let lost = seen.node_lost || seen.node.is_none();
        self.delete_pod(id, &seen.uid, if lost { 0 } else { END_S }).await?;
        let uid = seen.uid.clone();
        let gone = |now: Option<&Seen>| now.is_none_or(|now| now.uid != uid).then_some(());
        if world.wait(id, Instant::now() + END_LIMIT, gone).await.is_some() {
            return Ok(());
        }
        // Its node does not answer. Nobody can reach the desk any more, and the kubelet ends it when it is back.
        tracing::warn!(desk = id, node = seen.node, "the node does not confirm the end of the pod; it is struck off");
        self.delete_pod(id, &seen.uid, 0).await?;
        world.forget(id, &seen.uid);
        Ok(())
    }

    async fn delete_pod(&self, id: &str, uid: &str, grace_s: u32) -> Result<()> {
        let cluster = self.cluster().await?;
        let api = cluster.api::<Pod>();
        let name = self.pod_name(id);
        // Never one that was made since.
        let same = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::default().grace_period(grace_s).preconditions(same);
        match cluster.ask("delete a pod", || api.delete(&name, &params)).await {
            Ok(_) => Ok(()),
            Err(Fault::Missing) => {
                self.world().await?.forget(id, uid);
                Ok(())
            }
            // Another one has its name now: this one is gone.
            Err(Fault::Other(Error::Failed(message))) if message.contains("UID in precondition") => {
                self.world().await?.forget(id, uid);
                Ok(())
            }
            Err(fault) => Err(fault.into()),
        }
    }

    pub(super) async fn pod_logs(&self, id: &str, lines: usize) -> Result<String> {
        let Some(seen) = self.find(id).await? else {
            return Err(Error::NotFound("its pod is not in the cluster any more, and its log went with it".into()));
        };
        // A silent node is not asked, because every question would take seconds: what the cluster says is all there is.
        if seen.node_lost {
            return Ok(format!("{}\n", seen.why()));
        }
        let cluster = self.cluster().await?;
        let api = cluster.api::<Pod>();
        let name = self.pod_name(id);
        let of = |previous: bool| LogParams {
            container: Some(super::world::CONTAINER.into()),
            tail_lines: i64::try_from(lines).ok(),
            previous,
            ..LogParams::default()
        };
        let mut text = String::new();
        if seen.restarts > 0 {
            let params = of(true);
            text = cluster.ask("read a log", || api.logs(&name, &params)).await.unwrap_or_default();
        }
        let params = of(false);
        match cluster.ask("read a log", || api.logs(&name, &params)).await {
            Ok(now) => text.push_str(&now),
            Err(_) if !text.is_empty() => {}
            Err(fault) => return Err(fault.into()),
        }
        let skip = text.lines().count().saturating_sub(lines);
        Ok(text.lines().skip(skip).flat_map(|line| [line, "\n"]).collect())
    }

    async fn with_last_words(&self, id: &str, why: String) -> String {
        let limit = Duration::from_secs(2);
        let logs = tokio::time::timeout(limit, self.pod_logs(id, LAST_LINES as usize)).await;
        match logs {
            Ok(Ok(logs)) if !logs.trim().is_empty() => format!("{why}; it said: {}", logs.trim()),
            _ => why,
        }
    }
}

/// Asks until the desk says that it is ready; or its last stage.
async fn answers(door: &Door, end: Instant, progress: &Progress) -> Result<(), String> {
    let mut pause = FIRST_LOOK;
    let mut last = String::from("its server does not listen yet");
    progress.stage("starting the desk");
    loop {
        match door.health().await {
            Ok(health) if health.ready => return Ok(()),
            Ok(health) => {
                progress.stage(health.stage.clone());
                last = health.stage;
            }
            Err(_) => {}
        }
        if Instant::now() > end {
            return Err(last);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LAST_LOOK);
    }
}

/// Why a Pod that was waited for won't come up; none while it may.
fn ended(now: Option<&Seen>, first: &Seen) -> Option<String> {
    match now {
        Some(seen) if seen.uid != first.uid => Some("its pod was replaced by somebody else".into()),
        Some(seen) if seen.is_over() || seen.restarts > first.restarts => Some(seen.why()),
        Some(_) => None,
        None => Some("its pod was removed by somebody else".into()),
    }
}

/// What a Pod is waiting for, for how long, and what it means if that is over.
fn waiting_for(seen: &Seen, schedule: Duration) -> (String, Duration, Error) {
    if let Some(reason) = &seen.no_node {
        return ("waiting for a node with room".into(), schedule, Error::Full(format!("no node takes the desk: {reason}")));
    }
    if let Some((reason, message)) = &seen.waiting {
        let words = if message.is_empty() { reason.clone() } else { message.clone() };
        return match reason.as_str() {
            "ErrImagePull" | "ImagePullBackOff" => {
                let failure = Error::NotFound(format!("its image can't be pulled: {words}"));
                ("waiting for the image".into(), PULL_LIMIT, failure)
            }
            "ErrImageNeverPull" | "InvalidImageName" => {
                ("looking for the image".into(), Duration::ZERO, Error::NotFound(format!("its image is not there: {words}")))
            }
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                ("making the container".into(), PULL_LIMIT, Error::NotReady(format!("its container can't be made: {words}")))
            }
            _ => ("making the container".into(), UP_LIMIT, late(&words)),
        };
    }
    match &seen.node {
        Some(node) => (format!("starting on {node}"), UP_LIMIT, late("its container starts")),
        None => ("waiting for a node".into(), schedule, Error::Full("the scheduler has not chosen a node".into())),
    }
}

fn late(stage: &str) -> Error {
    Error::NotReady(format!("after {} s it was still at: {stage}", UP_LIMIT.as_secs()))
}

/// A refusal by the namespace's own rules names what to do.
fn explained(error: Error) -> Error {
    match error {
        Error::Failed(message) if message.contains("violates PodSecurity") => {
            Error::Failed(format!("{message}; desks keep to the restricted standard, so the namespace asks for more than that"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: serde_json::Value) -> Seen {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}, "status": status});
        Seen::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_a_pod_waits_for_is_told() {
        let schedule = Duration::from_secs(9);
        let none = seen(
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}),
        );
        let (_, limit, failure) = waiting_for(&none, schedule);
        assert_eq!(limit, schedule);
        assert!(matches!(failure, Error::Full(reason) if reason.contains("0/3 nodes")));
        let image = seen(
            json!({"phase": "Pending", "containerStatuses": [{"name": "desk", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImageNeverPull", "message": "no such image"}}}]}),
        );
        let (_, limit, failure) = waiting_for(&image, schedule);
        assert!(limit.is_zero() && matches!(failure, Error::NotFound(_)));
    }

    #[test]
    fn ends_have_reasons() {
        let evicted = seen(json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}));
        assert!(evicted.is_over() && evicted.why().contains("low on resource"), "{}", evicted.why());
        let memory = seen(
            json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": "desk", "image": "", "imageID": "", "ready": false, "restartCount": 2,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}),
        );
        assert!(memory.is_over() && !memory.is_running() && memory.why().contains("out of memory"), "{}", memory.why());
        let fine = seen(json!({"phase": "Running", "podIP": "10.0.0.1"}));
        assert!(fine.is_running() && ended(Some(&fine), &fine).is_none());
        let other = Seen { uid: "other".into(), ..fine.clone() };
        assert!(ended(Some(&fine), &other).is_some() && ended(None, &fine).is_some() && ended(Some(&memory), &fine).is_some());
    }

    #[test]
    fn a_pod_of_a_lost_node_is_known() {
        let pod = json!({"metadata": {"name": "p", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"containers": [], "nodeName": "n1"},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "DisruptionTarget", "status": "True",
                "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint"}]}});
        let seen = Seen::of(&serde_json::from_value(pod).unwrap());
        assert!(seen.node_lost && !seen.is_running() && seen.why().contains("n1"), "{seen:?}");
    }
}
