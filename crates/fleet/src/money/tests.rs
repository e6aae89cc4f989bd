use super::*;
use crate::store::sqlite::Sqlite;
use crate::store::tests::{desk, event};
use hotdesk_api::fleet::Budget;
use proptest::prelude::*;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HOUR: i64 = 3_600_000;
/// 2026-01-31T00:00:00Z.
const MIDNIGHT: i64 = 1_769_817_600_000;

async fn money() -> (TempDir, Arc<dyn Store>, Money) {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(directory.path().join("fleet.db")).await.unwrap());
    let price = Price { cpu_hour: 0.05, memory_gib_hour: 0.01, disk_gib_hour: 0.0002 };
    let tiny = Price { disk_gib_hour: 0.000_000_1, ..Price::default() };
    let prices = BTreeMap::from([("local".into(), price), ("tiny".into(), tiny)]);
    let money = Money::new(store.clone(), &Config { prices, ..Config::default() }).unwrap();
    (directory, store, money)
}

/// Two CPUs, 4 GiB, 5 GiB: 0.141 an hour running, 0.001 stopped.
fn at(start: i64, state: State) -> Record {
    Record { cost_until_ms: start, state, ..desk("d-1") }
}

fn spend(day: &str, micro: i64) -> Spend {
    Spend { project: "default".into(), day: day.into(), micro }
}

#[tokio::test]
async fn running_costs_all_stopped_the_disk_archived_nothing() {
    let (_directory, _, money) = money().await;
    let hourly = |state| (money.per_hour("local", &Resources::default(), state) * 1e6).round() as i64;
    assert_eq!((hourly(State::Running), hourly(State::Stopped), hourly(State::Archived)), (141_000, 1_000, 0));
    assert_eq!(money.per_hour("free", &Resources::default(), State::Running), 0.0);

    let mut record = at(MIDNIGHT, State::Running);
    assert_eq!(money.settle(&mut record, MIDNIGHT + HOUR), [spend("2026-01-31", 141_000)]);
    record.state = State::Stopped;
    assert_eq!(money.settle(&mut record, MIDNIGHT + 3 * HOUR), [spend("2026-01-31", 2_000)]);
    record.state = State::Archived;
    assert_eq!(money.settle(&mut record, MIDNIGHT + 300 * HOUR), []);
    assert_eq!((record.cost_micro, record.cost_until_ms), (143_000, MIDNIGHT + 300 * HOUR));
    record.state = State::Running;
    assert_eq!(money.settle(&mut record, MIDNIGHT), [], "a clock that was put back");
    assert_eq!(record.cost_until_ms, MIDNIGHT + 300 * HOUR);
    assert_eq!(money.cost(&record, MIDNIGHT + 301 * HOUR), 0.284);
}

#[tokio::test]
async fn midnights_divide() {
    let (_directory, _, money) = money().await;
    let mut record = at(MIDNIGHT - HOUR, State::Running);
    let spends = money.settle(&mut record, MIDNIGHT + 26 * HOUR);
    assert_eq!(spends, [spend("2026-01-30", 141_000), spend("2026-01-31", 141_000 * 24), spend("2026-02-01", 282_000)]);
    assert_eq!(record.cost_micro, 141_000 * 27);
}

#[tokio::test]
async fn the_cheapest_desk_pays_in_the_end() {
    let (_directory, _, money) = money().await;
    let mut record = Record { provider: "tiny".into(), ..at(MIDNIGHT, State::Stopped) };
    // Half a millionth an hour; looked at each minute.
    let mut writes = 0;
    for minute in 1..=100 * 60 {
        writes += usize::from(!money.tick(&mut record, MIDNIGHT + minute * 60_000).is_empty());
    }
    assert!((49..=50).contains(&record.cost_micro), "{}", record.cost_micro);
    assert!(writes <= 50, "{writes} writes for nothing");
}

