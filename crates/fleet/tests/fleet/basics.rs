//! Making, stopping, starting, resetting, deleting.

use super::*;
use hotdesk_api::action::Size;
use hotdesk_api::desk::{DeskChange, Policy, PolicyRequest, Resources, ResourcesRequest};
use hotdesk_fleet::testing::{Fault, Step, member};
use hotdesk_fleet::{Error, Filter};
use hotdesk_provider::Error as ProviderError;

#[tokio::test(start_paused = true)]
async fn a_desk_lives_its_life() {
    let world = World::new();
    let fleet = world.open().await;
    let mut events = fleet.watch();

    let desk = make(&fleet, NewDesk { name: Some("one".into()), ..NewDesk::default() }).await;
    assert!(desk.id.starts_with("d-") && desk.id.len() == 14, "{}", desk.id);
    assert_eq!((desk.template.as_str(), desk.provider.as_str(), desk.project.as_str()), ("base", "test", "default"));
    assert!(world.reality.thing(&desk.id).unwrap().running);
    let door = fleet.door(&admin(), "one").await.unwrap();
    assert_eq!(door.secret, world.reality.thing(&desk.id).unwrap().secret);
    world.reality.touch(&desk.id, |t| t.files = 7);

    fleet.stop(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Stopped);
    assert!(!world.reality.thing(&desk.id).unwrap().running);
    let refusal = fleet.door(&admin(), "one").await.unwrap_err();
    assert!(refusal.to_string().contains("start it first"), "{refusal}");

    fleet.start(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Running);
    assert_eq!(world.reality.thing(&desk.id).unwrap().files, 7, "a start keeps the files");
    assert_ne!(fleet.door(&admin(), "one").await.unwrap().address, door.address, "the new address is known");

    fleet.reset(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Running);
    assert_eq!(world.reality.thing(&desk.id).unwrap().files, 0, "a reset does not");

    fleet.delete(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Deleted);
    assert!(world.reality.things().is_empty());
    assert!(matches!(fleet.desk(&admin(), &desk.id).await, Err(Error::NotFound { .. })));
    assert_eq!(fleet.delete(&admin(), &desk.id).await.unwrap().state, State::Deleted, "deleting again is no error");

    let mut states = Vec::new();
    let mut last = 0;
    while !matches!(states.last(), Some(State::Deleted)) {
        let event = events.recv().await.unwrap();
        assert!(event.number >= last, "numbers grow");
        last = event.number;
        if event.kind == "state" {
            states.push(event.state.unwrap());
        }
    }
    use State::{Creating, Deleted, Deleting, Resetting, Running, Starting, Stopped, Stopping};
    assert_eq!(states, [Creating, Running, Stopping, Stopped, Starting, Running, Resetting, Running, Deleting, Deleted]);
    let stored = fleet.events(&admin(), 0, Some(&desk.id), 100).await.unwrap();
    assert_eq!(stored.len(), states.len());
    assert_eq!(stored[0].by, "admin");
}

#[tokio::test(start_paused = true)]
async fn a_template_s_wishes_count_where_nobody_says_otherwise() {
    let world = World::new();
    let fleet = world.open().await;
    let large = || NewDesk { template: Some("large".into()), ..NewDesk::default() };
    let desk = make(&fleet, large()).await;
    assert_eq!((desk.resources.disk_mib, desk.screen.width), (8192, 1280));
    let asked = Resources { cpus: 1.0, memory_mib: 512, disk_mib: 1024 };
    let desk = make(&fleet, NewDesk { resources: asked.into(), screen: Some(Size { width: 640, height: 480 }), ..large() }).await;
    assert_eq!((desk.resources, desk.screen.width), (asked, 640), "a request's own wish wins");
    let some = ResourcesRequest { cpus: Some(1.0), ..ResourcesRequest::default() };
    let desk = make(&fleet, NewDesk { resources: some, ..large() }).await;
    let kept = Resources { cpus: 1.0, memory_mib: 4096, disk_mib: 8192 };
    assert_eq!(desk.resources, kept, "what the request leaves out is the template's");
    let same = ResourcesRequest { disk_mib: Some(Resources::default().disk_mib), ..ResourcesRequest::default() };
    let desk = make(&fleet, NewDesk { resources: same, ..large() }).await;
    assert_eq!(desk.resources.disk_mib, Resources::default().disk_mib, "said is said, also if it is the general default");
    let desk = make(&fleet, NewDesk::default()).await;
    assert_eq!((desk.resources, desk.screen.width), (Resources::default(), 1920));
}

