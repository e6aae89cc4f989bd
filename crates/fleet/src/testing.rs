//! A store and a provider in memory, for tests: both survive the fleet that uses them, both can be slow, and the provider can fail, hang, die and lose desks at every step.
//!
//! ```
//! use hotdesk_fleet::Fleet;
//! use hotdesk_fleet::testing::{self, MemoryStore, Reality};
//!
//! # async fn example() -> hotdesk_fleet::Result<()> {
//! let (store, reality) = (MemoryStore::new(), Reality::new());
//! let fleet = Fleet::open_with(testing::config(), store, vec![reality.provider()], testing::options(&reality)).await?;
//! # Ok(())
//! # }
//! ```

mod provider;
mod store;

pub use provider::{Fault, Reality, Step};
pub use store::MemoryStore;

use crate::clock::Clock;
use crate::config::Config;
use crate::fleet::{Fleet, Options, Who};
use crate::limits::machine::{Has, Machine};
use hotdesk_api::fleet::Scope;
use std::sync::Arc;

/// The seed of a test's random choices: that of `HOTDESK_SEED`, or any. Printed, so it is beside a failure.
pub fn seed() -> u64 {
    let seed = std::env::var("HOTDESK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("HOTDESK_SEED={seed}");
    seed
}

/// Settings of a fleet over a shared store, which needs no directory.
pub fn config() -> Config {
    Config { store: "memory".into(), ..Config::default() }
}

/// A large machine, tokio's clock, and the desks of that reality.
pub fn options(reality: &Reality) -> Options {
    let has = Has { cpus: 64.0, memory_mib: 256 << 10, free_memory_mib: 128 << 10, disk_mib: 4 << 20, free_disk_mib: 2 << 20 };
    Options { clock: reality.clock(), look: Arc::new(reality.clone()), owner: None, mark: false, machine: Machine::fixed(has) }
}

/// The same, and the data directory of the settings says how far the store was.
pub fn marked(reality: &Reality) -> Options {
    Options { mark: true, ..options(reality) }
}

/// A key of the whole fleet.
pub fn admin() -> Who {
    Who { key: "k-admin".into(), name: "admin".into(), scope: Scope::Admin }
}

/// A key of one project.
pub fn member(project: &str) -> Who {
    Who { key: format!("k-{project}"), name: project.into(), scope: Scope::Project { project: project.into() } }
}

/// The clock of tests: tokio's, so that a day passes at once where time is paused.
pub fn clock() -> Clock {
    Clock::tokio()
}

impl Fleet {
    /// From now on the machine has so much disk left.
    pub fn leave_disk(&self, mib: u64) {
        self.engine.admission.machine.change(|has| has.free_disk_mib = mib);
    }

    /// Returns when it was killed.
    pub async fn killed(&self) {
        self.engine.killed.cancelled().await;
    }

    /// As `kill -9` does: all work ends where it is, nothing is given back.
    pub async fn kill(&self) {
        self.engine.closing.cancel();
        self.engine.killed.cancel();
        self.engine.tasks.close();
        self.engine.tasks.wait().await;
    }
}
