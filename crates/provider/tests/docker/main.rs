//! Desks in a real Docker Engine: a private daemon (`scripts/dockerd`), the real `bare` template, the real binary. Needs root.

mod engine;
mod guards;
mod outside;

use engine::{Engine, PASSWORD, SECRET, ask, context, dockerd, door, provider, shell, socket, spec};
use hotdesk_api::desk::Resources;
use hotdesk_provider::docker::{Config, Docker};
use hotdesk_provider::{Address, Door, Error, Found, Progress, Provider, SnapshotRef, VolumePlace};
use outside::{Outside, reach};
use std::time::{Duration, Instant};

/// Far less than a request to an engine that answers may take, and far more than a busy machine needs to find that there is none.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_engine_that_is_away_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    for host in ["unix:///nonexistent/docker.sock", "tcp://127.0.0.1:1"] {
        let docker = provider(host, data, "testtest");
        let begun = Instant::now();
        let (progress, _) = Progress::new();
        let error = docker.create(&spec("d-away"), &progress).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        // It may come back: nothing is refused for good because of it.
        assert!(docker.capabilities().await.memory_limit);
        let checks = docker.check().await;
        assert!(!checks[0].good && checks[0].fix.is_some());
    }
    // One that takes the connection and says nothing.
    let socket = data.join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let docker = provider(socket.to_str().unwrap(), data, "testtest");
    let error = docker.list().await.unwrap_err();
    assert!(error.to_string().contains("no answer in"), "{error}");
    assert!(
        Docker::new(context(data, "testtest"), Config { host: Some("tcp://elsewhere:2375".into()), ..Config::default() })
            .is_err()
    );
}

#[test]
fn the_engine_tells_what_it_can() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let capabilities = docker.capabilities().await;
        assert!(capabilities.memory_limit && capabilities.cpu_limit && capabilities.reset && capabilities.snapshot);
        assert!(!capabilities.live_fork && !capabilities.live_fork_reason.is_empty());
        assert!(capabilities.templates.contains(&"bare".to_owned()));
        let checks = docker.check().await;
        assert!(checks[0].good, "{checks:?}");
        assert!(checks.iter().all(|check| check.good == check.fix.is_none()), "what is not good has a fix: {checks:?}");
    });
}

#[test]
fn an_image_is_made_once_with_progress_and_nothing_else_is_left() {
    Engine::own().run(async |place| {
        let docker = &place.docker;
        let (progress, mut stages) = Progress::new();
        let seen = tokio::spawn(async move {
            let mut seen = Vec::new();
            while stages.changed().await.is_ok() {
                seen.push(stages.borrow().clone());
            }
            seen
        });
        docker.prepare("bare", &progress).await.unwrap();
        drop(progress);
        let seen = seen.await.unwrap();
        assert!(seen.iter().any(|stage| stage.starts_with("loading the image ")), "{seen:?}");
        let begun = Instant::now();
        let (progress, _) = Progress::new();
        docker.prepare("bare", &progress).await.unwrap();
        eprintln!("  again in {:?}", begun.elapsed());
        let error = docker.prepare("no-such-template", &progress).await.unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{error}");
        let error = docker.prepare("not-built", &progress).await.unwrap_err();
        assert!(matches!(&error, Error::NotFound(m) if m.contains("hotdesk template build not-built")), "{error}");
        let error = docker.prepare("foreign", &progress).await.unwrap_err();
        assert!(matches!(&error, Error::NotFound(m) if m.contains("can't be pulled")), "{error}");

        place.create(&spec("d-one")).await;
        docker.delete("d-one").await.unwrap();
        docker.delete("d-one").await.unwrap();
        assert_eq!(place.ask(&["ps", "--all", "--quiet"]), "");
        assert_eq!(place.ask(&["volume", "ls", "--quiet"]), "");
        let images = place.ask(&["images", "--all", "--format", "{{.Repository}}"]);
        assert!(!images.is_empty() && images.lines().all(|line| line == "hotdesk/bare"), "{images}");
    });
}

