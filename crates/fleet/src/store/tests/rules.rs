//! What each call promises when nobody interferes.

use super::databases::{Database, on_both};
use super::{desk, event, volume, with_volume};
use crate::config::Config;
use crate::error::Error;
use crate::store::*;
use hotdesk_api::desk::{Resources, SnapshotState};
use hotdesk_api::fleet::Scope;

on_both!(
    a_desk_comes_back_as_it_was_written,
    an_older_version_is_refused,
    names_are_unique_in_a_project_until_the_desk_is_deleted,
    deleted_desks_are_not_listed,
    a_claim_makes_the_desk_the_new_owners,
    a_claim_that_fails_claims_nothing,
    an_idempotency_key_makes_one_desk,
    events_are_numbered_without_gaps,
    leases_are_held_renewed_released_and_run_out,
    a_lease_that_is_taken_over_fences_its_holder,
    money_is_added_with_the_desk_or_not_at_all,
    a_revoked_key_stays_revoked,
    key_changes_are_told_once,
    small_things_come_back,
    alerts_are_noted_once,
    old_things_are_pruned,
    the_fleet_of_a_store_is_never_forgotten,
    the_fleet_of_an_older_store_is_taken_over,
    what_a_newer_version_wrote_is_kept,
    one_row_that_cannot_be_read_is_one_desk_in_error,
    what_a_newer_version_added_to_pools_and_budgets_is_passed_over,
    a_deleted_desk_stays_deleted_if_its_row_cannot_be_read,
    a_key_whose_row_cannot_be_read_lets_nobody_in,
    a_store_with_an_odd_row_is_brought_up_to_date,
    rows_of_a_newer_format_are_refused,
    events_of_a_project_are_found_by_it,
    secrets_are_sealed_with_a_key_outside_of_the_store,
    a_store_without_its_key_says_so,
    secrets_of_a_newer_version_stay_sealed,
);

async fn a_desk_comes_back_as_it_was_written(database: Database) {
    let store = database.store;
    let mut record = desk("d-1");
    record.name = Some("one".into());
    record.archive = Some(ArchiveRef { location: "/a".into(), sha256: "00".into(), bytes: u64::MAX / 4 });
    record.placed = Some(Placed {
        address: hotdesk_provider::Address::Unix { path: "/run/x".into() },
        handle: serde_json::json!({"pid": 7}),
    });
    store.insert(&record, event("d-1", "made")).await.unwrap();
    assert_eq!(store.desk("d-1").await.unwrap().as_ref(), Some(&record));
    assert_eq!(store.named("default", "one").await.unwrap().as_ref(), Some(&record));
    assert_eq!(store.named("other", "one").await.unwrap(), None);
    assert_eq!(store.desk("d-2").await.unwrap(), None);
    store.ping().await.unwrap();
    let again = store.insert(&record, event("d-1", "again")).await;
    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    assert_eq!(store.events(0, None, 10).await.unwrap().len(), 1, "an event without its desk");
}

async fn an_older_version_is_refused(database: Database) {
    let store = database.store;
    let mut record = desk("d-1");
    store.insert(&record, event("d-1", "made")).await.unwrap();
    record.state = State::Stopping;
    let old = record.clone();
    record.version = store.update(&record, Some(event("d-1", "stop"))).await.unwrap();
    assert_eq!(record.version, 1);
    assert_eq!(store.desk("d-1").await.unwrap(), Some(record.clone()));

    let refused = store.update(&old, Some(event("d-1", "never"))).await;
    assert!(matches!(&refused, Err(Error::Conflict(why)) if why.contains("d-1")), "{refused:?}");
    assert_eq!(store.desk("d-1").await.unwrap(), Some(record));
    let unknown = store.update(&desk("d-9"), None).await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })), "{unknown:?}");
    let reasons: Vec<_> = store.events(0, None, 10).await.unwrap().into_iter().map(|e| e.reason).collect();
    assert_eq!(reasons, ["made", "stop"]);
}

async fn names_are_unique_in_a_project_until_the_desk_is_deleted(database: Database) {
    let store = database.store;
    let named = |id: &str, project: &str| Record { name: Some("mine".into()), project: project.into(), ..desk(id) };
    store.insert(&named("d-1", "a"), event("d-1", "")).await.unwrap();
    store.insert(&named("d-2", "b"), event("d-2", "")).await.unwrap();
    let taken = store.insert(&named("d-3", "a"), event("d-3", "")).await;
    assert!(matches!(&taken, Err(Error::Conflict(why)) if why.contains("mine")), "{taken:?}");
    store.insert(&desk("d-4"), event("d-4", "")).await.unwrap();
    let taken = store.update(&Record { project: "a".into(), ..named("d-4", "a") }, None).await;
    assert!(matches!(&taken, Err(Error::Conflict(why)) if why.contains("mine")), "{taken:?}");

    let mut gone = store.desk("d-1").await.unwrap().unwrap();
    gone.state = State::Deleted;
    store.update(&gone, None).await.unwrap();
    store.insert(&named("d-3", "a"), event("d-3", "")).await.unwrap();
    assert_eq!(store.named("a", "mine").await.unwrap().unwrap().id, "d-3");
}

