//! Other people's words, answered from our fleet, so that programs written for them run here as they are.
//!
//! A dialect translates to calls of the fleet and of desks; it owns no logic of its own.

pub mod mcp;
pub mod native;

pub(crate) mod computer;
