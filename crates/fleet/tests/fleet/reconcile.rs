//! What should be and what is become equal again.

use super::*;
use hotdesk_fleet::Filter;
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
async fn orphans_are_removed_after_a_grace() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    world.reality.plant("d-orphan");
    world.reality.plant_snapshot("s-orphan");
    tokio::time::sleep(seconds(15)).await;
    assert!(world.reality.thing("d-orphan").is_some(), "not before its grace is over");
    tokio::time::sleep(seconds(45)).await;
    assert_eq!(world.reality.things().into_keys().collect::<Vec<_>>(), [desk.id]);
    assert!(world.reality.snapshots().is_empty());
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
