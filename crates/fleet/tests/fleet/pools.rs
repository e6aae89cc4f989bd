//! Desks kept ready.

use super::*;
use hotdesk_api::fleet::{Pool, PoolSpec};
use hotdesk_fleet::testing::{Fault, Step, member};
use hotdesk_fleet::{Error, Filter};
use hotdesk_provider::Error as ProviderError;

fn spec(min: u32, max: u32) -> PoolSpec {
    PoolSpec {
        template: "base".into(),
        provider: None,
        min,
        max,
        resources: Default::default(),
        max_hourly: None,
        cool_down_s: 60,
    }
}

async fn pool(fleet: &Fleet) -> Pool {
    fleet.pools(&admin()).await.unwrap().into_iter().next().expect("there is a pool")
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_immediate_and_the_pool_is_filled_again() {
    let world = World::new();
    let fleet = world.open_with(Config { pools: vec![spec(2, 4)], max_desks: 3, ..testing::config() }).await;
    tokio::time::sleep(seconds(6)).await;
    assert_eq!((pool(&fleet).await.ready, world.reality.things().len()), (2, 2));
    assert!(fleet.desks(&admin(), Filter::default()).await.unwrap().is_empty(), "they are nobody's yet");

    let creates = world.reality.calls(Step::Create);
    let request =
        NewDesk { name: Some("mine".into()), labels: Some([("a".to_owned(), "b".to_owned())].into()), ..NewDesk::default() };
    let desk = fleet.create(&member("p"), request.clone(), Some("key")).await.unwrap();
    assert_eq!((desk.state, desk.project.as_str(), desk.name.as_deref()), (State::Running, "p", Some("mine")));
    assert_eq!(desk.labels.len(), 1);
    assert_eq!(world.reality.calls(Step::Create), creates, "nothing was made for it");
    let door = fleet.door(&member("p"), "mine").await.unwrap();
    assert_eq!(door.secret, world.reality.thing(&desk.id).unwrap().secret);
    let again = fleet.create(&member("p"), request, Some("key")).await.unwrap();
    assert_eq!(again.id, desk.id, "an idempotency key claims once");
    let other = fleet.create(&member("p"), NewDesk::default(), Some("key")).await;
    assert!(matches!(other, Err(Error::Conflict(_))), "{other:?}");

    tokio::time::sleep(seconds(6)).await;
    let now = pool(&fleet).await;
    assert!(now.ready >= 2 && now.claims == 1, "{now:?}");
    // A claimed desk is somebody's: it counts, and its policy holds.
    tokio::time::sleep(seconds(16 * 60)).await;
    assert_eq!(fleet.desk(&member("p"), "mine").await.unwrap().state, State::Stopped);
    assert!(pool(&fleet).await.ready >= 2, "those of the pool are not stopped");
}

#[tokio::test(start_paused = true)]
async fn a_request_for_something_special_is_a_miss() {
    let world = World::new();
    let fleet = world.open_with(Config { pools: vec![spec(1, 1)], ..testing::config() }).await;
    tokio::time::sleep(seconds(6)).await;
    let special = [
        NewDesk { env: Some([("A".to_owned(), "1".to_owned())].into()), ..NewDesk::default() },
        NewDesk { screen: Some(hotdesk_api::action::Size { width: 800, height: 600 }), ..NewDesk::default() },
        NewDesk { vnc_password: Some("secret".into()), ..NewDesk::default() },
        NewDesk {
            resources: hotdesk_api::desk::ResourcesRequest { cpus: Some(1.0), ..Default::default() },
            ..NewDesk::default()
        },
        NewDesk { network: Some(false), ..NewDesk::default() },
    ];
    let count = special.len() as u64;
    for request in special {
        let desk = fleet.create(&admin(), request, None).await.unwrap();
        assert_eq!(desk.state, State::Creating);
    }
    let now = pool(&fleet).await;
    assert_eq!((now.claims, now.misses, now.ready), (0, count, 1));
    // An empty pool is a miss too, and no reason to fail.
    let both = [fleet.create(&admin(), NewDesk::default(), None).await, fleet.create(&admin(), NewDesk::default(), None).await];
    assert_eq!(both.map(|d| d.unwrap().state), [State::Running, State::Creating]);
}

#[tokio::test(start_paused = true)]
async fn demand_makes_it_grow_within_its_bounds_and_shrink_slowly() {
    let world = World::new();
    let fleet = world.open_with(Config { pools: vec![spec(1, 5)], ..testing::config() }).await;
    tokio::time::sleep(seconds(6)).await;
    for _ in 0..40 {
        world.reality.fault(Step::Create, Fault::Slow(seconds(4)));
        let desk = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
        tokio::time::sleep(seconds(1)).await;
        fleet.delete(&admin(), &desk.id).await.unwrap();
    }
    let busy = pool(&fleet).await;
    assert!(busy.target >= 4 && busy.target <= 5, "{busy:?}");
    tokio::time::sleep(seconds(30 * 60)).await;
    let quiet = pool(&fleet).await;
    assert_eq!((quiet.target, quiet.ready), (1, 1));
    assert_eq!(world.reality.things().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn money_bounds_it() {
    let world = World::new();
    let price = hotdesk_fleet::config::Price { cpu_hour: 1.0, ..Default::default() };
    // A desk has two CPUs: five an hour pays for two desks.
    let pools = vec![PoolSpec { max_hourly: Some(5.0), ..spec(4, 8) }];
    let fleet = world.open_with(Config { pools, prices: [("test".to_owned(), price)].into(), ..testing::config() }).await;
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(pool(&fleet).await.ready, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_desks_fail_pauses_and_recovers() {
    let world = World::new();
    for _ in 0..4 {
        world.reality.fault(Step::Create, Fault::Fails(ProviderError::Failed("no".into())));
    }
    let fleet = world.open_with(Config { pools: vec![spec(2, 2)], ..testing::config() }).await;
    tokio::time::sleep(seconds(120)).await;
    assert_eq!(pool(&fleet).await.ready, 2);
    assert_eq!(world.reality.things().len(), 2, "the failed ones are gone");
    fleet.remove_pool(&admin(), "base").await.unwrap();
    tokio::time::sleep(seconds(30)).await;
    assert!(world.reality.things().is_empty());
    assert!(matches!(fleet.pools(&member("x")).await, Err(Error::Denied(_))));
}

#[tokio::test(start_paused = true)]
async fn a_desk_that_died_in_its_pool_is_started_before_it_is_handed_out() {
    let world = World::new();
    let fleet = world.open_with(Config { pools: vec![spec(1, 1)], ..testing::config() }).await;
    tokio::time::sleep(seconds(6)).await;
    let id = world.reality.things().into_keys().next().unwrap();
    world.reality.die(&id);
    let desk = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
    assert_eq!((desk.id.as_str(), desk.state), (id.as_str(), State::Starting));
    assert_eq!(settled(&fleet, &id).await.state, State::Running);
}
