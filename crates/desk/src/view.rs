//! The live view: an RFB (VNC) server of the desk's display.

use crate::{Desk, Result};
use std::net::SocketAddr;
use tokio_util::sync::CancellationToken;

/// Offers the desk's display on `address` until `shutdown`.
pub async fn serve(desk: Desk, address: SocketAddr, shutdown: CancellationToken) -> Result<()> {
    let _ = (desk, address);
    shutdown.cancelled().await;
    Ok(())
}
