//! SQLite in the data directory: the default, for one orchestrator.
//!
//! Write-ahead log, so readers never wait for the writer. One connection writes, with every commit on the disk before
//! it returns; a second one does the lazy writes without waiting for the disk. They take turns in this process, because
//! SQLite itself can only wait by trying again.

use super::Store as _;
use super::driver::{Driver, Durability, Row, Transaction, Value, bind, unpack};
use super::fault::{fault, migration_fault};
use super::migrations;
use super::seal::Seal;
use crate::error::{Error, Result};
use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Row as _, SqlitePool, TypeInfo as _, ValueRef as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

/// How long to wait for another process that writes (a backup, a second orchestrator).
const BUSY: Duration = Duration::from_secs(10);
/// Reads are short; more connections would only cost memory.
const READERS: u32 = 4;
/// The log is cut to this size after a burst.
const LOG_BYTES: &str = "33554432";

pub struct Sqlite {
    full: SqlitePool,
    lazy: SqlitePool,
    readers: SqlitePool,
    turn: Arc<Mutex<()>>,
    news: watch::Sender<u64>,
    seal: OnceLock<Seal>,
}

impl Sqlite {
    /// Opens or makes the database file (mode 0600).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), None).await
    }

    /// With a limit of pages, so that tests can fill it.
    pub(super) async fn open_with(path: &Path, pages: Option<u32>) -> Result<Self> {
        make_private(path).map_err(|e| {
            Error::Store(format!("{} can't be made ({e}); name a directory that is yours with --data", path.display()))
        })?;
        let mut options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(BUSY)
            .foreign_keys(true)
            .pragma("journal_size_limit", LOG_BYTES);
        if let Some(pages) = pages {
            options = options.pragma("max_page_count", pages.to_string());
        }
        let pool = |connections| {
            SqlitePoolOptions::new().max_connections(connections).idle_timeout(None).max_lifetime(None).test_before_acquire(false)
        };
        let full = pool(1).connect_with(options.clone().synchronous(SqliteSynchronous::Full)).await.map_err(fault)?;
        migrations::migrator(migrations::SQLITE).run(&full).await.map_err(migration_fault)?;
        let lazy = pool(1).connect_lazy_with(options.clone().synchronous(SqliteSynchronous::Normal));
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        let store = Self { full, lazy, readers, turn: Arc::default(), news: watch::Sender::new(0), seal: OnceLock::new() };
        store.ping().await.map(|()| store)
    }
}

/// The file must never be readable by others, not even for a moment; SQLite gives its log the same mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty() && !d.exists()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

pub struct Turn {
    // Before the guard: what was not committed is undone before the next one's turn.
    transaction: sqlx::Transaction<'static, sqlx::Sqlite>,
    _guard: OwnedMutexGuard<()>,
}

#[async_trait]
impl Driver for Sqlite {
    type Transaction = Turn;

    const CLAIM: &'static str = "SELECT body, version, id, project, name, created_ms, changed_ms, state FROM desks WHERE pool = $1 AND state = 'running' ORDER BY created_ms, id LIMIT 1";
    const ANNOUNCE: Option<&'static str> = None;

    async fn begin(&self, durability: Durability) -> Result<Turn> {
        let guard = self.turn.clone().lock_owned().await;
        let pool = match durability {
            Durability::Full => &self.full,
            Durability::Lazy => &self.lazy,
        };
        // At once for writing: a transaction that begins by reading can't always become a writing one.
        let transaction = match pool.begin_with("BEGIN IMMEDIATE").await {
            // On a full disk SQLite undoes a transaction by itself, and the connection goes on counting it: a new one begins at zero.
            Err(sqlx::Error::InvalidSavePointStatement) => {
                let _ = pool.acquire().await.map_err(fault)?.close().await;
                pool.begin_with("BEGIN IMMEDIATE").await
            }
            other => other,
        };
        Ok(Turn { transaction: transaction.map_err(fault)?, _guard: guard })
    }

    async fn read(&self, statement: &'static str, values: Vec<Value>) -> Result<Vec<Row>> {
        let rows = bind!(statement, values).fetch_all(&self.readers).await.map_err(fault)?;
        unpack!(rows).map_err(fault)
    }

    fn seal(&self) -> Option<&Seal> {
        self.seal.get()
    }

    fn set_seal(&self, seal: Seal) {
        let _ = self.seal.set(seal);
    }

    fn news(&self) -> &watch::Sender<u64> {
        &self.news
    }
}

#[async_trait]
impl Transaction for Turn {
    async fn rows(&mut self, statement: &'static str, values: Vec<Value>) -> Result<Vec<Row>> {
        let rows = bind!(statement, values).fetch_all(&mut *self.transaction).await.map_err(fault)?;
        unpack!(rows).map_err(fault)
    }

    async fn run(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64> {
        Ok(bind!(statement, values).execute(&mut *self.transaction).await.map_err(fault)?.rows_affected())
    }

    async fn commit(self) -> Result<()> {
        self.transaction.commit().await.map_err(fault)
    }

    async fn undo(self) {
        // A transaction that can't even be undone went with its connection.
        let _ = self.transaction.rollback().await;
    }
}
