//! Volumes in real desks: what one writes, another reads; nothing leads out of them.

use crate::place::{Desk, Place};
use hotdesk_provider::{DeskSpec, Progress, Provider, VolumePlace};
use std::os::unix::fs::MetadataExt;

fn with(spec: DeskSpec, place: &Place, at: &str, change: impl FnOnce(&mut VolumePlace)) -> DeskSpec {
    let directory = place.data().with_file_name("volume");
    std::fs::create_dir_all(&directory).unwrap();
    let mut volume = VolumePlace {
        volume: "v-1".into(),
        name: "data".into(),
        directory,
        at: at.into(),
        read_only: false,
        subpath: None,
        source: None,
    };
    change(&mut volume);
    DeskSpec { volumes: vec![volume], ..spec }
}

#[tokio::test]
async fn a_volume_outlives_its_desks() {
    let place = Place::new().await;
    let (progress, _) = Progress::new();
    let first = with(place.spec("d-first"), &place, "/data/models", |_| ());
    let desk = place.create(&first).await;
    let out = desk
        .sh("echo precious > /data/models/file; mkdir /data/models/sub; stat -c '%U %a' /data/models /data/models/file")
        .await;
    assert_eq!(out.text, "user 755\nuser 644");
    // Not by somebody who owns something on the host.
    let file = place.data().with_file_name("volume").join("file");
    assert_eq!(file.metadata().unwrap().uid(), 1000);

    // A second one at the same time, which may only read.
    let second = with(place.spec("d-second"), &place, "/home/user/in", |volume| volume.read_only = true);
    let reader = place.create(&second).await;
    assert_eq!(reader.sh("cat ~/in/file").await.text, "precious");
    let refused = reader.sh("echo x > ~/in/other; rm ~/in/file").await;
    assert!(refused.code != 0 && refused.text.contains("Read-only file system"), "{refused:?}");
    assert_ne!(reader.sh("umount ~/in || mount -o remount,rw ~/in").await.code, 0);

    // It is no part of what is saved, and stays through reset, stop and delete.
    let size = place.local.snapshot("d-first", "s-files", false).await.unwrap();
    desk.sh("head -c 30000000 /dev/urandom > /data/models/large; sync").await;
    let later = place.local.snapshot("d-first", "s-later", false).await.unwrap();
    assert!(later < size + (4 << 20), "the volume is in the snapshot: {size}, then {later}");
    let desk = Desk::new(&first, &place.local.reset(&first, &progress).await.unwrap());
    assert_eq!(desk.sh("cat /data/models/file").await.text, "precious");
    place.local.stop("d-first").await.unwrap();
    let desk = Desk::new(&first, &place.local.start(&first, &progress).await.unwrap());
    assert_eq!(desk.sh("cat /data/models/file").await.text, "precious");
    drop((desk, reader));
    for id in ["d-first", "d-second"] {
        place.local.delete(id).await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "precious\n");
}

#[tokio::test]
async fn links_lead_nowhere() {
    let place = Place::new().await;
    let desk = place.create(&with(place.spec("d-maker"), &place, "/vm", |_| ())).await;
    desk.sh("ln -s /etc /vm/link; ln -s / /vm/root; mkdir -p /vm/a/b; echo deep > /vm/a/b/file").await;
    // On the host `/vm/link` is the host's /etc; a part of a volume is never reached by way of it.
    let (progress, _) = Progress::new();
    for subpath in ["link", "root/etc", "a/../link"] {
        let spec = with(place.spec("d-thief"), &place, "/loot", |volume| volume.subpath = Some(subpath.into()));
        let refused = place.local.create(&spec, &progress).await.unwrap_err().to_string();
        assert!(refused.contains("of the volume data"), "{subpath}: {refused}");
    }
    place.local.delete("d-thief").await.unwrap();
    let spec = with(place.spec("d-part"), &place, "/part", |volume| volume.subpath = Some("a/b".into()));
    assert_eq!(place.create(&spec).await.sh("cat /part/file; ls /part/..  | grep -c '^link$'").await.text, "deep\n0");
    let spec = with(place.spec("d-new"), &place, "/part", |volume| volume.subpath = Some("new/one".into()));
    assert_eq!(place.create(&spec).await.sh("echo x > /part/file && stat -c %U /part /part/file").await.text, "user\nuser");
    // A volume that is gone is told.
    let spec = with(place.spec("d-late"), &place, "/vm", |volume| volume.directory.push("missing"));
    let refused = place.local.create(&spec, &progress).await.unwrap_err().to_string();
    assert!(refused.contains("may have been deleted"), "{refused}");
}
