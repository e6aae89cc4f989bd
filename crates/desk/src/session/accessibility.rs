//! AT-SPI: the bus of accessibility, and the switches that make programs speak on it.
//!
//! It is not started as a process but asked for by name: whoever asks first, a program of the desk
//! or we, makes the session bus start it, and only once. It is watched by its name in the same way.

use super::board::{PartHandle, Up};
use crate::place::Place;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use zbus::Connection;
use zbus::fdo::DBusProxy;
use zbus::names::{BusName, WellKnownName};
use zbus::zvariant::Value;

const NAME: WellKnownName<'static> = WellKnownName::from_static_str_unchecked("org.a11y.Bus");
/// One start of a small program; a machine that needs longer is stuck.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Pause after it went: if the session bus went with it, that is known by then.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(500);
/// Attempts in a row after which it is said to be missing; it is still asked for, but rarely.
const PATIENCE: u32 = 4;
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// Runs until `stop`, for every life of the session bus.
pub(crate) async fn watch_over(mut part: PartHandle, mut bus: watch::Receiver<Up>, place: Arc<Place>, stop: CancellationToken) {
    let life = async {
        let mut failures = 0;
        loop {
            match bus.wait_for(|up| up.decided()).await.map(|up| *up) {
                Ok(Up::Never) => part.absent("there is no D-Bus session"),
                Ok(_) => {
                    let (was_up, why) = serve(&mut part, &mut bus, &place).await;
                    failures = if was_up { 0 } else { failures + 1 };
                    if failures >= PATIENCE {
                        part.absent(&why);
                        sleep(LONG_PAUSE).await;
                    } else {
                        part.healing(&why);
                        sleep(if was_up { SHORT_PAUSE } else { PAUSE }).await;
                    }
                    continue;
                }
                Err(_) => {}
            }
            if bus.changed().await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = life => {}
    }
}

/// Starts it and stays until it is gone. Tells whether it ever was up, and why it is not any more.
async fn serve(part: &mut PartHandle, bus: &mut watch::Receiver<Up>, place: &Place) -> (bool, String) {
    let begin = Instant::now();
    let up = match timeout(START_LIMIT, start(&place.bus)).await {
        Ok(Ok(up)) => up,
        Ok(Err(e)) => return (false, format!("AT-SPI can't be started: {e}")),
        Err(_) => return (false, format!("AT-SPI was not there after {} s", START_LIMIT.as_secs())),
    };
    part.running(up.pid, Some(begin.elapsed()), None);
    let gone = async {
        let mut changes = up.changes;
        while let Some(change) = changes.next().await {
            if change.args().is_ok_and(|args| args.new_owner().is_none()) {
                return "it left the session bus".to_owned();
            }
        }
        "the session bus is gone".to_owned()
    };
    let why = tokio::select! {
        why = gone => why,
        _ = bus.wait_for(|up| !matches!(up, Up::Yes(_))) => "the session bus is gone".to_owned(),
    };
    (true, why)
}

struct Service {
    pid: Option<u32>,
    changes: zbus::fdo::NameOwnerChangedStream,
    /// Kept open: the changes come through it.
    _connection: Connection,
}

async fn start(address: &str) -> zbus::Result<Service> {
    let connection = zbus::connection::Builder::address(address)?.build().await?;
    let daemon = DBusProxy::new(&connection).await?;
    let changes = daemon.receive_name_owner_changed_with_args(&[(0, NAME.as_str())]).await?;
    daemon.start_service_by_name(NAME, 0).await?;
    // Asking for the address is what makes it start the bus of accessibility.
    let at = "/org/a11y/bus";
    connection.call_method(Some(NAME), at, Some("org.a11y.Bus"), "GetAddress", &()).await?;
    // Toolkits look at these before they say anything. AccessKit and Chromium want the second one.
    for switch in ["IsEnabled", "ScreenReaderEnabled"] {
        let body = ("org.a11y.Status", switch, Value::from(true));
        let set = connection.call_method(Some(NAME), at, Some("org.freedesktop.DBus.Properties"), "Set", &body).await;
        if let Err(e) = set {
            tracing::warn!(switch, error = %e, "a switch of accessibility can't be set");
        }
    }
    let pid = daemon.get_connection_unix_process_id(BusName::WellKnown(NAME)).await.ok();
    Ok(Service { pid, changes, _connection: connection })
}
