//! What should be and what is become equal again.

use super::*;
use hotdesk_api::desk::SnapshotState;
use hotdesk_fleet::Filter;
use hotdesk_fleet::store::Store as _;
use hotdesk_fleet::testing::{Fault, Step};
use hotdesk_provider::Error as ProviderError;

#[tokio::test(start_paused = true)]
async fn desks_outlive_their_orchestrator() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    fleet.kill().await;
    // Its address changes while nobody looks.
    world.reality.touch(&desk.id, |t| t.starts += 1);
    let fleet = world.open().await;
    // The dead one's right to reconcile must run out first.
    tokio::time::sleep(seconds(30)).await;
    let door = fleet.door(&admin(), &desk.id).await.unwrap();
    assert!(format!("{:?}", door.address).contains("/2"), "{door:?}");
    assert_eq!(world.reality.calls(Step::Start) + world.reality.calls(Step::Create), 1, "nothing was started anew");
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_is_finished() {
    let world = World::new();
    let fleet = world.open().await;
    let running = make(&fleet, NewDesk::default()).await;
    let going = make(&fleet, NewDesk::default()).await;
    world.reality.fault(Step::Create, Fault::Hangs);
    world.reality.fault(Step::Stop, Fault::Hangs);
    world.reality.fault(Step::Delete, Fault::Hangs);
    let new = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
    fleet.stop(&admin(), &running.id).await.unwrap();
    fleet.delete(&admin(), &going.id).await.unwrap();
    tokio::time::sleep(seconds(1)).await;
    fleet.kill().await;

    let fleet = world.open().await;
    assert_eq!(settled(&fleet, &new.id).await.state, State::Running);
    assert_eq!(settled(&fleet, &running.id).await.state, State::Stopped);
    assert_eq!(settled(&fleet, &going.id).await.state, State::Deleted);
    assert_eq!(world.reality.things().len(), 2);
    assert!(world.reality.violations().is_empty(), "{:?}", world.reality.violations());
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_of_a_desk_in_error() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    world.reality.fault(Step::Reset, Fault::Fails(ProviderError::Full("no room".into())));
    // The first try to end its programs fails too: then it is left to the comparison.
    world.reality.fault(Step::Stop, Fault::Fails(ProviderError::NotReady("busy".into())));
    fleet.reset(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Error);
    assert!(world.reality.thing(&desk.id).unwrap().running, "the first try failed");
    tokio::time::sleep(seconds(60)).await;
    assert!(!world.reality.thing(&desk.id).unwrap().running);
    // Its files are still there.
    fleet.start(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_desk_that_died_is_started_again_with_its_files_but_not_for_ever() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    world.reality.touch(&desk.id, |t| t.files = 5);
    for round in 1..=3 {
        world.reality.die(&desk.id);
        tokio::time::sleep(seconds(25)).await;
        let desk = settled(&fleet, &desk.id).await;
        assert_eq!(desk.state, State::Running, "round {round}: {}", desk.reason);
        assert_eq!(world.reality.thing(&desk.id).unwrap().files, 5);
    }
    world.reality.die(&desk.id);
    tokio::time::sleep(seconds(25)).await;
    let desk = settled(&fleet, &desk.id).await;
    assert_eq!(desk.state, State::Error);
    assert!(desk.reason.contains("started again 3 times"), "{}", desk.reason);
}

#[tokio::test(start_paused = true)]
async fn a_desk_whose_files_are_gone_is_in_error_and_can_be_reset() {
    let world = World::new();
    let fleet = world.open().await;
    let (running, stopped) = (make(&fleet, NewDesk::default()).await, make(&fleet, NewDesk::default()).await);
    fleet.stop(&admin(), &stopped.id).await.unwrap();
    settled(&fleet, &stopped.id).await;
    for desk in [&running, &stopped] {
        world.reality.lose(&desk.id);
    }
    tokio::time::sleep(seconds(25)).await;
    for desk in [&running, &stopped] {
        let desk = settled(&fleet, &desk.id).await;
        assert_eq!(desk.state, State::Error);
        assert!(desk.reason.contains("files are gone"), "{}", desk.reason);
        fleet.reset(&admin(), &desk.id).await.unwrap();
        assert_eq!(settled(&fleet, &desk.id).await.state, State::Running);
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_record_knows_is_stopped_and_kept_for_a_week() {
    let world = World::new();
    let fleet = world.open().await;
    world.reality.plant("d-orphan");
    world.reality.plant_snapshot("s-orphan");
    tokio::time::sleep(seconds(15)).await;
    assert!(world.reality.thing("d-orphan").unwrap().running, "not before its grace is over");
    assert!(fleet.orphans(&admin()).await.unwrap().is_empty());
    tokio::time::sleep(seconds(45)).await;
    assert!(!world.reality.thing("d-orphan").unwrap().running, "it is stopped");
    let kept = fleet.orphans(&admin()).await.unwrap();
    assert_eq!(kept.iter().map(|o| o.id.as_str()).collect::<Vec<_>>(), ["d-orphan", "s-orphan"]);
    assert!(kept.iter().all(|o| o.removed_at.is_some()), "{kept:?}");
    assert!(fleet.orphans(&testing::member("default")).await.is_err(), "only admins see them");
    days(6).await;
    assert!(world.reality.thing("d-orphan").is_some() && !world.reality.snapshots().is_empty(), "a week is not over");
    days(1).await;
    assert!(world.reality.thing("d-orphan").is_none() && world.reality.snapshots().is_empty());
    assert!(fleet.orphans(&admin()).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_orphans_at_once_are_no_accident() {
    let world = World::new();
    let fleet = world.open().await;
    for number in 0..12 {
        world.reality.plant(&format!("d-orphan{number}"));
    }
    tokio::time::sleep(seconds(60)).await;
    assert!(world.reality.things().values().all(|t| t.running), "nothing is done to them");
    let warnings = fleet.ready().await.unwrap();
    assert!(warnings.iter().any(|w| w.contains("12 desks at test")), "{warnings:?}");
    days(30).await;
    assert_eq!(world.reality.things().len(), 12, "whatever the time");
    // Until somebody decides.
    fleet.remove_orphan(&admin(), "d-orphan0").await.unwrap();
    fleet.settle_orphans(&admin()).await.unwrap();
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(world.reality.things().len(), 11);
    assert!(world.reality.things().values().all(|t| !t.running));
    assert!(fleet.ready().await.unwrap().is_empty());
    days(8).await;
    assert!(world.reality.things().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_ours_is_removed_at_once() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    let snapshot = fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap();
    fleet.delete_snapshot(&admin(), &snapshot.id).await.unwrap();
    world.reality.plant_snapshot(&snapshot.id);
    tokio::time::sleep(seconds(12)).await;
    assert!(world.reality.snapshots().is_empty());
}

/// Of a row that can't be read nobody knows whose provider it is; its files are not nobody's.
#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_row_cannot_be_read_keeps_its_files() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    let mut snapshot = fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap();
    (snapshot.provider, snapshot.project, snapshot.state) = (String::new(), String::new(), SnapshotState::Error);
    world.store.put_snapshot(&snapshot).await.unwrap();
    days(9).await;
    assert_eq!(world.reality.snapshots(), [snapshot.id]);
    assert!(fleet.orphans(&admin()).await.unwrap().is_empty());
}

/// One that can't be removed must not keep the others waiting.
#[tokio::test(start_paused = true)]
async fn one_bad_snapshot_does_not_block_the_rest() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let snapshot = fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap();
        fleet.delete_snapshot(&admin(), &snapshot.id).await.unwrap();
        ids.push(snapshot.id);
    }
    ids.iter().for_each(|id| world.reality.plant_snapshot(id));
    world.reality.fault(Step::DeleteSnapshot, Fault::Fails(ProviderError::Failed("it is stuck".into())));
    fleet.reconcile();
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(world.reality.snapshots().len(), 1, "only the bad one is left");
}

/// A cloud that never answers keeps neither the others' desks nor the first answer of `/ready` waiting.
#[tokio::test(start_paused = true)]
async fn a_hanging_provider_delays_no_other() {
    let (store, cloud, local) = (MemoryStore::new(), Reality::named("cloud"), Reality::named("local"));
    cloud.always(Step::List, Fault::Hangs);
    let providers = || vec![local.provider(), cloud.provider()];
    let fleet = Fleet::open_with(testing::config(), store.clone(), providers(), testing::options(&local)).await.unwrap();
    let begun = tokio::time::Instant::now();
    fleet.reconciled().await;
    assert!(begun.elapsed() < seconds(11), "ready after {:?}", begun.elapsed());
    let desk = make(&fleet, NewDesk::default()).await;
    for _ in 0..3 {
        local.die(&desk.id);
        tokio::time::sleep(seconds(12)).await;
        assert!(local.thing(&desk.id).unwrap().running, "a dead desk waited for a hanging cloud");
    }
    // The same for snapshots, which are listed by another call.
    cloud.no_more_faults();
    cloud.always(Step::ListSnapshots, Fault::Hangs);
    fleet.kill().await;
    let fleet = Fleet::open_with(testing::config(), store, providers(), testing::options(&local)).await.unwrap();
    let begun = tokio::time::Instant::now();
    fleet.reconciled().await;
    assert!(begun.elapsed() < seconds(11), "ready after {:?}", begun.elapsed());
    tokio::time::sleep(seconds(15)).await;
    local.die(&desk.id);
    tokio::time::sleep(seconds(12)).await;
    assert!(local.thing(&desk.id).unwrap().running);
}

/// A bug in one step of one desk: that desk is in error, everything else goes on.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_driver_is_one_failed_step() {
    let world = World::new();
    let fleet = world.open().await;
    world.reality.fault(Step::Create, Fault::Panics);
    let broken = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
    let shown = settled(&fleet, &broken.id).await;
    assert_eq!(shown.state, State::Error, "{}", shown.reason);
    let warnings = fleet.ready().await.unwrap();
    assert!(warnings.iter().any(|w| w.contains("driver")), "{warnings:?}");
    // It has a driver again when it is asked for.
    fleet.start(&admin(), &broken.id).await.unwrap();
    assert_eq!(settled(&fleet, &broken.id).await.state, State::Running);
    world.reality.fault(Step::Delete, Fault::Panics);
    fleet.delete(&admin(), &broken.id).await.unwrap();
    assert_eq!(settled(&fleet, &broken.id).await.state, State::Deleted, "deleting never gives up");
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_panics_is_begun_anew() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    world.reality.fault(Step::List, Fault::Panics);
    world.reality.fault(Step::Usage, Fault::Panics);
    fleet.reconcile();
    tokio::time::sleep(seconds(5)).await;
    let warnings = fleet.ready().await.unwrap();
    assert!(warnings.iter().any(|w| w.contains("reconcile")), "{warnings:?}");
    world.reality.die(&desk.id);
    tokio::time::sleep(seconds(25)).await;
    assert!(world.reality.thing(&desk.id).unwrap().running, "nobody reconciles any more");
}

#[tokio::test(start_paused = true)]
async fn a_remainder_of_a_deleted_desk_is_removed_at_once() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    fleet.delete(&admin(), &desk.id).await.unwrap();
    settled(&fleet, &desk.id).await;
    world.reality.plant(&desk.id);
    tokio::time::sleep(seconds(12)).await;
    assert!(world.reality.things().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stray_is_stopped() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    fleet.stop(&admin(), &desk.id).await.unwrap();
    settled(&fleet, &desk.id).await;
    world.reality.touch(&desk.id, |t| t.running = true);
    tokio::time::sleep(seconds(25)).await;
    assert!(!world.reality.thing(&desk.id).unwrap().running);
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_loses_nothing() {
    let world = World::new();
    let fleet = world.open().await;
    let (a, b) = (make(&fleet, NewDesk::default()).await, make(&fleet, NewDesk::default()).await);
    world.reality.away(true);
    tokio::time::sleep(seconds(15)).await;
    let shown = fleet.desk(&admin(), &a.id).await.unwrap();
    assert_eq!(shown.state, State::Running);
    assert!(shown.reason.contains("test is away"), "{}", shown.reason);
    assert!(!fleet.info().await.unwrap().providers[0].ready);
    let refusal = fleet.create(&admin(), NewDesk::default(), None).await.unwrap_err();
    assert!(matches!(refusal, hotdesk_fleet::Error::Provider(ProviderError::Unavailable { .. })), "{refusal}");
    fleet.delete(&admin(), &b.id).await.unwrap();
    tokio::time::sleep(seconds(300)).await;
    assert_eq!(fleet.desk(&admin(), &b.id).await.unwrap().state, State::Deleting, "it is not forgotten");

    world.reality.away(false);
    tokio::time::sleep(seconds(30)).await;
    let left = fleet.desks(&admin(), Filter::default()).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].state, left[0].reason.as_str()), (State::Running, "ready"));
    assert_eq!(world.reality.things().into_keys().collect::<Vec<_>>(), [a.id]);
}

#[tokio::test(start_paused = true)]
async fn another_orchestrator_carries_on() {
    let world = World::new();
    let (one, two) = (world.open().await, world.open().await);
    let desk = make(&one, NewDesk { name: Some("shared".into()), ..NewDesk::default() }).await;
    tokio::time::sleep(seconds(2)).await;
    assert_eq!(two.desk(&admin(), "shared").await.unwrap().id, desk.id, "what one makes the other sees");
    two.stop(&admin(), "shared").await.unwrap();
    assert_eq!(settled(&two, "shared").await.state, State::Stopped);
    tokio::time::sleep(seconds(2)).await;
    assert_eq!(one.desk(&admin(), "shared").await.unwrap().state, State::Stopped);

    world.reality.fault(Step::Start, Fault::Hangs);
    one.start(&admin(), "shared").await.unwrap();
    tokio::time::sleep(seconds(20)).await;
    one.kill().await;
    tokio::time::sleep(seconds(40)).await;
    assert_eq!(two.desk(&admin(), "shared").await.unwrap().state, State::Running);
    assert!(world.reality.violations().is_empty(), "{:?}", world.reality.violations());
}
