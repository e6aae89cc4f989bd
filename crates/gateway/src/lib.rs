//! How the world reaches desks: the API, proxying, keys, metrics.
//!
//! ```text
//!   connection   accept, TLS, HTTP/1.1 and HTTP/2, header and write time limits, number of connections
//!       └ entrance   the layers: credentials, route, admission, handler, metrics and audit
//!           └ dialects   who answers: other people's words (one table), and our own:
//!               ├ v1         the fleet: desks, snapshots, pools, keys, money, events, templates
//!               ├ vm         the four routes of `/vm`
//!               ├ page       the dashboard's files
//!               └ proxy      everything of a desk: its own API, its OSWorld dialect, any port; streamed, never buffered
//! ```
//!
//! ```no_run
//! # async fn example(fleet: hotdesk_fleet::Fleet, images: std::sync::Arc<hotdesk_image::Library>) -> Result<(), hotdesk_gateway::Error> {
//! let config = hotdesk_gateway::Config { listen: vec!["127.0.0.1:7700".parse()?], ..Default::default() };
//! let gateway = hotdesk_gateway::Gateway::bind(config, fleet, images).await?;
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! gateway.run(shutdown).await;
//! # Ok(()) }
//! ```

pub mod config;
pub mod dialects;
pub mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod listen;
pub mod openapi;
pub mod telemetry;

mod admission;
mod app;
mod audit;
mod body;
mod buffers;
mod connection;
mod credentials;
mod entrance;
mod forwarded;
mod guest;
mod limits;
mod metrics;
mod origin;
mod page;
mod proxy;
mod rates;
mod recent;
mod refusal;
mod route;
mod seal;
mod session;
mod shield;
mod tls;
mod v1;
mod vm;

#[cfg(test)]
mod tests;

pub use config::{Config, Rate, Rates, TlsFiles};
pub use dialects::daytona::Images;
pub use dialects::e2b::{Settings as E2bSettings, e2b_key};
pub use error::{Error, Result};
pub use listen::Address;

use app::App;
use connection::Connections;
use hotdesk_fleet::Fleet;
use hotdesk_image::Library;
use listen::Listener;
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;
use tokio_util::sync::CancellationToken;

/// How long requests that run may go on after the gateway was told to stop. Service managers kill after 90 s at the earliest;
/// a person who pressed Ctrl-C waits less gladly.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// How often connections that nobody uses are closed, and certificates looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(10);

/// A gateway that listens but does not answer yet.
pub struct Gateway {
    listeners: Vec<Listener>,
    tls: Option<Tls>,
    app: App,
}

impl Gateway {
    /// Takes the addresses and reads the certificate.
    pub async fn bind(config: Config, fleet: Fleet, images: Arc<Library>) -> Result<Self> {
        if config.listen.is_empty() {
            return Err(Error::Settings("there is no address to listen on".into()));
        }
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.push(Listener::bind(address).await?);
        }
        let app = App::new(config, fleet, images)?;
        Ok(Self { listeners, tls, app })
    }

    /// Where it listens, with the port that was chosen where 0 was asked for.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(Listener::address)
    }

    /// What to put before paths to reach it from this machine: `http://127.0.0.1:7700`. None if it listens on Unix sockets only.
    pub fn url(&self) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.addresses().find_map(|address| match address {
            Address::Tcp(address) if address.ip().is_unspecified() => Some(format!("{scheme}://127.0.0.1:{}", address.port())),
            Address::Tcp(address) => Some(format!("{scheme}://{address}")),
            Address::Unix(_) => None,
        })
    }

    /// Answers until `shutdown`; then lets running requests end, for a bounded time. Desks go on, clients come back.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listeners, tls, app } = self;
        let connections = match Connections::new(entrance::service(app.clone()), tls.as_ref(), app.config.connections) {
            Ok(connections) => connections,
            Err(e) => {
                tracing::error!(error = %e, "TLS can't be offered");
                return;
            }
        };
        let accepting = listeners.into_iter().map(|listener| {
            tracing::info!(address = %listener.address(), tls = tls.is_some(), "listening");
            tokio::spawn(connections.clone().accept(listener, shutdown.clone()))
        });
        let accepting: Vec<_> = accepting.collect();
        app.fleet.prepare_ahead(dialects::templates(&app.config));
        tokio::select! {
            _ = shutdown.cancelled() => {}
            _ = keep_house(&app, tls.as_ref()) => {}
        }
        // Streams of events and tunnels have no end of their own.
        app.closing.cancel();
        for task in accepting {
            // A panic there was told by the panic hook already.
            let _ = task.await;
        }
        app.tunnels.close();
        connections.finish(SHUTDOWN_LIMIT).await;
        let _ = tokio::time::timeout(SHUTDOWN_LIMIT, app.tunnels.wait()).await;
    }
}

/// Runs for ever.
async fn keep_house(app: &App, tls: Option<&Tls>) {
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    let mut tick = tokio::time::interval(HOUSEKEEPING);
    loop {
        let forced = tokio::select! {
            _ = tick.tick() => false,
            Some(()) = async { match &mut hangup { Some(signal) => signal.recv().await, None => std::future::pending().await } } => true,
        };
        if let Some(tls) = tls {
            tls.reload(forced);
        }
        app.pool.prune();
        app.limits.prune();
        app.audit.prune();
        app.memories.prune();
        app.sessions.prune();
        metrics::upkeep();
    }
}
