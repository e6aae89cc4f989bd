//! The rules that every provider keeps, shown on the one of `docs/providers.md`.
//!
//! Needs the `hotdesk` binary, and what a desk needs on this machine (Xvfb, openbox).

mod provider;

use hotdesk_api::action::Size;
use hotdesk_image::Library;
use hotdesk_provider::{Context, DeskSpec, Door, Error, Progress, Provider};
use provider::Plain;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn binary() -> PathBuf {
    let beside = || std::env::current_exe().expect("a test has a path").ancestors().nth(2).expect("two below").join("hotdesk");
    let path = std::env::var_os("HOTDESK_BINARY").map_or_else(beside, PathBuf::from);
    assert!(path.is_file(), "{} is missing; build it with `cargo build -p hotdesk`", path.display());
    path
}

fn open(folder: &Path) -> Plain {
    let images = Arc::new(Library::open(folder.join("images")).expect("an empty library"));
    Plain { context: Context { fleet: "plain000".into(), data: folder.join("desks"), binary: binary(), images } }
}

fn spec(id: &str) -> DeskSpec {
    DeskSpec {
        id: id.into(),
        template: "here".into(),
        snapshot: None,
        resources: Default::default(),
        screen: Size { width: 800, height: 600 },
        env: Default::default(),
        labels: Default::default(),
        network: true,
        vnc_password: None,
        secret: format!("secret-of-{id}"),
        volumes: Vec::new(),
    }
}

#[tokio::test]
async fn a_provider_keeps_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let plain = open(folder.path());
    let (progress, _stages) = Progress::new();
    let (one, two) = (spec("d-1"), spec("d-2"));
    plain.prepare("here", &progress).await.unwrap();
    assert!(matches!(plain.prepare("moon", &progress).await, Err(Error::NotFound(_))));

    let placed = plain.create(&one, &progress).await.unwrap();
    assert_eq!(plain.create(&one, &progress).await.unwrap(), placed, "twice has the effect of once");
    let door = Door { address: placed.address.clone(), secret: one.secret.clone() };
    assert_eq!(door.opens().await, Some(true));
    assert_eq!(Door { secret: two.secret.clone(), ..door.clone() }.opens().await, Some(false), "each has a secret of its own");
    plain.create(&two, &progress).await.unwrap();

    // Another orchestrator finds what this one made.
    let next = open(folder.path());
    let mut found = next.list().await.unwrap();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(found.iter().map(|f| (f.id.as_str(), f.running)).collect::<Vec<_>>(), [("d-1", true), ("d-2", true)]);
    assert_eq!(found[0].placed.as_ref(), Some(&placed));

    std::fs::write(folder.path().join("desks/d-1/home/kept"), "x").unwrap();
    next.stop("d-1").await.unwrap();
    next.stop("d-1").await.unwrap();
    next.stop("d-unknown").await.unwrap();
    next.start(&one, &progress).await.unwrap();
    assert!(folder.path().join("desks/d-1/home/kept").exists(), "files outlive a stop");
    next.reset(&one, &progress).await.unwrap();
    assert!(!folder.path().join("desks/d-1/home/kept").exists(), "and not a reset");
    assert!(!next.logs("d-1", 5).await.unwrap().is_empty());
    assert!(matches!(next.start(&spec("d-unknown"), &progress).await, Err(Error::NotFound(_))));
    assert!(matches!(next.snapshot("d-1", "s-1", false).await, Err(Error::Unsupported { .. })));
    for id in ["d-1", "d-2", "d-1", "d-unknown"] {
        next.delete(id).await.unwrap();
    }
    assert_eq!(plain.list().await.unwrap(), []);
}

#[test]
fn it_is_as_small_as_the_docs_say() {
    let text = include_str!("provider.rs");
    let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(code < 150, "{code} lines");
}
