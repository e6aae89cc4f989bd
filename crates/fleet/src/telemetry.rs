//! All metrics of the fleet, as functions, so that their names and labels stand in one place.

use crate::store::Record;
use hotdesk_api::desk::State;
use metrics::{counter, gauge, histogram};
use std::time::Duration;

/// The name of a state, as the API writes it.
pub fn word(state: State) -> &'static str {
    match state {
        State::Creating => "creating",
        State::Running => "running",
        State::Stopping => "stopping",
        State::Stopped => "stopped",
        State::Starting => "starting",
        State::Resetting => "resetting",
        State::Archiving => "archiving",
        State::Archived => "archived",
        State::Restoring => "restoring",
        State::Deleting => "deleting",
        State::Deleted => "deleted",
        State::Error => "error",
    }
}

/// A desk came into a state. How many are in each is counted where they are listed, so that it is right after a restart too.
pub(crate) fn moved(record: &Record) {
    counter!("hotdesk_transitions_total", "state" => word(record.state), "provider" => record.provider.clone()).increment(1);
}

/// A step came to its end, good or bad.
pub(crate) fn step(state: State, provider: &str, good: bool, took: Duration) {
    let result = if good { "done" } else { "failed" };
    histogram!("hotdesk_step_seconds", "step" => word(state), "provider" => provider.to_owned(), "result" => result).record(took);
}

/// A create was in one stage for so long. Numbers and names in a stage are left out, so that there are few of them.
pub(crate) fn stage(provider: &str, stage: &str, took: Duration) {
    let stage = stage.split(|c: char| c.is_ascii_digit() || matches!(c, ':' | '(' | '`' | '/')).next().unwrap_or_default().trim();
    histogram!("hotdesk_create_stage_seconds", "provider" => provider.to_owned(), "stage" => stage.to_owned()).record(took);
}

pub(crate) fn claim(template: &str, hit: bool) {
    let result = if hit { "hit" } else { "miss" };
    counter!("hotdesk_pool_claims_total", "template" => template.to_owned(), "result" => result).increment(1);
}

pub(crate) fn pool(template: &str, target: u32, ready: u32) {
    gauge!("hotdesk_pool_target", "template" => template.to_owned()).set(target);
    gauge!("hotdesk_pool_ready", "template" => template.to_owned()).set(ready);
}

pub(crate) fn reconcile(took: Duration) {
    histogram!("hotdesk_reconcile_seconds").record(took);
}

pub(crate) fn orphan(provider: &str, what: &'static str) {
    counter!("hotdesk_orphans_removed_total", "provider" => provider.to_owned(), "what" => what).increment(1);
}

/// Work in the background panicked.
pub(crate) fn panicked(task: &'static str) {
    counter!("hotdesk_task_panics_total", "task" => task).increment(1);
}

/// Things without a record that are kept: to be removed later, or until somebody decides.
pub(crate) fn orphans(provider: &str, what: &'static str, kept: usize) {
    gauge!("hotdesk_orphans", "provider" => provider.to_owned(), "what" => what).set(u32::try_from(kept).unwrap_or(u32::MAX));
}

pub(crate) fn provider_up(provider: &str, up: bool) {
    gauge!("hotdesk_provider_up", "provider" => provider.to_owned()).set(if up { 1.0 } else { 0.0 });
}

pub(crate) fn store(what: &'static str, took: Duration) {
    histogram!("hotdesk_store_seconds", "what" => what).record(took);
}

pub(crate) fn refused(why: &'static str) {
    counter!("hotdesk_refused_total", "why" => why).increment(1);
}

/// Money spent since the last call, in millionths.
pub(crate) fn cost(project: &str, provider: &str, micro: i64) {
    counter!("hotdesk_cost_micro_total", "project" => project.to_owned(), "provider" => provider.to_owned())
        .increment(u64::try_from(micro).unwrap_or(0));
}
