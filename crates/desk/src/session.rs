//! The session: starts, watches and heals the X server, the bus, AT-SPI and the window manager.

use hotdesk_api::health::Health;

/// A running session. Cheap to clone.
#[derive(Clone)]
pub struct Session {}

impl Session {
    pub fn health(&self) -> Health {
        Health {
            ready: false,
            stage: "x_server".into(),
            stages_ms: Default::default(),
            uptime_ms: 0,
            parts: Default::default(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}
