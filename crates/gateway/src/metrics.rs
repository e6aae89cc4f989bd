//! Numbers for Prometheus: those that are counted as things happen, and those that are looked up when somebody asks.
//!
//! What belongs to one desk is never counted in the process-wide recorder, which forgets nothing: it is written anew for each
//! scrape, so that a deleted desk is gone.

use crate::app::App;
use crate::route::Class;
use futures_util::StreamExt;
use hotdesk_api::desk::{Desk, State};
use hotdesk_api::fleet::Scope;
use hotdesk_fleet::{Filter, Who};
use hotdesk_provider::Usage;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::fmt::Write;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Connections that were refused because there were too many.
pub(crate) const REFUSED_CONNECTIONS: &str = "hotdesk_connections_refused_total";
const REQUESTS: &str = "hotdesk_http_request_seconds";
const DESK_REQUESTS: &str = "hotdesk_desk_request_seconds";
const TUNNELS: &str = "hotdesk_tunnels";
const EVENT_STREAMS: &str = "hotdesk_event_streams";
const DROPPED_STREAMS: &str = "hotdesk_event_streams_dropped_total";
const RETRIES: &str = "hotdesk_desk_retries_total";

/// From a quarter of a millisecond, which a screenshot that did not change takes, to minutes, which a first desk may take.
const SECONDS: [f64; 18] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];

/// How long numbers of desks are good: each costs a look into the desk's cgroup or a call to a daemon.
const USAGE_AGE: Duration = Duration::from_secs(10);
/// How long a scrape waits for them, and how many are asked for at a time.
const USAGE_TIME: Duration = Duration::from_secs(3);
const USAGE_AT_ONCE: usize = 8;

static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Starts to count. The recorder is the process's, so a second gateway shares it.
pub(crate) fn install() {
    RECORDER.get_or_init(|| {
        let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS).ok()?;
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics are recorded elsewhere already; /metrics shows only what is looked up");
            return None;
        }
        metrics::describe_histogram!(REQUESTS, "Time from a request's head to its answer's head.");
        metrics::describe_histogram!(DESK_REQUESTS, "Time from a request to the end of the desk's answer.");
        metrics::describe_gauge!(TUNNELS, "Upgraded connections to desks: live views, terminals, ports.");
        metrics::describe_gauge!(EVENT_STREAMS, "Open streams of events.");
        metrics::describe_counter!(DROPPED_STREAMS, "Streams of events that were ended because their reader was too slow.");
        metrics::describe_counter!(RETRIES, "Requests that were sent again on a new connection, because the kept one was dead.");
        metrics::describe_counter!(REFUSED_CONNECTIONS, "Connections that were refused because there were too many.");
        Some(handle)
    });
}

pub(crate) fn upkeep() {
    if let Some(Some(handle)) = RECORDER.get() {
        handle.run_upkeep();
    }
}

pub(crate) fn answered(class: Class, method: &axum::http::Method, status: u16, took: Duration) {
    let method = match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => known,
        _ => "OTHER",
    };
    let method = metrics::SharedString::from(method.to_owned());
    metrics::histogram!(REQUESTS, "class" => class.name(), "method" => method, "status" => status_class(status)).record(took);
}

pub(crate) fn desk_answered(class: Class, status: u16, took: Duration) {
    metrics::histogram!(DESK_REQUESTS, "class" => class.name(), "status" => status_class(status)).record(took);
}

pub(crate) fn retried() {
    metrics::counter!(RETRIES).increment(1);
}

pub(crate) fn stream_dropped() {
    metrics::counter!(DROPPED_STREAMS).increment(1);
}