async fn deleted_desks_are_not_listed(database: Database) {
    let store = database.store;
    for (id, created_ms) in [("d-1", 3), ("d-2", 1), ("d-3", 2)] {
        store.insert(&Record { created_ms, ..desk(id) }, event(id, "")).await.unwrap();
    }
    store.update(&Record { state: State::Deleted, ..desk("d-3") }, None).await.unwrap();
    let ids: Vec<_> = store.desks().await.unwrap().into_iter().map(|d| d.id).collect();
    assert_eq!(ids, ["d-2", "d-1"]);
    assert_eq!(store.desk("d-3").await.unwrap().unwrap().state, State::Deleted);
}

async fn a_claim_makes_the_desk_the_new_owners(database: Database) {
    let store = database.store;
    let pooled = Record { pool: Some("bare".into()), project: "pool".into(), ..desk("d-1") };
    store.insert(&pooled, event("d-1", "made")).await.unwrap();
    store.insert(&Record { state: State::Creating, id: "d-2".into(), ..pooled.clone() }, event("d-2", "")).await.unwrap();
    assert_eq!(store.claim("office").await.unwrap(), None);
    let claimed = store
        .claim_with("bare", None, &|record| {
            record.project = "mine".into();
            record.name = Some("new".into());
            let spends = vec![Spend { project: "pool".into(), day: "2026-01-31".into(), micro: 5 }];
            Along { event: Some(event("d-1", "claimed")), spends }
        })
        .await
        .unwrap();
    let Claimed::Desk(claimed) = claimed else { panic!("{claimed:?}") };
    assert_eq!((claimed.project.as_str(), claimed.pool.as_deref(), claimed.version), ("mine", None, 1));
    assert_eq!(store.named("mine", "new").await.unwrap(), Some(*claimed));
    assert_eq!(store.spent_by("pool", "2026-01-31").await.unwrap(), (5, 5));
    assert_eq!(store.claim("bare").await.unwrap(), None, "claimed twice, or before it was ready");
}

async fn a_claim_that_fails_claims_nothing(database: Database) {
    let store = database.store;
    store.insert(&Record { name: Some("taken".into()), ..desk("d-0") }, event("d-0", "")).await.unwrap();
    store.insert(&Record { pool: Some("bare".into()), ..desk("d-1") }, event("d-1", "")).await.unwrap();
    let once = Once { scope: "k-1", key: "abc" };
    let rename = |record: &mut Record| {
        record.name = Some("taken".into());
        Along::default()
    };
    let refused = store.claim_with("bare", Some(once), &rename).await;
    assert!(matches!(&refused, Err(Error::Conflict(why)) if why.contains("taken")), "{refused:?}");
    assert_eq!(store.remembered("k-1", "abc").await.unwrap(), None);
    assert_eq!(store.claim("bare").await.unwrap().map(|d| d.id).as_deref(), Some("d-1"));
}

async fn an_idempotency_key_makes_one_desk(database: Database) {
    let store = database.store;
    let once = Once { scope: "k-1", key: "abc" };
    assert_eq!(store.insert_once(&desk("d-1"), event("d-1", ""), once).await.unwrap(), None);
    assert_eq!(store.insert_once(&desk("d-2"), event("d-2", ""), once).await.unwrap().as_deref(), Some("d-1"));
    assert_eq!(store.desk("d-2").await.unwrap(), None);
    assert_eq!(store.events(0, None, 9).await.unwrap().len(), 1);
    assert_eq!(store.remembered("k-1", "abc").await.unwrap().as_deref(), Some("d-1"));

    let other = Once { scope: "k-2", key: "abc" };
    store.insert(&Record { pool: Some("bare".into()), ..desk("d-3") }, event("d-3", "")).await.unwrap();
    assert!(matches!(store.claim_with("bare", Some(other), &|_| Along::default()).await.unwrap(), Claimed::Desk(_)));
    let before = store.claim_with("bare", Some(other), &|_| Along::default()).await.unwrap();
    assert_eq!(before, Claimed::Before("d-3".into()), "an empty pool hid the answer");
    assert_eq!(store.remember("k-2", "abc", "d-9").await.unwrap().as_deref(), Some("d-3"));
    assert_eq!(store.remember("k-3", "abc", "d-9").await.unwrap(), None);
}

