//! What databases complain about, in words that help.

use crate::error::Error;
use sqlx::error::ErrorKind;
use sqlx::migrate::MigrateError;

/// SQLITE_FULL and ENOSPC of PostgreSQL.
const FULL: [&str; 2] = ["13", "53100"];
/// PostgreSQL: a character that text can't hold (the NUL character).
const BAD_TEXT: &str = "22021";
/// PostgreSQL ends, restarts, or has no room for one more connection.
const AWAY: [&str; 5] = ["57P01", "57P02", "57P03", "53300", "25006"];
/// PostgreSQL: the statement or the wait for a lock took too long, or two transactions waited for each other.
const SLOW: [&str; 4] = ["57014", "55P03", "40P01", "40001"];

pub(super) fn fault(error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            let code = code.as_ref();
            // SQLite's extended codes hold the plain one in the low byte.
            let plain = code.parse::<u32>().ok().filter(|_| code.len() < 5).map(|code| (code & 0xff).to_string());
            let plain = plain.as_deref().unwrap_or(code);
            let text = database.message();
            if database.kind() == ErrorKind::UniqueViolation {
                return Error::Conflict(format!("something of that name is there already ({text})"));
            }
            if FULL.contains(&plain) {
                return Error::Store(format!(
                    "the disk of the database is full ({text}); make room, nothing else needs to be done"
                ));
            }
            if code == BAD_TEXT {
                return Error::Invalid("names must not contain the NUL character".into());
            }
            if AWAY.contains(&code) {
                return Error::Store(format!(
                    "the database is not available now ({text}); it is asked again with the next request"
                ));
            }
            if SLOW.contains(&code) {
                return Error::Store(format!("the database is too busy ({text}); ask again"));
            }
            match plain {
                "5" | "6" => Error::Store(format!(
                    "another process holds the database for too long ({text}); end it, or give each fleet its own data directory"
                )),
                "8" => Error::Store(format!(
                    "the database can't be written ({text}); look at the owner and mode of its file and directory"
                )),
                "10" => Error::Store(format!(
                    "the disk of the database is full or fails ({text}); make room, or look at the kernel's log"
                )),
                "11" | "26" => Error::Store(format!(
                    "the database file is damaged ({text}); put back a copy with hotdesk restore; desks that the copy does not know are kept, and hotdesk adopt makes them known again"
                )),
                "14" => Error::Store(format!(
                    "the database file can't be opened ({text}); look at the owner and mode of its directory"
                )),
                _ => Error::Store(format!("{text} (code {code})")),
            }
        }
        sqlx::Error::Io(e) => {
            Error::Store(format!("the database is not reachable ({e}); it is asked again with the next request"))
        }
        sqlx::Error::PoolTimedOut => {
            Error::Store("the database gave no connection in time: it is down, or too many requests wait for it".into())
        }
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => Error::Store("the store is closed".into()),
        sqlx::Error::Tls(e) => Error::Store(format!("no encrypted connection to the database: {e}")),
        sqlx::Error::Configuration(e) => Error::Invalid(format!("the address of the database is not right: {e}")),
        other => Error::Store(other.to_string()),
    }
}

pub(super) fn migration_fault(error: MigrateError) -> Error {
    match error {
        MigrateError::VersionMissing(version) => Error::Store(format!(
            "the database was written by a newer hotdesk (it has table version {version}); run that version or a newer one"
        )),
        MigrateError::VersionMismatch(version) => Error::Store(format!(
            "the database's table version {version} is not the one of this hotdesk; was it made by an unreleased build?"
        )),
        MigrateError::Execute(e) | MigrateError::ExecuteMigration(e, _) => fault(e),
        other => Error::Store(format!("the tables could not be brought up to date: {other}")),
    }
}