/// Counts something as long as it lives.
pub(crate) struct Open(&'static str);

impl Open {
    pub(crate) fn tunnel() -> Self {
        metrics::gauge!(TUNNELS).increment(1.0);
        Self(TUNNELS)
    }

    pub(crate) fn event_stream() -> Self {
        metrics::gauge!(EVENT_STREAMS).increment(1.0);
        Self(EVENT_STREAMS)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics::gauge!(self.0).decrement(1.0);
    }
}

fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// Everything, in Prometheus' text form.
pub(crate) async fn render(app: &App) -> String {
    let mut text = RECORDER.get().and_then(Option::as_ref).map(PrometheusHandle::render).unwrap_or_default();
    let who = internal();
    if let Ok(info) = app.fleet.info().await {
        let mut family = Family::new(&mut text, "hotdesk_fleet_desks", "gauge", "Desks by state, as the store has them.");
        for (state, count) in &info.desks {
            family.line(&[("state", state)], f64::from(*count));
        }
        Family::new(&mut text, "hotdesk_fleet_desks_max", "gauge", "Most desks at once.").line(&[], f64::from(info.max_desks));
        Family::new(&mut text, "hotdesk_fleet_cpus", "gauge", "Processors of the machine.").line(&[], f64::from(info.cpus));
        Family::new(&mut text, "hotdesk_fleet_cpus_promised", "gauge", "Processors that desks were promised.")
            .line(&[], f64::from(info.cpus_promised));
        Family::new(&mut text, "hotdesk_fleet_memory_bytes", "gauge", "Memory of the machine.")
            .line(&[], info.memory_mib as f64 * MIB);
        Family::new(&mut text, "hotdesk_fleet_memory_promised_bytes", "gauge", "Memory that desks were promised.")
            .line(&[], info.memory_promised_mib as f64 * MIB);
    }
    if let Ok(costs) = app.fleet.costs(&who).await {
        let currency = costs.currency.as_str();
        let mut family = Family::new(&mut text, "hotdesk_cost_total", "counter", "Money spent by project, in all.");
        // A counter that appears with its first cent has no rate for it.
        if costs.by_project.is_empty() {
            family.line(&[("project", "default"), ("currency", currency)], 0.0);
        }
        for (project, cost) in &costs.by_project {
            family.line(&[("project", project), ("currency", currency)], *cost);
        }
        Family::new(&mut text, "hotdesk_cost_today", "gauge", "Money spent today.").line(&[("currency", currency)], costs.today);
    }
    if let Ok(pools) = app.fleet.pools(&who).await {
        let mut family =
            Family::new(&mut text, "hotdesk_fleet_pool_desks", "gauge", "Desks of pools: wanted, ready, on the way.");
        for pool in &pools {
            let template = pool.spec.template.as_str();
            for (what, count) in [("target", pool.target), ("ready", pool.ready), ("filling", pool.filling)] {
                family.line(&[("template", template), ("what", what)], f64::from(count));
            }
        }
    }
    desks(&mut text, &app.usage.get(app).await);
    text
}

const MIB: f64 = 1024.0 * 1024.0;

/// What one figure of a desk is.
type Figure = (&'static str, &'static str, &'static str, fn(&Usage) -> f64);

fn desks(text: &mut String, usage: &[(Desk, Usage)]) {
    let families: [Figure; 4] = [
        ("hotdesk_desk_cpu_seconds_total", "counter", "Processor time since the desk was started.", |u| u.cpu_s),
        ("hotdesk_desk_memory_bytes", "gauge", "Memory of the desk.", |u| u.memory_bytes as f64),
        ("hotdesk_desk_disk_bytes", "gauge", "Disk of the desk, without its template.", |u| u.disk_bytes as f64),
        ("hotdesk_desk_processes", "gauge", "Processes of the desk.", |u| f64::from(u.processes)),
    ];
    for (name, kind, help, figure) in families {
        let mut family = Family::new(text, name, kind, help);
        for (desk, usage) in usage {
            let labels = [
                ("desk", desk.id.as_str()),
                ("project", &desk.project),
                ("template", &desk.template),
                ("provider", &desk.provider),
            ];
            family.line(&labels, figure(usage));
        }
    }
}

/// The fleet's own eyes.
pub(crate) fn internal() -> Who {
    Who { key: "gateway".into(), name: "gateway".into(), scope: Scope::Admin }
}

/// What running desks use, kept for a moment so that scrapers do not multiply the cost.
#[derive(Default)]
pub(crate) struct UsageCache(Mutex<Option<Kept>>);

/// When it was asked, and what each desk used.
type Kept = (Instant, Vec<(Desk, Usage)>);

impl UsageCache {
    async fn get(&self, app: &App) -> Vec<(Desk, Usage)> {
        let mut kept = self.0.lock().await;
        if let Some((at, usage)) = &*kept
            && at.elapsed() < USAGE_AGE
        {
            return usage.clone();
        }
        let who = internal();
        let filter = Filter { state: Some(State::Running), ..Filter::default() };
        let running = app.fleet.desks(&who, filter).await.unwrap_or_default();
        let end = Instant::now() + USAGE_TIME;
        let asked = futures_util::stream::iter(running).map(|desk| async {
            let usage = tokio::time::timeout_at(end, app.fleet.usage(&who, &desk.id)).await.ok()?.ok()?;
            Some((desk, usage))
        });
        let usage: Vec<_> = asked.buffer_unordered(USAGE_AT_ONCE).filter_map(std::future::ready).collect().await;
        *kept = Some((Instant::now(), usage.clone()));
        usage
    }
}

/// One name with its lines.
struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl<'a> Family<'a> {
    fn new(text: &'a mut String, name: &'a str, kind: &str, help: &str) -> Self {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Self { text, name }
    }

    fn line(&mut self, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}", self.name);
        for (n, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.text, "{}{label}=\"{value}\"", if n == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_as_prometheus_reads_them() {
        let mut text = String::new();
        let mut family = Family::new(&mut text, "x", "gauge", "Help.");
        family.line(&[], 1.5);
        family.line(&[("a", "1\"2\\3\n"), ("b", "")], 2.0);
        assert_eq!(text, "# HELP x Help.\n# TYPE x gauge\nx 1.5\nx{a=\"1\\\"2\\\\3\\n\",b=\"\"} 2\n");
    }
}
