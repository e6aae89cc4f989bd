//! The desk's HTTP server: the OSWorld dialect at the root, the native API under `/v1`.

pub mod osworld;
pub mod v1;
