//! What each call promises when many come at once.

use super::databases::{Database, on_both};
use super::{desk, event, volume, with_volume};
use crate::error::Error;
use crate::store::*;
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinSet;

on_both!(
    sixteen_claim_from_a_pool_of_ten,
    eight_update_one_desk,
    two_owners_race_for_a_lease,
    one_idempotency_key_many_times_at_once,
    a_key_that_found_an_empty_pool_still_makes_a_desk,
    a_reader_misses_no_event,
    an_event_of_another_orchestrator_wakes_a_waiting_reader,
    money_of_many_desks_adds_up,
    an_exclusive_volume_is_given_out_once,
    a_volume_is_used_or_deleted_but_not_both,
    opening_at_once_is_no_problem,
);

async fn sixteen_claim_from_a_pool_of_ten(database: Database) {
    for number in 0..10 {
        let record = Record { pool: Some("bare".into()), ..desk(&format!("d-{number}")) };
        database.store.insert(&record, event(&record.id, "")).await.unwrap();
    }
    // Half of them in another orchestrator.
    let stores = [database.store.clone(), database.again().await];
    let mut claims = JoinSet::new();
    for number in 0..16 {
        let store = stores[number % 2].clone();
        claims.spawn(async move {
            let own = |record: &mut Record| {
                record.project = format!("p{number}");
                Along { event: Some(event(&record.id, "claimed")), spends: vec![] }
            };
            store.claim_with("bare", None, &own).await.unwrap()
        });
    }
    let claims = claims.join_all().await;
    let claimed: Vec<_> = claims.iter().filter_map(|c| if let Claimed::Desk(d) = c { Some(&d.id) } else { None }).collect();
    assert_eq!(claimed.len(), 10, "a ready desk was overlooked");
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 10, "a desk was claimed twice");
    let owners: BTreeSet<_> = database.store.desks().await.unwrap().into_iter().map(|d| d.project).collect();
    assert_eq!(owners.len(), 10);
    assert_eq!(database.store.newest().await.unwrap(), 20);
}

