//! Opening and closing a fleet.

use super::Fleet;
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::{Engine, Providers};
use crate::error::{Error, Result};
use crate::history;
use crate::keys::Keys;
use crate::life::{self, HttpLook, Look};
use crate::limits::Admission;
use crate::limits::machine::Machine;
use crate::money::Money;
use crate::reconcile;
use crate::store::Store;
use hotdesk_provider::Provider;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Events that a slow watcher may lag behind before it misses some.
const EVENTS_KEPT: usize = 4096;
/// Steps under way may come to their end for so long when the fleet closes; the rest is finished by the next one.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// The file whose lock makes an orchestrator the only one of its data directory.
const LOCK: &str = "fleet.lock";

/// What tests, and only they, set differently.
pub struct Options {
    pub clock: Clock,
    pub look: Arc<dyn Look>,
    /// Names this orchestrator among others; random if none.
    pub owner: Option<String>,
    /// Whether the number of the newest event is kept in the data directory, so that an older copy of the store is noticed.
    pub mark: bool,
    pub(crate) machine: Machine,
}

impl Default for Options {
    fn default() -> Self {
        Self { clock: Clock::System, look: Arc::new(HttpLook), owner: None, mark: true, machine: Machine::default() }
    }
}

impl Fleet {
    /// Opens the fleet: adopts what lives, finishes what was begun, removes orphans, and keeps doing so in the background.
    pub async fn open(config: Config, store: Arc<dyn Store>, providers: Vec<Arc<dyn Provider>>) -> Result<Self> {
        Self::open_with(config, store, providers, Options::default()).await
    }

    pub async fn open_with(
        config: Config,
        store: Arc<dyn Store>,
        providers: Vec<Arc<dyn Provider>>,
        options: Options,
    ) -> Result<Self> {
        // SQLite serves one process. Its lock is gone when the process is, so whoever gets it knows that no lease of another is alive.
        let lock = only_one(&config)?;
        let alone = lock.is_some();
        let name = || if alone { "alone".into() } else { super::create::random_id("o") };
        let owner = options.owner.unwrap_or_else(name);
        let money = Money::new(Arc::clone(&store), &config)?;
        money.deliver(&owner)?;
        let (audit, lines) = mpsc::channel(crate::audit::KEPT);
        // Read before the records: whatever is written from now on is seen again as an event.
        let newest = store.newest().await?;
        let engine = Arc::new(Engine {
            admission: Admission::new(&config, options.machine),
            providers: Providers::new(providers),
            owner,
            alone,
            opened_ms: options.clock.now_ms(),
            clock: options.clock,
            look: options.look,
            view: crate::view::View::default(),
            holds: crate::driver::hold::Holds::default(),
            drivers: crate::driver::Drivers::default(),
            pools: crate::pools::Pools::default(),
            preparations: crate::prepare::Preparations::default(),
            ends: tokio::sync::Notify::new(),
            volumes: tokio::sync::Mutex::new(()),
            counting: tokio::sync::Mutex::new(()),
            volumes_used: crate::volumes::usage::Used::default(),
            events: broadcast::channel(EVENTS_KEPT).0,
            last_event: AtomicI64::new(newest),
            wanted: watch::channel(0).0,
            reconciled: watch::channel(false).0,
            unreconciled: Mutex::default(),
            put_back: AtomicBool::new(false),
            lost_events: AtomicBool::new(false),
            mark: options.mark.then(|| config.data.join(history::FILE)),
            undecided: Mutex::default(),
            panics: Arc::default(),
            audit,
            closing: CancellationToken::new(),
            killed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            lock,
            config,
            keys: Keys::open(Arc::clone(&store)).await?,
            money,
            archives: OnceLock::new(),
            store,
        });
        if !engine.config.archive.is_empty() {
            // A setting that is wrong is told now, not to the first desk that is archived.
            engine.archives()?;
        }
        history::open(&engine).await?;
        engine.last_event.fetch_max(engine.store.newest().await?, Ordering::Relaxed);
        for record in engine.store.desks().await? {
            engine.apply(record);
        }
        for spec in &engine.config.pools {
            crate::limits::request::pool(spec)?;
            engine.store.put_pool(spec).await?;
        }
        engine.pools.set(engine.store.pools().await?);
        tracing::info!(desks = engine.view.all().len(), owner = engine.owner, "the fleet is open");

        let own = || Arc::clone(&engine);
        let (follow, policies, line, pools, volumes, mark, audit) = (own(), own(), own(), own(), own(), own(), own());
        engine.keep("follow", move || Arc::clone(&follow).follow());
        reconcile::start(&engine);
        engine.keep("policies", move || life::keep(Arc::clone(&policies)));
        engine.keep("line", move || Arc::clone(&line).serve_line());
        engine.keep("pools", move || Arc::clone(&pools).fill_pools());
        engine.keep("volumes", move || crate::volumes::usage::keep(Arc::clone(&volumes)));
        engine.keep("mark", move || history::keep(Arc::clone(&mark)));
        let lines = Arc::new(tokio::sync::Mutex::new(lines));
        engine.keep("audit", move || crate::audit::write(Arc::clone(&audit), Arc::clone(&lines)));
        Ok(Self { engine })
    }

