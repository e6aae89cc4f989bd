//! PostgreSQL, for several orchestrators over one fleet.
//!
//! Connect to it directly, or through a pooler that keeps sessions: a connection listens, and statements are prepared.
//! `sslmode=verify-full` in the address asks for an encrypted connection to the right server.
//!
//! The listening connection hears of the events of other orchestrators; while it is broken, they are looked for each second.

use super::Store as _;
use super::driver::{Driver, Durability, Row, Transaction, Value, bind, unpack};
use super::fault::{fault, migration_fault};
use super::migrations;
use super::seal::Seal;
use crate::error::Result;
use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{PgPool, Row as _, TypeInfo as _, ValueRef as _};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Per orchestrator; PostgreSQL allows 100 in all by default.
const CONNECTIONS: u32 = 12;
/// A request that gets no connection in this time is told so.
const CONNECT: Duration = Duration::from_secs(5);
/// No statement of ours takes long; one that does must not hold its locks.
const STATEMENT: &str = "10s";
/// A transaction whose orchestrator stands still must not hold its locks either.
const STANDSTILL: &str = "10s";
const CHANNEL: &str = "hotdesk_events";
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

pub struct Postgres {
    pool: PgPool,
    news: watch::Sender<u64>,
    seal: OnceLock<Seal>,
    listener: AbortHandle,
}

impl Postgres {
    pub async fn connect(url: &str) -> Result<Self> {
        let options = url.parse::<PgConnectOptions>().map_err(fault)?.application_name("hotdesk").options([
            ("statement_timeout", STATEMENT),
            ("idle_in_transaction_session_timeout", STANDSTILL),
            // A commit that was answered is on the disk, whatever the server's default.
            ("synchronous_commit", "on"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT)
            .connect_with(options)
            .await
            .map_err(fault)?;
        migrations::migrator(migrations::POSTGRES).run(&pool).await.map_err(migration_fault)?;
        let news = watch::Sender::new(0);
        let listener = tokio::spawn(listen(pool.clone(), news.clone())).abort_handle();
        let store = Self { pool, news, listener, seal: OnceLock::new() };
        store.ping().await.map(|()| store)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn listen(pool: PgPool, news: watch::Sender<u64>) {
    loop {
        if let Ok(mut listener) = PgListener::connect_with(&pool).await
            && listener.listen(CHANNEL).await.is_ok()
        {
            // Also after a broken connection (`None`): something may have been missed.
            while listener.try_recv().await.is_ok() {
                news.send_modify(|count| *count += 1);
            }
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

pub struct Open {
    transaction: sqlx::Transaction<'static, sqlx::Postgres>,
}

#[async_trait]
impl Driver for Postgres {
    type Transaction = Open;

    const CLAIM: &'static str = "SELECT body, version, id, project, name, created_ms, changed_ms, state FROM desks WHERE pool = $1 AND state = 'running' \
         ORDER BY created_ms, id LIMIT 1 FOR UPDATE SKIP LOCKED";
    const ANNOUNCE: Option<&'static str> = Some("SELECT 1::BIGINT FROM pg_notify('hotdesk_events', '')");

    async fn begin(&self, durability: Durability) -> Result<Open> {
        let mut transaction = self.pool.begin().await.map_err(fault)?;
        if durability == Durability::Lazy {
            sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut *transaction).await.map_err(fault)?;
        }
        Ok(Open { transaction })
    }

    async fn read(&self, statement: &'static str, values: Vec<Value>) -> Result<Vec<Row>> {
        let rows = bind!(statement, values).fetch_all(&self.pool).await.map_err(fault)?;
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
impl Transaction for Open {
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
