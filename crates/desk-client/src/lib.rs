//! The one client of a desk: everything that asks a desk's server for something does it with this crate.
//!
//! ```text
//!   Client      typed calls (`health`, `activity`, `thaw`, …) and `get`, `post`, `bytes`, `events` for the rest   client.rs
//!   Transport   how a request gets there: a connection for each (`Direct`), the gateway's pool                    client.rs, direct.rs
//!   blocking    the same for programs that have no runtime                                                        blocking.rs
//!   address     encodes path segments and queries                                                                 address.rs
//!   headers     writes host, token, entrance                                                                      headers.rs
//!   body        reads answers: bounded, and counted against a budget                                              body.rs
//!   Error       what a desk refused, or why there is no answer                                                    error.rs
//!   Events      server-sent events, however they are cut                                                          events.rs, lines.rs
//! ```
//!
//! Nothing that a desk sends is believed: every answer has a largest size, every event a longest line, and a refusal has the status of
//! the answer, whatever its text says.

#![forbid(unsafe_code)]

pub mod address;
pub mod blocking;
pub mod body;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod headers;
pub mod lines;

mod client;
mod direct;
mod error;
mod events;
#[cfg(test)]
mod tests;

pub use address::encoded;
pub use body::{Budget, Buffered};
pub use client::{Client, Health, Transport};
pub use direct::{Connect, Direct, Received, enter_port, handshake};
pub use error::{Error, Refusal, Result, foreign, problem};
pub use events::{Events, Parser};
pub use http;
