//! Watching directories: as a stream, or collected here until the client asks.

use super::desk::{Events, Sandbox, encoded};
use super::fault::{Code, Fault, Result};
use super::filesystem::{entry, info, is_directory, path_or_home};
use super::streams::Plan;
use super::{connect, memory};
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use hotdesk_api::file::WatchEvent;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Watches that are polled, of all sandboxes together; each holds a connection to its desk.
const MOST: usize = 1024;
/// Events that wait for a client; the oldest are dropped.
const KEPT: usize = 10_000;
/// A client that has just written a file wants to see that: events are on their way from the desk for a moment. So long the first one
/// is waited for, and others until there is a pause.
const FIRST: Duration = Duration::from_millis(150);
const PAUSE: Duration = Duration::from_millis(20);
/// A watch that nobody asks for so long is given up.
const UNASKED: Duration = Duration::from_secs(3600);
/// How the desk names a file while it writes it: `.name.0123456789abcdef.part`.
const PART: &str = ".part";

/// Watches whose events are collected.
#[derive(Default)]
pub(super) struct Watchers(Mutex<HashMap<String, Watcher>>);

struct Watcher {
    desk: String,
    collected: Arc<Collected>,
    asked: Instant,
    task: AbortOnDropHandle<()>,
}

/// Events that nobody has asked for yet.
#[derive(Default)]
struct Collected {
    events: Mutex<VecDeque<Value>>,
    came: Notify,
}

impl Collected {
    fn add(&self, events: Vec<Value>) {
        let mut kept = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(events);
        let most = kept.len().saturating_sub(KEPT);
        kept.drain(..most);
        self.came.notify_one();
    }

    async fn take(&self) -> Vec<Value> {
        let mut patience = FIRST;
        while tokio::time::timeout(patience, self.came.notified()).await.is_ok() {
            patience = PAUSE;
        }
        self.events.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

impl Watchers {
    pub(super) fn prune(&self) {
        self.table().retain(|_, watcher| watcher.asked.elapsed() < UNASKED && !watcher.task.is_finished());
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<String, Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct Wish {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default, alias = "includeEntry")]
    include_entry: bool,
}

#[derive(Deserialize)]
struct Known {
    #[serde(alias = "watcherId")]
    watcher_id: String,
}

/// A watch that begins.
struct Watch {
    sandbox: Sandbox,
    user: Option<String>,
    events: Events,
    /// What is watched; events name files from there.
    root: String,
    entries: bool,
}

impl Watch {
    async fn begin(sandbox: Sandbox, headers: &HeaderMap, body: Body) -> Result<Self> {
        let Wish { path, recursive, include_entry } = connect::message(headers, body).await?;
        let user = connect::user(headers)?;
        let (events, root) = {
            let user = sandbox.user(user.as_deref()).await?;
            let found = info(&user, &path).await?;
            if !is_directory(&found) {
                return Err(Fault::bad(format!("path is not a directory: {}", found.path)));
            }
            let place = format!("files/watch?path={}&recursive={recursive}&every_write=true", encoded(path_or_home(&path)));
            let mut events = user.events(&place).await?;
            match events.next_json().await? {
                Some(WatchEvent::Watching { path }) => (events, path),
                _ => return Err(Fault::internal("the desk did not begin to watch")),
            }
        };
        Ok(Self { sandbox, user, events, root, entries: include_entry })
    }

    /// The next events; none at the end. Some of the desk's are several of E2B's, some none.
    async fn next(&mut self) -> Result<Option<Vec<Value>>> {
        let Some(event) = self.events.next_json().await? else { return Ok(None) };
        if matches!(event, WatchEvent::Failed { .. }) {
            return Ok(None);
        }
        let mut told = Vec::new();
        for (path, kind) in translated(event) {
            let mut event = json!({ "name": self.name(&path), "type": kind });
            if self.entries && !matches!(kind, "EVENT_TYPE_REMOVE" | "EVENT_TYPE_RENAME") {
                // Not by way of `self`, which can't be shared between threads.
                let user = self.sandbox.user(self.user.as_deref()).await?;
                if let Ok(found) = info(&user, &path).await {
                    event["entry"] = entry(&found);
                }
            }
            told.push(event);
        }
        Ok(Some(told))
    }

    fn name(&self, path: &str) -> String {
        let rest = path.strip_prefix(&self.root).map(|rest| rest.trim_start_matches('/'));
        rest.filter(|rest| !rest.is_empty()).unwrap_or(path).to_owned()
    }
}

/// A change in E2B's words. The desk writes files beside their place and then moves them there, which clients must not see: theirs
/// makes a file, gives it to its owner and writes it.
fn translated(event: WatchEvent) -> Vec<(String, &'static str)> {
    let told = match event {
        WatchEvent::Created { path } => vec![(path, "EVENT_TYPE_CREATE")],
        WatchEvent::Modified { path } => vec![(path, "EVENT_TYPE_WRITE")],
        WatchEvent::Attributes { path } => vec![(path, "EVENT_TYPE_CHMOD")],
        WatchEvent::Removed { path } => vec![(path, "EVENT_TYPE_REMOVE")],
        WatchEvent::Renamed { from, to } if is_part(&from) => {
            vec![(to.clone(), "EVENT_TYPE_CREATE"), (to.clone(), "EVENT_TYPE_CHMOD"), (to, "EVENT_TYPE_WRITE")]
        }
        WatchEvent::Renamed { from, to } => vec![(from, "EVENT_TYPE_RENAME"), (to, "EVENT_TYPE_CREATE")],
        WatchEvent::Watching { .. } | WatchEvent::Overflow | WatchEvent::Failed { .. } => Vec::new(),
    };
    told.into_iter().filter(|(path, _)| !is_part(path)).collect()
}

fn is_part(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let number = name.strip_prefix('.').and_then(|name| name.strip_suffix(PART)).and_then(|name| name.rsplit('.').next());
    number.is_some_and(|number| number.len() == 16 && number.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// `WatchDir`
pub(super) async fn stream(sandbox: Sandbox, headers: &HeaderMap, body: Body) -> Result<Response> {
    let plan = Plan::new(headers, connect::limit(headers)?);
    let mut watch = Watch::begin(sandbox, headers, body).await?;
    Ok(connect::stream(async_stream::try_stream! {
        yield connect::envelope(&json!({ "start": {} }));
        loop {
            let next = tokio::select! {
                next = watch.next() => next,
                () = plan.over() => {
                    yield connect::end(Some(&Fault::new(Code::DeadlineExceeded, "the time of the watch is over")));
                    return;
                }
                () = tokio::time::sleep(plan.keepalive()) => {
                    yield connect::envelope(&json!({ "keepalive": {} }));
                    continue;
                }
            };
            match next {
                Ok(Some(events)) => {
                    for event in events {
                        yield connect::envelope(&json!({ "filesystem": event }));
                    }
                }
                Ok(None) => break,
                Err(_) => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))?,
            }
        }
        yield connect::end(None);
    }))
}

/// `CreateWatcher`
pub(super) async fn create(sandbox: Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let (app, desk) = (sandbox.app.clone(), sandbox.desk.clone());
    if memory(&app).watchers.table().len() >= MOST {
        return Err(Fault::new(Code::ResourceExhausted, format!("{MOST} directories are watched; remove a watcher first")));
    }
    let mut watch = Watch::begin(sandbox, headers, body).await?;
    let collected = Arc::new(Collected::default());
    let filled = Arc::clone(&collected);
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok(Some(events)) = watch.next().await {
            filled.add(events);
        }
    }));
    let id = format!("{:032x}", rand::random::<u128>());
    memory(&app).watchers.table().insert(id.clone(), Watcher { desk, collected, asked: Instant::now(), task });
    Ok(json!({ "watcherId": id }))
}