async fn events_are_numbered_without_gaps(database: Database) {
    let store = database.store;
    assert_eq!(store.newest().await.unwrap(), 0);
    store.insert(&desk("d-1"), event("d-1", "one")).await.unwrap();
    assert_eq!(store.event(event("d-2", "two\u{0}")).await.unwrap(), 2);
    let refused = store.insert(&desk("d-1"), event("d-1", "never")).await;
    assert!(refused.is_err());
    assert_eq!(store.event(Event { desk: None, ..event("", "three") }).await.unwrap(), 3);
    let all = store.events(0, None, 10).await.unwrap();
    assert_eq!(
        all.iter().map(|e| (e.number, e.reason.as_str())).collect::<Vec<_>>(),
        [(1, "one"), (2, "two\u{0}"), (3, "three")]
    );
    assert_eq!(store.events(1, None, 1).await.unwrap(), all[1..2]);
    assert_eq!(store.events(0, Some("d-2"), 10).await.unwrap(), all[1..2]);
    assert_eq!(store.newest().await.unwrap(), 3);
    assert_eq!(store.changed(2, 10, Duration::from_secs(60)).await.unwrap(), all[2..]);
    assert_eq!(store.changed(3, 10, Duration::from_millis(10)).await.unwrap(), []);
}

async fn leases_are_held_renewed_released_and_run_out(database: Database) {
    let store = database.store;
    const LONG: i64 = 600_000;
    assert!(store.lease("d-1", "a", LONG).await.unwrap());
    assert!(store.lease("d-1", "a", LONG).await.unwrap(), "renewed");
    assert!(!store.lease("d-1", "b", LONG).await.unwrap());
    assert!(store.lead("d-1", "b", LONG).await.unwrap(), "a right of the fleet is another thing");
    assert!(!store.lead("d-1", "a", LONG).await.unwrap());
    store.release("d-1", "b").await.unwrap();
    assert!(!store.lease("d-1", "b", LONG).await.unwrap(), "released by somebody else");
    assert!(store.lease("d-2", "a", LONG).await.unwrap());
    let mut held = store.renew("a", LONG).await.unwrap();
    held.sort();
    assert_eq!(held, ["d-1", "d-2"]);
    store.release("d-1", "a").await.unwrap();
    assert!(store.lease("d-1", "b", 0).await.unwrap());
    assert!(store.lease("d-1", "a", LONG).await.unwrap(), "it ran out");
    assert_eq!(store.renew("b", LONG).await.unwrap(), Vec::<String>::new());
}

async fn a_lease_that_is_taken_over_fences_its_holder(database: Database) {
    let store = database.store;
    store.insert(&desk("d-1"), event("d-1", "")).await.unwrap();
    assert!(store.lease("d-1", "a", 0).await.unwrap());
    let slept = store.desk("d-1").await.unwrap().unwrap();
    assert!(store.lease("d-1", "b", 600_000).await.unwrap());
    let refused = store.update(&slept, None).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let taken = store.desk("d-1").await.unwrap().unwrap();
    store.update(&taken, None).await.unwrap();
    assert!(!store.lease("d-1", "a", 600_000).await.unwrap());
}

async fn money_is_added_with_the_desk_or_not_at_all(database: Database) {
    let store = database.store;
    let mut record = desk("d-1");
    store.insert(&record, event("d-1", "")).await.unwrap();
    let spend = |day: &str, micro| Spend { project: "default".into(), day: day.into(), micro };
    record.cost_micro = 30;
    let spends = [spend("2026-01-31", 10), spend("2026-02-01", 20)];
    record.version = store.update_and_spend(&record, None, &spends).await.unwrap();
    let again = store.update_and_spend(&Record { version: 0, ..record.clone() }, None, &spends).await;
    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    store.spend("other", "2026-02-01", 7).await.unwrap();
    assert_eq!(store.spent_by("default", "2026-02-01").await.unwrap(), (20, 30));
    assert_eq!(store.spent_by("nobody", "2026-02-01").await.unwrap(), (0, 0));
    let all = store.spent().await.unwrap();
    let all: Vec<_> = all.iter().map(|(project, day, micro)| (project.as_str(), day.as_str(), *micro)).collect();
    assert_eq!(all, [("default", "2026-01-31", 10), ("default", "2026-02-01", 20), ("other", "2026-02-01", 7)]);
}

