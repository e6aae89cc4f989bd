use super::*;
use crate::store::sqlite::Sqlite;
use hotdesk_api::fleet::Scope;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

struct Place {
    directory: TempDir,
    store: Arc<dyn Store>,
    keys: Keys,
}

async fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(directory.path().join("fleet.db")).await.unwrap());
    let keys = Keys::open(store.clone()).await.unwrap();
    Place { directory, store, keys }
}

fn new(name: &str) -> NewKey {
    NewKey { name: name.into(), scope: Scope::Project { project: "a".into() }, ttl_s: 0, max_desks: Some(2) }
}

fn denied(answer: &Result<Who>, why: &str) -> bool {
    matches!(answer, Err(Error::Denied(text)) if text.contains(why))
}

#[tokio::test]
async fn a_key_is_made_used_rotated_and_revoked() {
    let Place { keys, store, directory: _directory } = place().await;
    let made = keys.make(new("ci")).await.unwrap();
    assert_eq!(made.secret.len(), 46);
    assert!(made.secret.starts_with("hd_"));
    let who = keys.who(&made.secret).await.unwrap();
    assert_eq!((who.key.as_str(), who.name.as_str(), &who.scope), (made.key.id.as_str(), "ci", &made.key.scope));
    assert_eq!(keys.max_desks(&made.key.id), Some(2));

    let rotated = keys.rotate(&made.key.id).await.unwrap();
    assert_eq!(rotated.key.id, made.key.id);
    assert!(denied(&keys.who(&made.secret).await, "not known"), "the old secret lives");
    assert_eq!(keys.who(&rotated.secret).await.unwrap(), who);

    keys.revoke(&made.key.id).await.unwrap();
    keys.revoke(&made.key.id).await.unwrap();
    assert!(denied(&keys.who(&rotated.secret).await, "revoked"));
    assert!(matches!(keys.rotate(&made.key.id).await, Err(Error::Conflict(_))), "a revoked key came back");
    assert!(denied(&keys.who(&rotated.secret).await, "revoked"));
    assert!(matches!(keys.revoke("k-none").await, Err(Error::NotFound { .. })));
    let stored = serde_json::to_string(&store.keys().await.unwrap()).unwrap();
    assert!(!stored.contains(&made.secret) && !stored.contains(&rotated.secret), "a secret is in the store");
}

