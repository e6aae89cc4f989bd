//! From nothing to a desk and back, and everything in between.

use crate::place::{Desk, Place, images, leftovers};
use hotdesk_provider::{Error, Progress, Provider, SnapshotRef};
use std::os::unix::fs::MetadataExt;

#[tokio::test]
async fn a_desk_is_made_listed_and_deleted_without_a_trace() {
    let place = Place::new().await;
    let spec = place.spec("d-whole");
    let desk = place.create(&spec).await;
    let found = place.local.list().await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].running && found[0].id == "d-whole");
    let again = place.create(&spec).await;
    assert_eq!(again.pid, desk.pid, "a desk that runs is returned as it is");
    let usage = place.local.usage("d-whole").await.unwrap();
    assert!(usage.processes >= 5 && usage.memory_bytes > 10 << 20 && usage.cpu_s > 0.0 && usage.disk_bytes > 0, "{usage:?}");
    // The log comes by way of a pipe.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !place.local.logs("d-whole", 100).await.unwrap().contains("the desk is ready") {
        assert!(std::time::Instant::now() < end, "{:?}", place.local.logs("d-whole", 100).await);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    place.local.delete("d-whole").await.unwrap();
    assert!(place.local.list().await.unwrap().is_empty());
    assert_eq!(leftovers(&place, desk.pid), Vec::<String>::new());
    place.local.delete("d-whole").await.expect("an unknown desk is no error");
    place.local.stop("d-whole").await.expect("an unknown desk is no error");
}

#[tokio::test]
async fn files_live_through_a_stop_and_not_through_a_reset() {
    let place = Place::new().await;
    let spec = place.spec("d-files");
    let (progress, _) = Progress::new();
    let desk = place.create(&spec).await;
    desk.sh("echo kept > ~/kept; echo gone > /tmp/gone; rm ~/.bashrc").await;
    place.local.stop("d-files").await.unwrap();
    assert!(!place.local.list().await.unwrap()[0].running);
    assert_eq!(place.local.usage("d-files").await.unwrap().processes, 0);
    assert!(!place.local.logs("d-files", 5).await.unwrap().is_empty(), "the log outlives the desk");
    place.local.stop("d-files").await.expect("a stopped desk is no error");

    let desk = Desk::new(&spec, &place.local.start(&spec, &progress).await.unwrap());
    let out = desk.sh("cat ~/kept; ls /tmp/gone ~/.bashrc 2>/dev/null; hostname; stat -c %U ~/kept").await;
    assert_eq!(out.text, "kept\nd-files\nuser", "and /tmp starts empty");

    let desk = Desk::new(&spec, &place.local.reset(&spec, &progress).await.unwrap());
    assert_eq!(desk.sh("ls ~/kept 2>/dev/null; ls ~/.bashrc").await.text, "/home/user/.bashrc");
    let disks = std::fs::read_dir(place.data().join("desks/d-files")).unwrap().flatten();
    assert_eq!(disks.filter(|entry| entry.file_name().to_string_lossy().starts_with("disk-")).count(), 1);
}

#[tokio::test]
async fn a_desk_outlives_its_orchestrator() {
    let place = Place::new().await;
    let spec = place.spec("d-adopted");
    let desk = place.create(&spec).await;
    // What a new process finds is what is on the disk and in the kernel; nothing is shared with the one before.
    let next = place.again();
    let found = next.list().await.unwrap();
    assert!(found[0].running);
    let (progress, _) = Progress::new();
    let placed = next.create(&spec, &progress).await.unwrap();
    assert_eq!(Desk::new(&spec, &placed).pid, desk.pid);
    next.stop("d-adopted").await.unwrap();
    // A number that is used again is not the desk.
    let file = place.data().join("desks/d-adopted/running.json");
    let pid = std::process::id();
    let text = format!(
        r#"{{"init":{{"pid":{pid},"started":1,"boot":"x"}},"keeper":{{"pid":{pid},"started":1,"boot":"x"}},"loop_device":null}}"#
    );
    std::fs::write(&file, text).unwrap();
    assert!(!next.list().await.unwrap()[0].running);
    next.delete("d-adopted").await.expect("and it is not killed");
}

