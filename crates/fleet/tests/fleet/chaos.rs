//! Random schedules of requests by several clients, while the provider fails and orchestrators are killed in the midst of whatever they do. Afterwards store and reality agree, no desk
//! that was acknowledged is lost, nothing is orphaned, and nobody ever acted on a desk while somebody else did.

use super::*;
use hotdesk_api::fleet::PoolSpec;
use hotdesk_fleet::store::Store;
use hotdesk_fleet::{Error, Filter};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

#[derive(Debug, Clone, Copy)]
enum Op {
    Create,
    Stop(u8),
    Start(u8),
    Reset(u8),
    Delete(u8),
    Snapshot(u8),
    Fork(u8),
    Archive(u8),
    /// Something of the desk dies by itself.
    Die(u8),
    Sleep(u16),
    /// One of the orchestrators is killed; another is opened after a while.
    Kill(u8, u16),
    Away(u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Create),
        2 => any::<u8>().prop_map(Op::Stop),
        2 => any::<u8>().prop_map(Op::Start),
        2 => any::<u8>().prop_map(Op::Reset),
        2 => any::<u8>().prop_map(Op::Delete),
        1 => any::<u8>().prop_map(Op::Snapshot),
        1 => any::<u8>().prop_map(Op::Fork),
        1 => any::<u8>().prop_map(Op::Archive),
        1 => any::<u8>().prop_map(Op::Die),
        3 => (0u16..5000).prop_map(Op::Sleep),
        2 => (any::<u8>(), 0u16..8000).prop_map(|(n, ms)| Op::Kill(n, ms)),
        1 => (0u16..20_000).prop_map(Op::Away),
    ]
}

/// What clients were told.
#[derive(Default)]
struct Told {
    /// Ids that a create answered with.
    made: Vec<String>,
    /// Ids whose deletion was asked for, answered or not.
    deleted: BTreeSet<String>,
}

struct Run {
    world: World,
    fleets: Mutex<Vec<Option<Fleet>>>,
    told: Mutex<Told>,
    config: Config,
}

impl Run {
    fn fleet(&self, n: usize) -> Option<Fleet> {
        let fleets = self.fleets.lock().unwrap();
        let alive: Vec<_> = fleets.iter().flatten().collect();
        (!alive.is_empty()).then(|| alive[n % alive.len()].clone())
    }

    fn desk(&self, n: u8) -> Option<String> {
        let told = self.told.lock().unwrap();
        (!told.made.is_empty()).then(|| told.made[usize::from(n) % told.made.len()].clone())
    }

    async fn open(&self) -> Fleet {
        let reality = &self.world.reality;
        let options = testing::options(reality);
        Fleet::open_with(self.config.clone(), self.world.store.clone(), vec![reality.provider()], options).await.unwrap()
    }

    /// One client does what it is told; an answer that never comes is no answer.
    async fn client(&self, number: usize, ops: &[Op]) {
        for op in ops {
            let Some(fleet) = self.fleet(number) else {
                tokio::time::sleep(Duration::from_millis(500)).await;
                continue;
            };
            let step = self.act(&fleet, number, *op);
            // A killed orchestrator answers nothing more.
            tokio::select! {
                () = step => {}
                () = fleet.killed() => {}
            }
        }
    }