/// `GetWatcherEvents`
pub(super) async fn events(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Known { watcher_id } = connect::message(headers, body).await?;
    let collected = {
        let mut table = memory(&sandbox.app).watchers.table();
        let watcher =
            table.get_mut(&watcher_id).filter(|watcher| watcher.desk == sandbox.desk).ok_or_else(|| unknown(&watcher_id))?;
        watcher.asked = Instant::now();
        Arc::clone(&watcher.collected)
    };
    Ok(json!({ "events": collected.take().await }))
}

/// `RemoveWatcher`
pub(super) async fn remove(sandbox: &Sandbox, headers: &HeaderMap, body: Body) -> Result<Value> {
    let Known { watcher_id } = connect::message(headers, body).await?;
    let mut table = memory(&sandbox.app).watchers.table();
    match table.get(&watcher_id) {
        Some(watcher) if watcher.desk == sandbox.desk => {
            table.remove(&watcher_id);
            Ok(json!({}))
        }
        _ => Err(unknown(&watcher_id)),
    }
}

fn unknown(id: &str) -> Fault {
    Fault::new(Code::NotFound, format!("watcher with id {} not found", id.escape_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_is_waited_for() {
        let collected = Arc::new(Collected::default());
        let filling = Arc::clone(&collected);
        let filled = tokio::spawn(async move {
            for pause in [100, 10, 10, 500] {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                filling.add(vec![json!(pause)]);
            }
        });
        assert_eq!(collected.take().await, [100, 10, 10]);
        filled.await.unwrap();
        assert_eq!(collected.take().await, [500]);
        assert!(collected.take().await.is_empty());
    }

    #[test]
    fn files_appear_whole_and_once() {
        let part = "/d/.a.txt.0123456789abcdef.part".to_owned();
        assert!(translated(WatchEvent::Created { path: part.clone() }).is_empty());
        assert_eq!(
            translated(WatchEvent::Renamed { from: part, to: "/d/a.txt".into() }),
            ["EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"].map(|kind| ("/d/a.txt".to_owned(), kind))
        );
        assert_eq!(
            translated(WatchEvent::Renamed { from: "/d/a".into(), to: "/d/b".into() }),
            [("/d/a".to_owned(), "EVENT_TYPE_RENAME"), ("/d/b".to_owned(), "EVENT_TYPE_CREATE")]
        );
        assert!(!is_part("/d/my.part") && !is_part("/d/.x.part"));
    }
}