    /// Ends the background work; desks keep running.
    pub async fn close(&self) {
        let engine = &self.engine;
        engine.closing.cancel();
        engine.tasks.close();
        if tokio::time::timeout(CLOSE_LIMIT, engine.tasks.wait()).await.is_err() {
            tracing::warn!("steps are still under way; the next one who opens the fleet finishes them");
        }
        engine.killed.cancel();
        engine.tasks.wait().await;
        life::save(engine, 1).await;
        engine.release_all().await;
        if let Err(e) = engine.keys.flush().await {
            tracing::debug!(error = %e, "the last uses of keys were not written down");
        }
        tracing::info!("the fleet is closed");
    }

    /// For `/ready`: the store answers and the first reconciliation is over. What an operator should look at, though the fleet works.
    pub async fn ready(&self) -> Result<Vec<String>> {
        self.engine.store.ping().await?;
        if self.engine.lost_events.load(Ordering::Relaxed) {
            return Err(Error::Store("the store lost what it had acknowledged; restart hotdesk".into()));
        }
        if *self.engine.reconciled.borrow() {
            return Ok(self.warnings());
        }
        Err(Error::Conflict("the fleet is being reconciled for the first time; ask again in a moment".into()))
    }

    /// Nothing of these says whose desks there are: anybody may read them.
    fn warnings(&self) -> Vec<String> {
        let engine = &self.engine;
        let mut warnings = Vec::new();
        if engine.put_back.load(Ordering::Relaxed) {
            warnings.push("the store is an older copy that was put back; `hotdesk orphan ls` shows what it does not know".into());
        }
        for (what, count) in
            engine.undecided.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|(_, count)| **count > 0)
        {
            warnings.push(format!("{count} {what} have no record, and nothing is done to them; `hotdesk orphan ls` shows them"));
        }
        for (task, count) in engine.panics.all() {
            warnings.push(format!(
                "the task `{task}` failed by a fault of its own ({count} times) and was begun anew; the log says more"
            ));
        }
        warnings
    }

    /// Waits for the first reconciliation.
    pub async fn reconciled(&self) {
        let _ = self.engine.reconciled.subscribe().wait_for(|done| *done).await;
    }

    /// Reconciles now instead of at the next tick.
    pub fn reconcile(&self) {
        self.engine.wanted.send_modify(|count| *count += 1);
    }
}

/// The lock of a store that serves one process; none for a store that several share.
pub(crate) fn only_one(config: &Config) -> Result<Option<File>> {
    let path = match config.store.strip_prefix("sqlite:") {
        Some(path) => PathBuf::from(format!("{}.lock", path.strip_prefix("//").unwrap_or(path))),
        None if config.store.is_empty() => config.data.join(LOCK),
        None => return Ok(None),
    };
    let failed = |e: std::io::Error| Error::Store(format!("{} can't be locked: {e}", path.display()));
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let file = File::options().create(true).write(true).truncate(false).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::Conflict(format!(
            "another hotdesk serves {}; use that one, stop it first, or set `store` to a PostgreSQL that both share",
            config.data.display()
        ))),
        Err(std::fs::TryLockError::Error(e)) => Err(failed(e)),
    }
}
