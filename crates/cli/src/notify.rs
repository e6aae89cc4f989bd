//! Telling systemd how we are (`sd_notify`), where it asks for it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Sends a state, such as `READY=1`. Does nothing where nobody listens.
pub(crate) fn send(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = name.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(Path::new(&name)),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(e) = sent {
        tracing::warn!(socket = %name.to_string_lossy(), error = %e, "the service manager can't be told how we are");
    }
}
