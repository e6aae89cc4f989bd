//! A fleet over its real store, in real time: what it survives, and how long it takes.

use hotdesk_api::desk::{NewDesk, State};
use hotdesk_api::fleet::PoolSpec;
use hotdesk_fleet::testing::{self, Reality, admin};
use hotdesk_fleet::{Config, Error, Filter, Fleet, store};
use std::path::Path;
use std::time::{Duration, Instant};

async fn open(data: &Path, reality: &Reality, pools: Vec<PoolSpec>) -> Result<Fleet, Error> {
    let config = Config { data: data.into(), pools, max_desks: 1000, ..Config::default() };
    let store = store::open(&config).await?;
    let fleet = Fleet::open_with(config, store, vec![reality.provider()], testing::options(reality)).await?;
    fleet.reconciled().await;
    Ok(fleet)
}

fn pool(ready: u32) -> PoolSpec {
    PoolSpec {
        template: "base".into(),
        provider: None,
        min: ready,
        max: ready,
        resources: Default::default(),
        max_hourly: None,
        cool_down_s: 60,
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_fleet_carries_on_at_once() {
    let (data, reality) = (tempfile::tempdir().unwrap(), Reality::new());
    let mut made = Vec::new();
    for _ in 0..3 {
        let fleet = open(data.path(), &reality, Vec::new()).await.unwrap();
        for _ in 0..5 {
            made.push(fleet.create(&admin(), NewDesk::default(), None).await.unwrap().id);
        }
        fleet.kill().await;
    }
    let fleet = open(data.path(), &reality, Vec::new()).await.unwrap();
    for id in &made {
        let desk = fleet.wait(&admin(), id, Duration::from_secs(60)).await.unwrap();
        assert_eq!(desk.state, State::Running, "{}", desk.reason);
    }
    assert_eq!(reality.things().len(), made.len());
    assert!(reality.violations().is_empty(), "{:?}", reality.violations());
    let second = open(data.path(), &reality, Vec::new()).await;
    assert!(matches!(&second, Err(Error::Conflict(why)) if why.contains("another hotdesk")), "{:?}", second.err());
    fleet.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_doors_are_quick() {
    let (data, reality) = (tempfile::tempdir().unwrap(), Reality::new());
    let fleet = open(data.path(), &reality, vec![pool(40)]).await.unwrap();
    let mut events = fleet.watch();
    while fleet.pools(&admin()).await.unwrap()[0].ready < 40 {
        events.recv().await.unwrap();
    }
    let (mut claims, mut creates) = (Vec::new(), Vec::new());
    for n in 0..20 {
        let begun = Instant::now();
        let desk = fleet.create(&admin(), NewDesk::default(), Some(&format!("key {n}"))).await.unwrap();
        claims.push(begun.elapsed());
        assert_eq!(desk.state, State::Running);
    }
    for _ in 0..20 {
        let begun = Instant::now();
        let request = NewDesk { vnc_password: Some("cold".into()), ..NewDesk::default() };
        let desk = fleet.create(&admin(), request, None).await.unwrap();
        fleet.wait(&admin(), &desk.id, Duration::from_secs(60)).await.unwrap();
        creates.push(begun.elapsed());
    }
    let id = fleet.desks(&admin(), Filter::default()).await.unwrap()[0].id.clone();
    let (who, begun) = (admin(), Instant::now());
    for _ in 0..10_000 {
        fleet.door(&who, &id).await.unwrap();
    }
    let door = begun.elapsed() / 10_000;
    eprintln!("claim {:?}, create to running {:?}, door {door:?}", median(claims), median(creates));
    fleet.close().await;
}
