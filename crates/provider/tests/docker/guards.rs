//! What keeps desks from the machine and its networks, and their root from being the machine's.

use crate::engine::{Engine, Place, context, door, provider, shell, socket, spec};
use crate::outside::{Outside, reach};
use hotdesk_provider::docker::{Config, Docker};
use hotdesk_provider::{Error, Progress, Provider, VolumePlace};
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

fn filter(words: &str) {
    assert!(Command::new("sh").args(["-c", words]).status().unwrap().success(), "{words}");
}

fn with(place: &Place, change: impl FnOnce(&mut Config)) -> Docker {
    let mut config = Config { host: Some(socket(&place.daemon)), ..Config::default() };
    change(&mut config);
    Docker::new(context(place.data.path(), &place.fleet), config).unwrap()
}

/// Whoever reloads the packet filter takes rules away without a word.
#[test]
fn what_guards_desks_is_put_back_and_nothing_starts_without_it() {
    Engine::own().run(async |place| {
        let docker = &place.docker;
        let outside = Outside::new();
        let open = door(&place.create(&spec("d-one")).await);
        let everything =
            [(Outside::MACHINE, outside.machine_port), (Outside::PRIVATE, Outside::PORT), (Outside::METADATA[0], Outside::PORT)];
        let chain = format!("-F HOTDESK-{}", place.fleet);
        for flush in
            ["-F INPUT", "-F DOCKER-USER", &chain, "-D FORWARD -j DOCKER-USER", "-I FORWARD -j ACCEPT", "-I INPUT -j ACCEPT"]
        {
            filter(&format!("iptables {flush}"));
            docker.list().await.unwrap();
            for (address, port) in everything {
                assert_ne!(reach(&open, address, port).await, "reached", "{address} after `iptables {flush}` and a look");
            }
            assert_eq!(reach(&open, Outside::ADDRESS, Outside::PORT).await, "reached", "the outside after `iptables {flush}`");
        }
        // Nobody has to ask for it.
        filter("iptables -F INPUT; iptables -F DOCKER-USER");
        let end = Instant::now() + Duration::from_secs(30);
        while reach(&open, Outside::PRIVATE, Outside::PORT).await == "reached" {
            assert!(Instant::now() < end, "the rules are not back by themselves");
        }
        // Every start looks as well: of a new desk, and of one that was stopped.
        let (progress, _) = Progress::new();
        for (again, verb) in [(false, "created"), (true, "started")] {
            filter("iptables -F INPUT; iptables -F DOCKER-USER");
            let placed = match again {
                false => place.create(&spec("d-two")).await,
                true => docker.start(&spec("d-two"), &progress).await.unwrap(),
            };
            for (address, port) in everything {
                assert_ne!(reach(&door(&placed), address, port).await, "reached", "{address} by a desk that was {verb}");
            }
            docker.stop("d-two").await.unwrap();
        }
        // A setting opens private networks, and nothing that hands out credentials.
        let wide = with(place, |config| config.allow_private = vec!["0.0.0.0/0".parse().unwrap()]);
        // The other one puts its own rules back every few seconds.
        let mut reached = false;
        for _ in 0..5 {
            wide.list().await.unwrap();
            reached |= reach(&open, Outside::PRIVATE, Outside::PORT).await == "reached";
        }
        assert!(reached, "what a setting opens");
        for address in Outside::METADATA {
            assert_ne!(reach(&open, address, Outside::PORT).await, "reached", "{address} is opened by no setting");
        }
        drop(wide);
        docker.list().await.unwrap();
        assert_ne!(reach(&open, Outside::PRIVATE, Outside::PORT).await, "reached");
        // Where the rules can't hold, because the bridge is elsewhere, nothing starts unless a setting says so.
        let (host, data, fleet) = (socket(&place.daemon), place.data.path().to_owned(), place.fleet.clone());
        let elsewhere = std::thread::spawn(move || {
            // SAFETY: this thread alone moves, and ends after what it does here.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (progress, _) = Progress::new();
                let docker = provider(&host, &data, &fleet);
                let refused = docker.start(&spec("d-two"), &progress).await.unwrap_err();
                let found = docker.list().await.unwrap();
                (refused, found.iter().any(|found| found.id == "d-two" && found.running))
            })
        });
        let (refused, runs) = elsewhere.join().unwrap();
        assert!(matches!(&refused, Error::Unsupported { reason, .. } if reason.contains("unguarded = true")), "{refused}");
        assert!(!runs, "a desk without a guard was started");
    });
}

#[test]
fn root_that_would_be_the_machines_is_refused_unless_a_setting_allows_it() {
    Engine::shared().run(async |place| {
        let (progress, _) = Progress::new();
        let mut spec = spec("d-root");
        spec.template = "rooted".into();
        let refused = place.docker.create(&spec, &progress).await.unwrap_err();
        assert!(matches!(&refused, Error::Unsupported { reason, .. } if reason.contains("userns-remap")), "{refused}");
        assert!(place.docker.list().await.unwrap().is_empty());
        let shared = with(place, |config| config.shared_root = true);
        shared.create(&spec, &progress).await.unwrap();
        let inspected: Value = serde_json::from_str(&place.ask(&["inspect", &place.container("d-root")])).unwrap();
        let host = &inspected[0]["HostConfig"];
        assert_eq!(host["CapDrop"], json!(["ALL"]));
        let added = host["CapAdd"].to_string();
        for never in ["NET_RAW", "MKNOD", "SYS_", "NET_ADMIN", "ALL"] {
            assert!(!added.contains(never), "{never} in {added}");
        }
    });
}

/// Where users of containers are others than the machine's, templates with a root are as good as any.
#[test]
fn root_templates_in_an_engine_with_user_namespaces() {
    Engine::with_user_namespaces().run(async |place| {
        let directory = place.data.path().join("volume");
        std::fs::create_dir(&directory).unwrap();
        // The daemon's users have to come as far as the volume.
        std::fs::set_permissions(place.data.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let mut spec = spec("d-root");
        spec.template = "rooted".into();
        spec.volumes = vec![VolumePlace {
            volume: "v-1".into(),
            name: "data".into(),
            directory: directory.clone(),
            at: "/vm".into(),
            read_only: false,
            subpath: None,
            source: None,
        }];
        let (progress, _) = Progress::new();
        let placed = place.docker.create(&spec, &progress).await.unwrap();
        let map = shell(&door(&placed), "cat /proc/self/uid_map").await;
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "700000", "65536"], "root of the desk is nobody here");
        assert_eq!(shell(&door(&placed), "echo mine > /vm/file; cat /vm/file").await, "mine\n");
        assert_eq!(directory.join("file").metadata().unwrap().uid(), 701_000);
        let checks = place.docker.check().await;
        assert!(checks.iter().any(|check| check.good && check.what.contains("root of a desk")), "{checks:?}");
    });
}
