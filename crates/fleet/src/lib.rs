//! Many desks: states, store, scheduler, pools, life, limits and money. Knows no HTTP and no vendor.
//!
//! ```text
//!   gateway ──► Fleet ──► admission (limits, budgets) ──► store ◄── reconcile (what should be = what is?)
//!                 │                                         ▲               │
//!                 └──► one driver per desk ─────────────────┴──► provider ◄─┘
//! ```
//!
//! Every change of state is written to the store before it is acted on, and every step can be repeated, so a
//! fleet that is killed at any moment carries on where it was: the store says what was begun, the providers say
//! what exists, and `reconcile` makes them equal.

pub mod archive;
mod audit;
pub mod clock;
pub mod config;
mod driver;
pub mod error;
mod history;
pub mod keys;
pub mod life;
mod limits;
pub mod money;
mod pools;
mod prepare;
mod reconcile;
pub mod state;
pub mod store;

pub mod telemetry;
#[doc(hidden)] // for tests of this crate and of those above it; the linker drops it from the binary
pub mod testing;

mod engine;
mod fleet;
mod view;
mod volumes;

pub use audit::AuditPlace;
pub use config::{Config, Price};
pub use error::{Error, Result};
pub use fleet::{Filter, Fleet, Options, Who};
pub use prepare::Prepared;

/// The project of desks whose makers name none.
pub const DEFAULT_PROJECT: &str = "default";