async fn eight_update_one_desk(database: Database) {
    database.store.insert(&desk("d-1"), event("d-1", "")).await.unwrap();
    let stores = [database.store.clone(), database.again().await];
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let store = stores[writer % 2].clone();
        writers.spawn(async move {
            for _ in 0..10 {
                // Reads and writes until nobody came between.
                loop {
                    let mut record = store.desk("d-1").await.unwrap().unwrap();
                    record.cost_micro += 1;
                    match store.update(&record, Some(event("d-1", "one more"))).await {
                        Ok(version) => break assert_eq!(version, record.version + 1),
                        Err(Error::Conflict(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    writers.join_all().await;
    let record = database.store.desk("d-1").await.unwrap().unwrap();
    assert_eq!((record.cost_micro, record.version), (80, 80), "a write was lost");
    assert_eq!(database.store.newest().await.unwrap(), 81);
}

async fn two_owners_race_for_a_lease(database: Database) {
    let stores = [database.store.clone(), database.again().await];
    for round in 0..20 {
        let what = format!("d-{round}");
        // Half of the rounds over a lease that ran out, which is another way through the statements.
        if round % 2 == 0 {
            assert!(stores[0].lease(&what, "dead", 0).await.unwrap());
        }
        let mut owners = JoinSet::new();
        for owner in ["a", "b"] {
            for store in &stores {
                let (store, what, owner) = (store.clone(), what.clone(), owner.to_owned());
                owners.spawn(async move { (owner.clone(), store.lease(&what, &owner, 600_000).await.unwrap()) });
            }
        }
        let winners: BTreeSet<_> =
            owners.join_all().await.into_iter().filter(|(_, held)| *held).map(|(owner, _)| owner).collect();
        assert_eq!(winners.len(), 1, "round {round}: {winners:?} hold one lease");
    }
}

/// More requests than the pool has desks, and many rounds: a request that takes a desk before it knows of the others is seen sooner or later.
async fn one_idempotency_key_many_times_at_once(database: Database) {
    const ROUNDS: usize = 25;
    let stores = [database.store.clone(), database.again().await];
    for round in 0..ROUNDS {
        let pool = format!("bare-{round}");
        for number in 0..2 {
            let record = Record { pool: Some(pool.clone()), ..desk(&format!("d-{round}-pool{number}")) };
            database.store.insert(&record, event(&record.id, "")).await.unwrap();
        }
        let mut requests = JoinSet::new();
        for number in 0..12 {
            let (store, pool) = (stores[number % 2].clone(), pool.clone());
            requests.spawn(async move {
                let key = format!("same-{round}");
                let once = Once { scope: "k-1", key: &key };
                let record = desk(&format!("d-{round}-{number}"));
                match number % 3 {
                    0 => store.insert_once(&record, event(&record.id, ""), once).await.unwrap().unwrap_or(record.id),
                    _ => match store.claim_with(&pool, Some(once), &|_| Along::default()).await.unwrap() {
                        Claimed::Desk(desk) => desk.id,
                        Claimed::Before(id) => id,
                        Claimed::Empty => panic!("round {round}: one key emptied the pool"),
                    },
                }
            });
        }
        let made: BTreeSet<_> = requests.join_all().await.into_iter().collect();
        assert_eq!(made.len(), 1, "round {round}: one key made {made:?}");
        let made = made.into_iter().next().unwrap();
        assert_eq!(database.store.remembered("k-1", &format!("same-{round}")).await.unwrap(), Some(made), "round {round}");
    }
    let desks = database.store.desks().await.unwrap();
    let owned = desks.iter().filter(|d| d.pool.is_none()).count();
    assert_eq!(owned, ROUNDS, "{:?}", desks.iter().map(|d| (&d.id, &d.pool)).collect::<Vec<_>>());
}

/// A key that found nothing leaves nothing: it must still make a desk, and an empty answer must never be told.
async fn a_key_that_found_an_empty_pool_still_makes_a_desk(database: Database) {
    let store = &database.store;
    let once = Once { scope: "k-1", key: "one" };
    assert_eq!(store.claim_with("bare", Some(once), &|_| Along::default()).await.unwrap(), Claimed::Empty);
    assert_eq!(store.remembered("k-1", "one").await.unwrap(), None);
    let record = desk("d-1");
    assert_eq!(store.insert_once(&record, event("d-1", ""), once).await.unwrap(), None);
    let before = store.claim_with("bare", Some(once), &|_| Along::default()).await.unwrap();
    assert_eq!(before, Claimed::Before("d-1".into()));
}

/// The number of an event says when it was committed, not when it was begun: whoever reads up to n never has to come back for less.
async fn a_reader_misses_no_event(database: Database) {
    const WRITERS: usize = 6;
    const EACH: usize = 25;
    let stores = [database.store.clone(), database.again().await];
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = stores[writer % 2].clone();
        writers.spawn(async move {
            for number in 0..EACH {
                let id = format!("d-{writer}-{number}");
                store.insert(&desk(&id), event(&id, "")).await.unwrap();
            }
        });
    }
    let mut after = 0;
    let mut seen = BTreeMap::new();
    while seen.len() < WRITERS * EACH {
        let news = stores[1].changed(after, 7, Duration::from_secs(60)).await.unwrap();
        assert!(!news.is_empty(), "only {} of {} events came", seen.len(), WRITERS * EACH);
        for event in news {
            assert_eq!(event.number, after + 1, "a number was skipped: its event may come later, and be missed");
            after = event.number;
            assert_eq!(seen.insert(event.desk.unwrap(), after), None);
        }
    }
    writers.join_all().await;
}

async fn an_event_of_another_orchestrator_wakes_a_waiting_reader(database: Database) {
    let other = database.again().await;
    let store = database.store.clone();
    let waiting = tokio::spawn(async move { store.changed(0, 10, Duration::from_secs(60)).await.unwrap() });
    tokio::task::yield_now().await;
    other.event(event("d-1", "from the other")).await.unwrap();
    assert_eq!(waiting.await.unwrap()[0].reason, "from the other");
}

async fn money_of_many_desks_adds_up(database: Database) {
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let store = database.store.clone();
        writers.spawn(async move {
            let mut record = desk(&format!("d-{writer}"));
            store.insert(&record, event(&record.id, "")).await.unwrap();
            for _ in 0..5 {
                // In both orders: the store must not let two of them wait for each other.
                let mut spends: Vec<_> =
                    ["a", "b"].map(|project| Spend { project: project.into(), day: "2026-01-31".into(), micro: 1 }).into();
                if writer % 2 == 0 {
                    spends.reverse();
                }
                record.version = store.update_and_spend(&record, Some(event(&record.id, "")), &spends).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    assert_eq!(database.store.spent_by("a", "2026-01-31").await.unwrap(), (40, 40));
    assert_eq!(database.store.spent_by("b", "2026-01-31").await.unwrap(), (40, 40));
}

async fn opening_at_once_is_no_problem(database: Database) {
    let stores = futures_util::future::join_all((0..4).map(|_| database.again())).await;
    for (number, store) in stores.iter().enumerate() {
        let id = format!("d-{number}");
        store.insert(&desk(&id), event(&id, "")).await.unwrap();
    }
    assert_eq!(database.store.desks().await.unwrap().len(), 4);
}

/// Two orchestrators know of each other's desks a moment later; the store knows at once.
async fn an_exclusive_volume_is_given_out_once(database: Database) {
    let stores = [database.store.clone(), database.again().await];
    for round in 0..10 {
        let id = format!("v-{round}");
        database.store.add_volume(&volume(&id, true)).await.unwrap();
        let mut makers = JoinSet::new();
        for number in 0..6 {
            let (store, record) = (stores[number % 2].clone(), with_volume(&format!("d-{round}-{number}"), &id));
            makers.spawn(async move {
                match store.insert(&record, event(&record.id, "")).await {
                    Ok(()) => Some(record),
                    Err(Error::Conflict(why)) => (!why.contains("one desk at a time")).then(|| panic!("{why}")),
                    Err(e) => panic!("{e}"),
                }
            });
        }
        let made: Vec<_> = makers.join_all().await.into_iter().flatten().collect();
        assert_eq!(made.len(), 1, "round {round}: {made:?} have one exclusive volume");
        // Free again when its desk is deleted.
        let gone = Record { state: State::Deleted, ..made[0].clone() };
        stores[1].update(&gone, Some(event(&gone.id, "deleted"))).await.unwrap();
        stores[0].insert(&with_volume(&format!("d-{round}-next"), &id), event("d", "")).await.unwrap();
    }
}

async fn a_volume_is_used_or_deleted_but_not_both(database: Database) {
    let stores = [database.store.clone(), database.again().await];
    for round in 0..20 {
        let id = format!("v-{round}");
        database.store.add_volume(&volume(&id, false)).await.unwrap();
        let record = with_volume(&format!("d-{round}"), &id);
        let made = stores[0].insert(&record, event(&record.id, ""));
        let (made, deleted) = tokio::join!(made, stores[1].remove_volume(&id));
        assert_ne!(made.is_ok(), deleted.is_ok(), "round {round}: {made:?} {deleted:?}");
        let there = database.store.volumes().await.unwrap().iter().any(|v| v.id == id);
        assert_eq!(there, made.is_ok(), "round {round}");
    }
}
