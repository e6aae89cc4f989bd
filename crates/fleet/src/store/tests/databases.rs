//! The databases that the suite runs on.

use crate::store::Store;
use crate::store::postgres::Postgres;
use crate::store::sqlite::Sqlite;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;

/// A store and what must outlive it.
pub(crate) struct Database {
    pub store: Arc<dyn Store>,
    place: Place,
}

enum Place {
    File(TempDir),
    Server(String),
}

impl Database {
    pub(crate) async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(directory.path().join("fleet.db")).await.unwrap());
        Self { store, place: Place::File(directory) }
    }

    /// A database of its own on the server that all tests share: that of `scripts/test-rust`, or of this process.
    pub(crate) async fn postgres() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static SERVER: OnceLock<Server> = OnceLock::new();
        let url = match std::env::var("HOTDESK_TEST_POSTGRES") {
            Ok(directory) => format!("postgres://postgres@localhost/hotdesk?host={directory}"),
            Err(_) => tokio::task::spawn_blocking(|| SERVER.get_or_init(Server::start).url.clone()).await.unwrap(),
        };
        let name = format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let url = url.replace("/hotdesk?", &format!("/{name}?"));
        let options = url.parse::<sqlx::postgres::PgConnectOptions>().unwrap().database("postgres");
        let pool = sqlx::PgPool::connect_with(options).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&pool).await.unwrap();
        pool.close().await;
        Self { store: Arc::new(Postgres::connect(&url).await.unwrap()), place: Place::Server(url) }
    }

    /// Statements that no call of the store makes: what another version or somebody by hand did to the tables.
    pub(crate) async fn by_hand(&self, statements: &str) {
        let statements = sqlx::AssertSqlSafe(statements.to_owned());
        match &self.place {
            Place::File(directory) => {
                let pool = sqlx::SqlitePool::connect(directory.path().join("fleet.db").to_str().unwrap()).await.unwrap();
                sqlx::raw_sql(statements).execute(&pool).await.unwrap();
                pool.close().await;
            }
            Place::Server(url) => {
                let pool = sqlx::PgPool::connect(url).await.unwrap();
                sqlx::raw_sql(statements).execute(&pool).await.unwrap();
                pool.close().await;
            }
        }
    }

    /// The first column of the first row.
    pub(crate) async fn text(&self, statement: &'static str) -> String {
        match &self.place {
            Place::File(directory) => {
                let pool = sqlx::SqlitePool::connect(directory.path().join("fleet.db").to_str().unwrap()).await.unwrap();
                sqlx::query_scalar(statement).fetch_one(&pool).await.unwrap()
            }
            Place::Server(url) => {
                let pool = sqlx::PgPool::connect(url).await.unwrap();
                sqlx::query_scalar(statement).fetch_one(&pool).await.unwrap()
            }
        }
    }

    /// As settings name it.
    pub(crate) fn address(&self) -> String {
        match &self.place {
            Place::File(directory) => format!("sqlite:{}", directory.path().join("fleet.db").display()),
            Place::Server(url) => url.clone(),
        }
    }

    /// As a second orchestrator opens it.
    pub(crate) async fn again(&self) -> Arc<dyn Store> {
        self.try_again().await.unwrap()
    }

    pub(crate) async fn try_again(&self) -> crate::error::Result<Arc<dyn Store>> {
        Ok(match &self.place {
            Place::File(directory) => Arc::new(Sqlite::open(directory.path().join("fleet.db")).await?),
            Place::Server(url) => Arc::new(Postgres::connect(url).await?),
        })
    }
}

/// A PostgreSQL that ends with this process, however that ends.
pub(crate) struct Server {
    pub url: String,
    directory: PathBuf,
    // It waits for the end of its input, which is ours.
    _keeper: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap().keep();
        let url = start(&directory);
        let keeper = Command::new("sh")
            .args(["-c", r#"cat; "$0" stop "$1" immediate; rm -rf "$1""#])
            .arg(script())
            .arg(&directory)
            // Whoever ends the tests as a group must not end it too.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { url, directory, _keeper: keeper }
    }

    /// Like a crash.
    pub(crate) fn stop(&self) {
        assert!(Command::new(script()).arg("stop").arg(&self.directory).arg("immediate").status().unwrap().success());
    }

    pub(crate) fn start_again(&self) {
        start(&self.directory);
    }
}

fn start(directory: &Path) -> String {
    let output = Command::new(script()).arg("start").arg(directory).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "PostgreSQL did not start: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres")
}

/// Makes each property a test on each database.
macro_rules! on_both {
    ($($property:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $property() {
                super::$property($crate::store::tests::databases::Database::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $property() {
                super::$property($crate::store::tests::databases::Database::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_both;
