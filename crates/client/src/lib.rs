//! The native API of a fleet as a Rust SDK.