#[tokio::test]
async fn what_was_half_made_is_cleaned_up() {
    let place = Place::new().await;
    let unnamed = place.data().join("desks/.d-half.new");
    std::fs::create_dir(&unnamed).unwrap();
    std::fs::write(unnamed.join("disk-1.ext4"), "half").unwrap();
    std::fs::create_dir(place.data().join("desks/d-strange")).unwrap();
    std::fs::create_dir(place.data().join("trash/x")).unwrap();
    let next = place.again();
    assert!(!unnamed.exists() && !place.data().join("trash/x").exists());
    assert!(next.list().await.unwrap().is_empty(), "a directory without a record is not a desk");
    next.delete("d-strange").await.unwrap();
    assert!(!place.data().join("desks/d-strange").exists());
}

#[tokio::test]
async fn a_desk_that_ends_itself_is_explained() {
    let place = Place::new().await;
    let mut spec = place.spec("d-broken");
    // The desk refuses this setting and ends at once.
    spec.env.insert("RESOLUTION".into(), "nonsense".into());
    let (progress, _) = Progress::new();
    let error = place.local.create(&spec, &progress).await.unwrap_err();
    assert!(matches!(&error, Error::NotReady(text) if text.contains("status") && text.contains("nonsense")), "{error}");
    assert!(place.local.logs("d-broken", 50).await.unwrap().contains("nonsense"));
    assert!(!place.local.list().await.unwrap()[0].running);
    place.local.delete("d-broken").await.unwrap();
}