/// A word about one time leaves the fleet's other times as they are.
#[tokio::test(start_paused = true)]
async fn a_request_keeps_what_the_fleet_says_about_the_rest() {
    let world = World::new();
    let own = Policy { auto_stop_s: 77, auto_archive_s: 88, ..Policy::default() };
    let fleet = world.open_with(Config { policy: own, ..testing::config() }).await;
    let policy = PolicyRequest { ttl_s: Some(3600), ..PolicyRequest::default() };
    let desk = make(&fleet, NewDesk { policy, ..NewDesk::default() }).await;
    assert_eq!(desk.policy, Policy { ttl_s: 3600, ..own });
    // Also where it is what the general default says.
    let policy = PolicyRequest { auto_stop_s: Some(Policy::default().auto_stop_s), ..PolicyRequest::default() };
    let desk = make(&fleet, NewDesk { policy, ..NewDesk::default() }).await;
    assert_eq!(desk.policy, Policy { auto_stop_s: Policy::default().auto_stop_s, ..own });
}

#[tokio::test(start_paused = true)]
async fn a_create_that_fails_leaves_nothing_behind() {
    let world = World::new();
    let fleet = world.open().await;
    for fault in [Fault::Fails, Fault::FailsHalf, Fault::FailsAfter] {
        world.reality.fault(Step::Create, fault(ProviderError::NotReady("the X server died".into())));
        let desk = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
        let desk = settled(&fleet, &desk.id).await;
        assert_eq!(desk.state, State::Error);
        assert!(desk.reason.contains("the X server died"), "{}", desk.reason);
        assert!(world.reality.things().is_empty(), "{:?}", world.reality.things());
        // It can be tried again, or deleted.
        fleet.start(&admin(), &desk.id).await.unwrap();
        assert_eq!(settled(&fleet, &desk.id).await.state, State::Running);
        fleet.delete(&admin(), &desk.id).await.unwrap();
        assert_eq!(settled(&fleet, &desk.id).await.state, State::Deleted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_stumbles_is_asked_again() {
    let world = World::new();
    let fleet = world.open().await;
    for _ in 0..3 {
        world.reality.fault(Step::Create, Fault::Fails(ProviderError::Unavailable { provider: "test", reason: "busy".into() }));
    }
    make(&fleet, NewDesk::default()).await;
    assert_eq!(world.reality.calls(Step::Create), 4);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_ends_in_error() {
    let world = World::new();
    let fleet = world.open().await;
    world.reality.fault(Step::Create, Fault::Hangs);
    let desk = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
    let desk = settled(&fleet, &desk.id).await;
    assert_eq!(desk.state, State::Error);
    assert!(desk.reason.contains("took longer than 300 s"), "{}", desk.reason);
}

#[tokio::test(start_paused = true)]
async fn delete_wins_over_a_step_that_hangs() {
    let world = World::new();
    let fleet = world.open().await;
    world.reality.fault(Step::Create, Fault::Hangs);
    let desk = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
    tokio::time::sleep(seconds(1)).await;
    let begun = tokio::time::Instant::now();
    fleet.delete(&admin(), &desk.id).await.unwrap();
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Deleted);
    assert!(begun.elapsed() < seconds(10), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn other_requests_wait_for_the_step() {
    let world = World::new();
    let fleet = world.open().await;
    world.reality.fault(Step::Create, Fault::Slow(seconds(20)));
    let desk = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
    assert_eq!(fleet.stop(&admin(), &desk.id).await.unwrap().state, State::Stopping);
    assert_eq!(settled(&fleet, &desk.id).await.state, State::Stopped);
    assert!(matches!(fleet.archive(&admin(), &desk.id).await, Err(_) | Ok(_)));

    world.reality.fault(Step::Start, Fault::Hangs);
    fleet.start(&admin(), &desk.id).await.unwrap();
    let refusal = fleet.stop(&admin(), &desk.id).await.unwrap_err();
    assert!(matches!(refusal, Error::Conflict(_)), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_makes_one_desk() {
    let world = World::new();
    let fleet = world.open().await;
    let all = futures_util::future::join_all((0..20).map(|_| {
        let fleet = fleet.clone();
        async move { fleet.create(&admin(), NewDesk::default(), Some("once")).await.unwrap().id }
    }))
    .await;
    assert!(all.iter().all(|id| *id == all[0]), "{all:?}");
    let other = member("a");
    assert_ne!(fleet.create(&other, NewDesk::default(), Some("once")).await.unwrap().id, all[0], "each key has its own");
    assert_eq!(fleet.desks(&admin(), Filter::default()).await.unwrap().len(), 2);
    // The same key with other words is a mistake that must not go unseen, also after the desk is gone.
    let others = [
        NewDesk { name: Some("other".into()), ..NewDesk::default() },
        NewDesk { commands_env: Some([("A".to_owned(), "1".to_owned())].into()), ..NewDesk::default() },
    ];
    settled(&fleet, &all[0]).await;
    for deleted in [false, true] {
        if deleted {
            fleet.delete(&admin(), &all[0]).await.unwrap();
            settled(&fleet, &all[0]).await;
        }
        for other in &others {
            let refusal = fleet.create(&admin(), other.clone(), Some("once")).await.unwrap_err();
            assert!(matches!(&refusal, Error::Conflict(words) if words.contains("idempotency")), "{refusal}");
        }
        assert_eq!(fleet.create(&admin(), NewDesk::default(), Some("once")).await.unwrap().id, all[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn desks_of_others_do_not_exist() {
    let world = World::new();
    let fleet = world.open().await;
    let (a, b) = (member("a"), member("b"));
    let desk = fleet.create(&a, NewDesk { name: Some("mine".into()), ..NewDesk::default() }, None).await.unwrap();
    settled(&fleet, &desk.id).await;
    assert_eq!(fleet.desk(&a, "mine").await.unwrap().id, desk.id);
    for id in ["mine", desk.id.as_str()] {
        assert!(matches!(fleet.desk(&b, id).await, Err(Error::NotFound { .. })));
        assert!(matches!(fleet.door(&b, id).await, Err(Error::NotFound { .. })));
        assert!(matches!(fleet.delete(&b, id).await, Err(Error::NotFound { .. })));
        assert!(matches!(fleet.wait(&b, id, LONG).await, Err(Error::NotFound { .. })));
        assert!(matches!(fleet.fork(&b, id, false, NewDesk::default()).await, Err(Error::NotFound { .. })));
    }
    assert!(fleet.desks(&b, Filter::default()).await.unwrap().is_empty());
    assert!(fleet.events(&b, 0, None, 10).await.unwrap().is_empty());
    assert!(!fleet.events(&a, 0, None, 10).await.unwrap().is_empty());
    let refusal = fleet.create(&b, NewDesk { project: Some("a".into()), ..NewDesk::default() }, None).await;
    assert!(matches!(refusal, Err(Error::Denied(_))));
    // The same name in another project is another desk.
    fleet.create(&b, NewDesk { name: Some("mine".into()), ..NewDesk::default() }, None).await.unwrap();
    let taken = fleet.create(&a, NewDesk { name: Some("mine".into()), ..NewDesk::default() }, None).await;
    assert!(matches!(taken, Err(Error::Conflict(_))), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn name_labels_and_policy_change() {
    let world = World::new();
    let fleet = world.open().await;
    let labels = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into();
    let desk = make(&fleet, NewDesk { labels: Some(labels), ..NewDesk::default() }).await;
    let change = DeskChange {
        name: Some("new".into()),
        labels: [("a".to_owned(), None), ("c".to_owned(), Some("3".to_owned()))].into(),
        policy: Some(PolicyRequest { ttl_s: Some(60), ..Default::default() }),
    };
    let desk = fleet.update(&admin(), &desk.id, change).await.unwrap();
    assert_eq!(desk.name.as_deref(), Some("new"));
    assert_eq!(desk.labels.keys().collect::<Vec<_>>(), ["b", "c"]);
    assert!(desk.expires_at.is_some());
    let policy = Some(PolicyRequest { auto_stop_s: Some(7), ..Default::default() });
    let desk = fleet.update(&admin(), &desk.id, DeskChange { policy, ..DeskChange::default() }).await.unwrap();
    assert_eq!((desk.policy.auto_stop_s, desk.policy.ttl_s), (7, 60), "what is left out stays");
    let filter = Filter { labels: [("c".to_owned(), "3".to_owned())].into(), ..Filter::default() };
    assert_eq!(fleet.desks(&admin(), filter).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_cannot_do_is_refused_before_anything_is_spent() {
    let world = World::new();
    let fleet = world.open().await;
    world.reality.can(|c| (c.network, c.disk_limit, c.live_fork) = (false, false, false));
    let network = NewDesk { network: Some(true), ..NewDesk::default() };
    let disk = NewDesk { resources: ResourcesRequest { disk_mib: Some(100), ..Default::default() }, ..NewDesk::default() };
    let template = NewDesk { template: Some("windows".into()), ..NewDesk::default() };
    for request in [network, disk] {
        let error = fleet.create(&admin(), request, None).await.unwrap_err();
        assert!(matches!(error, Error::Provider(ProviderError::Unsupported { .. })), "{error}");
    }
    let error = fleet.create(&admin(), template, None).await.unwrap_err();
    assert!(matches!(error, Error::Provider(ProviderError::NotFound(_))), "{error}");
    assert!(fleet.desks(&admin(), Filter::default()).await.unwrap().is_empty());
    assert_eq!(world.reality.calls(Step::Create), 0);
    let desk = make(&fleet, NewDesk::default()).await;
    let error = fleet.snapshot(&admin(), &desk.id, None, true).await.unwrap_err();
    assert!(matches!(error, Error::Provider(ProviderError::Unsupported { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn snapshots_and_forks() {
    let world = World::new();
    let fleet = world.open().await;
    let desk = make(&fleet, NewDesk { env: Some([("A".to_owned(), "1".to_owned())].into()), ..NewDesk::default() }).await;
    world.reality.touch(&desk.id, |t| t.files = 42);
    let snapshot = fleet.snapshot(&admin(), &desk.id, Some("golden".into()), true).await.unwrap();
    assert_eq!((snapshot.size_bytes, snapshot.memory), (1000, true));

    let copy = make(&fleet, NewDesk { snapshot: Some("golden".into()), ..NewDesk::default() }).await;
    assert_eq!(world.reality.thing(&copy.id).unwrap().files, 42);
    assert_ne!(world.reality.thing(&copy.id).unwrap().secret, world.reality.thing(&desk.id).unwrap().secret);
    let refusal = fleet.delete_snapshot(&admin(), &snapshot.id).await.unwrap_err();
    assert!(refusal.to_string().contains(&copy.id), "{refusal}");

    let fork = fleet.fork(&admin(), &desk.id, true, NewDesk::default()).await.unwrap();
    let fork = settled(&fleet, &fork.id).await;
    assert_eq!((fork.state, fork.env.len()), (State::Running, 1), "a fork has what its desk has");
    let bare =
        NewDesk { env: Some([].into()), policy: PolicyRequest { ttl_s: Some(600), ..Default::default() }, ..NewDesk::default() };
    let bare = fleet.fork(&admin(), &desk.id, false, bare).await.unwrap();
    assert_eq!(
        (bare.env.len(), bare.policy.auto_stop_s, bare.policy.ttl_s),
        (0, desk.policy.auto_stop_s, 600),
        "none is not nothing said"
    );
    settled(&fleet, &bare.id).await;
    fleet.delete(&admin(), &bare.id).await.unwrap();
    settled(&fleet, &bare.id).await;
    // The snapshot of a fork goes with its last desk.
    tokio::time::sleep(seconds(30)).await;
    assert_eq!(world.reality.snapshots().len(), 2);
    for id in [&fork.id, &copy.id] {
        fleet.delete(&admin(), id).await.unwrap();
        settled(&fleet, id).await;
    }
    // One that is given up while it is used goes with its last desk too, and one that is not used at once.
    let last = make(&fleet, NewDesk { snapshot: Some("golden".into()), ..NewDesk::default() }).await;
    fleet.give_up_snapshot(&admin(), &snapshot.id).await.unwrap();
    tokio::time::sleep(seconds(30)).await;
    assert_eq!(world.reality.snapshots().len(), 1);
    fleet.delete(&admin(), &last.id).await.unwrap();
    settled(&fleet, &last.id).await;
    tokio::time::sleep(seconds(30)).await;
    assert!(world.reality.snapshots().is_empty());
    assert!(fleet.snapshots(&admin()).await.unwrap().is_empty());

    world.reality.fault(Step::Snapshot, Fault::FailsAfter(ProviderError::Full("the disk".into())));
    fleet.snapshot(&admin(), &desk.id, None, false).await.unwrap_err();
    assert!(world.reality.snapshots().is_empty(), "a snapshot that failed leaves nothing behind");
}

/// Whoever sees a desk learns what its variables are called; only who starts commands in it gets their values.
#[tokio::test(start_paused = true)]
async fn values_of_the_environment_are_not_told() {
    let world = World::new();
    let fleet = world.open().await;
    let pairs = |name: &str, value: &str| std::collections::BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let wish = NewDesk { env: Some(pairs("A", "precious")), commands_env: Some(pairs("B", "precious")), ..NewDesk::default() };
    let desk = make(&fleet, wish).await;
    assert_eq!(desk.env, ["A"]);
    let fork = fleet.fork(&admin(), &desk.id, false, NewDesk::default()).await.unwrap();
    for id in [&desk.id, &fork.id] {
        let shown = serde_json::to_string(&fleet.desk(&admin(), id).await.unwrap()).unwrap();
        assert!(!shown.contains("precious"), "{shown}");
        let values = fleet.environment(&admin(), id).unwrap();
        assert_eq!((values["A"].as_str(), values["B"].as_str()), ("precious", "precious"));
    }
    assert!(fleet.environment(&member("other"), &desk.id).is_err(), "of another project");
    let events = format!("{:?}", fleet.events(&admin(), 0, None, 100).await.unwrap());
    assert!(!events.contains("precious"), "{events}");
    let error = fleet.create(&admin(), NewDesk { commands_env: Some(pairs("B=C", "")), ..NewDesk::default() }, None).await;
    assert!(matches!(error, Err(Error::Invalid(_))), "{error:?}");
}

/// What the fleet's settings leave out is the template's, like what a request leaves out.
#[tokio::test(start_paused = true)]
async fn the_settings_keep_what_the_template_says_about_the_rest() {
    let world = World::new();
    let resources = ResourcesRequest { cpus: Some(1.0), ..ResourcesRequest::default() };
    let fleet = world.open_with(Config { resources, ..testing::config() }).await;
    let large = || NewDesk { template: Some("large".into()), ..NewDesk::default() };
    let desk = make(&fleet, large()).await;
    assert_eq!((desk.resources.cpus, desk.resources.disk_mib, desk.screen.width), (1.0, 8192, 1280));
    fleet.close().await;
    // Said is said, also if it is the general default.
    let screen = Some(Size { width: 1920, height: 1080 });
    let fleet = world.open_with(Config { screen, ..testing::config() }).await;
    assert_eq!(make(&fleet, large()).await.screen.width, 1920);
}
