//! Two orchestrators over one real PostgreSQL: one is killed again and again, the other carries on, and no desk is acted on by both.

use hotdesk_api::desk::{NewDesk, State};
use hotdesk_fleet::store::{self, Store};
use hotdesk_fleet::testing::{self, Reality, admin};
use hotdesk_fleet::{Config, Error, Filter, Fleet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::RwLock;

/// How often one of the two is killed, and after how many desks each time.
const DEATHS: usize = 6;
const DESKS_PER_DEATH: usize = 8;
/// Of a wait for one step.
const LIMIT: Duration = Duration::from_secs(60);

/// What orchestrators of one fleet share.
struct Place {
    url: String,
    /// With the key of the store's secrets.
    data: tempfile::TempDir,
}

impl Place {
    async fn new() -> (Server, Arc<Self>) {
        let (server, url) = tokio::task::spawn_blocking(Server::start).await.unwrap();
        (server, Arc::new(Self { url, data: tempfile::tempdir().unwrap() }))
    }
}

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
async fn open(at: &Place, reality: &Reality) -> Fleet {
    for _ in 0..60 {
        match try_open(at, reality).await {
            Ok(fleet) => return fleet,
            Err(e) => eprintln!("not opened: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("the fleet could not be opened for 30 s");
}

async fn try_open(at: &Place, reality: &Reality) -> Result<Fleet, Error> {
    let config = Config { store: at.url.clone(), data: at.data.path().into(), ..Config::default() };
    let store = store::open(&config).await?;
    let fleet = Fleet::open_with(config, store, vec![reality.provider()], testing::options(reality)).await?;
    fleet.reconciled().await;
    Ok(fleet)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_is_killed_and_the_other_carries_on() {
    let (_server, place) = Place::new().await;
    let reality = Reality::seeded(testing::seed());
    reality.chance(0.02);
    let steady = open(&place, &reality).await;
    let fragile = Arc::new(RwLock::new(open(&place, &reality).await));

    // Counted, not timed: between two deaths some desks are made, however slow the machine is.
    let count = Arc::new(AtomicUsize::new(0));
    let end = Arc::new(AtomicBool::new(false));
    let killer = {
        let (fragile, place, reality) = (Arc::clone(&fragile), Arc::clone(&place), reality.clone());
        let (count, end) = (Arc::clone(&count), Arc::clone(&end));
        tokio::spawn(async move {
            for death in 1..=DEATHS {
                while count.load(Ordering::Relaxed) < death * DESKS_PER_DEATH {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                fragile.read().await.kill().await;
                *fragile.write().await = open(&place, &reality).await;
            }
            end.store(true, Ordering::Relaxed);
        })
    };
    let mut clients = Vec::new();
    for n in 0..8 {
        let (steady, fragile) = (steady.clone(), Arc::clone(&fragile));
        let (count, end) = (Arc::clone(&count), Arc::clone(&end));
        clients.push(tokio::spawn(async move {
            let (mut made, mut deleted) = (Vec::new(), Vec::new());
            while !end.load(Ordering::Relaxed) {
                let fleet = if n % 2 == 0 { steady.clone() } else { fragile.read().await.clone() };
                let work = async {
                    let desk = fleet.create(&admin(), NewDesk::default(), None).await?.id;
                    made.push(desk.clone());
                    count.fetch_add(1, Ordering::Relaxed);
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
                // A fleet that is dead fails at once: asking it without a pause keeps the next one from being opened.
                tokio::time::sleep(Duration::from_millis(50)).await;
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
    assert!(reality.violations().is_empty(), "{:?}", reality.violations());
    let live: Vec<String> = store.desks().await.unwrap().into_iter().map(|r| r.id).collect();
    for id in made.iter().filter(|id| !deleted.contains(id)) {
        assert!(live.contains(id), "{id} was acknowledged and is lost");
    }
    let shown = steady.desks(&admin(), Filter::default()).await.unwrap();
    assert_eq!(shown.len(), live.len());
    steady.close().await;
}

/// A rolling upgrade: for a while an older version works beside a newer one, whose rows have what the older one does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_older_version_works_beside_a_newer_one() {
    let (_server, place) = Place::new().await;
    let reality = Reality::new();
    let (one, two) = (open(&place, &reality).await, open(&place, &reality).await);
    let mut ids = Vec::new();
    for fleet in [&one, &two, &one] {
        let desk = fleet.create(&admin(), NewDesk::default(), None).await.unwrap();
        assert_eq!(fleet.wait(&admin(), &desk.id, LIMIT).await.unwrap().state, State::Running);
        ids.push(desk.id);
    }
    let [plain, extended, strange] = [&ids[0], &ids[1], &ids[2]];

    // A newer version writes: a field of its own into one row, a state of its own into another.
    let database = sqlx::PgPool::connect(&place.url).await.unwrap();
    let write = async |id: &str, from: &str, to: &str| {
        let statement = "UPDATE desks SET body = replace(body, $2, $3), version = version + 1 WHERE id = $1";
        let done = sqlx::query(statement).bind(id).bind(from).bind(to).execute(&database).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
    };
    write(extended, r#""policy":{"#, r#""novel":{"a":1},"policy":{"auto_sleep_s":7,"#).await;
    write(strange, r#""state":"running""#, r#""state":"levitating""#).await;

    // Each of the older ones acts on what it understands, and what it does not know survives that.
    for (fleet, id) in [(&one, extended), (&two, extended), (&two, plain)] {
        fleet.stop(&admin(), id).await.unwrap();
        assert_eq!(fleet.wait(&admin(), id, LIMIT).await.unwrap().state, State::Stopped);
        fleet.start(&admin(), id).await.unwrap();
        assert_eq!(fleet.wait(&admin(), id, LIMIT).await.unwrap().state, State::Running);
    }
    let body = async |id: &str| -> String {
        sqlx::query_scalar("SELECT body FROM desks WHERE id = $1").bind(id).fetch_one(&database).await.unwrap()
    };
    let kept = body(extended).await;
    assert!(kept.contains(r#""novel":{"a":1}"#) && kept.contains(r#""auto_sleep_s":7"#), "{kept}");

    // The row that nobody here understands is one desk in error, which is left alone.
    let before = body(strange).await;
    let third = open(&place, &reality).await;
    let shown = third.desk(&admin(), strange).await.unwrap();
    assert!(shown.state == State::Error && shown.reason.contains("can't be read"), "{shown:?}");
    let refused = third.delete(&admin(), strange).await;
    assert!(matches!(&refused, Err(Error::Conflict(why)) if why.contains("can't be read")), "{refused:?}");
    third.reconcile();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(reality.thing(strange).unwrap().running, "its programs were ended");
    assert_eq!(body(strange).await, before);
    third.close().await;

    // The newer one brings it to a state that all know: then all may act on it.
    write(strange, "levitating", "running").await;
    let fourth = open(&place, &reality).await;
    fourth.stop(&admin(), strange).await.unwrap();
    assert_eq!(fourth.wait(&admin(), strange, LIMIT).await.unwrap().state, State::Stopped);
    fourth.close().await;

    // The upgrade is over: rows get a format that older versions must not touch.
    one.ready().await.unwrap();
    one.store().put_fact(store::facts::FORMAT, "1000", true).await.unwrap();
    for told in [one.ready().await.err(), two.ready().await.err(), try_open(&place, &reality).await.err()] {
        let told = told.expect("an older version must not go on").to_string();
        assert!(told.contains("newer hotdesk"), "{told}");
    }
    assert!(reality.violations().is_empty(), "{:?}", reality.violations());
    one.close().await;
    two.close().await;
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
