//! A whole fleet over a store and a provider in memory: what it promises, in milliseconds, with time that tests turn. And over its
//! real stores (`sqlite`, `orchestrators`).

mod audit;
mod basics;
mod chaos;
mod history;
mod life;
mod limits;
mod orchestrators;
mod pools;
mod prepare;
mod reconcile;
mod sqlite;
mod volumes;

use hotdesk_api::desk::{Desk, NewDesk, State};
use hotdesk_fleet::testing::{self, MemoryStore, Reality, admin};
use hotdesk_fleet::{Config, Fleet};
use std::sync::Arc;
use std::time::Duration;

/// A store, a reality, and fleets that come and go over them.
struct World {
    store: Arc<MemoryStore>,
    reality: Reality,
}

impl World {
    fn new() -> Self {
        Self { store: MemoryStore::new(), reality: Reality::new() }
    }

    async fn open(&self) -> Fleet {
        self.open_with(testing::config()).await
    }

    async fn open_with(&self, config: Config) -> Fleet {
        let fleet = Fleet::open_with(config, self.store.clone(), vec![self.reality.provider()], testing::options(&self.reality))
            .await
            .expect("the fleet opens");
        fleet.reconciled().await;
        fleet
    }
}

const LONG: Duration = Duration::from_secs(3600);

async fn make(fleet: &Fleet, request: NewDesk) -> Desk {
    let desk = fleet.create(&admin(), request, None).await.expect("a desk is made");
    let desk = fleet.wait(&admin(), &desk.id, LONG).await.expect("it can be waited for");
    assert_eq!(desk.state, State::Running, "{}", desk.reason);
    desk
}

async fn settled(fleet: &Fleet, id: &str) -> Desk {
    fleet.wait(&admin(), id, LONG).await.expect("it can be waited for")
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Lets so many days pass. Each is a jump and a minute in which everything looks that looks now and then: a day of looking takes
/// a processor for seconds.
async fn days(n: u32) {
    for _ in 0..n {
        tokio::time::advance(seconds(86_400 - 60)).await;
        tokio::time::sleep(seconds(60)).await;
    }
}