proptest! {
    /// Whatever the rhythm, and whatever is lost by crashes before it was written, the bill is the same and the days add up to it.
    #[test]
    fn the_bill_does_not_depend_on_when_it_is_written(steps in prop::collection::vec((1i64..40_000_000, any::<bool>(), any::<bool>()), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (_directory, _, money) = runtime.block_on(money());
        let mut stored = at(MIDNIGHT, State::Running);
        let mut days = BTreeMap::<String, i64>::new();
        let mut now = MIDNIGHT;
        for (length, lost, settle) in &steps {
            now += length;
            let mut record = stored.clone();
            let spends = if *settle { money.settle(&mut record, now) } else { money.tick(&mut record, now) };
            // A crash before the commit loses the record and its spending together.
            if !lost {
                stored = record;
                for spend in spends {
                    prop_assert!(spend.micro > 0);
                    *days.entry(spend.day).or_default() += spend.micro;
                }
            }
        }
        for spend in money.settle(&mut stored, now) {
            *days.entry(spend.day).or_default() += spend.micro;
        }
        let mut whole = at(MIDNIGHT, State::Running);
        let expected: BTreeMap<_, _> = money.settle(&mut whole, now).into_iter().map(|s| (s.day, s.micro)).collect();
        prop_assert!((stored.cost_micro - whole.cost_micro).abs() <= 1 + steps.len() as i64, "{} {}", stored.cost_micro, whole.cost_micro);
        prop_assert_eq!(days.values().sum::<i64>(), stored.cost_micro);
        for (day, micro) in &expected {
            prop_assert!((days.get(day).copied().unwrap_or(0) - micro).abs() <= 1 + steps.len() as i64, "{}: {:?} {:?}", day, days, expected);
        }
    }
}

#[tokio::test]
async fn costs_are_those_that_are_written_and_those_that_are_open() {
    let (_directory, store, money) = money().await;
    store.spend("default", "2026-01-30", 1_000_000).await.unwrap();
    store.spend("other", "2026-01-31", 500_000).await.unwrap();
    let live = [at(MIDNIGHT, State::Running)];
    let costs = money.costs(None, &live, MIDNIGHT + HOUR).await.unwrap();
    assert_eq!((costs.currency.as_str(), costs.total, costs.today), ("USD", 1.641, 0.641));
    assert_eq!(costs.by_project, BTreeMap::from([("default".into(), 1.141), ("other".into(), 0.5)]));
    assert_eq!(costs.by_day, BTreeMap::from([("2026-01-30".into(), 1.0), ("2026-01-31".into(), 0.641)]));
    let own = money.costs(Some("other"), &live, MIDNIGHT + HOUR).await.unwrap();
    assert_eq!((own.total, own.today, own.by_project.len()), (0.5, 0.5, 1));
}

fn budget(per_day: Option<f64>, total: Option<f64>, webhook: Option<String>) -> Budget {
    Budget { project: "default".into(), per_day, total, alert_at: 0.8, webhook }
}

#[tokio::test]
async fn a_spent_budget_is_a_hard_stop_until_the_next_day_or_a_raise() {
    let (_directory, store, money) = money().await;
    money.can_spend("default", MIDNIGHT).await.unwrap();
    money.set_budget(&budget(Some(1.0), Some(2.5), None)).await.unwrap();
    store.spend("default", "2026-01-31", 799_999).await.unwrap();
    assert_eq!(money.look(MIDNIGHT).await.unwrap(), Look::default());
    store.spend("default", "2026-01-31", 1).await.unwrap();
    let look = money.look(MIDNIGHT).await.unwrap();
    assert_eq!((look.over.len(), look.crossed.len()), (0, 1), "{look:?}");
    assert_eq!(money.look(MIDNIGHT).await.unwrap(), Look::default(), "told twice");

    store.spend("default", "2026-01-31", 200_000).await.unwrap();
    let refused = money.can_spend("default", MIDNIGHT + HOUR).await;
    assert!(
        matches!(&refused, Err(Error::Budget(why)) if why.contains("1 USD on 2026-01-31") && why.contains("next day")),
        "{refused:?}"
    );
    let look = money.look(MIDNIGHT).await.unwrap();
    assert_eq!((look.over.len(), look.crossed.len()), (1, 1), "{look:?}");
    let look = money.look(MIDNIGHT).await.unwrap();
    assert_eq!((look.over.len(), look.crossed.len()), (1, 0), "it stays over, and is told once");
    money.can_spend("other", MIDNIGHT).await.unwrap();

    let tomorrow = MIDNIGHT + 24 * HOUR;
    money.can_spend("default", tomorrow).await.unwrap();
    store.spend("default", "2026-02-01", 900_000).await.unwrap();
    store.spend("default", "2026-02-02", 900_000).await.unwrap();
    let refused = money.can_spend("default", tomorrow + 48 * HOUR).await;
    assert!(matches!(&refused, Err(Error::Budget(why)) if why.contains("2.5 USD in all")), "{refused:?}");
    money.set_budget(&budget(Some(1.0), Some(10.0), None)).await.unwrap();
    money.can_spend("default", tomorrow + 48 * HOUR).await.unwrap();
    money.set_budget(&budget(None, None, None)).await.unwrap();
    assert_eq!(store.budgets().await.unwrap(), []);
}

#[tokio::test]
async fn impossible_budgets_and_prices_are_refused() {
    let (_directory, store, money) = money().await;
    let bad = [
        Budget { project: String::new(), ..budget(Some(1.0), None, None) },
        budget(Some(-1.0), None, None),
        budget(None, Some(f64::NAN), None),
        Budget { alert_at: 1.5, ..budget(Some(1.0), None, None) },
        Budget { alert_at: f64::NAN, ..budget(Some(1.0), None, None) },
        budget(Some(1.0), None, Some("file:///etc/passwd".into())),
        budget(Some(1.0), None, Some("nonsense".into())),
    ];
    for budget in bad {
        assert!(matches!(money.set_budget(&budget).await, Err(Error::Invalid(_))), "{budget:?}");
    }
    let prices = BTreeMap::from([("local".into(), Price { cpu_hour: -1.0, ..Price::default() })]);
    assert!(matches!(Money::new(store, &Config { prices, ..Config::default() }), Err(Error::Invalid(_))));
}

/// Money and record go together: the process may die between any two steps.
#[tokio::test]
async fn a_write_that_is_refused_charges_nothing() {
    let (_directory, store, money) = money().await;
    let mut record = at(MIDNIGHT, State::Running);
    store.insert(&record, event("d-1", "")).await.unwrap();
    let stale = record.clone();
    let spends = money.settle(&mut record, MIDNIGHT + HOUR);
    store.update_and_spend(&record, None, &spends).await.unwrap();
    // Another orchestrator that believes it is the one to do it.
    let mut again = stale;
    let spends = money.settle(&mut again, MIDNIGHT + HOUR);
    assert!(matches!(store.update_and_spend(&again, None, &spends).await, Err(Error::Conflict(_))));
    assert_eq!(store.spent_by("default", "2026-01-31").await.unwrap(), (141_000, 141_000));
}

/// A webhook that answers as told and passes on what it got.
async fn webhook(answers: &'static [u16]) -> (String, tokio::sync::mpsc::Receiver<serde_json::Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        for answer in answers.iter().chain(std::iter::repeat(&200)) {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let body = loop {
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).await.unwrap();
                request.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                    break serde_json::from_str(body).unwrap();
                }
            };
            let reply = format!("HTTP/1.1 {answer} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(reply.as_bytes()).await.unwrap();
            sender.send(body).await.unwrap();
        }
    });
    (address, receiver)
}

