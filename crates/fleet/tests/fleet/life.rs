//! Idleness, and what follows from it.

use super::*;
use hotdesk_api::activity::Activity;
use hotdesk_api::desk::Policy;
use hotdesk_fleet::Error;

const DAY: u64 = 24 * 3600;

fn policy(policy: Policy) -> NewDesk {
    NewDesk { policy: policy.into(), ..NewDesk::default() }
}

async fn state(fleet: &Fleet, desk: &Desk) -> State {
    match fleet.desk(&admin(), &desk.id).await {
        Ok(desk) => desk.state,
        Err(Error::NotFound { .. }) => State::Deleted,
        Err(e) => panic!("{e}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_desk_is_stopped_and_told_why() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    tokio::time::sleep(seconds(14 * 60)).await;
    let shown = fleet.desk(&admin(), &desk.id).await.unwrap();
    assert_eq!(shown.state, State::Running);
    assert!(shown.idle_s.unwrap() >= 14 * 60 - 5 && shown.busy.is_none(), "{shown:?}");
    tokio::time::sleep(seconds(90)).await;
    let shown = settled(&fleet, &desk.id).await;
    assert_eq!(shown.state, State::Stopped);
    assert!(shown.reason.starts_with("idle for 15 min: no calls, no viewers, screen unchanged, CPU 0.0 %"), "{}", shown.reason);
    let events = fleet.events(&admin(), 0, Some(&desk.id), 100).await.unwrap();
    assert!(events.iter().any(|e| e.by == "policy" && e.state == Some(State::Stopping)));
}

#[tokio::test(start_paused = true)]
async fn a_working_desk_is_not_idle_whatever_the_calls_say() {
    let world = World::new();
    let fleet = world.open().await;
    let mut desks = Vec::new();
    for _ in 0..7 {
        desks.push(make(&fleet, NewDesk::default()).await);
    }
    let [called, viewed, drawing, watched, commands, burning, idle] = &desks[..] else { unreachable!() };
    let view = fleet.busy(&viewed.id, "live view");
    let set = |desk: &Desk, activity| world.reality.touch(&desk.id, |t| t.activity = activity);
    set(drawing, Activity { screen_changed: 0.3, ..Activity::default() });
    set(watched, Activity { viewers: 1, ..Activity::default() });
    set(commands, Activity { commands: 1, ..Activity::default() });
    // A caret and a clock are no work.
    set(idle, Activity { screen_changed: 0.004, ..Activity::default() });
    for _ in 0..240 {
        tokio::time::sleep(seconds(10)).await;
        fleet.door(&admin(), &called.id).await.unwrap();
        world.reality.touch(&burning.id, |t| t.cpu_s += 2.0);
        world.reality.touch(&idle.id, |t| t.cpu_s += 0.1);
    }
    for (desk, busy) in [
        (called, "api call"),
        (viewed, "live view"),
        (drawing, "screen changes"),
        (watched, "live view"),
        (commands, "command"),
        (burning, "cpu"),
    ] {
        let desk = fleet.desk(&admin(), &desk.id).await.unwrap();
        assert_eq!((desk.state, desk.busy.as_deref()), (State::Running, Some(busy)));
    }
    assert_eq!(state(&fleet, idle).await, State::Stopped);
    drop(view);
    tokio::time::sleep(seconds(17 * 60)).await;
    assert_eq!(state(&fleet, viewed).await, State::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_restart_stops_no_working_desk() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk::default()).await;
    for _ in 0..60 {
        tokio::time::sleep(seconds(60)).await;
        fleet.door(&admin(), &desk.id).await.unwrap();
    }
    fleet.kill().await;
    let fleet = world.open().await;
    tokio::time::sleep(seconds(13 * 60)).await;
    assert_eq!(state(&fleet, &desk).await, State::Running, "the last call is known to within a minute");
    tokio::time::sleep(seconds(4 * 60)).await;
    assert_eq!(state(&fleet, &desk).await, State::Stopped);
}

#[tokio::test(start_paused = true)]
async fn stopped_desks_are_deleted_by_age() {
    let world = World::new();
    let fleet = world.open().await;
    let never = Policy { auto_stop_s: 60, auto_archive_s: 0, auto_delete_s: 0, ttl_s: 0, end_stops: false };
    let kept = make(&fleet, policy(never)).await;
    let deleted = make(&fleet, policy(Policy { auto_delete_s: DAY, ..never })).await;
    tokio::time::sleep(seconds(DAY - 3600)).await;
    assert_eq!((state(&fleet, &kept).await, state(&fleet, &deleted).await), (State::Stopped, State::Stopped));
    tokio::time::sleep(seconds(2 * 3600)).await;
    assert_eq!((state(&fleet, &kept).await, state(&fleet, &deleted).await), (State::Stopped, State::Deleted));
    assert_eq!(world.reality.things().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_life_ends_and_can_be_extended() {
    let world = World::new();
    let fleet = world.open().await;
    let short = Policy { auto_stop_s: 0, ttl_s: 600, ..Policy::default() };
    let (one, two) = (make(&fleet, policy(short)).await, make(&fleet, policy(short)).await);
    assert!(one.expires_at.is_some());
    tokio::time::sleep(seconds(500)).await;
    let later = fleet.extend(&admin(), &two.id, seconds(3600)).await.unwrap();
    assert!(later.expires_at > two.expires_at);
    assert_eq!(fleet.extend(&admin(), &two.id, seconds(1)).await.unwrap().expires_at, later.expires_at, "never shortened");
    tokio::time::sleep(seconds(200)).await;
    assert_eq!((state(&fleet, &one).await, state(&fleet, &two).await), (State::Deleted, State::Running));
    tokio::time::sleep(seconds(3600)).await;
    assert_eq!(state(&fleet, &two).await, State::Deleted);
    assert!(world.reality.things().is_empty());
}

#[tokio::test(start_paused = true)]
async fn calls_through_another_orchestrator_count() {
    let world = World::new();
    let (one, two) = (world.open().await, world.open().await);
    let desk = make(&one, NewDesk::default()).await;
    tokio::time::sleep(seconds(5)).await;
    for _ in 0..40 {
        tokio::time::sleep(seconds(60)).await;
        two.door(&admin(), &desk.id).await.unwrap();
    }
    assert_eq!(state(&one, &desk).await, State::Running);
}

#[tokio::test(start_paused = true)]
async fn money_is_counted_and_ends() {
    let world = World::new();
    let price = hotdesk_fleet::config::Price { cpu_hour: 1.0, ..Default::default() };
    let config = Config { prices: [("test".to_owned(), price)].into(), ..testing::config() };
    let fleet = world.open_with(config).await;
    let busy = policy(Policy { auto_stop_s: 0, ..Policy::default() });
    let desk = make(&fleet, busy.clone()).await;
    let budget =
        hotdesk_api::fleet::Budget { project: "default".into(), per_day: None, total: Some(6.0), alert_at: 0.8, webhook: None };
    fleet.set_budget(&admin(), budget).await.unwrap();
    tokio::time::sleep(seconds(3600)).await;
    let cost = fleet.desk(&admin(), &desk.id).await.unwrap().cost;
    assert!((cost - 2.0).abs() < 0.1, "two CPUs for an hour cost 2, not {cost}");
    assert!((fleet.costs(&admin()).await.unwrap().total - 2.0).abs() < 0.1);
    tokio::time::sleep(seconds(2 * 3600 + 200)).await;
    let stopped = settled(&fleet, &desk.id).await;
    assert_eq!(stopped.state, State::Stopped);
    assert!(stopped.reason.contains("budget of project default is spent"), "{}", stopped.reason);
    assert!(matches!(fleet.create(&admin(), busy, None).await, Err(Error::Budget(_))));
    assert!(matches!(fleet.start(&admin(), &desk.id).await, Err(Error::Budget(_))));
    let told = fleet.events(&admin(), 0, None, 1000).await.unwrap();
    assert!(told.iter().filter(|e| e.kind == "budget").count() >= 3, "set, alert, spent");
}

#[tokio::test(start_paused = true)]
async fn stopped_desks_are_archived_by_age_and_come_back() {
    let world = World::new();
    let archive = tempfile::tempdir().unwrap();
    let files = || std::fs::read_dir(archive.path()).unwrap().count();
    let fleet = world.open_with(Config { archive: archive.path().display().to_string(), ..testing::config() }).await;
    let desk = make(&fleet, NewDesk::default()).await;
    world.reality.touch(&desk.id, |t| t.files = 99);
    tokio::time::sleep(seconds(DAY)).await;
    assert_eq!(state(&fleet, &desk).await, State::Stopped);
    tokio::time::sleep(seconds(3600)).await;
    let archived = settled(&fleet, &desk.id).await;
    assert_eq!(archived.state, State::Archived, "{}", archived.reason);
    assert!(world.reality.things().is_empty() && files() > 0, "its files are in the archive alone");

    fleet.start(&admin(), &desk.id).await.unwrap();
    let back = settled(&fleet, &desk.id).await;
    assert_eq!(back.state, State::Running, "{}", back.reason);
    assert_eq!(world.reality.thing(&desk.id).unwrap().files, 99);
    tokio::time::sleep(seconds(30)).await;

    // Once more, and deleted from there.
    fleet.stop(&admin(), &desk.id).await.unwrap();
    settled(&fleet, &desk.id).await;
    fleet.archive(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Archived);
    fleet.delete(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Deleted);
    let left: Vec<_> = walk(archive.path());
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_fails_leaves_the_desk_whole() {
    let world = World::new();
    let archive = tempfile::tempdir().unwrap();
    let fleet = world.open_with(Config { archive: archive.path().display().to_string(), ..testing::config() }).await;
    let desk = make(&fleet, NewDesk::default()).await;
    fleet.stop(&admin(), &desk.id).await.unwrap();
    settled(&fleet, &desk.id).await;
    let fault = testing::Fault::Fails(hotdesk_provider::Error::Failed("the disk is torn".into()));
    world.reality.fault(testing::Step::Export, fault);
    fleet.archive(&admin(), &desk.id).await.unwrap();
    let desk = settled(&fleet, &desk.id).await;
    assert_eq!(desk.state, State::Stopped);
    assert!(desk.reason.contains("archiving failed") && desk.reason.contains("the disk is torn"), "{}", desk.reason);
    fleet.start(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Running);
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

/// A life that is to end now, or in a moment, ends then, and not when policies are looked at next.
#[tokio::test(start_paused = true)]
async fn an_end_is_exact() {
    let world = World::new();
    let fleet = world.open().await;
    for (life, most) in [(Duration::ZERO, 100), (Duration::from_millis(5100), 5200)] {
        let desk = make(&fleet, NewDesk::default()).await;
        let begun = tokio::time::Instant::now();
        fleet.set_end(&admin(), &desk.id, Some(life)).await.unwrap();
        while fleet.desk(&admin(), &desk.id).await.is_ok_and(|desk| desk.state == State::Running) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(begun.elapsed() < LONG);
        }
        let took = begun.elapsed();
        assert!(took >= life && took <= Duration::from_millis(most), "{life:?} was {took:?}");
    }
}
