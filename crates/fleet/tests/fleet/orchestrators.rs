//! Two orchestrators over one real PostgreSQL: one is killed again and again, the other carries on, and no desk is acted on by both.

use hotdesk_api::desk::{NewDesk, State};
use hotdesk_fleet::store::{self, Store};
use hotdesk_fleet::testing::{self, Reality, admin};
use hotdesk_fleet::{Config, Error, Filter, Fleet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::RwLock;

/// A PostgreSQL of this test's own.
struct Server(tempfile::TempDir);

impl Server {
    fn start() -> (Self, String) {
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new(script()).arg("start").arg(directory.path()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "PostgreSQL did not start: {}", String::from_utf8_lossy(&output.stderr));
        (Self(directory), String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.0.path()).arg("immediate").status();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres")
}

/// Like a process that its supervisor starts again: the database may be out of breath for a moment.
async fn open(url: &str, reality: &Reality) -> Fleet {
    for _ in 0..60 {
        match try_open(url, reality).await {
            Ok(fleet) => return fleet,
            Err(e) => eprintln!("not opened: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("the fleet could not be opened for 30 s");
}

async fn try_open(url: &str, reality: &Reality) -> Result<Fleet, Error> {
    let config = Config { store: url.into(), ..Config::default() };
    let store = store::open(&config).await?;
    let fleet = Fleet::open_with(config, store, vec![reality.provider()], testing::options(reality)).await?;
    fleet.reconciled().await;
    Ok(fleet)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_is_killed_and_the_other_carries_on() {
    let (_server, url) = tokio::task::spawn_blocking(Server::start).await.unwrap();
    let reality = Reality::new();
    reality.chance(0.02);
    let steady = open(&url, &reality).await;
    let fragile = Arc::new(RwLock::new(open(&url, &reality).await));

    let end = Instant::now() + Duration::from_secs(12);
    let killer = {
        let (fragile, url, reality) = (Arc::clone(&fragile), url.clone(), reality.clone());
        tokio::spawn(async move {
            while Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(1500)).await;
                fragile.read().await.kill().await;
                *fragile.write().await = open(&url, &reality).await;
            }
        })
    };
    let mut clients = Vec::new();
    for n in 0..8 {
        let (steady, fragile) = (steady.clone(), Arc::clone(&fragile));
        clients.push(tokio::spawn(async move {
            let (mut made, mut deleted) = (Vec::new(), Vec::new());
            while Instant::now() < end {
                let fleet = if n % 2 == 0 { steady.clone() } else { fragile.read().await.clone() };
                let work = async {
                    let desk = fleet.create(&admin(), NewDesk::default(), None).await?.id;
                    made.push(desk.clone());
                    fleet.wait(&admin(), &desk, Duration::from_secs(5)).await?;
                    fleet.stop(&admin(), &desk).await?;
                    fleet.start(&admin(), &desk).await?;
                    fleet.reset(&admin(), &desk).await?;
                    if made.len() % 2 == 0 {
                        deleted.push(desk.clone());
                        fleet.delete(&admin(), &desk).await?;
                    }
                    Ok::<_, Error>(())
                };
                tokio::select! {
                    _ = work => {}
                    () = fleet.killed() => {}
                    () = tokio::time::sleep(Duration::from_secs(8)) => {}
                }
            }
            (made, deleted)
        }));
    }
    let (mut made, mut deleted) = (Vec::new(), Vec::new());
    for client in clients {
        let (m, d) = client.await.unwrap();
        made.extend(m);
        deleted.extend(d);
    }
    killer.await.unwrap();
    fragile.read().await.kill().await;
    reality.no_more_faults();

    // The steady one alone makes everything right.
    let deadline = Instant::now() + Duration::from_secs(90);
    let store = steady.store().clone();
    let mut wrong = disagreement(&*store, &reality).await;
    while wrong.is_some() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(500)).await;
        wrong = disagreement(&*store, &reality).await;
    }
    assert_eq!(wrong, None);
    assert!(made.len() > 10, "only {} desks were made", made.len());
    assert!(reality.violations().is_empty(), "{:?}", reality.violations());
    let live: Vec<String> = store.desks().await.unwrap().into_iter().map(|r| r.id).collect();
    for id in made.iter().filter(|id| !deleted.contains(id)) {
        assert!(live.contains(id), "{id} was acknowledged and is lost");
    }
    let shown = steady.desks(&admin(), Filter::default()).await.unwrap();
    assert_eq!(shown.len(), live.len());
    steady.close().await;
}

/// What store and provider do not agree on, if anything.
async fn disagreement(store: &dyn Store, reality: &Reality) -> Option<String> {
    let records = match store.desks().await {
        Ok(records) => records,
        Err(e) => return Some(e.to_string()),
    };
    let things = reality.things();
    for record in &records {
        let thing = things.get(&record.id);
        let good = match record.state {
            State::Running => thing.is_some_and(|t| t.running),
            State::Stopped => thing.is_some_and(|t| !t.running),
            State::Error => record.placed.is_some() || thing.is_none(),
            _ => false,
        };
        if !good {
            return Some(format!("{} is {:?} ({}) and in reality {thing:?}", record.id, record.state, record.reason));
        }
    }
    things.keys().find(|id| !records.iter().any(|r| r.id == **id)).map(|id| format!("{id} is an orphan"))
}
