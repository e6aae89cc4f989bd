//! The life of an instance: made in the first zone that has room, awaited, stopped, started, removed.

use super::config::{Preempted, region};
use super::fault::{Fault, Outcome};
use super::instance::{Source, placed, rank};
use super::model::{Disk, Doing, Instance, Operation};
use super::{Gce, LABEL_DESK, LABEL_FLEET, NAME};
use crate::{DeskSpec, Door, Error, Found, Placed, Progress, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// An instance is made, or started, in half a minute; a day with much to do takes longer.
const START_LIMIT: Duration = Duration::from_secs(180);
/// From there the kernel and the session take seconds.
const READY_LIMIT: Duration = Duration::from_secs(180);
/// A guest that does not end is cut off by Google after 90 s. It will end for sure, so nobody waits for it here.
const STOP_LIMIT: Duration = Duration::from_secs(45);
/// The fleet's own limit is a little longer.
const DELETE_LIMIT: Duration = Duration::from_secs(110);
const LABEL_LIMIT: Duration = Duration::from_secs(30);
/// Pauses between two looks at a desk that does not listen yet.
const LOOK: Duration = Duration::from_millis(250);
/// Pauses between two looks at its instance.
const LOOK_AT_INSTANCE: Duration = Duration::from_secs(3);
/// What of the console goes into the reason of a failure.
const LAST_WORDS: usize = 5;
/// Disks that nobody uses are looked for so often, and removed when they are so old: an instance that is being made has its disk first.
const SWEEP: Duration = Duration::from_secs(600);
const YOUNG: Duration = Duration::from_secs(1800);
/// The preemption that the fleet was told of: see [`Preempted::Error`].
const LABEL_TOLD: &str = "hotdesk-preempted";

impl Gce {
    pub(super) async fn make(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.refuse(spec)?;
        progress.stage("looking for the instance");
        match self.find(&spec.id).await? {
            Some(instance) if instance.doing() == Doing::Running => self.ready(spec, instance, progress).await,
            Some(instance) => {
                let instance = self.start_again(spec, instance, progress).await?;
                self.ready(spec, instance, progress).await
            }
            None => {
                let source = self.source(spec, progress).await?;
                let instance = self.place(spec, &source, progress).await?;
                self.ready(spec, instance, progress).await
            }
        }
    }

    pub(super) async fn wake(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        progress.stage("looking for the instance");
        let Some(instance) = self.find(&spec.id).await? else {
            return Err(Error::NotFound(format!("the desk `{}` has no instance any more; somebody removed it", spec.id)));
        };
        if instance.doing() != Doing::Running && self.config.preempted == Preempted::Error {
            self.tell_of_preemption(&instance).await?;
        }
        let instance = match instance.doing() {
            Doing::Running => instance,
            _ => self.start_again(spec, instance, progress).await?,
        };
        self.ready(spec, instance, progress).await
    }

    /// Back to its template or snapshot. The old instance goes first: there is no way to put a new disk below a name that is taken.
    pub(super) async fn make_anew(&self, spec: &DeskSpec, progress: &Progress) -> Result<Placed> {
        self.refuse(spec)?;
        // Asked for first: a desk whose image is gone stays as it is.
        let source = self.source(spec, progress).await?;
        progress.stage("removing the old instance");
        self.remove(&spec.id).await?;
        let instance = self.place(spec, &source, progress).await?;
        self.ready(spec, instance, progress).await
    }

    pub(super) async fn put_to_rest(&self, id: &str) -> Result<()> {
        match self.find(id).await? {
            Some(instance) if instance.doing() == Doing::Running => {
                match self.api.post(&format!("{}/stop", Self::path(&instance)), None, STOP_LIMIT).await {
                    Ok(_) | Err(Fault::Gone(_)) => Ok(()),
                    Err(fault) => match self.find(id).await? {
                        Some(instance) if instance.doing() == Doing::Running => Err(fault.into()),
                        _ => Ok(()),
                    },
                }
            }
            _ => Ok(()),
        }
    }

    /// Every instance of the desk, should there be more than one.
    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        while let Some(instance) = self.find(id).await? {
            self.remove_instance(&instance).await?;
        }
        Ok(())
    }

    async fn remove_instance(&self, instance: &Instance) -> Outcome<()> {
        match self.api.delete(&Self::path(instance), DELETE_LIMIT).await {
            Ok(_) | Err(Fault::Gone(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    pub(super) async fn all(&self) -> Result<Vec<Found>> {
        let filter = format!("labels.{LABEL_FLEET} = \"{}\"", self.context.fleet);
        let mut kept: BTreeMap<String, Instance> = BTreeMap::new();
        for instance in self.api.list_everywhere::<Instance>("instances", &filter).await? {
            let Some(id) = instance.labels.get(LABEL_DESK).cloned() else { continue };
            // Snapshots of disks and the like have the label too; only what has our name is a desk.
            if instance.name != self.own_name(&id) {
                continue;
            }
            let surplus = match kept.remove(&id) {
                None => {
                    kept.insert(id, instance);
                    continue;
                }
                Some(other) if rank(&other) <= rank(&instance) => {
                    kept.insert(id, other);
                    instance
                }
                Some(other) => {
                    kept.insert(id, instance);
                    other
                }
            };
            tracing::warn!(instance = surplus.name, zone = surplus.zone(), "a second instance of a desk is removed");
            if let Err(fault) = self.remove_instance(&surplus).await {
                tracing::warn!(instance = surplus.name, ?fault, "it is not removed yet; trying again");
            }
        }
        let found = kept.into_iter().map(|(id, instance)| {
            let running = instance.doing() == Doing::Running;
            Found { id, running, placed: placed(&instance).filter(|_| running) }
        });
        Ok(found.collect())
    }

    /// Disks that an instance left behind. They cost money and are found by nobody.
    pub(super) async fn sweep_disks(&self) {
        {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.is_some_and(|at| at.elapsed() < SWEEP) {
                return;
            }
            *swept = Some(Instant::now());
        }
        let filter = format!("labels.{LABEL_FLEET} = \"{}\"", self.context.fleet);
        let disks: Vec<Disk> = match self.api.list_everywhere("disks", &filter).await {
            Ok(disks) => disks,
            Err(fault) => return tracing::warn!(?fault, "disks that nobody uses were not looked for"),
        };
        for disk in disks.into_iter().filter(|disk| disk.users.is_empty() && is_old(&disk.creation_timestamp)) {
            tracing::warn!(disk = disk.name, zone = disk.zone(), "a disk that no instance uses is removed");
            if let Err(fault) = self.api.delete(&format!("zones/{}/disks/{}", disk.zone(), disk.name), DELETE_LIMIT).await {
                tracing::warn!(disk = disk.name, ?fault, "it is not removed yet; trying again");
            }
        }
    }

    pub(super) async fn console(&self, id: &str, lines: usize) -> Result<String> {
        match self.find(id).await? {
            Some(instance) => Ok(self.console_of(&instance, lines).await?),
            None => Err(Error::NotFound(format!("the desk `{id}` has no instance"))),
        }
    }

    async fn console_of(&self, instance: &Instance, lines: usize) -> Outcome<String> {
        let answer: Value = self.api.get(&format!("{}/serialPort", Self::path(instance))).await?;
        let text = answer.get("contents").and_then(Value::as_str).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        Ok(all[all.len().saturating_sub(lines)..].iter().flat_map(|line| [*line, "\n"]).collect())
    }

    /// What this provider can't do for a desk is said before anything is spent.
    fn refuse(&self, spec: &DeskSpec) -> Result<()> {
        let refuse =
            |what: &str, reason: &str| Err(Error::Unsupported { provider: NAME, what: what.into(), reason: reason.into() });
        if !spec.network && self.config.closed_tag.is_none() {
            return refuse(
                "a desk without a network",
                "set `closed_tag` in [gce] and a firewall rule that closes the way out for it",
            );
        }
        if !spec.volumes.is_empty() {
            return refuse("a volume", "directories of this machine can't be mounted there");
        }
        Ok(())
    }

    /// Makes the instance in the first zone that has room.
    async fn place(&self, spec: &DeskSpec, source: &Source, progress: &Progress) -> Result<Instance> {
        let mut full: Option<Fault> = None;
        let mut used_up: Vec<&str> = Vec::new();
        for zone in &self.config.zones {
            if used_up.contains(&region(zone)) {
                continue;
            }
            progress.stage(format!("making the instance in {zone}"));
            let body = self.body(spec, source, zone)?;
            match self.api.post(&format!("zones/{zone}/instances"), Some(body), START_LIMIT).await {
                Ok(_) => return Ok(self.api.get(&format!("zones/{zone}/instances/{}", self.own_name(&spec.id))).await?),
                // An earlier call got through, or is still on its way.
                Err(Fault::Exists(why)) => {
                    return self.find(&spec.id).await?.ok_or_else(|| {
                        Fault::Away(format!("{why}; but there is no instance of this fleet with that name")).into()
                    });
                }
                Err(fault @ Fault::NoRoom(_)) => {
                    tracing::warn!(desk = spec.id, zone, ?fault, "the zone has no room; trying the next");
                    full = Some(fault);
                }
                Err(fault @ Fault::Quota(_)) => {
                    used_up.push(region(zone));
                    full = Some(fault);
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(full.map_or_else(|| Error::Failed("no zone was tried".into()), Error::from))
    }

    /// Starts an instance that is stopped or about to be, with its disk.
    async fn start_again(&self, spec: &DeskSpec, mut instance: Instance, progress: &Progress) -> Result<Instance> {
        let end = Instant::now() + START_LIMIT;
        while instance.doing() == Doing::Ending {
            if Instant::now() > end {
                return Err(Error::NotReady(format!(
                    "its instance is still {} after {} s",
                    instance.status,
                    START_LIMIT.as_secs()
                )));
            }
            progress.stage("waiting until the instance has stopped");
            tokio::time::sleep(LOOK_AT_INSTANCE).await;
            instance = self.api.get(&Self::path(&instance)).await?;
        }
        progress.stage(format!("starting the instance in {}", instance.zone()));
        match self.api.post(&format!("{}/start", Self::path(&instance)), None, START_LIMIT).await {
            Ok(_) => Ok(self.api.get(&Self::path(&instance)).await?),
            Err(fault @ (Fault::NoRoom(_) | Fault::Quota(_)))
                if instance.is_spot() && self.config.preempted == Preempted::Recreate =>
            {
                tracing::warn!(desk = spec.id, zone = instance.zone(), ?fault, "made anew in another zone, without its files");
                let source = self.source(spec, progress).await?;
                self.remove(&spec.id).await?;
                self.place(spec, &source, progress).await
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Waits until the desk in an instance says that it is ready.
    async fn ready(&self, spec: &DeskSpec, mut instance: Instance, progress: &Progress) -> Result<Placed> {
        let end = Instant::now() + START_LIMIT;
        while instance.status != "RUNNING" {
            if instance.doing() != Doing::Running {
                return Err(Error::NotReady(self.how_it_ended(&instance).await));
            }
            if Instant::now() > end {
                return Err(Error::NotReady(format!(
                    "its instance is still {} after {} s",
                    instance.status,
                    START_LIMIT.as_secs()
                )));
            }
            progress.stage(format!("the instance is {}", instance.status.to_lowercase()));
            tokio::time::sleep(LOOK_AT_INSTANCE).await;
            instance = self.api.get(&Self::path(&instance)).await?;
        }
        let placed = placed(&instance).ok_or_else(|| Error::NotReady("its instance has no address".into()))?;
        progress.stage("waiting for the desk's server");
        let door = Door { address: placed.address.clone(), secret: spec.secret.clone() };
        let not_yet = async || {
            tokio::time::sleep(LOOK).await;
            None
        };
        tokio::select! {
            ready = door.wait_ready(READY_LIMIT, |stage| progress.stage(stage), not_yet) => ready?,
            how = self.until_it_ended(&instance) => return Err(Error::NotReady(how)),
        }
        Ok(placed)
    }

    /// Waits for the end of an instance, and says how it came to it.
    async fn until_it_ended(&self, instance: &Instance) -> String {
        loop {
            tokio::time::sleep(LOOK_AT_INSTANCE).await;
            match self.api.get::<Instance>(&Self::path(instance)).await {
                Ok(now) if now.doing() != Doing::Running => return self.how_it_ended(&now).await,
                Err(Fault::Gone(_)) => return "its instance was removed".into(),
                _ => {}
            }
        }
    }

    async fn how_it_ended(&self, instance: &Instance) -> String {
        let why = match self.preemption(instance).await {
            Ok(Some(_)) => "Google took its spot instance back".to_owned(),
            _ => format!("its instance is {}", instance.status),
        };
        match self.console_of(instance, LAST_WORDS).await {
            Ok(words) if !words.trim().is_empty() => format!("{why}; its last words were: {}", words.trim().replace('\n', " | ")),
            _ => why,
        }
    }

    /// The operation by which Google took the instance back since its last start.
    async fn preemption(&self, instance: &Instance) -> Outcome<Option<Operation>> {
        if !instance.is_spot() {
            return Ok(None);
        }
        let filter = format!("(operationType = \"compute.instances.preempted\") (targetId = \"{}\")", instance.id);
        let operations: Vec<Operation> = self.api.list(&format!("zones/{}/operations", instance.zone()), &filter).await?;
        let since = moment(&instance.last_start_timestamp);
        Ok(operations.into_iter().find(|operation| moment(&operation.insert_time) >= since))
    }

    /// Says once that the machine was taken back; who starts the desk after that gets it started.
    async fn tell_of_preemption(&self, instance: &Instance) -> Result<()> {
        let Some(operation) = self.preemption(instance).await? else { return Ok(()) };
        let mark = operation.name.chars().take(60).collect::<String>();
        if instance.labels.get(LABEL_TOLD) == Some(&mark) {
            return Ok(());
        }
        let mut labels = instance.labels.clone();
        labels.insert(LABEL_TOLD.into(), mark);
        let body = json!({ "labels": labels, "labelFingerprint": instance.label_fingerprint });
        self.api.post(&format!("{}/setLabels", Self::path(instance)), Some(body), LABEL_LIMIT).await?;
        Err(Error::Failed("Google took its spot instance back; its files are kept, start it to go on".into()))
    }
}

pub(super) fn moment(text: &str) -> Option<jiff::Timestamp> {
    text.parse().ok()
}

fn is_old(created: &str) -> bool {
    let young = jiff::SignedDuration::try_from(YOUNG).unwrap_or_default();
    moment(created).is_some_and(|created| jiff::Timestamp::now().duration_since(created) > young)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_old_after_a_while() {
        assert!(is_old("2020-01-01T00:00:00.000-07:00"));
        assert!(!is_old(&jiff::Timestamp::now().to_string()) && !is_old("") && !is_old("soon"));
        assert!(moment("2026-01-01T00:00:00.000-08:00") > moment("2026-01-01T00:00:00.000-07:00"));
    }
}
