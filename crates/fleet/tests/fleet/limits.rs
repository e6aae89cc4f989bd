//! What may be made, and who waits.

use super::*;
use futures_util::future::join_all;
use hotdesk_api::desk::Resources;
use hotdesk_fleet::store::Store as _;
use hotdesk_fleet::testing::{Fault, Step, member};
use hotdesk_fleet::{Error, Filter};

async fn many(fleet: &Fleet, count: usize, request: NewDesk) -> (Vec<Desk>, Vec<Error>) {
    let who = admin();
    let all = join_all((0..count).map(|_| fleet.create(&who, request.clone(), None))).await;
    let (good, bad): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    (good.into_iter().map(Result::unwrap).collect(), bad.into_iter().map(Result::unwrap_err).collect())
}

#[tokio::test(start_paused = true)]
async fn fifty_requests_for_ten_places_make_ten_desks() {
    let world = World::new();
    let fleet = world.open_with(Config { max_desks: 10, ..testing::config() }).await;
    let who = admin();
    let tasks = (0..50).map(|_| {
        let (fleet, who) = (fleet.clone(), who.clone());
        tokio::spawn(async move { fleet.create(&who, NewDesk::default(), None).await })
    });
    let answers: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 10);
    for refusal in answers.into_iter().filter_map(Result::err) {
        let Error::Limit { reason, retry_after } = refusal else { panic!("{refusal}") };
        assert!(reason.contains("10 desks") && !retry_after.is_zero(), "{reason}");
    }
    let desks = fleet.desks(&admin(), Filter::default()).await.unwrap();
    assert_eq!(desks.len(), 10);
    fleet.delete(&admin(), &desks[0].id).await.unwrap();
    make(&fleet, NewDesk::default()).await;
}

