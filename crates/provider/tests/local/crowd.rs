//! Many desks at once.

use crate::place::{Place, leftovers};
use futures_util::StreamExt;
use hotdesk_provider::Provider;
use std::sync::Arc;

/// More than the kernel's usual 128 inotify instances of one user allow, at two D-Bus daemons a desk.
const MANY: usize = 70;
/// How many are made at the same time.
const AT_ONCE: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn seventy_live_at_once() {
    let place = Arc::new(Place::new().await);
    let each = |number: usize| {
        let place = place.clone();
        async move { place.desk(&format!("d-many-{number}")).await }
    };
    let desks: Vec<_> = futures_util::stream::iter((0..MANY).map(each)).buffer_unordered(AT_ONCE).collect().await;
    let found = place.local.list().await.unwrap();
    assert_eq!(found.iter().filter(|found| found.running).count(), MANY);
    // Each of them has a bus that answers, which is what runs out first.
    for desk in &desks {
        let health = desk.door.health().await.unwrap();
        assert!(health.ready);
        assert_eq!(desk.sh("ls /run/user/1000/bus /run/user/1000/at-spi/bus_99 | wc -l").await.text, "2");
    }
    let pss: Vec<u64> = desks.iter().map(|desk| pss(desk.pid)).collect();
    eprintln!("{MANY} desks: {:.1} MiB of PSS each", pss.iter().sum::<u64>() as f64 / MANY as f64 / 1024.0);
    futures_util::stream::iter(&desks)
        .enumerate()
        .for_each_concurrent(AT_ONCE, |(_, desk)| {
            let place = place.clone();
            async move {
                let id = desk.socket().ancestors().nth(2).unwrap().file_name().unwrap().to_string_lossy().into_owned();
                place.local.delete(&id).await.unwrap();
            }
        })
        .await;
    assert_eq!(leftovers(&place, desks[0].pid), Vec::<String>::new());
}

/// Memory of all processes of a desk, shared pages divided among their users; in KiB.
fn pss(init: i32) -> u64 {
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let wanted = namespace(init);
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    all.filter(|pid| namespace(*pid) == wanted)
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok())
        .filter_map(|text| {
            text.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse::<u64>().ok())
        })
        .sum()
}