#[tokio::test]
async fn what_does_not_exist_is_named() {
    let place = Place::new().await;
    let (progress, _) = Progress::new();
    let mut spec = place.spec("d-none");
    assert!(matches!(place.local.start(&spec, &progress).await, Err(Error::NotFound(text)) if text.contains("d-none")));
    spec.template = "nonsense".into();
    assert!(matches!(place.local.create(&spec, &progress).await, Err(Error::NotFound(text)) if text.contains("nonsense")));
    spec.template = "bare".into();
    spec.snapshot = Some(SnapshotRef { id: "s-none".into(), memory: false });
    assert!(matches!(place.local.create(&spec, &progress).await, Err(Error::NotFound(text)) if text.contains("s-none")));
    assert!(place.local.list().await.unwrap().is_empty(), "nothing was made");
    assert!(matches!(place.local.usage("d-none").await, Err(Error::NotFound(_))));
    assert!(matches!(place.local.logs("../../etc", 1).await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_snapshot_is_the_start_of_others() {
    let place = Place::new().await;
    let desk = place.desk("d-origin").await;
    desk.sh(
        "echo one > ~/one; rm ~/.profile; mkdir -p ~/a/b; ln -s one ~/link; chmod 700 ~/a; rm -r ~/Documents; mkdir ~/Documents",
    )
    .await;
    let size = place.local.snapshot("d-origin", "s-one", false).await.unwrap();
    assert!(size > 0);
    assert_eq!(place.local.snapshot("d-origin", "s-one", false).await.unwrap(), size, "once is enough");
    assert_eq!(desk.sh("echo two > ~/one; cat ~/one").await.text, "two", "the origin goes its own way");
    assert_eq!(place.local.snapshots().await.unwrap(), ["s-one"]);

    let mut spec = place.spec("d-fork");
    spec.snapshot = Some(SnapshotRef { id: "s-one".into(), memory: false });
    let fork = place.create(&spec).await;
    let look = "cat ~/one; ls ~/.profile 2>/dev/null; readlink ~/link; stat -c '%U %a' ~/a";
    assert_eq!(fork.sh(look).await.text, "one\none\nuser 700");
    fork.sh("echo three > ~/three; rm ~/one").await;
    place.local.snapshot("d-fork", "s-two", false).await.unwrap();

    // Nobody takes the template away from below them.
    let users = || {
        let users = hotdesk_image::Library::open(images()).unwrap().users("bare").unwrap();
        let ours = users.iter().filter_map(|path| path.strip_prefix(place.data()).ok());
        ours.map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    let records = ["desks/d-fork/desk.json", "desks/d-origin/desk.json", "snapshots/s-one.json", "snapshots/s-two.json"];
    assert_eq!(users(), records);

    // The first snapshot can go: what others are built on stays until they go.
    place.local.delete_snapshot("s-one").await.unwrap();
    assert_eq!(place.local.snapshots().await.unwrap(), ["s-two"]);
    spec.id = "d-second".into();
    spec.snapshot = Some(SnapshotRef { id: "s-two".into(), memory: false });
    let second = place.create(&spec).await;
    assert_eq!(second.sh("cat ~/three; ls ~/one ~/.profile 2>/dev/null; readlink ~/link").await.text, "three\none");
    let (progress, _) = Progress::new();
    second.sh("rm ~/three").await;
    let second = Desk::new(&spec, &place.local.reset(&spec, &progress).await.unwrap());
    assert_eq!(second.sh("cat ~/three").await.text, "three", "a reset goes back to the snapshot");
    for id in ["d-fork", "d-second", "d-origin"] {
        place.local.delete(id).await.unwrap();
    }
    place.local.delete_snapshot("s-two").await.unwrap();
    place.local.delete_snapshot("s-two").await.expect("an unknown snapshot is no error");
    assert_eq!(std::fs::read_dir(place.data().join("layers")).unwrap().count(), 0, "all layers are gone");
    assert_eq!(users(), Vec::<String>::new());
}

#[tokio::test]
async fn an_archive_brings_a_desk_back() {
    let place = Place::new().await;
    let desk = place.desk("d-packed").await;
    desk.sh("echo text > ~/text; ln ~/text ~/second; rm ~/.bashrc; rm -r ~/Desktop; mkdir ~/Desktop; echo x > ~/Desktop/x").await;
    let archive = place.folder.path().join("desk.tar");
    let refused = place.local.export("d-packed", &archive).await.unwrap_err();
    assert!(refused.to_string().contains("stop it"), "{refused}");
    place.local.stop("d-packed").await.unwrap();
    place.local.export("d-packed", &archive).await.unwrap();
    place.local.delete("d-packed").await.unwrap();

    let mut spec = place.spec("d-unpacked");
    place.local.import(&spec, &archive).await.unwrap();
    assert!(!place.local.list().await.unwrap()[0].running);
    let (progress, _) = Progress::new();
    let desk = Desk::new(&spec, &place.local.start(&spec, &progress).await.unwrap());
    let out = desk.sh("cat ~/text; ls ~/.bashrc 2>/dev/null; ls ~/Desktop; stat -c '%U %h' ~/second").await;
    assert_eq!(out.text, "text\nx\nuser 2");
    place.local.delete("d-unpacked").await.unwrap();

    // Not an archive: nothing is made.
    let broken = place.folder.path().join("broken.tar");
    std::fs::write(&broken, vec![7; 5000]).unwrap();
    spec.id = "d-no".into();
    assert!(place.local.import(&spec, &broken).await.is_err());
    assert!(place.local.list().await.unwrap().is_empty());
    assert_eq!(std::fs::read_dir(place.data().join("desks")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_full_disk_of_the_host_is_told_and_leaves_nothing() {
    // A file system of its own, small enough to be full.
    let place = Place::new().await;
    let (progress, _) = Progress::new();
    let small = crate::place::SmallDisk::mount(64);
    let local = crate::place::open(&place.fleet, small.path(), Default::default());
    let error = local.create(&place.spec("d-full"), &progress).await.unwrap_err();
    assert!(matches!(error, Error::Full(_)), "{error}");
    assert!(local.list().await.unwrap().is_empty());
    let left = std::fs::read_dir(small.path().join("local/desks")).unwrap().count();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn without_images_disks_are_directories() {
    let config = hotdesk_provider::local::Config { disk_images: false, ..Default::default() };
    let place = Place::with(config).await;
    assert!(!place.local.capabilities().await.disk_limit);
    let desk = place.desk("d-plain").await;
    desk.sh("echo x > ~/x").await;
    let path = place.data().join("desks/d-plain/disk-1/upper/home/user/x");
    assert_eq!(std::fs::metadata(&path).unwrap().uid(), 1000, "owners on the disk are those inside");
    place.local.stop("d-plain").await.unwrap();
    let (progress, _) = Progress::new();
    let spec = place.spec("d-plain");
    let desk = Desk::new(&spec, &place.local.start(&spec, &progress).await.unwrap());
    assert_eq!(desk.sh("cat ~/x").await.text, "x");
    place.local.snapshot("d-plain", "s-plain", false).await.unwrap();
    let desk = Desk::new(&spec, &place.local.reset(&spec, &progress).await.unwrap());
    assert_ne!(desk.sh("cat ~/x").await.code, 0);
    place.local.delete("d-plain").await.unwrap();
}
