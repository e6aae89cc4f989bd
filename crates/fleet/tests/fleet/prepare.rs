//! Templates that take long to build: for whom, how often, and before whom.

use super::*;
use hotdesk_api::fleet::PoolSpec;
use hotdesk_fleet::testing::{Fault, Step};
use hotdesk_fleet::{Error, Prepared};
use hotdesk_provider::Error as ProviderError;

fn prepared(world: &World) -> Vec<String> {
    world.reality.called(Step::Prepare)
}

#[tokio::test(start_paused = true)]
async fn a_template_is_built_once_for_all_who_wait() {
    let world = World::new();
    let fleet = world.open().await;
    world.reality.fault(Step::Prepare, Fault::Slow(seconds(600)));
    let large = || NewDesk { template: Some("large".into()), ..NewDesk::default() };
    assert!(matches!(fleet.prepare(None, "large").await, Ok(Prepared::UnderWay(_))), "nobody waits for it who can't");
    assert!(fleet.preparation("test", "large").is_some());
    let (one, two) = tokio::join!(make(&fleet, large()), make(&fleet, large()));
    assert_ne!(one.id, two.id);
    assert_eq!(fleet.prepare(None, "large").await.unwrap(), Prepared::Ready);
    assert_eq!((prepared(&world), fleet.preparation("test", "large")), (vec!["large".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn why_a_build_failed_is_told_to_those_who_come_later() {
    let world = World::new();
    let fleet = world.open().await;
    let unknown = fleet.prepare(None, "windows").await;
    assert!(matches!(unknown, Err(Error::Provider(ProviderError::NotFound(_)))), "{unknown:?}");
    world.reality.fault(Step::Prepare, Fault::Slow(seconds(60)));
    world.reality.fault(Step::Prepare, Fault::Slow(seconds(60)));
    world.reality.can(|can| can.templates.retain(|template| template != "large"));
    assert_eq!(fleet.prepare(None, "large").await.unwrap(), Prepared::UnderWay("it has just begun".into()));
    tokio::time::sleep(seconds(90)).await;
    assert_eq!(fleet.preparation("test", "large"), None);
    match fleet.prepare(None, "large").await.unwrap() {
        Prepared::UnderWay(told) => assert!(told.contains("the try before failed: there is no template large"), "{told}"),
        Prepared::Ready => panic!("it is not there"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_fleet_is_for_is_built_ahead() {
    let world = World::new();
    let pool = PoolSpec {
        template: "large".into(),
        provider: None,
        min: 0,
        max: 0,
        resources: Default::default(),
        max_hourly: None,
        cool_down_s: 60,
    };
    let config = Config { template: "bare".into(), pools: vec![pool], ..testing::config() };
    let fleet = world.open_with(config.clone()).await;
    fleet.prepare_ahead(vec!["base".into(), "bare".into(), "unknown".into()]);
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(prepared(&world), ["bare", "base", "large"], "each once, and nothing that nobody has");
    fleet.close().await;

    let world = World::new();
    let fleet = world.open_with(Config { build_ahead: Some(Vec::new()), ..config }).await;
    fleet.prepare_ahead(vec!["base".into()]);
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(prepared(&world), ["large"], "the settings say that nothing else is");
    // A fleet that closes does not wait for a build.
    world.reality.fault(Step::Prepare, Fault::Hangs);
    assert!(matches!(fleet.prepare(None, "base").await, Ok(Prepared::UnderWay(_))));
    let begun = tokio::time::Instant::now();
    fleet.close().await;
    assert!(begun.elapsed() < seconds(1), "{:?}", begun.elapsed());
}