    async fn act(&self, fleet: &Fleet, number: usize, op: Op) {
        let who = admin();
        match op {
            Op::Create => {
                if let Ok(desk) = fleet.create(&who, NewDesk::default(), None).await {
                    self.told.lock().unwrap().made.push(desk.id);
                }
            }
            Op::Fork(n) => {
                if let Some(id) = self.desk(n)
                    && let Ok(desk) = fleet.fork(&who, &id, true, NewDesk::default()).await
                {
                    self.told.lock().unwrap().made.push(desk.id);
                }
            }
            Op::Stop(n) => self.with(n, |id| async move { fleet.stop(&admin(), &id).await.map(drop) }).await,
            Op::Start(n) => self.with(n, |id| async move { fleet.start(&admin(), &id).await.map(drop) }).await,
            Op::Reset(n) => self.with(n, |id| async move { fleet.reset(&admin(), &id).await.map(drop) }).await,
            Op::Archive(n) => self.with(n, |id| async move { fleet.archive(&admin(), &id).await.map(drop) }).await,
            Op::Snapshot(n) => {
                self.with(n, |id| async move { fleet.snapshot(&admin(), &id, None, true).await.map(drop) }).await;
            }
            Op::Delete(n) => {
                if let Some(id) = self.desk(n) {
                    self.told.lock().unwrap().deleted.insert(id.clone());
                    let _ = fleet.delete(&who, &id).await;
                }
            }
            Op::Die(n) => {
                if let Some(id) = self.desk(n) {
                    self.world.reality.die(&id);
                }
            }
            Op::Sleep(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
            Op::Kill(n, ms) => {
                let victim = {
                    let mut fleets = self.fleets.lock().unwrap();
                    let at = usize::from(n) % fleets.len();
                    fleets[at].take().map(|f| (at, f))
                };
                if let Some((at, victim)) = victim {
                    victim.kill().await;
                    tokio::time::sleep(Duration::from_millis(ms.into())).await;
                    let fleet = self.open().await;
                    self.fleets.lock().unwrap()[at] = Some(fleet);
                }
            }
            Op::Away(ms) => {
                self.world.reality.away(true);
                tokio::time::sleep(Duration::from_millis(ms.into())).await;
                self.world.reality.away(false);
            }
        }
        let _ = number;
    }

    async fn with<F: Future<Output = Result<(), Error>>>(&self, n: u8, ask: impl FnOnce(String) -> F) {
        if let Some(id) = self.desk(n) {
            let _ = ask(id).await;
        }
    }

    /// Everybody stops asking, nothing fails any more: then all must become right.
    async fn check(&self) -> Result<(), TestCaseError> {
        self.world.reality.no_more_faults();
        {
            let dead: Vec<usize> = (0..2).filter(|n| self.fleets.lock().unwrap()[*n].is_none()).collect();
            for n in dead {
                let fleet = self.open().await;
                self.fleets.lock().unwrap()[n] = Some(fleet);
            }
        }
        tokio::time::sleep(seconds(400)).await;
        let fleets: Vec<Fleet> = self.fleets.lock().unwrap().iter().flatten().cloned().collect();

        let records: BTreeMap<String, _> =
            self.world.store.desks().await.unwrap().into_iter().map(|r| (r.id.clone(), r)).collect();
        let things = self.world.reality.things();
        for (id, record) in &records {
            let thing = things.get(id);
            let good = match record.state {
                State::Running => thing.is_some_and(|t| t.running && t.secret == record.spec.secret),
                State::Stopped => thing.is_some_and(|t| !t.running),
                State::Archived => thing.is_none() && record.archive.is_some(),
                State::Error => record.placed.is_some() || thing.is_none(),
                _ => false,
            };
            prop_assert!(good, "{id} is {:?} ({}) and in reality {thing:?}", record.state, record.reason);
        }
        for id in things.keys() {
            prop_assert!(records.contains_key(id), "{id} is an orphan");
        }
        let (made, deleted) = {
            let told = self.told.lock().unwrap();
            (told.made.clone(), told.deleted.clone())
        };
        for id in &made {
            prop_assert!(records.contains_key(id) || deleted.contains(id), "{id} was acknowledged and is lost");
        }
        for id in &deleted {
            // Asked for, perhaps never written: then it lives on. But half deleted it is not.
            let state = records.get(id).map(|r| r.state);
            prop_assert!(state != Some(State::Deleting), "{id} hangs in deleting");
        }
        let snapshots: BTreeSet<String> = self.world.store.snapshots().await.unwrap().into_iter().map(|s| s.id).collect();
        let real: BTreeSet<String> = self.world.reality.snapshots().into_iter().collect();
        prop_assert_eq!(&snapshots, &real, "snapshots");
        let violations = self.world.reality.violations();
        prop_assert!(violations.is_empty(), "{violations:?}");
        for fleet in &fleets {
            let seen = fleet.desks(&admin(), Filter::default()).await.unwrap();
            let mine = records.values().filter(|r| r.pool.is_none()).count();
            prop_assert_eq!(seen.len(), mine, "what an orchestrator shows is what is stored");
            for desk in seen {
                prop_assert_eq!(desk.state, records[&desk.id].state);
            }
        }
        Ok(())
    }
}

async fn schedule(ops: Vec<Vec<Op>>, seed: u64, faults: f64, pool: bool) -> Result<(), TestCaseError> {
    let spec = PoolSpec {
        template: "base".into(),
        provider: None,
        min: 1,
        max: 3,
        resources: Default::default(),
        max_hourly: None,
        cool_down_s: 60,
    };
    let archive = tempfile::tempdir().unwrap();
    let config = Config {
        restarts: 1000,
        archive: archive.path().display().to_string(),
        pools: if pool { vec![spec] } else { Vec::new() },
        ..testing::config()
    };
    let world = World { store: MemoryStore::slow(40, seed), reality: Reality::seeded(seed) };
    world.reality.chance(faults);
    let run = Run { world, fleets: Mutex::default(), told: Mutex::default(), config };
    for _ in 0..2 {
        let fleet = run.open().await;
        run.fleets.lock().unwrap().push(Some(fleet));
    }
    futures_util::future::join_all(ops.iter().enumerate().map(|(n, ops)| run.client(n, ops))).await;
    let result = run.check().await;
    let fleets: Vec<_> = run.fleets.lock().unwrap().drain(..).flatten().collect();
    for fleet in fleets {
        fleet.kill().await;
    }
    result
}

/// Few for each run of the tests; `PROPTEST_CASES=5000` for a long night.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_and_reality_agree_whatever_happens(
        ops in prop::collection::vec(prop::collection::vec(op(), 5..25), 2..6),
        seed in any::<u64>(),
        faults in prop_oneof![Just(0.0), Just(0.05), Just(0.3)],
        pool in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(schedule(ops, seed, faults, pool))?;
    }
}
