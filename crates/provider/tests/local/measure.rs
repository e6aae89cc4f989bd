//! How long the steps of a desk's life take, and what they cost: `cargo test -p hotdesk-provider --test local -- --ignored
//! measure --nocapture`.

use crate::place::Place;
use hotdesk_provider::{Progress, Provider};
use std::time::{Duration, Instant};

const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, proves nothing"]
async fn measure() {
    let place = Place::new().await;
    let (progress, _) = Progress::new();
    let spec = place.spec("d-measured");
    let mut times: Vec<(&str, Vec<Duration>)> =
        ["create", "reset", "stop", "start", "delete"].map(|what| (what, Vec::new())).into();
    // The first one formats the empty disk.
    place.create(&spec).await;
    eprintln!("cpu of the sandbox's helper until the desk is ready: {:?}", cpu_of_keeper(&place));
    place.local.delete(&spec.id).await.unwrap();
    for _ in 0..ROUNDS {
        for (what, times) in &mut times {
            let begin = Instant::now();
            match *what {
                "create" => drop(place.local.create(&spec, &progress).await.unwrap()),
                "reset" => drop(place.local.reset(&spec, &progress).await.unwrap()),
                "start" => drop(place.local.start(&spec, &progress).await.unwrap()),
                "stop" => place.local.stop(&spec.id).await.unwrap(),
                _ => place.local.delete(&spec.id).await.unwrap(),
            }
            times.push(begin.elapsed());
        }
    }
    for (what, mut times) in times {
        times.sort();
        eprintln!("{what}: median {:?}, {:?} to {:?}", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    eprintln!("load of the machine: {}", load.split_whitespace().next().unwrap());
}

/// Time on a CPU, which does not depend on what else runs.
fn cpu_of_keeper(place: &Place) -> Duration {
    let file = place.data().join("desks/d-measured/running.json");
    let running: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", running["keeper"]["pid"])).unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}
