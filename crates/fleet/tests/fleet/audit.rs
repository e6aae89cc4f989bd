//! The audit log: nothing that must be written down is lost while the store is away, and nothing is done when there is no place for it.

use super::*;
use hotdesk_fleet::Error;
use hotdesk_fleet::store::{Audit, Store};

fn line(path: &str) -> Audit {
    Audit { at_ms: 1, key: "k".into(), method: "POST".into(), path: path.into(), status: 200, from: "here".into() }
}

async fn paths(world: &World) -> Vec<String> {
    world.store.audits(100_000).await.unwrap().into_iter().rev().map(|line| line.path).collect()
}

#[tokio::test(start_paused = true)]
async fn lines_wait_for_a_store_that_is_away() {
    let world = World::new();
    let fleet = world.open().await;
    world.store.set_away(true);
    for path in ["/1", "/2"] {
        fleet.audit_place().unwrap().write(line(path));
        tokio::time::sleep(seconds(60)).await;
    }
    world.store.set_away(false);
    tokio::time::sleep(seconds(5)).await;
    assert_eq!(paths(&world).await, ["/1", "/2"]);
    // A line that the store can't take keeps no other.
    for path in ["/3", "/\0", "/4"] {
        fleet.audit_place().unwrap().write(line(path));
    }
    tokio::time::sleep(seconds(5)).await;
    assert_eq!(paths(&world).await, ["/1", "/2", "/3", "/4"]);
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_places_and_strangers_have_half() {
    let world = World::new();
    let fleet = world.open().await;
    world.store.set_away(true);
    for n in 0..30_000 {
        fleet.audit_stranger(line(&format!("/stranger/{n}")));
    }
    let mut written = 0;
    let refused = loop {
        match fleet.audit_place() {
            Ok(place) => place.write(line(&format!("/{written}"))),
            Err(refused) => break refused,
        }
        written += 1;
    };
    assert!(matches!(&refused, Error::Store(words) if words.contains("audit log")), "{refused}");
    assert!(written >= 4_000, "strangers took the places of the others: {written}");
    world.store.set_away(false);
    tokio::time::sleep(seconds(60)).await;
    let found = paths(&world).await;
    assert_eq!(found.iter().filter(|path| !path.starts_with("/stranger")).count(), written, "one was lost");
    // A place that was not used is there for the next.
    let all: Vec<_> = std::iter::from_fn(|| fleet.audit_place().ok()).collect();
    assert!(all.len() > 9_000 && fleet.audit_place().is_err());
    drop(all);
    fleet.audit_place().unwrap();
}
