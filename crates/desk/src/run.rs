//! One desk from start to end, as a program runs it.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::{Desk, server, view};
use futures_util::future::BoxFuture;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long requests that are under way may take when the desk stops.
const DRAIN: Duration = Duration::from_secs(2);
/// How often another display is tried when somebody snatches the chosen one. Each try needs a
/// stranger who starts an X server within the same few milliseconds.
const DISPLAY_TRIES: u32 = 8;

/// How a desk came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked for it and everything was put away.
    Asked,
    /// Somebody asked twice, by this signal, and nothing was waited for.
    Forced(i32),
}

pub type ReadyHook = Box<dyn FnOnce(&Desk) + Send>;
pub type SweepHook = Box<dyn FnOnce(Vec<u32>) -> BoxFuture<'static, ()> + Send>;

/// What the one who runs a desk wants to have done.
#[derive(Default)]
pub struct Hooks {
    /// Called when the desk is ready for the first time.
    pub ready: Option<ReadyHook>,
    /// Called when the desk begins to stop.
    pub stopping: Option<Box<dyn FnOnce() + Send>>,
    /// Ends all programs but those of the given ids, which are parts of the session. Run while there still
    /// is a display.
    pub sweep: Option<SweepHook>,
}

/// Runs a desk until a signal ends it.
pub async fn run(config: Config) -> Result<Ended> {
    run_with(config, Hooks::default()).await
}

/// Runs a desk until a signal ends it, and tells `hooks` how it goes.
pub async fn run_with(config: Config, mut hooks: Hooks) -> Result<Ended> {
    let mut signals = Signals::new()?;
    for _ in 0..DISPLAY_TRIES {
        if let Some(ended) = once(config.clone(), &mut hooks, &mut signals).await? {
            return Ok(ended);
        }
    }
    Err(Error::Conflict("every display that was free was taken by somebody else a moment later".into()))
}

/// One desk on one display. `None` if the display was snatched away before it was ours.
async fn once(config: Config, hooks: &mut Hooks, signals: &mut Signals) -> Result<Option<Ended>> {
    let desk = Desk::start(config).await?;
    let shutdown = CancellationToken::new();
    let mut servers = JoinSet::new();
    servers.spawn(server::serve(desk.clone(), shutdown.clone()));
    if let Some(address) = desk.config.vnc {
        servers.spawn(view::serve(desk.clone(), address, shutdown.clone()));
    }

    let mut announced = hooks.ready.is_none();
    let outcome = loop {
        tokio::select! {
            signal = signals.next() => {
                tracing::info!(signal, "stopping");
                break Ok(Some(()));
            }
            Some(ended) = servers.join_next() => break match ended {
                Ok(Err(e)) => Err(e),
                Ok(Ok(())) => Err(Error::internal("a server ended by itself")),
                Err(e) => Err(Error::Internal(format!("a server broke: {e}"))),
            },
            () = desk.session.display_taken() => break match desk.any_display {
                true => Ok(None),
                false => Err(Error::Conflict(format!("display {} was taken by another X server", desk.place.display.name()))),
            },
            _ = desk.session.ready(), if !announced => {
                announced = true;
                if let Some(ready) = hooks.ready.take() {
                    ready(&desk);
                }
            }
        }
    };

    if !matches!(outcome, Ok(None))
        && let Some(stopping) = hooks.stopping.take()
    {
        stopping();
    }
    let sweep = hooks.sweep.take();
    let stop = async {
        shutdown.cancel();
        let drained = async { while servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            servers.abort_all();
        }
        // Asked for the processes only then: the programs of the template are gone by now.
        let session = desk.session.clone();
        let sweep = async move {
            if let Some(sweep) = sweep {
                sweep(session.pids()).await;
            }
        };
        desk.stop_with(sweep).await;
    };
    tokio::select! {
        () = stop => {}
        signal = signals.next() => {
            tracing::warn!(signal, "stopping at once");
            desk.session.kill();
            return Ok(Some(Ended::Forced(signal)));
        }
    }
    Ok(outcome?.map(|()| Ended::Asked))
}

/// The signals that end a desk.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| Error::Internal(format!("signals can't be received: {e}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = self.hangup.recv() => SignalKind::hangup().as_raw_value(),
        }
    }
}
