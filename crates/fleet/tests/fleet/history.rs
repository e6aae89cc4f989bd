//! An older copy of the store is put back: nothing is deleted for it.

use super::*;
use hotdesk_api::fleet::{Adopt, Adopted, OrphanKind, PoolSpec};
use hotdesk_fleet::store::{self, Store};
use std::path::Path;

/// A fleet whose data directory knows how far the store was.
async fn open(data: &Path, store: Arc<dyn Store>, reality: &Reality) -> Fleet {
    let config = Config { data: data.into(), ..testing::config() };
    open_with(config, store, reality).await
}

async fn open_with(config: Config, store: Arc<dyn Store>, reality: &Reality) -> Fleet {
    let options = testing::marked(reality);
    let fleet = Fleet::open_with(config, store, vec![reality.provider()], options).await.expect("the fleet opens");
    fleet.reconciled().await;
    fleet
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_of_the_store_deletes_nothing() {
    let (data, reality, store) = (tempfile::tempdir().unwrap(), Reality::new(), MemoryStore::new());
    let fleet = open(data.path(), store.clone(), &reality).await;
    let archived = make(&fleet, NewDesk { name: Some("kept".into()), ..NewDesk::default() }).await;
    fleet.close().await;
    let copy = store.copy();

    // What is done after the copy.
    let fleet = open(data.path(), store, &reality).await;
    let precious = make(&fleet, NewDesk { name: Some("precious".into()), ..NewDesk::default() }).await;
    reality.touch(&precious.id, |t| t.files = 7);
    let snapshot = fleet.snapshot(&admin(), &precious.id, None, false).await.unwrap();
    fleet.close().await;

    let fleet = open(data.path(), copy, &reality).await;
    days(30).await;
    assert_eq!(reality.thing(&precious.id).map(|t| t.files), Some(7), "a desk that the copy does not know was deleted");
    assert!(reality.thing(&precious.id).unwrap().running, "nobody touches it before somebody decides");
    assert_eq!(reality.snapshots(), std::slice::from_ref(&snapshot.id), "a snapshot that the copy does not know was deleted");
    let warnings = fleet.ready().await.unwrap();
    assert!(warnings.iter().any(|w| w.contains("older copy")), "{warnings:?}");
    assert_eq!(fleet.desk(&admin(), "kept").await.unwrap().id, archived.id);

    // Both come back.
    let orphans = fleet.orphans(&admin()).await.unwrap();
    assert_eq!(
        orphans.iter().map(|o| (o.kind, o.id.as_str())).collect::<Vec<_>>(),
        [(OrphanKind::Desk, precious.id.as_str()), (OrphanKind::Snapshot, snapshot.id.as_str())]
    );
    assert!(orphans.iter().all(|o| o.removed_at.is_none()), "{orphans:?}");
    let how = Adopt { name: Some("precious".into()), project: Some("lab".into()), ..Adopt::default() };
    let Adopted::Desk(desk) = fleet.adopt(&admin(), &precious.id, how).await.unwrap() else { panic!("a desk is a desk") };
    assert_eq!((desk.state, desk.project.as_str()), (State::Stopped, "lab"));
    fleet.start(&admin(), "precious").await.unwrap();
    assert_eq!(settled(&fleet, &precious.id).await.state, State::Running);
    assert_eq!(reality.thing(&precious.id).unwrap().files, 7, "its files are the same");
    fleet.adopt(&admin(), &snapshot.id, Adopt::default()).await.unwrap();
    let fork = NewDesk { snapshot: Some(snapshot.id.clone()), ..NewDesk::default() };
    let fork = make(&fleet, fork).await;
    assert_eq!(reality.thing(&fork.id).unwrap().files, 7);
    assert!(fleet.orphans(&admin()).await.unwrap().is_empty());

    // Settled: from now on it is the store, and a new stranger goes after a week.
    fleet.settle_orphans(&admin()).await.unwrap();
    assert!(fleet.ready().await.unwrap().is_empty());
    reality.plant("d-stranger");
    days(8).await;
    assert!(reality.thing("d-stranger").is_none());
    fleet.close().await;
}

/// Nobody may be given a desk that somebody has had since the copy; what the copy takes for begun or overdue is not done.
#[tokio::test(start_paused = true)]
async fn what_an_older_copy_believes_is_not_acted_on() {
    let (data, reality, store) = (tempfile::tempdir().unwrap(), Reality::new(), MemoryStore::new());
    let pool = PoolSpec {
        template: "base".into(),
        provider: None,
        min: 1,
        max: 1,
        resources: Default::default(),
        max_hourly: None,
        cool_down_s: 60,
    };
    let archives = tempfile::tempdir().unwrap();
    let config = Config {
        data: data.path().into(),
        pools: vec![pool],
        archive: archives.path().display().to_string(),
        ..testing::config()
    };
    let fleet = open_with(config.clone(), store.clone(), &reality).await;
    while fleet.pools(&admin()).await.unwrap()[0].ready < 1 {
        tokio::time::sleep(seconds(1)).await;
    }
    let policy = hotdesk_api::desk::Policy { ttl_s: 3600, ..Default::default() };
    // None of these comes from the pool.
    let cold = |name: &str| NewDesk { name: Some(name.into()), vnc_password: Some("x".into()), ..NewDesk::default() };
    let short = make(&fleet, NewDesk { policy: policy.into(), ..cold("short") }).await;
    let asleep = make(&fleet, cold("asleep")).await;
    fleet.stop(&admin(), "asleep").await.unwrap();
    settled(&fleet, "asleep").await;
    fleet.archive(&admin(), "asleep").await.unwrap();
    assert_eq!(settled(&fleet, "asleep").await.state, State::Archived);
    let reset = make(&fleet, cold("reset")).await;
    reality.fault(hotdesk_fleet::testing::Step::Reset, hotdesk_fleet::testing::Fault::Slow(seconds(5)));
    fleet.reset(&admin(), "reset").await.unwrap();
    let copy = store.copy();

    settled(&fleet, "reset").await;
    reality.touch(&reset.id, |t| t.files = 9);
    let claimed = fleet.create(&admin(), NewDesk { name: Some("claimed".into()), ..NewDesk::default() }, None).await.unwrap();
    assert_eq!(claimed.state, State::Running, "it comes from the pool");
    fleet.extend(&admin(), "short", seconds(30 * 86_400)).await.unwrap();
    fleet.start(&admin(), "asleep").await.unwrap();
    settled(&fleet, "asleep").await;
    reality.touch(&asleep.id, |t| t.files = 8);
    tokio::time::sleep(seconds(2 * 3600)).await;
    fleet.close().await;

    let fleet = open_with(Config { pools: Vec::new(), ..config }, copy, &reality).await;
    tokio::time::sleep(seconds(3600)).await;
    assert!(reality.thing(&short.id).is_some(), "its time was extended after the copy");
    assert_eq!(reality.thing(&asleep.id).map(|t| t.files), Some(8), "it was brought back from its archive after the copy");
    assert_eq!(reality.thing(&reset.id).map(|t| t.files), Some(9), "it was reset before, not after");
    let other = fleet.create(&testing::member("other"), NewDesk::default(), None).await.unwrap();
    assert_ne!(other.id, claimed.id, "somebody else got a desk that was claimed after the copy");
    assert_eq!(fleet.desk(&admin(), &claimed.id).await.unwrap().project, "pool", "an admin decides whose it is");
    fleet.close().await;
}

/// A fleet that only crashed is no older copy.
#[tokio::test(start_paused = true)]
async fn a_crash_is_no_older_copy() {
    let (data, reality, store) = (tempfile::tempdir().unwrap(), Reality::new(), MemoryStore::new());
    for _ in 0..3 {
        let fleet = open(data.path(), store.clone(), &reality).await;
        make(&fleet, NewDesk::default()).await;
        tokio::time::sleep(seconds(2)).await;
        make(&fleet, NewDesk::default()).await;
        assert!(fleet.ready().await.unwrap().is_empty());
        fleet.kill().await;
    }
    let fleet = open(data.path(), store, &reality).await;
    tokio::time::sleep(seconds(60)).await;
    assert!(fleet.ready().await.unwrap().is_empty());
    assert_eq!(reality.things().len(), 6);
}

/// The same with a real database: copied while it is served, put back while it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_made_and_put_back() {
    let (data, reality) = (tempfile::tempdir().unwrap(), Reality::new());
    let config = Config { data: data.path().into(), ..Config::default() };
    let open = async || {
        let store = store::open(&config).await.unwrap();
        assert_eq!(store.identity("one").await.unwrap(), "one");
        open_with(config.clone(), store, &reality).await
    };
    let fleet = open().await;
    let old = make(&fleet, NewDesk { name: Some("old".into()), ..NewDesk::default() }).await;
    let copy = data.path().join("copy.db");
    assert!(store::backup(&config, &copy).await.unwrap() > 0);
    let again = store::backup(&config, &copy).await;
    assert!(matches!(again, Err(hotdesk_fleet::Error::Conflict(_))), "a copy is never overwritten: {again:?}");
    let new = make(&fleet, NewDesk { name: Some("new".into()), ..NewDesk::default() }).await;
    let served = store::restore(&config, &copy, Some("one")).await;
    assert!(matches!(served, Err(hotdesk_fleet::Error::Conflict(_))), "not while it is served: {served:?}");
    fleet.close().await;
    drop(fleet);

    let foreign = store::restore(&config, &copy, Some("another")).await;
    assert!(matches!(&foreign, Err(hotdesk_fleet::Error::Invalid(why)) if why.contains("of the fleet one")), "{foreign:?}");
    let bad = data.path().join("bad.db");
    std::fs::write(&bad, "no database ".repeat(1000)).unwrap();
    assert!(store::restore(&config, &bad, None).await.is_err());
    let kept = store::restore(&config, &copy, Some("one")).await.unwrap().expect("what was there is kept");
    assert!(kept.exists());

    let fleet = open().await;
    assert_eq!(fleet.desk(&admin(), "old").await.unwrap().id, old.id);
    assert!(fleet.desk(&admin(), "new").await.is_err());
    let warnings = fleet.ready().await.unwrap();
    assert!(warnings.iter().any(|w| w.contains("older copy")), "{warnings:?}");
    assert!(reality.thing(&new.id).is_some());
    fleet.close().await;
    use std::os::unix::fs::PermissionsExt;
    for file in [&copy, &kept, &data.path().join("fleet.db")] {
        let mode = std::fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}
