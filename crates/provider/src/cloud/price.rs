//! What a vendor takes for an hour.

use serde::{Deserialize, Serialize};

/// Money per hour of one CPU, one GiB of memory and one GiB of disk, in the fleet's currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    pub cpu_hour: f64,
    pub memory_gib_hour: f64,
    pub disk_gib_hour: f64,
}