#[test]
fn a_desk_is_made_driven_and_made_again_without_effect() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let placed = place.create(&spec("d-one")).await;
        let Address::Tcp { addr } = &placed.address else { panic!("{placed:?}") };
        assert!(!addr.ip().is_loopback(), "it is reached at its own address");
        let door = door(&placed);
        let (status, picture) = ask(&door, "GET", "/v1/screenshot", None).await;
        assert_eq!(status, 200);
        assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(u32::from_be_bytes(picture[16..20].try_into().unwrap()), 1024);
        door.activity().await.unwrap();
        assert_eq!(place.create(&spec("d-one")).await, placed);
        let found = docker.list().await.unwrap();
        assert_eq!(found, [Found { id: "d-one".into(), running: true, placed: Some(placed) }]);
        let usage = docker.usage("d-one").await.unwrap();
        assert!(usage.cpu_s > 0.0 && usage.memory_bytes > 1 << 20 && usage.processes > 3, "{usage:?}");
        assert!(docker.logs("d-one", 50).await.unwrap().contains("ready"));
        // No port of this machine leads to it, and another fleet does not see it.
        assert_eq!(place.ask(&["port", &place.container("d-one")]), "");
        let other = provider(&socket(&place.daemon), place.data.path(), "otherone");
        assert!(other.list().await.unwrap().is_empty());
        other.delete("d-one").await.unwrap();
        assert_eq!(docker.list().await.unwrap().len(), 1);
    });
}

#[test]
fn inside_there_is_no_privilege_and_no_secret() {
    Engine::shared().run(async |place| {
        let placed = place.create(&spec("d-one")).await;
        let door = door(&placed);
        let status = shell(&door, "id -u; grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status").await;
        assert!(status.starts_with("1000\n"), "{status}");
        for line in [
            "CapEff:\t0000000000000000",
            "CapPrm:\t0000000000000000",
            "CapBnd:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(status.contains(line), "{line} in {status}");
        }
        assert_eq!(shell(&door, "echo $COLOUR $LANG; pwd").await, "green C.UTF-8\n/home/user\n");
        assert_ne!(shell(&door, "mount -t tmpfs none /mnt 2>/dev/null; echo $?").await.trim(), "0");
        assert_eq!(shell(&door, "touch /usr/x 2>/dev/null; echo $?").await.trim(), "1");
        let inspected = place.ask(&["inspect", &place.container("d-one")]);
        for secret in [SECRET, PASSWORD, "green", "hidden-in-a-label"] {
            assert!(!inspected.contains(secret), "{secret} is shown by docker inspect");
        }
    });
}

#[test]
fn stop_and_start_keep_files_and_reset_loses_them() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let (progress, _) = Progress::new();
        let spec = spec("d-one");
        let placed = place.create(&spec).await;
        shell(&door(&placed), "echo kept > ~/file").await;
        docker.stop("d-one").await.unwrap();
        docker.stop("d-one").await.unwrap();
        let found = docker.list().await.unwrap();
        assert!(!found[0].running && found[0].placed.is_none());
        let placed = docker.start(&spec, &progress).await.unwrap();
        assert_eq!(docker.start(&spec, &progress).await.unwrap(), placed);
        assert_eq!(shell(&door(&placed), "cat ~/file").await, "kept\n");
        let begun = Instant::now();
        let placed = docker.reset(&spec, &progress).await.unwrap();
        eprintln!("  reset in {:?}", begun.elapsed());
        assert_eq!(shell(&door(&placed), "cat ~/file 2>&1").await, "cat: /home/user/file: No such file or directory\n");
        docker.stop("d-unknown").await.unwrap();
        docker.delete("d-unknown").await.unwrap();
        assert!(matches!(docker.start(&engine::spec("d-unknown"), &progress).await, Err(Error::NotFound(_))));
        assert!(matches!(docker.usage("d-unknown").await, Err(Error::NotFound(_))));
    });
}

#[test]
fn volumes_outlive_desks() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let directory = place.data.path().join("volume");
        std::fs::create_dir(&directory).unwrap();
        let volume = VolumePlace {
            volume: "v-1".into(),
            name: "data".into(),
            directory: directory.clone(),
            at: "/vm".into(),
            read_only: false,
            subpath: None,
            source: None,
        };
        let mut first = spec("d-writer");
        first.volumes = vec![volume.clone()];
        let placed = place.create(&first).await;
        assert_eq!(shell(&door(&placed), "echo precious > /vm/file; stat -c %U /vm /vm/file").await, "user\nuser\n");
        docker.delete("d-writer").await.unwrap();
        let mut second = spec("d-reader");
        second.volumes = vec![VolumePlace { read_only: true, ..volume.clone() }];
        let placed = place.create(&second).await;
        let seen = shell(&door(&placed), "cat /vm/file; touch /vm/x 2>&1").await;
        assert!(seen.starts_with("precious\n") && seen.contains("Read-only file system"), "{seen}");
        docker.delete("d-reader").await.unwrap();
        assert_eq!(std::fs::read_to_string(directory.join("file")).unwrap(), "precious\n");
        let (progress, _) = Progress::new();
        let mut part = spec("d-part");
        part.volumes = vec![VolumePlace { subpath: Some("a".into()), ..volume }];
        assert!(matches!(docker.create(&part, &progress).await, Err(Error::Unsupported { .. })));
        docker.delete("d-part").await.unwrap();
    });
}