#[tokio::test]
async fn what_is_no_key_is_refused() {
    let Place { keys, store: _store, directory: _directory } = place().await;
    let made = keys.make(new("ci")).await.unwrap();
    let mut other = made.secret.clone().into_bytes();
    let last = other.last_mut().unwrap();
    *last = if *last == b'A' { b'B' } else { b'A' };
    let longer = format!("{}x", made.secret);
    let hash = hex(&hash(&made.secret));
    for wrong in
        ["", "hd_", "x", std::str::from_utf8(&other).unwrap(), &longer, &made.secret[1..], &hash, "hd_äöüäöüäöüäöüäöüäöüäöüa"]
    {
        assert!(denied(&keys.who(wrong).await, "not known"), "{wrong}");
    }
    for bad in ["", "a\nb", &"x".repeat(101)] {
        assert!(matches!(keys.make(new(bad)).await, Err(Error::Invalid(_))), "{bad}");
    }
    assert!(matches!(keys.make(NewKey { ttl_s: u64::MAX, ..new("x") }).await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn an_expired_key_is_refused_and_said_so() {
    let Place { keys, store, directory: _directory } = place().await;
    let made = keys.make(NewKey { ttl_s: 3600, ..new("preview") }).await.unwrap();
    keys.who(&made.secret).await.unwrap();
    let key = Key { expires_at: Some("2020-01-01T00:00:00Z".into()), ..made.key };
    store.put_key(&StoredKey { key, hash: hex(&hash(&made.secret)) }).await.unwrap();
    keys.inner.catch_up().await.unwrap();
    assert!(denied(&keys.who(&made.secret).await, "expired at 2020"));
}

/// Two orchestrators over one store.
#[tokio::test]
async fn what_one_orchestrator_changes_the_other_sees() {
    let Place { keys, store, directory: _directory } = place().await;
    let other = Keys::open(store).await.unwrap();
    let made = other.make(new("ci")).await.unwrap();
    keys.who(&made.secret).await.expect("a new key is looked up at once");
    let rotated = other.rotate(&made.key.id).await.unwrap();
    keys.who(&rotated.secret).await.unwrap();
    assert!(denied(&keys.who(&made.secret).await, "not known"));

    other.revoke(&made.key.id).await.unwrap();
    let told = Instant::now();
    while keys.who(&rotated.secret).await.is_ok() {
        assert!(told.elapsed() < Duration::from_secs(30), "a revoked key lives on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tracing::info!("seen after {:?}", told.elapsed());
}

#[tokio::test]
async fn good_keys_do_not_touch_the_store() {
    let Place { keys, store, directory } = place().await;
    let made = keys.make(new("ci")).await.unwrap();
    // A store that nobody can read any more.
    drop(store);
    let pool = sqlx::SqlitePool::connect(directory.path().join("fleet.db").to_str().unwrap()).await.unwrap();
    sqlx::query("DROP TABLE keys").execute(&pool).await.unwrap();
    for _ in 0..1000 {
        keys.who(&made.secret).await.unwrap();
    }
    assert!(matches!(keys.who(&"hd_".repeat(16)[..46]).await, Err(Error::Store(_))), "an unknown one needs it");
}

#[tokio::test]
async fn keys_are_not_trusted_for_ever_without_the_store() {
    let Place { keys, store: _store, directory: _directory } = place().await;
    let made = keys.make(new("ci")).await.unwrap();
    let long_ago = Instant::now().checked_sub(TRUST + Duration::from_secs(1));
    // A machine that was started less than five minutes ago has no such time; nothing to test there.
    let Some(long_ago) = long_ago else { return };
    keys.inner.write().seen = Some(long_ago);
    let answer = keys.who(&made.secret).await;
    assert!(matches!(&answer, Err(Error::Store(why)) if why.contains("5 minutes")), "{answer:?}");
}

#[tokio::test]
async fn last_use_is_written_once_a_minute() {
    let Place { keys, store, directory: _directory } = place().await;
    let made = keys.make(new("ci")).await.unwrap();
    let stored = || async { store.keys().await.unwrap()[0].key.last_used_at.clone() };
    assert_eq!(stored().await, None);
    keys.who(&made.secret).await.unwrap();
    keys.inner.note(NOTE).await.unwrap();
    let first = stored().await;
    assert!(first.is_some());
    let entry = keys.inner.read().by_id[&made.key.id].clone();
    entry.used_ms.fetch_add(30_000, Ordering::Relaxed);
    keys.inner.note(NOTE).await.unwrap();
    assert_eq!(stored().await, first, "written twice in a minute");
    let listed = keys.list().await.unwrap()[0].last_used_at.clone();
    assert!(listed > first, "the list knows better");
    entry.used_ms.fetch_add(31_000, Ordering::Relaxed);
    keys.inner.note(NOTE).await.unwrap();
    assert!(stored().await > first);
}

#[tokio::test]
async fn the_first_start_writes_the_admin_key_and_later_ones_keep_it() {
    let Place { keys, store, directory } = place().await;
    let path = keys.admin(directory.path()).await.unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&path).unwrap();
    let who = keys.who(secret.trim()).await.unwrap();
    assert_eq!(who.scope, Scope::Admin);
    let again = Keys::open(store.clone()).await.unwrap();
    again.admin(directory.path()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), secret);
    assert_eq!(store.keys().await.unwrap().len(), 1);
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("admin.key.")), "{left:?}");
}

#[tokio::test]
async fn a_lost_admin_key_is_replaced_and_a_revoked_one_too() {
    let Place { keys, directory, store: _store } = place().await;
    let path = keys.admin(directory.path()).await.unwrap();
    let read = || std::fs::read_to_string(&path).unwrap().trim().to_owned();
    let lost = read();
    // A key of another orchestrator's file is none of its business.
    let other = tempfile::tempdir().unwrap();
    keys.admin(other.path()).await.unwrap();
    let others = std::fs::read_to_string(other.path().join("admin.key")).unwrap();

    std::fs::remove_file(&path).unwrap();
    keys.admin(directory.path()).await.unwrap();
    let second = read();
    assert_ne!(second, lost);
    assert!(denied(&keys.who(&lost).await, "revoked"), "a lost key lives on");
    let who = keys.who(&second).await.unwrap();

    keys.revoke(&who.key).await.unwrap();
    keys.admin(directory.path()).await.unwrap();
    assert_ne!(read(), second);
    assert_eq!(keys.who(&read()).await.unwrap().scope, Scope::Admin);
    assert_eq!(keys.who(others.trim()).await.unwrap().scope, Scope::Admin);
}

#[tokio::test]
async fn a_file_that_the_store_does_not_know_is_taken() {
    let Place { keys, directory, store } = place().await;
    let path = directory.path().join("admin.key");
    let secret = random_secret().unwrap();
    std::fs::write(&path, format!("{secret}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    keys.admin(directory.path()).await.unwrap();
    assert_eq!(keys.who(&secret).await.unwrap().scope, Scope::Admin);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(&path, "hunter2").unwrap();
    let refused = keys.admin(directory.path()).await;
    assert!(matches!(&refused, Err(Error::Invalid(why)) if !why.contains("hunter2")), "{refused:?}");
    assert_eq!(store.keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn two_starts_at_once_share_one_file() {
    let Place { keys, directory, store } = place().await;
    let other = Keys::open(store).await.unwrap();
    let (a, b) = tokio::join!(keys.admin(directory.path()), other.admin(directory.path()));
    a.unwrap();
    b.unwrap();
    let secret = std::fs::read_to_string(directory.path().join("admin.key")).unwrap();
    for keys in [keys, other] {
        assert_eq!(keys.who(secret.trim()).await.unwrap().scope, Scope::Admin);
    }
}
