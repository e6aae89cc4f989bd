//! What is promised when something breaks.

use super::databases::{Database, Server, on_both};
use super::{desk, event};
use crate::error::Error;
use crate::store::postgres::Postgres;
use crate::store::sqlite::Sqlite;
use crate::store::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

on_both!(a_call_that_is_dropped_leaves_nothing_behind);

/// A client that goes away drops the future wherever it stands.
async fn a_call_that_is_dropped_leaves_nothing_behind(database: Database) {
    let store = database.store;
    for number in 0..60 {
        let id = format!("d-{number}");
        let (record, made) = (desk(&id), event(&id, ""));
        let mut insert = store.insert(&record, made);
        // After so many polls; a poll of its own runtime step moves the other side on.
        for _ in 0..number % 12 {
            if futures_util::poll!(&mut insert).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
    let desks = store.desks().await.unwrap().len();
    store.insert(&desk("d-last"), event("d-last", "")).await.unwrap();
    let events = store.events(0, None, 1000).await.unwrap();
    let numbers: Vec<_> = events.iter().map(|e| e.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
    // What was dropped at the very end may still have been committed, but never by half.
    let desks = store.desks().await.unwrap().len().max(desks);
    assert_eq!(desks, events.len(), "a desk without its event, or the other way round");
}

#[tokio::test]
async fn the_file_is_for_its_owner_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/fleet.db");
    let store = Sqlite::open(&path).await.unwrap();
    store.insert(&desk("d-1"), event("d-1", "")).await.unwrap();
    let files: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|f| f.unwrap()).collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?} has mode {mode:o}", file.file_name());
    }
    drop(store);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    Sqlite::open(&path).await.unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_full_disk_is_told_and_forgiven() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.db");
    let store = Sqlite::open_with(&path, Some(64)).await.unwrap();
    let mut number = 0;
    let error = loop {
        let id = format!("d-{number}");
        if let Err(error) = store.insert(&desk(&id), event(&id, "")).await {
            break error;
        }
        number += 1;
    };
    assert!(matches!(&error, Error::Store(why) if why.contains("full") && why.contains("make room")), "{error}");
    assert_eq!(store.desks().await.unwrap().len(), number, "what was acknowledged is there, the rest is not");
    assert_eq!(store.newest().await.unwrap(), number as i64);
    drop(store);
    let store = Sqlite::open(&path).await.unwrap();
    store.insert(&desk("d-new"), event("d-new", "")).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_and_a_directory_that_is_not_ours_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.db");
    std::fs::write(&path, "this is no database, and long enough to be looked at ".repeat(100)).unwrap();
    let error = Sqlite::open(&path).await.err().unwrap();
    assert!(matches!(&error, Error::Store(why) if why.contains("damaged")), "{error}");
    let error = Sqlite::open("/proc/nowhere/fleet.db").await.err().unwrap();
    assert!(matches!(&error, Error::Store(why) if why.contains("--data")), "{error}");
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.db");
    drop(Sqlite::open(&path).await.unwrap());
    let pool = sqlx::SqlitePool::connect(path.to_str().unwrap()).await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'newer', TRUE, x'00', 1)";
    sqlx::query(newer).execute(&pool).await.unwrap();
    pool.close().await;
    let error = Sqlite::open(&path).await.err().unwrap();
    assert!(matches!(&error, Error::Store(why) if why.contains("newer hotdesk") && why.contains("9999")), "{error}");
}

#[tokio::test]
async fn the_settings_name_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config { data: directory.path().join("data"), ..Config::default() };
    open(&config).await.unwrap().ping().await.unwrap();
    assert!(config.data.join("fleet.db").exists());
    config.store = "mysql://user:hunter2@host/x".into();
    let error = open(&config).await.err().unwrap();
    assert!(matches!(&error, Error::Invalid(why) if why.contains("postgres://") && !why.contains("hunter2")), "{error}");
    config.store = "postgres://user:hunter2@127.0.0.1:1/x".into();
    let error = open(&config).await.err().unwrap();
    assert!(matches!(&error, Error::Store(why) if !why.contains("hunter2")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_and_comes_back() {
    let server = tokio::task::spawn_blocking(Server::start).await.unwrap();
    let store = Postgres::connect(&server.url).await.unwrap();
    store.insert(&desk("d-1"), event("d-1", "")).await.unwrap();
    tokio::task::block_in_place(|| server.stop());
    for _ in 0..3 {
        let error = store.insert(&desk("d-2"), event("d-2", "")).await.unwrap_err();
        assert!(matches!(&error, Error::Store(why) if why.contains("database")), "{error}");
        assert!(store.ping().await.is_err());
    }
    tokio::task::block_in_place(|| server.start_again());
    // The pool may hand out one connection of before.
    let mut tries = 0;
    while store.ping().await.is_err() {
        tries += 1;
        assert!(tries < 20, "the store did not find the database again");
    }
    assert!(store.desk("d-1").await.unwrap().is_some(), "an acknowledged desk is lost");
    assert!(store.desk("d-2").await.unwrap().is_none(), "a refused desk is there");
    store.insert(&desk("d-2"), event("d-2", "")).await.unwrap();
}

/// Where the writer below writes.
const WRITER: &str = "HOTDESK_TEST_WRITER";

/// The process that is killed: writes as fast as it can and tells what was acknowledged.
#[tokio::test]
async fn writer() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let store = Sqlite::open(path).await.unwrap();
    let start = store.desks().await.unwrap().len();
    for number in start.. {
        let mut record = desk(&format!("d-{number}"));
        store.insert(&record, event(&record.id, "")).await.unwrap();
        record.cost_micro = 1;
        let spends = [Spend { project: "default".into(), day: "2026-01-31".into(), micro: 1 }];
        store.update_and_spend(&record, Some(event(&record.id, "")), &spends).await.unwrap();
        writeln!(std::io::stdout(), "wrote {number}").unwrap();
    }
}

#[tokio::test]
async fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fleet.db");
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::failures::writer", "--nocapture"])
            .env(WRITER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut note = |line: &str| acknowledged.extend(line.trim().strip_prefix("wrote ").map(|number| format!("d-{number}")));
        let mut line = String::new();
        let mut wrote = 0;
        while wrote < 20 + round * 7 {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the writer ended by itself");
            wrote += i32::from(line.starts_with("wrote "));
            note(&line);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        rest.lines().filter(|_| rest.ends_with('\n')).for_each(&mut note);

        let store = Sqlite::open(&path).await.unwrap();
        let desks = store.desks().await.unwrap();
        for id in &acknowledged {
            assert!(desks.iter().any(|d| d.id == *id && d.version == 1), "{id} was acknowledged and is not there");
        }
        let money: i64 = desks.iter().map(|d| d.cost_micro).sum();
        assert_eq!(store.spent_by("default", "2026-01-31").await.unwrap().1, money, "money was lost or counted twice");
        let events = store.newest().await.unwrap();
        assert_eq!(events, desks.len() as i64 + money);
    }
}
