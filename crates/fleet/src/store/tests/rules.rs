//! What each call promises when nobody interferes.

use super::databases::{Database, on_both};
use super::{desk, event};
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
        resources: Resources::default(),
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