pub(crate) fn key(id: &str) -> StoredKey {
    let key = Key {
        id: id.into(),
        name: "ci".into(),
        scope: Scope::Project { project: "default".into() },
        created_at: "2026-01-01T00:00:00Z".into(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
        max_desks: Some(3),
    };
    StoredKey { key, hash: format!("hash of {id}") }
}

async fn a_revoked_key_stays_revoked(database: Database) {
    let store = database.store;
    store.put_key(&key("k-1")).await.unwrap();
    store.touch_keys(&[("k-1".into(), 2_000), ("k-9".into(), 1)]).await.unwrap();
    store.touch_keys(&[("k-1".into(), 1_000)]).await.unwrap();
    assert_eq!(store.keys().await.unwrap()[0].key.last_used_at.as_deref(), Some("1970-01-01T00:00:02Z"), "time went back");
    let mut revoked = key("k-1");
    revoked.key.revoked_at = Some("2026-01-02T00:00:00Z".into());
    store.put_key(&revoked).await.unwrap();
    let back = store.put_key(&key("k-1")).await;
    assert!(matches!(back, Err(Error::Conflict(_))), "{back:?}");
    let keys = store.keys().await.unwrap();
    assert_eq!((keys.len(), keys[0].key.revoked_at.is_some()), (1, true));
    let twin = StoredKey { hash: "hash of k-1".into(), ..key("k-2") };
    assert!(matches!(store.put_key(&twin).await, Err(Error::Conflict(_))), "two keys of one secret");
}

async fn key_changes_are_told_once(database: Database) {
    let store = database.store;
    let (none, changes) = store.key_changes(0).await.unwrap();
    assert_eq!((none, changes.len()), (0, 0));
    store.put_key(&key("k-1")).await.unwrap();
    store.put_key(&key("k-2")).await.unwrap();
    let (two, changes) = store.key_changes(none).await.unwrap();
    assert_eq!(changes, [key("k-1"), key("k-2")]);
    assert_eq!(store.key_changes(two).await.unwrap(), (two, vec![]));
    store.touch_keys(&[("k-1".into(), 2_000)]).await.unwrap();
    assert_eq!(store.key_changes(two).await.unwrap(), (two, vec![]), "use is no change");
    store.put_key(&StoredKey { hash: "new".into(), ..key("k-1") }).await.unwrap();
    let (_, changes) = store.key_changes(two).await.unwrap();
    assert_eq!(changes.iter().map(|k| k.hash.as_str()).collect::<Vec<_>>(), ["new"]);
}

async fn small_things_come_back(database: Database) {
    let store = database.store;
    let mut pool = PoolSpec {
        template: "bare".into(),
        provider: None,
        min: 1,
        max: 3,
        resources: Resources::default().into(),
        max_hourly: None,
        cool_down_s: 60,
    };
    store.put_pool(&pool).await.unwrap();
    pool.max = 5;
    store.put_pool(&pool).await.unwrap();
    assert_eq!(store.pools().await.unwrap(), [pool]);
    store.remove_pool("bare").await.unwrap();
    assert_eq!(store.pools().await.unwrap(), []);

    let mut snapshot = Snapshot {
        id: "s-1".into(),
        name: None,
        project: "default".into(),
        desk: "d-1".into(),
        template: "bare".into(),
        provider: "local".into(),
        memory: true,
        size_bytes: 1,
        created_at: "2026-01-01T00:00:00Z".into(),
        state: SnapshotState::Creating,
        reason: String::new(),
    };
    store.put_snapshot(&snapshot).await.unwrap();
    snapshot.state = SnapshotState::Ready;
    store.put_snapshot(&snapshot).await.unwrap();
    assert_eq!(store.snapshots().await.unwrap(), [snapshot]);
    store.remove_snapshot("s-1").await.unwrap();
    assert_eq!(store.snapshots().await.unwrap(), []);
    let volume = hotdesk_api::fleet::Volume {
        id: "v-1".into(),
        name: "data".into(),
        project: "p".into(),
        source: None,
        exclusive: true,
        created_at: "2026-01-01T00:00:00Z".into(),
        desks: vec![],
    };
    assert!(store.add_volume(&volume).await.unwrap());
    let (same_name, other) = (("v-2", "p"), ("v-3", "q"));
    let like =
        |(id, project): (&str, &str)| hotdesk_api::fleet::Volume { id: id.into(), project: project.into(), ..volume.clone() };
    assert!(!store.add_volume(&like(same_name)).await.unwrap(), "a name is taken once in a project");
    assert!(store.add_volume(&like(other)).await.unwrap());
    assert_eq!(store.volumes().await.unwrap(), [volume.clone(), like(other)]);
    store.remove_volume("v-1").await.unwrap();
    store.remove_volume("v-3").await.unwrap();
    assert_eq!(store.volumes().await.unwrap(), []);

    assert!(store.put_note("k", "a", "1", None, false).await.unwrap());
    assert!(!store.put_note("k", "a", "2", None, false).await.unwrap());
    assert!(store.put_note("k", "a", "3", Some(5), true).await.unwrap());
    assert!(store.put_note("other", "a", "4", None, true).await.unwrap());
    assert_eq!(store.note("k", "a").await.unwrap().as_deref(), Some("3"));
    assert_eq!(store.notes("k").await.unwrap(), [("a".to_owned(), "3".to_owned())]);
    assert!(store.remove_note("k", "a").await.unwrap() && !store.remove_note("k", "a").await.unwrap());
    assert_eq!(store.note("k", "a").await.unwrap(), None);
    let budget = Budget {
        project: "default".into(),
        per_day: Some(1.5),
        total: None,
        alert_at: 0.8,
        webhook: Some("http://localhost/".into()),
    };
    store.put_budget(&budget).await.unwrap();
    store.put_budget(&budget).await.unwrap();
    assert_eq!(store.budgets().await.unwrap(), [budget]);
    store.remove_budget("default").await.unwrap();
    assert_eq!(store.budgets().await.unwrap(), []);

    let line = |at_ms| Audit {
        at_ms,
        key: "k-1".into(),
        method: "GET".into(),
        path: "/v1/desks/\u{0}".into(),
        status: 200,
        from: "127.0.0.1".into(),
    };
    store.audit(line(1)).await.unwrap();
    store.audit_all(&[line(2), line(3)]).await.unwrap();
    assert_eq!(store.audits(2).await.unwrap(), [line(3), line(2)]);
}

async fn alerts_are_noted_once(database: Database) {
    let store = database.store;
    let alert = Alert {
        id: "default 2026-01-31 0.8".into(),
        at_ms: 1,
        project: "default".into(),
        webhook: "http://localhost/".into(),
        message: serde_json::json!({"spent": 8.5}),
    };
    assert!(store.put_alert(&alert).await.unwrap());
    assert!(!store.put_alert(&alert).await.unwrap());
    assert_eq!(store.alerts().await.unwrap(), std::slice::from_ref(&alert));
    store.alert_done(&alert.id).await.unwrap();
    assert_eq!(store.alerts().await.unwrap(), []);
    assert!(!store.put_alert(&alert).await.unwrap(), "told again");
}

async fn old_things_are_pruned(database: Database) {
    let store = database.store;
    let at = |ms| jiff::Timestamp::from_millisecond(ms).unwrap().to_string();
    for number in 0..1500 {
        store
            .audit(Audit {
                at_ms: number,
                key: String::new(),
                method: String::new(),
                path: String::new(),
                status: 0,
                from: String::new(),
            })
            .await
            .unwrap();
    }
    store.insert(&desk("d-1"), Event { at: at(1_000), ..event("d-1", "old") }).await.unwrap();
    store.insert(&Record { state: State::Deleted, ..desk("d-2") }, Event { at: at(3_000), ..event("d-2", "new") }).await.unwrap();
    let mut ended = key("k-1");
    ended.key.expires_at = Some(at(1_000));
    store.put_key(&ended).await.unwrap();
    let mut admin = key("k-2");
    admin.key.scope = Scope::Admin;
    admin.key.revoked_at = Some(at(1_000));
    store.put_key(&admin).await.unwrap();
    store.put_key(&key("k-3")).await.unwrap();

    assert_eq!(store.prune(2_000).await.unwrap(), 1500 + 3);
    assert_eq!(store.prune(2_000).await.unwrap(), 0);
    assert_eq!(store.audits(10).await.unwrap(), []);
    let left = store.events(0, None, 10).await.unwrap();
    assert_eq!(left.iter().map(|e| (e.number, e.reason.as_str())).collect::<Vec<_>>(), [(2, "new")]);
    assert_eq!(store.event(event("d-1", "later")).await.unwrap(), 3, "a number was used twice");
    assert!(store.desk("d-1").await.unwrap().is_some() && store.desk("d-2").await.unwrap().is_none());
    let keys: Vec<_> = store.keys().await.unwrap().into_iter().map(|k| k.key.id).collect();
    assert_eq!(keys, ["k-2", "k-3"], "a revoked admin key must stay known");
}

/// A month after the first start a wrong data directory must still be refused.
async fn the_fleet_of_a_store_is_never_forgotten(database: Database) {
    let store = &database.store;
    assert_eq!(store.identity("one").await.unwrap(), "one");
    store.prune(i64::MAX / 2).await.unwrap();
    assert_eq!(store.identity("another").await.unwrap(), "one");
    assert_eq!(database.again().await.identity("another").await.unwrap(), "one");
}

async fn the_fleet_of_an_older_store_is_taken_over(database: Database) {
    database
        .by_hand(
            "DROP TABLE facts; DELETE FROM _sqlx_migrations WHERE version = 4; \
             INSERT INTO answers (scope, key, desk, at_ms) VALUES ('hotdesk', 'fleet', 'old', 1);",
        )
        .await;
    let store = database.again().await;
    assert_eq!(store.identity("another").await.unwrap(), "old");
    assert_eq!(store.remembered("hotdesk", "fleet").await.unwrap(), None);
}

/// Two versions over one database: the older one must not throw away what it does not know.
async fn what_a_newer_version_wrote_is_kept(database: Database) {
    let store = &database.store;
    store.insert(&desk("d-1"), event("d-1", "")).await.unwrap();
    let snapshot = Snapshot {
        id: "s-1".into(),
        name: None,
        project: "default".into(),
        desk: "d-1".into(),
        template: "bare".into(),
        provider: "local".into(),
        memory: false,
        size_bytes: 1,
        created_at: String::new(),
        state: SnapshotState::Creating,
        reason: String::new(),
    };
    store.put_snapshot(&snapshot).await.unwrap();
    let newer =
        |table: &str, before: &str, after: &str| format!("UPDATE {table} SET body = replace(body, '{before}', '{after}');");
    let all = [
        newer("desks", r#""active_ms""#, r#""novel":{"a":[1,2]},"active_ms""#),
        newer("desks", r#""auto_stop_s""#, r#""auto_sleep_s":7,"auto_stop_s""#),
        newer("desks", r#""cpus""#, r#""gpus":3,"cpus""#),
        newer("desks", r#""template""#, r#""kernel":"6.1","template""#),
        newer("snapshots", r#""memory""#, r#""layers":9,"memory""#),
    ];
    database.by_hand(&all.concat()).await;
    let mut record = store.desk("d-1").await.unwrap().unwrap();
    assert!(!record.unreadable, "{}", record.reason);
    record.reason = "changed by the older one".into();
    record.policy.auto_stop_s = 5;
    store.update(&record, None).await.unwrap();
    let read = store.desk("d-1").await.unwrap().unwrap();
    assert_eq!((read.reason.as_str(), read.policy.auto_stop_s), ("changed by the older one", 5));
    let left = serde_json::to_value(read.unknown.as_deref()).unwrap();
    let expected = serde_json::json!({
        "novel": {"a": [1, 2]},
        "policy": {"auto_sleep_s": 7},
        "spec": {"kernel": "6.1", "resources": {"gpus": 3}},
    });
    assert_eq!(left, expected, "the older version threw away what it does not know");
    store.put_snapshot(&Snapshot { state: SnapshotState::Ready, ..snapshot.clone() }).await.unwrap();
    let body = database.text("SELECT body FROM snapshots").await;
    assert!(body.contains(r#""layers":9"#) && body.contains(r#""ready""#), "{body}");
}

async fn one_row_that_cannot_be_read_is_one_desk_in_error(database: Database) {
    let store = &database.store;
    for id in ["d-1", "d-2", "d-3"] {
        let record = Record { name: Some(format!("n{id}")), pool: Some("bare".into()), ..desk(id) };
        store.insert(&record, event(id, "")).await.unwrap();
    }
    database
        .by_hand(
            "UPDATE desks SET body = '{}' WHERE id = 'd-1'; \
             UPDATE desks SET body = replace(body, '\"state\":\"running\"', '\"state\":\"levitating\"') WHERE id = 'd-2'; \
             UPDATE events SET body = 'odd' WHERE number = 2;",
        )
        .await;
    let desks = store.desks().await.unwrap();
    let shown: Vec<_> = desks.iter().map(|d| (d.id.as_str(), d.state, d.unreadable)).collect();
    assert_eq!(shown, [("d-1", State::Error, true), ("d-2", State::Error, true), ("d-3", State::Running, false)]);
    assert_eq!((desks[1].provider.as_str(), desks[1].spec.secret.as_str()), ("local", "secret"), "what can be read is");
    // Nothing overwrites what nobody understands.
    for broken in &desks[..2] {
        let refused = store.update(&Record { reason: "x".into(), ..broken.clone() }, None).await;
        assert!(matches!(&refused, Err(Error::Conflict(why)) if why.contains("can't be read")), "{refused:?}");
    }
    let claimed = store.claim("bare").await.unwrap().map(|d| d.id);
    assert_eq!(claimed.as_deref(), Some("d-3"), "the others can be used");
    let numbers: Vec<_> = store.events(0, None, 10).await.unwrap().into_iter().map(|e| e.number).collect();
    assert_eq!(numbers, [1, 2, 3], "an event that can't be read has its number still");
}

/// An older version that left them out would empty the pool and spend without a budget.
async fn what_a_newer_version_added_to_pools_and_budgets_is_passed_over(database: Database) {
    let by_hand = r#"
        INSERT INTO pools (template, body) VALUES ('bare', '{"template":"bare","min":1,"max":2,"novel":[1]}'), ('odd', 'odd');
        INSERT INTO budgets (project, body) VALUES ('a', '{"project":"a","total":5.0,"novel":true}'), ('b', 'odd');
    "#;
    database.by_hand(by_hand).await;
    let pools = database.store.pools().await.unwrap();
    assert_eq!(pools.iter().map(|p| (p.template.as_str(), p.max)).collect::<Vec<_>>(), [("bare", 2)]);
    let budgets = database.store.budgets().await.unwrap();
    assert_eq!(budgets.iter().map(|b| (b.project.as_str(), b.total)).collect::<Vec<_>>(), [("a", Some(5.0))]);
}

async fn a_deleted_desk_stays_deleted_if_its_row_cannot_be_read(database: Database) {
    let store = &database.store;
    store.insert(&desk("d-1"), event("d-1", "")).await.unwrap();
    store.update(&Record { state: State::Deleted, ..desk("d-1") }, None).await.unwrap();
    database.by_hand("UPDATE desks SET body = 'odd'").await;
    let read = store.desk("d-1").await.unwrap().unwrap();
    assert_eq!((read.state, read.unreadable), (State::Deleted, true), "what is left of it would be kept for ever");
    assert_eq!(store.desks().await.unwrap(), []);
}

async fn a_key_whose_row_cannot_be_read_lets_nobody_in(database: Database) {
    let store = &database.store;
    store.put_key(&key("k-1")).await.unwrap();
    store.put_key(&key("k-2")).await.unwrap();
    let (seen, _) = store.key_changes(0).await.unwrap();
    database.by_hand("UPDATE keys SET body = '{\"scope\":\"new\"}', change = 9 WHERE id = 'k-1'").await;
    let (newest, changes) = store.key_changes(seen).await.unwrap();
    assert_eq!((newest, changes.len()), (9, 1));
    // Whoever knew it before learns that it is good no more.
    assert!(changes[0].key.id == "k-1" && changes[0].key.revoked_at.is_some(), "{changes:?}");
    assert_eq!(changes[0].hash, "hash of k-1");
    let keys = store.keys().await.unwrap();
    assert_eq!(keys.iter().map(|k| k.key.revoked_at.is_some()).collect::<Vec<_>>(), [true, false]);
}

async fn a_store_with_an_odd_row_is_brought_up_to_date(database: Database) {
    let store = &database.store;
    store.add_volume(&volume("v-1", true)).await.unwrap();
    store.insert(&with_volume("d-1", "v-1"), event("d-1", "")).await.unwrap();
    store.insert(&desk("d-2"), event("d-2", "")).await.unwrap();
    database
        .by_hand(
            "UPDATE desks SET body = 'odd' WHERE id = 'd-2'; DROP TABLE volume_uses; \
             DELETE FROM _sqlx_migrations WHERE version = 6;",
        )
        .await;
    let store = database.again().await;
    let refused = store.insert(&with_volume("d-3", "v-1"), event("d-3", "")).await;
    assert!(matches!(&refused, Err(Error::Conflict(why)) if why.contains("d-1 has it")), "{refused:?}");
}

async fn rows_of_a_newer_format_are_refused(database: Database) {
    database.store.ping().await.unwrap();
    database.store.put_fact(facts::FORMAT, "7", true).await.unwrap();
    let told = database.store.ping().await.unwrap_err().to_string();
    assert!(told.contains("newer hotdesk") && told.contains("format 7"), "{told}");
    let told = database.try_again().await.err().unwrap().to_string();
    assert!(told.contains("newer hotdesk"), "{told}");
}

/// A key of a project that did nothing must not make the database read what all others did.
async fn events_of_a_project_are_found_by_it(database: Database) {
    let store = &database.store;
    for number in 0..20 {
        let project = if number % 10 == 3 { "small" } else { "large" };
        store.event(Event { project: Some(project.into()), ..event("d-1", "") }).await.unwrap();
    }
    store.event(Event { project: None, ..event("d-1", "of nobody") }).await.unwrap();
    let of = async |after, desk, limit| -> Vec<i64> {
        store.events_of("small", after, desk, limit).await.unwrap().into_iter().map(|e| e.number).collect()
    };
    assert_eq!(of(0, None, 10).await, [4, 14]);
    assert_eq!(of(4, None, 10).await, [14]);
    assert_eq!(of(0, Some("d-1"), 1).await, [4]);
    assert_eq!(of(0, Some("d-2"), 10).await, [0; 0]);
    // Those that an older version wrote have no project in their column.
    database
        .by_hand(
            "DROP INDEX events_by_project; ALTER TABLE events DROP COLUMN project; \
             DELETE FROM _sqlx_migrations WHERE version = 5;",
        )
        .await;
    let store = database.again().await;
    assert_eq!(store.events_of("small", 0, None, 10).await.unwrap().len(), 2);
}

/// A settings file's view of the store: with the key of its data directory.
fn settings(data: &std::path::Path, database: &Database) -> Config {
    Config { data: data.into(), store: database.address(), ..Config::default() }
}

fn secretive(id: &str) -> Record {
    let mut record = desk(id);
    record.spec.env = BTreeMap::from([("API_KEY".into(), "precious-environment".into())]);
    record.spec.vnc_password = Some("precious-password".into());
    record.spec.secret = "precious-token".into();
    record.commands_env = BTreeMap::from([("OTHER".into(), "precious-commands".into())]);
    record
}

async fn secrets_are_sealed_with_a_key_outside_of_the_store(database: Database) {
    let data = tempfile::tempdir().unwrap();
    // What an older version wrote is in clear, also of a desk that is deleted.
    database.store.insert(&secretive("d-1"), event("d-1", "")).await.unwrap();
    database.store.insert(&Record { state: State::Deleted, ..secretive("d-2") }, event("d-2", "")).await.unwrap();
    database.store.put_note("k", "old", "precious-note", None, true).await.unwrap();
    database.by_hand("UPDATE facts SET value = '1' WHERE name = 'format'").await;
    let config = settings(data.path(), &database);
    let store = open(&config).await.unwrap();
    store.insert(&Record { pool: Some("bare".into()), ..secretive("d-3") }, event("d-3", "")).await.unwrap();
    store.put_note("k", "new", "precious-note", None, true).await.unwrap();
    let rows = [
        "SELECT body FROM desks WHERE id = 'd-1'",
        "SELECT body FROM desks WHERE id = 'd-2'",
        "SELECT body FROM desks WHERE id = 'd-3'",
        "SELECT body FROM notes WHERE name = 'old'",
        "SELECT body FROM notes WHERE name = 'new'",
    ];
    for statement in rows {
        let body = database.text(statement).await;
        assert!(!body.contains("precious") && !body.contains("API_KEY"), "{statement}: {body}");
    }

    // Whoever has the key reads them.
    let again = open(&config).await.unwrap();
    assert_eq!(again.desk("d-1").await.unwrap(), Some(secretive("d-1")));
    let claimed = again.claim("bare").await.unwrap().unwrap();
    assert_eq!((claimed.spec, claimed.commands_env), (secretive("d-3").spec, secretive("d-3").commands_env));
    assert_eq!(again.note("k", "old").await.unwrap().as_deref(), Some("precious-note"));
    assert_eq!(again.notes("k").await.unwrap().len(), 2);
    let mut changed = again.desk("d-1").await.unwrap().unwrap();
    changed.reason = "changed".into();
    again.update(&changed, None).await.unwrap();
    assert_eq!(again.desk("d-1").await.unwrap().unwrap().spec, secretive("d-1").spec);
    assert!(!database.text("SELECT body FROM desks WHERE id = 'd-1'").await.contains("precious"));

    // A row that was moved to another desk is no key to that one.
    database.by_hand("UPDATE desks SET body = (SELECT body FROM desks WHERE id = 'd-3') WHERE id = 'd-1'").await;
    let moved = again.desk("d-1").await.unwrap().unwrap();
    assert!(moved.unreadable && moved.spec.secret.is_empty(), "{moved:?}");
}

async fn a_store_without_its_key_says_so(database: Database) {
    let data = tempfile::tempdir().unwrap();
    let config = settings(data.path(), &database);
    open(&config).await.unwrap();
    let (key, away) = (data.path().join("secrets.key"), data.path().join("away.key"));
    std::fs::rename(&key, &away).unwrap();
    let told = open(&config).await.err().unwrap().to_string();
    assert!(told.contains("secrets.key is not there"), "{told}");
    assert!(!key.exists(), "a new key would open nothing");
    // Of another fleet.
    let other = tempfile::tempdir().unwrap();
    let another = Database::sqlite().await;
    open(&settings(other.path(), &another)).await.unwrap();
    std::fs::copy(other.path().join("secrets.key"), &key).unwrap();
    let told = open(&config).await.err().unwrap().to_string();
    assert!(told.contains("is the key"), "{told}");
    let named = Config { secrets_key: Some(away), ..config };
    open(&named).await.unwrap();
}

/// Two versions over one store: the older one neither loses nor shows what the newer one sealed.
async fn secrets_of_a_newer_version_stay_sealed(database: Database) {
    let data = tempfile::tempdir().unwrap();
    let config = settings(data.path(), &database);
    let store = open(&config).await.unwrap();
    let mut record = secretive("d-1");
    record.unknown = Some(Arc::new(serde_json::json!({"$sealed": {"passkey": "precious-novelty"}})));
    store.insert(&record, event("d-1", "")).await.unwrap();
    let mut read = store.desk("d-1").await.unwrap().unwrap();
    read.reason = "changed by the older one".into();
    store.update(&read, None).await.unwrap();
    assert!(!database.text("SELECT body FROM desks").await.contains("precious"));
    let kept = store.desk("d-1").await.unwrap().unwrap();
    assert_eq!(kept.unknown, record.unknown);
}
