//! What a sandbox uses: looked at when it is asked for, and remembered for a while.

use super::control::find;
use super::files::pairs;
use super::sandbox::cpus;
use crate::app::App;
use crate::refusal::Result;
use axum::Json;
use axum::response::{IntoResponse, Response};
use hotdesk_api::desk::{Desk, State};
use hotdesk_fleet::Who;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Samples that are remembered of each sandbox.
const KEPT: usize = 120;
/// Samples of a sandbox that nobody asked for so many seconds are forgotten.
const UNASKED: i64 = 3600;

/// Samples of all sandboxes.
#[derive(Default)]
pub(super) struct Samples(Mutex<HashMap<String, VecDeque<Sample>>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Timestamp,
    cpu_s: f64,
    /// Of one processor, between this sample and the one before.
    cpu_percent: f64,
    memory: u64,
    disk: u64,
}

impl Samples {
    pub(super) fn prune(&self) {
        let now = Timestamp::now().as_second();
        let fresh = |all: &VecDeque<Sample>| all.back().is_some_and(|last| now - last.at.as_second() < UNASKED);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, all| fresh(all));
    }

    fn add(&self, desk: &str, mut sample: Sample) -> Vec<Sample> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = table.entry(desk.into()).or_default();
        if let Some(before) = all.back() {
            let seconds = (sample.at.as_millisecond() - before.at.as_millisecond()) as f64 / 1000.0;
            if seconds > 0.0 {
                sample.cpu_percent = ((sample.cpu_s - before.cpu_s) / seconds * 100.0).max(0.0);
            }
        }
        all.push_back(sample);
        while all.len() > KEPT {
            all.pop_front();
        }
        all.iter().copied().collect()
    }
}

pub(super) async fn answer(app: &App, who: &Who, id: &str, query: &str) -> Result<Response> {
    let desk = find(app, who, id).await?;
    let pairs = pairs(query);
    let second = |name: &str| pairs.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.parse::<i64>().ok());
    if desk.state != State::Running {
        return Ok(Json(Vec::<Value>::new()).into_response());
    }
    let usage = app.fleet.usage(who, &desk.id).await?;
    let now = Timestamp::now();
    let sample =
        Sample { at: now, cpu_s: usage.cpu_s, cpu_percent: 0.0, memory: usage.memory_bytes.max(1), disk: usage.disk_bytes };
    let all = super::memory(app).samples.add(&desk.id, sample);
    let (start, end) = (second("start"), second("end"));
    let wanted = |sample: &&Sample| {
        let at = sample.at.as_second();
        start.is_none_or(|start| at >= start) && end.is_none_or(|end| at <= end)
    };
    Ok(Json(all.iter().filter(wanted).map(|sample| told(&desk, sample)).collect::<Vec<_>>()).into_response())
}

fn told(desk: &Desk, sample: &Sample) -> Value {
    let (memory, disk) = (desk.resources.memory_mib << 20, desk.resources.disk_mib << 20);
    let count = cpus(desk);
    json!({
        "timestamp": sample.at.to_string(),
        "timestampUnix": sample.at.as_second(),
        "cpuCount": count,
        "cpuUsedPct": sample.cpu_percent.min(f64::from(count) * 100.0),
        "memUsed": sample.memory.min(memory),
        "memTotal": memory,
        "memCache": 0,
        "diskUsed": sample.disk.min(disk),
        "diskTotal": disk,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_a_share_between_two_samples() {
        let samples = Samples::default();
        let sample =
            |second, cpu_s| Sample { at: Timestamp::from_second(second).unwrap(), cpu_s, cpu_percent: 0.0, memory: 1, disk: 1 };
        samples.add("d", sample(10, 1.0));
        let all = samples.add("d", sample(12, 2.0));
        assert!((all[1].cpu_percent - 50.0).abs() < 0.01, "{all:?}");
        for n in 0..KEPT as i64 {
            samples.add("d", sample(20 + n, 3.0));
        }
        assert_eq!(samples.add("d", sample(1000, 3.0)).len(), KEPT);
    }
}