#[tokio::test(start_paused = true)]
async fn two_orchestrators_keep_one_limit() {
    let world = World { store: MemoryStore::slow(10, testing::seed()), reality: Reality::new() };
    let config = Config { max_desks: 10, ..testing::config() };
    let fleets = [world.open_with(config.clone()).await, world.open_with(config).await];
    let tasks = (0..50).map(|n| {
        let fleet = fleets[n % 2].clone();
        tokio::spawn(async move { fleet.create(&admin(), NewDesk::default(), None).await })
    });
    let answers: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn projects_have_limits_of_their_own() {
    let world = World::new();
    let limits = [("a".to_owned(), 1)].into();
    let fleet = world.open_with(Config { max_desks_per_project: limits, ..testing::config() }).await;
    let (a, b) = (member("a"), member("b"));
    fleet.create(&a, NewDesk::default(), None).await.unwrap();
    let refusal = fleet.create(&a, NewDesk::default(), None).await.unwrap_err();
    assert!(refusal.to_string().contains("the project a has 1 desks"), "{refusal}");
    for _ in 0..3 {
        fleet.create(&b, NewDesk::default(), None).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_machine_is_not_promised_twice() {
    let world = World::new();
    // The machine of tests has 64 CPUs and 256 GiB.
    let fleet = world.open_with(Config { cpu_share: 1.0, memory_share: 1.0, ..testing::config() }).await;
    let request =
        |cpus, memory_mib| NewDesk { resources: Resources { cpus, memory_mib, disk_mib: 1024 }.into(), ..NewDesk::default() };
    let (made, refused) = many(&fleet, 5, request(20.0, 1024)).await;
    assert_eq!((made.len(), refused.len()), (3, 2));
    assert!(refused[0].to_string().contains("CPUs can't be promised"), "{}", refused[0]);
    for desk in &made {
        settled(&fleet, &desk.id).await;
    }
    // A stopped desk needs neither, until it is started.
    fleet.stop(&admin(), &made[0].id).await.unwrap();
    settled(&fleet, &made[0].id).await;
    let fourth = make(&fleet, request(20.0, 1024)).await;
    assert!(matches!(fleet.start(&admin(), &made[0].id).await, Err(Error::Limit { .. })));
    fleet.delete(&admin(), &fourth.id).await.unwrap();
    settled(&fleet, &fourth.id).await;
    fleet.start(&admin(), &made[0].id).await.unwrap();
    let refusal = fleet.create(&admin(), request(1.0, 300 << 10), None).await.unwrap_err();
    assert!(refusal.to_string().contains("memory can't be promised"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn whoever_queues_gets_the_next_place_in_order() {
    let world = World::new();
    let fleet = world.open_with(Config { max_desks: 1, ..testing::config() }).await;
    let first = make(&fleet, NewDesk::default()).await;
    let mut waiting = Vec::new();
    for n in 0..3 {
        let fleet = fleet.clone();
        let request = NewDesk { name: Some(format!("n{n}")), queue_s: 3000, ..NewDesk::default() };
        waiting.push(tokio::spawn(async move { fleet.create(&admin(), request, None).await }));
        tokio::time::sleep(seconds(1)).await;
    }
    let impatient = NewDesk { queue_s: 5, ..NewDesk::default() };
    let refusal = fleet.create(&admin(), impatient, None).await.unwrap_err();
    assert!(refusal.to_string().contains("no place became free in 5 s"), "{refusal}");
    let mut gone = first.id;
    for (n, task) in waiting.into_iter().enumerate() {
        assert!(!task.is_finished());
        fleet.delete(&admin(), &gone).await.unwrap();
        let desk = task.await.unwrap().unwrap();
        assert_eq!(desk.name, Some(format!("n{n}")));
        gone = desk.id;
    }
}

#[tokio::test(start_paused = true)]
async fn room_that_no_desk_gave_back_is_seen() {
    let world = World::new();
    let fleet = world.open_with(testing::config()).await;
    fleet.leave_disk(1);
    let request = NewDesk { queue_s: 60, ..NewDesk::default() };
    let refusal = fleet.create(&admin(), request.clone(), None).await.unwrap_err();
    assert!(refusal.to_string().contains("has 1 MiB left") && refusal.to_string().contains("in 60 s"), "{refusal}");
    // Somebody removes a large file.
    let waiting = tokio::spawn({
        let (fleet, request) = (fleet.clone(), request.clone());
        async move { fleet.create(&admin(), request, None).await }
    });
    tokio::time::sleep(seconds(20)).await;
    assert!(!waiting.is_finished());
    fleet.leave_disk(1 << 20);
    let begun = tokio::time::Instant::now();
    waiting.await.unwrap().unwrap();
    assert!(begun.elapsed() < seconds(5), "{:?}", begun.elapsed());
    // Whoever waited in vain is told what stands in the way now.
    fleet.leave_disk(1);
    let waiting = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.create(&admin(), request, None).await }
    });
    tokio::time::sleep(seconds(1)).await;
    fleet.leave_disk(7);
    let refusal = waiting.await.unwrap().unwrap_err();
    assert!(refusal.to_string().contains("has 7 MiB left"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_starts_takes_turns() {
    let world = World::new();
    let fleet = world.open_with(Config { starts_at_once: 2, ..testing::config() }).await;
    for _ in 0..6 {
        world.reality.fault(Step::Create, Fault::Slow(seconds(10)));
    }
    let (made, _) = many(&fleet, 6, NewDesk::default()).await;
    tokio::time::sleep(seconds(5)).await;
    let mut stages: Vec<_> = Vec::new();
    for desk in &made {
        stages.push(fleet.desk(&admin(), &desk.id).await.unwrap().stage.unwrap());
    }
    assert_eq!(stages.iter().filter(|s| *s == "waiting for a turn").count(), 4, "{stages:?}");
    let begun = tokio::time::Instant::now();
    for desk in &made {
        assert_eq!(settled(&fleet, &desk.id).await.state, State::Running);
    }
    assert!(begun.elapsed() >= seconds(20), "{:?}", begun.elapsed());
}

/// A full disk stops the store, and with it every tenant: what fills it is refused before that.
#[tokio::test(start_paused = true)]
async fn what_fills_the_disk_is_refused_in_time() {
    let world = World::new();
    let archives = tempfile::tempdir().unwrap();
    let config = Config { archive: archives.path().display().to_string(), ..testing::config() };
    let fleet = world.open_with(config).await;
    let desk = make(&fleet, NewDesk::default()).await;
    let is_full = |e: &Error| matches!(e, Error::Limit { reason, .. } if reason.contains("are kept for what runs"));
    // The machine of the tests has 4 TiB, of which 4 GiB are kept.
    fleet.leave_disk(4095);
    let told = fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap_err();
    assert!(is_full(&told), "{told}");
    let told = fleet.create(&admin(), NewDesk::default(), None).await.unwrap_err();
    assert!(is_full(&told), "{told}");
    fleet.stop(&admin(), &desk.id).await.unwrap();
    settled(&fleet, &desk.id).await;
    fleet.archive(&admin(), &desk.id).await.unwrap();
    let shown = settled(&fleet, &desk.id).await;
    assert_eq!(shown.state, State::Stopped, "{}", shown.reason);
    assert!(shown.reason.contains("are kept for what runs"), "{}", shown.reason);
    fleet.leave_disk(4096);
    fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_project_has_so_many_snapshots_and_no_more() {
    let world = World::new();
    let fleet = world.open_with(Config { max_snapshots: 2, ..testing::config() }).await;
    let desk = make(&fleet, NewDesk::default()).await;
    let first = fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap();
    fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap();
    let told = fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap_err();
    assert!(matches!(&told, Error::Limit { reason, .. } if reason.contains("2 snapshots")), "{told}");
    let told = fleet.fork(&admin(), &desk.id, false, NewDesk::default()).await.unwrap_err();
    assert!(matches!(told, Error::Limit { .. }), "a fork saves the desk too: {told}");
    // Of another project.
    let other = make(&fleet, NewDesk { project: Some("other".into()), ..NewDesk::default() }).await;
    fleet.snapshot(&admin(), &other.id, None, false).await.unwrap();
    fleet.delete_snapshot(&admin(), &first.id).await.unwrap();
    fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap();
    assert_eq!(world.reality.snapshots().len(), 3);
    let mut desks = Vec::new();
    for _ in 0..5 {
        desks.push(make(&fleet, NewDesk { project: Some("many".into()), ..NewDesk::default() }).await.id);
    }
    let who = admin();
    let saved = join_all(desks.iter().map(|id| fleet.snapshot(&who, id, None, false))).await;
    assert_eq!(saved.iter().filter(|saved| saved.is_ok()).count(), 2, "many at once are no more: {saved:?}");
    fleet.close().await;

    // Each of them takes 1000 bytes here, which is no MiB; a project above its bytes is refused.
    let mut large = world.store.snapshots().await.unwrap().remove(0);
    (large.project, large.size_bytes) = ("default".into(), 5 << 20);
    world.store.put_snapshot(&large).await.unwrap();
    let fleet = world.open_with(Config { max_snapshots_mib: 5, ..testing::config() }).await;
    let told = fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap_err();
    assert!(matches!(&told, Error::Limit { reason, .. } if reason.contains("5 MiB")), "{told}");
}
