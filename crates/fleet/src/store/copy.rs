//! Copies of the store, and putting them back. Of SQLite; PostgreSQL has tools of its own (`pg_dump`, `pg_restore`).

use super::fault::fault;
use crate::config::Config;
use crate::error::{Error, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Row as _, SqlitePool};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a writer is waited for.
const BUSY: Duration = Duration::from_secs(30);

/// The file of the database; none if it is no SQLite.
pub(crate) fn file(config: &Config) -> Option<PathBuf> {
    match config.store.strip_prefix("sqlite:") {
        Some(path) => Some(path.strip_prefix("//").unwrap_or(path).into()),
        None if config.store.is_empty() => Some(config.data.join("fleet.db")),
        None => None,
    }
}

fn own_file(config: &Config, tool: &str) -> Result<PathBuf> {
    let foreign = || Error::Invalid(format!("the store is a PostgreSQL; use {tool}, as docs/operating.md says"));
    file(config).ok_or_else(foreign)
}

/// Writes a whole and consistent copy, also while the fleet works. Readable by its owner alone: it holds what the store holds.
pub async fn backup(config: &Config, to: &Path) -> Result<u64> {
    let from = own_file(config, "pg_dump")?;
    if !from.exists() {
        return Err(Error::NotFound { what: "database", id: from.display().to_string() });
    }
    if to.exists() {
        return Err(Error::Conflict(format!("{} is there already; name another file", to.display())));
    }
    let failed = |e: std::io::Error| Error::Store(format!("{} can't be written: {e}", to.display()));
    let new = beside(to, "new");
    // Made before SQLite does it, so that nobody else can read it for a moment.
    drop(OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new).map_err(failed)?);
    let made = async {
        let pool = connect(&from, false).await?;
        sqlx::query("VACUUM INTO $1").bind(new.display().to_string()).execute(&pool).await.map_err(fault)?;
        pool.close().await;
        let file = File::open(&new).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        std::fs::rename(&new, to).map_err(failed)?;
        Ok(bytes)
    };
    let made = made.await;
    if made.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    made
}

/// Puts a copy back. The fleet must not run; what was there is kept beside it, and its new place is returned.
pub async fn restore(config: &Config, from: &Path, fleet: Option<&str>) -> Result<Option<PathBuf>> {
    let to = own_file(config, "pg_restore")?;
    let _lock = crate::fleet::only_one(config)?;
    check(from, fleet).await?;
    let failed = |e: std::io::Error| Error::Store(format!("{} can't be written: {e}", to.display()));
    let new = beside(&to, "new");
    let mut target = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new).map_err(failed)?;
    let mut source = File::open(from).map_err(|e| Error::Store(format!("{} can't be read: {e}", from.display())))?;
    std::io::copy(&mut source, &mut target).map_err(failed)?;
    target.sync_all().map_err(failed)?;
    let kept = if to.exists() { Some(put_aside(&to).map_err(failed)?) } else { None };
    std::fs::rename(&new, &to).map_err(failed)?;
    Ok(kept)
}

/// The database and its log belong together: a log that is left behind would be played into the copy.
fn put_aside(database: &Path) -> std::io::Result<PathBuf> {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let kept = beside(database, &format!("before-{now}"));
    for end in ["-wal", "-shm", ""] {
        let from = with_end(database, end);
        if from.exists() {
            std::fs::rename(&from, with_end(&kept, end))?;
        }
    }
    Ok(kept)
}

fn beside(path: &Path, what: &str) -> PathBuf {
    with_end(path, &format!(".{what}"))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Whether it is a whole database of ours, and of this fleet.
async fn check(copy: &Path, fleet: Option<&str>) -> Result<()> {
    let wrong = |why: String| Error::Invalid(format!("{} can't be put back: {why}", copy.display()));
    if !copy.is_file() {
        return Err(wrong("there is no such file".into()));
    }
    let pool = connect(copy, true).await.map_err(|e| wrong(e.to_string()))?;
    let text = async |statement: &'static str| -> std::result::Result<Option<String>, sqlx::Error> {
        sqlx::query(statement).fetch_optional(&pool).await?.map(|row| row.try_get(0)).transpose()
    };
    let sound = text("PRAGMA integrity_check").await.map_err(|e| wrong(fault(e).to_string()))?;
    if sound.as_deref() != Some("ok") {
        return Err(wrong(format!("it is damaged ({})", sound.unwrap_or_default())));
    }
    if text("SELECT name FROM sqlite_master WHERE name = 'desks'").await.map_err(fault)?.is_none() {
        return Err(wrong("it is no database of hotdesk".into()));
    }
    // A copy that an older version made has no such table; then the start says whose it is.
    let owner = text("SELECT value FROM facts WHERE name = 'identity'").await.unwrap_or_default();
    pool.close().await;
    match (owner, fleet) {
        (Some(owner), Some(fleet)) if owner != fleet => {
            Err(wrong(format!("it is of the fleet {owner}, and the data directory of the fleet {fleet}")))
        }
        _ => Ok(()),
    }
}

async fn connect(path: &Path, copy: bool) -> Result<SqlitePool> {
    // A copy is looked at without a log beside it.
    let options =
        SqliteConnectOptions::new().filename(path).create_if_missing(false).busy_timeout(BUSY).immutable(copy).read_only(copy);
    SqlitePoolOptions::new().max_connections(1).connect_with(options).await.map_err(fault)
}
