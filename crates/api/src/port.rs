//! Ports of a desk.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A TCP port that a program of the desk listens on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct ListeningPort {
    pub port: u16,
    /// Where it is reached: `127.0.0.1`, `::`.
    pub address: String,
}

/// Ports that something listens on, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortList {
    pub ports: Vec<ListeningPort>,
}