#[test]
fn limits_hold() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let mut spec = spec("d-small");
        spec.resources = Resources { cpus: 64.0, memory_mib: 256, disk_mib: 1024 };
        let door = door(&place.create(&spec).await);
        let answer = shell(&door, "python3 -c 'x = bytearray(400 << 20)' >/dev/null 2>&1; echo $?").await;
        assert_eq!(answer.trim(), "137", "more memory than the limit is not to be had");
        let threads = "import threading, time\nn = 0\ntry:\n  while n < 4000:\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); n += 1\n\
                       except RuntimeError:\n  pass\nprint(n, flush=True)\nimport os; os._exit(0)";
        let answer = shell(&door, &format!("python3 -c '{threads}'")).await;
        let count: u32 = answer.trim().parse().unwrap();
        assert!((500..2048).contains(&count), "{count} threads");
        assert!(door.health().await.unwrap().ready, "it survived both");
        docker.delete("d-small").await.unwrap();
    });
}

#[test]
fn desks_see_neither_each_other_nor_what_they_may_not() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let mut closed = spec("d-closed");
        closed.network = false;
        let closed = place.create(&closed).await;
        let Address::Tcp { addr } = &closed.address else { panic!("{closed:?}") };
        assert!(!addr.ip().is_loopback(), "it has no published port");
        let one = place.create(&spec("d-one")).await;
        let two = place.create(&spec("d-two")).await;
        let (open, closed) = (door(&one), door(&closed));
        let outside = Outside::new();
        let address = shell(&door(&two), "hostname -I").await;
        assert_eq!(reach(&door(&two), address.trim(), 5000).await, "reached", "it listens there");
        assert_eq!(reach(&open, Outside::ADDRESS, Outside::PORT).await, "reached", "a desk with a network reaches the outside");
        for (who, door, address, port) in [
            ("a desk reaches another one", &open, address.trim(), 5000),
            ("a closed desk reaches another one", &closed, address.trim(), 5000),
            ("a closed desk reaches the outside", &closed, Outside::ADDRESS, Outside::PORT),
            ("a desk reaches a private network", &open, Outside::PRIVATE, Outside::PORT),
            ("a desk reaches a cloud's credentials", &open, Outside::METADATA[0], Outside::PORT),
            ("a desk reaches Azure's credentials", &open, Outside::METADATA[1], Outside::PORT),
            ("a desk reaches Alibaba's credentials", &open, Outside::METADATA[2], Outside::PORT),
            ("a desk reaches the machine", &open, Outside::MACHINE, outside.machine_port),
            ("a closed desk reaches the machine", &closed, Outside::MACHINE, outside.machine_port),
        ] {
            assert_ne!(reach(door, address, port).await, "reached", "{who}");
        }
        for id in ["d-closed", "d-two"] {
            docker.delete(id).await.unwrap();
        }
    });
}

#[test]
fn a_daemon_that_is_killed_comes_back_with_its_desks() {
    Engine::own().run(async |place| {
        let docker = &place.docker;
        let (progress, _) = Progress::new();
        let placed = place.create(&spec("d-one")).await;
        shell(&door(&placed), "echo survived > ~/file; sync").await;
        dockerd("kill", &place.daemon);
        let begun = Instant::now();
        let error = docker.list().await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(matches!(docker.delete("d-one").await, Err(Error::Unavailable { .. })));
        assert_eq!(shell(&door(&placed), "cat ~/file").await, "survived\n", "the desk does without its daemon");
        dockerd("start", &place.daemon);
        let found = docker.list().await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id, "d-one");
        let placed = docker.start(&spec("d-one"), &progress).await.unwrap();
        assert_eq!(shell(&door(&placed), "cat ~/file").await, "survived\n");
    });
}