#[tokio::test]
async fn a_webhook_is_called_until_it_answers_and_then_no_more() {
    let (_directory, store, money) = money().await;
    let (address, mut got) = webhook(&[500]).await;
    money.deliver("one").unwrap();
    // A second orchestrator: only one of them delivers.
    let other = Money::new(store.clone(), &Config::default()).unwrap();
    other.deliver("two").unwrap();
    money.set_budget(&budget(Some(1.0), None, Some(address))).await.unwrap();
    let now = Timestamp::now().as_millisecond();
    store.spend("default", &day(now), 850_000).await.unwrap();
    money.look(now).await.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(60), got.recv()).await.unwrap().unwrap();
    assert_eq!(
        (first["kind"].as_str(), first["reached"].as_str(), first["spent"].as_f64()),
        (Some("budget"), Some("alert"), Some(0.85))
    );
    // It was refused, so it comes again, the same.
    let second = tokio::time::timeout(Duration::from_secs(60), got.recv()).await.unwrap().unwrap();
    assert_eq!(first, second);
    while !store.alerts().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.spend("default", &day(now), 850_000).await.unwrap();
    other.look(now).await.unwrap();
    let third = tokio::time::timeout(Duration::from_secs(60), got.recv()).await.unwrap().unwrap();
    assert_eq!(third["reached"], "spent");
    assert!(third["text"].as_str().unwrap().contains("is spent"));
}
