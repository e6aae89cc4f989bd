//! Dialects: other people's words, answered from our fleet, so that programs written for them run here as they are.
//!
//! A dialect translates to calls of the fleet and of desks; it owns no logic of its own. What a client of another maker needs and a
//! desk can't do yet is added to the desk, in the desk's own words.

pub mod mcp;
pub mod native;

pub(crate) mod computer;
pub(crate) mod e2b;
