//! Logs and traces of a process that serves a fleet.
//!
//! Logs go to stderr as text or as one JSON object a line; a line that was written while a request was answered has the request's
//! id, path and desk. Traces go to an OpenTelemetry collector (OTLP over HTTP) if the standard variables name one:
//! `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, with `OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` and `OTEL_BSP_*` as usual; `OTEL_SDK_DISABLED=true`
//! turns them off.

use crate::error::{Error, Result};
use axum::http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// What is logged when nothing is said.
pub const DEFAULT_FILTER: &str = "info";
const SERVICE: &str = "hotdesk";

/// How lines of the log look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Keeps traces flowing; [`Telemetry::close`] sends the last ones.
#[must_use]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Whether somebody collects traces.
static TRACED: AtomicBool = AtomicBool::new(false);

/// Sets up logs and traces of this process. `filter` as in `RUST_LOG`: `info`, `hotdesk_gateway=debug,warn`. Call it inside the
/// runtime, once.
pub fn init(format: Format, filter: &str) -> Result<Telemetry> {
    let traces = traces()?;
    let log = match format {
        Format::Text => {
            use std::io::IsTerminal;
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            tracing_subscriber::fmt::layer().with_ansi(colour).with_writer(std::io::stderr).boxed()
        }
        Format::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(true)
            .with_writer(std::io::stderr)
            .boxed(),
    };
    let filter = EnvFilter::try_new(filter).map_err(|e| Error::Settings(format!("`{filter}` is no filter of the log: {e}")))?;
    let spans = traces.as_ref().map(|provider| {
        // What the log leaves out of a request may still be of use in its trace, but not what every library says.
        let wanted = tracing_subscriber::filter::filter_fn(|meta| {
            meta.target().starts_with("hotdesk") && *meta.level() <= tracing::Level::INFO
        });
        tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE)).with_filter(wanted)
    });
    TRACED.store(spans.is_some(), Ordering::Relaxed);
    tracing_subscriber::registry()
        .with(log.with_filter(filter))
        .with(spans)
        .try_init()
        .map_err(|e| Error::Settings(format!("the log was set up already: {e}")))?;
    Ok(Telemetry { traces })
}

impl Telemetry {
    /// Sends what is left. Waits a few seconds at most.
    pub async fn close(self) {
        let Some(traces) = self.traces else { return };
        let ended = tokio::task::spawn_blocking(move || traces.shutdown()).await;
        if let Ok(Err(e)) = ended {
            tracing::warn!(error = %e, "the last traces were not sent");
        }
    }
}

fn traces() -> Result<Option<SdkTracerProvider>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let wanted = set("OTEL_EXPORTER_OTLP_ENDPOINT").or_else(|| set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"));
    if off || wanted.is_none() {
        return Ok(None);
    }
    // The client that sends them has no TLS of its own; a second call is no harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .build()
        .map_err(|e| Error::Settings(format!("traces can't be sent as the OTEL_ variables say: {e}")))?;
    let processor = BatchSpanProcessor::builder(exporter, opentelemetry_sdk::runtime::Tokio).build();
    let mut resource = Resource::builder();
    if set("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(SERVICE);
    }
    Ok(Some(SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource.build()).build()))
}

/// Puts a request's span below that of its client, if the client told its own (`traceparent`).
pub(crate) fn follow(span: &Span, headers: &HeaderMap) {
    if !TRACED.load(Ordering::Relaxed) || !headers.contains_key("traceparent") {
        return;
    }
    let parent = TraceContextPropagator::new().extract(&Headers(headers));
    // Fails only where nobody collects traces.
    let _ = span.set_parent(parent);
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(axum::http::HeaderName::as_str).collect()
    }
}