#[test]
fn snapshots_are_copied_and_hold_no_secret() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let placed = place.create(&spec("d-one")).await;
        shell(&door(&placed), "echo one > ~/file; head -c 3000000 /dev/urandom > ~/big").await;
        let size = docker.snapshot("d-one", "s-first", false).await.unwrap();
        assert!((3_000_000..50_000_000).contains(&size), "{size}");
        assert_eq!(docker.snapshot("d-one", "s-first", false).await.unwrap(), size);
        assert!(matches!(docker.snapshot("d-one", "s-memory", true).await, Err(Error::Unsupported { .. })));
        assert_eq!(docker.snapshots().await.unwrap(), ["s-first"]);
        let mut fork = spec("d-fork");
        fork.secret = "another-secret-of-the-fork".into();
        fork.snapshot = Some(SnapshotRef { id: "s-first".into(), memory: false });
        let forked = place.create(&fork).await;
        let forked = Door { address: forked.address, secret: fork.secret.clone() };
        assert_eq!(shell(&forked, "cat ~/file; echo two > ~/file").await, "one\n");
        assert_eq!(shell(&door(&placed), "cat ~/file").await, "one\n");
        let (status, _) = ask(&Door { secret: SECRET.into(), ..forked.clone() }, "GET", "/v1/screenshot", None).await;
        assert_eq!(status, 401, "the fork has its own secret");
        let image = format!("hotdesk/snapshot-{}:s-first", place.fleet);
        let saved = place.ask(&["run", "--rm", "--user", "0", "--entrypoint", "/bin/cat", &image, "/etc/hotdesk/own.toml"]);
        assert_eq!(saved, "", "a snapshot holds no secret");
        // Deleted while a desk runs on it: the desk goes on, and takes the rest away when it goes.
        docker.delete_snapshot("s-first").await.unwrap();
        docker.delete_snapshot("s-first").await.unwrap();
        assert!(docker.snapshots().await.unwrap().is_empty());
        assert_eq!(shell(&forked, "cat ~/file").await, "two\n");
        docker.delete("d-fork").await.unwrap();
        fork.id = "d-late".into();
        let (progress, _) = Progress::new();
        assert!(matches!(docker.create(&fork, &progress).await, Err(Error::NotFound(_))));
        let repository = format!("hotdesk/snapshot-{}", place.fleet);
        assert_eq!(place.ask(&["images", "--all", "--quiet", &repository]), "");
    });
}

#[test]
fn archives_come_back() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let (progress, _) = Progress::new();
        let spec = spec("d-one");
        let placed = place.create(&spec).await;
        shell(&door(&placed), "echo archived > ~/file; ln -s file ~/link").await;
        let tar = place.data.path().join("archive.tar");
        assert!(docker.export("d-one", &tar).await.unwrap_err().to_string().contains("stop it first"));
        docker.stop("d-one").await.unwrap();
        docker.export("d-one", &tar).await.unwrap();
        let bytes = std::fs::read(&tar).unwrap();
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "an archive holds no secret");
        drop(bytes);
        docker.delete("d-one").await.unwrap();
        docker.import(&spec, &tar).await.unwrap();
        docker.import(&spec, &tar).await.unwrap();
        assert!(!docker.list().await.unwrap()[0].running);
        let placed = docker.start(&spec, &progress).await.unwrap();
        assert_eq!(shell(&door(&placed), "cat ~/link; stat -c %U ~/file").await, "archived\nuser\n");
        std::fs::write(&tar, b"not a tar").unwrap();
        assert!(docker.import(&engine::spec("d-bad"), &tar).await.is_err());
        assert!(docker.list().await.unwrap().iter().all(|found| found.id != "d-bad"));
    });
}

#[test]
#[ignore = "measures, proves nothing"]
fn how_fast_a_desk_is_ready() {
    Engine::shared().run(async |place| {
        let docker = &place.docker;
        let mut times = Vec::new();
        for run in 0..10 {
            let spec = spec(&format!("d-run{run}"));
            let begun = Instant::now();
            place.create(&spec).await;
            times.push(begun.elapsed().as_millis());
            docker.delete(&spec.id).await.unwrap();
        }
        times.sort_unstable();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap();
        eprintln!(
            "  create → ready: median {} ms ({}–{}), load {}",
            times[5],
            times[0],
            times[9],
            load.split(' ').next().unwrap()
        );
    });
}
