//! Named volumes: who may have them, and when they may go.

use super::*;
use hotdesk_api::fleet::{NewVolume, VolumeMount};
use hotdesk_fleet::Error;
use hotdesk_fleet::testing::member;

fn new(name: &str) -> NewVolume {
    NewVolume { name: name.into(), ..NewVolume::default() }
}

fn with(volume: &str, at: &str) -> NewDesk {
    let mount = VolumeMount { volume: volume.into(), at: at.into(), ..Default::default() };
    NewDesk { volumes: Some(vec![mount]), ..NewDesk::default() }
}

/// A fleet whose data directory is there.
async fn opened(world: &World) -> (Fleet, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let config = Config { data: data.path().into(), ..testing::config() };
    (world.open_with(config).await, data)
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_used_and_deleted() {
    let world = World::new();
    let (fleet, data) = opened(&world).await;
    let p = member("p");
    let volume = fleet.create_volume(&p, new("models")).await.unwrap();
    let directory = data.path().join("volumes").join(&volume.id);
    assert!(directory.is_dir() && volume.project == "p");
    assert!(matches!(fleet.create_volume(&p, new("models")).await, Err(Error::Conflict(_))));
    fleet.create_volume(&member("q"), new("models")).await.expect("another project has its own names");

    let desk = fleet.create(&p, with("models", "/models/"), None).await.unwrap();
    assert_eq!((desk.volumes[0].volume.as_str(), desk.volumes[0].at.as_str()), ("models", "/models"));
    fleet.create(&p, with(&volume.id, "/m"), None).await.expect("it is shared");
    assert_eq!(fleet.volume(&p, "models").await.unwrap().desks.len(), 2);
    assert_eq!(fleet.volumes(&p).await.unwrap().len(), 1);
    assert!(matches!(fleet.volume(&member("r"), &volume.id).await, Err(Error::NotFound { .. })));
    assert!(matches!(
        fleet.create(&member("r"), with(&volume.id, "/m"), None).await,
        Err(Error::NotFound { what: "volume", .. })
    ));

    let refused = fleet.delete_volume(&p, "models").await.unwrap_err();
    assert!(matches!(&refused, Error::Conflict(why) if why.contains("is mounted in")), "{refused}");
    for desk in fleet.desks(&p, Default::default()).await.unwrap() {
        fleet.delete(&p, &desk.id).await.unwrap();
    }
    tokio::time::sleep(seconds(5)).await;
    fleet.delete_volume(&p, "models").await.unwrap();
    assert!(!directory.exists());
    assert!(matches!(fleet.delete_volume(&p, "models").await, Err(Error::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_is_refused_before_anything_is_spent() {
    let world = World::new();
    let (fleet, _data) = opened(&world).await;
    let p = member("p");
    fleet.create_volume(&p, NewVolume { exclusive: true, ..new("one") }).await.unwrap();
    for at in ["/", "/proc", "/etc", "vm", "/a/../b"] {
        assert!(matches!(fleet.create(&p, with("one", at), None).await, Err(Error::Invalid(_))), "{at}");
    }
    assert!(matches!(fleet.create(&p, with("none", "/vm"), None).await, Err(Error::NotFound { .. })));
    for wrong in [new(""), new("v-abc"), new("../x"), NewVolume { source: Some("file:///etc".into()), ..new("x") }] {
        assert!(matches!(fleet.create_volume(&admin(), wrong).await, Err(Error::Invalid(_))));
    }
    let bucket = NewVolume { source: Some("s3://bucket/x".into()), ..new("x") };
    assert!(matches!(fleet.create_volume(&p, bucket).await, Err(Error::Denied(_))), "a bucket is the fleet's to give");
    assert!(world.reality.things().is_empty());
    // Many want the one that is for one; one gets it.
    let all = (0..8).map(|_| fleet.create(&p, with("one", "/vm"), None));
    let (good, refused): (Vec<_>, Vec<_>) = futures_util::future::join_all(all).await.into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), refused.len()), (1, 7));
    assert!(matches!(&refused[0], Err(Error::Conflict(why)) if why.contains("one desk at a time")), "{:?}", refused[0]);
    let desk = good.into_iter().next().unwrap().unwrap();
    tokio::time::sleep(seconds(6)).await;
    let refused = fleet.fork(&p, &desk.id, false, NewDesk::default()).await.unwrap_err();
    assert!(matches!(&refused, Error::Conflict(_)), "{refused}");
    let refused = fleet.snapshot(&p, &desk.id, None, true).await.unwrap_err().to_string();
    assert!(refused.contains("the desk has volumes"), "{refused}");
    // A provider that has none.
    world.reality.can(|c| c.volumes = false);
    fleet.create_volume(&p, new("two")).await.unwrap();
    let refused = fleet.create(&p, with("two", "/vm"), None).await.unwrap_err().to_string();
    assert!(refused.contains("volumes"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_project_has_so_many_volumes_and_no_more() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let fleet = world.open_with(Config { data: data.path().into(), max_volumes: 2, ..testing::config() }).await;
    let p = member("p");
    for name in ["a", "b"] {
        fleet.create_volume(&p, new(name)).await.unwrap();
    }
    let told = fleet.create_volume(&p, new("c")).await.unwrap_err();
    assert!(matches!(&told, Error::Limit { reason, .. } if reason.contains("2 volumes")), "{told}");
    fleet.create_volume(&member("q"), new("c")).await.expect("others have their own");
    fleet.delete_volume(&p, "a").await.unwrap();
    // Many at once are no more, and one name is given once.
    let at_once = (0..20).map(|number| fleet.create_volume(&p, new(["c", "d"][number % 2])));
    let made = futures_util::future::join_all(at_once).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "{made:?}");
    assert_eq!(std::fs::read_dir(data.path().join("volumes")).unwrap().count(), 3, "a refused one leaves nothing");
}

/// A volume has no size of its own: whoever fills the disk through it is stopped, and whoever makes room is not.
#[tokio::test]
async fn volumes_that_take_too_much_are_filled_no_more() {
    let world = World::new();
    let data = tempfile::tempdir().unwrap();
    let config = Config { data: data.path().into(), max_volumes_mib: 2, ..testing::config() };
    let fleet = world.open_with(config.clone()).await;
    let (p, q) = (member("p"), member("q"));
    let volume = fleet.create_volume(&p, new("large")).await.unwrap();
    fleet.create_volume(&q, new("small")).await.unwrap();
    let directory = data.path().join("volumes").join(&volume.id);
    let made = |who: &hotdesk_fleet::Who, wish: NewDesk| {
        let (fleet, who) = (fleet.clone(), who.clone());
        async move {
            let desk = fleet.create(&who, wish, None).await.unwrap();
            assert_eq!(fleet.wait(&who, &desk.id, LONG).await.unwrap().state, State::Running);
            desk.id
        }
    };
    let (filler, other) = (made(&p, with("large", "/v")).await, made(&q, with("small", "/v")).await);
    let plain = made(&p, NewDesk::default()).await;
    fleet.close().await;
    std::fs::write(directory.join("x"), vec![1; 3 << 20]).unwrap();

    // The first look is when the fleet opens.
    let fleet = world.open_with(config.clone()).await;
    let state = async |id: &str| fleet.desk(&admin(), id).await.unwrap();
    for _ in 0..600 {
        if state(&filler).await.state != State::Running {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stopped = settled(&fleet, &filler).await;
    assert_eq!(stopped.state, State::Stopped);
    assert!(stopped.reason.contains("take 3 MiB, and 2 MiB is the limit"), "{}", stopped.reason);
    assert_eq!(state(&other).await.state, State::Running, "a desk of another project");
    assert_eq!(state(&plain).await.state, State::Running, "it has no volume");
    for told in
        [fleet.create_volume(&p, new("more")).await.unwrap_err(), fleet.create(&p, with("large", "/v"), None).await.unwrap_err()]
    {
        assert!(matches!(&told, Error::Limit { reason, .. } if reason.contains("2 MiB is the limit")), "{told}");
    }
    fleet.close().await;

    // Nothing more is refused once there is room.
    std::fs::remove_file(directory.join("x")).unwrap();
    let fleet = world.open_with(config).await;
    fleet.create(&p, with("large", "/v"), None).await.unwrap();
}
