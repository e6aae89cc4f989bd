//! From nothing to a desk and back.

use crate::place::Place;
use hotdesk_provider::{Progress, Provider};

#[tokio::test]
async fn a_desk_is_made_listed_and_deleted() {
    let place = Place::new().await;
    let begin = std::time::Instant::now();
    let desk = place.desk("d-first").await;
    println!("create {:?}", begin.elapsed());
    let out = desk.sh("id; hostname; echo $HOME; df -h / /dev/shm; mount; ls -la /run/hotdesk; cat /proc/self/status | grep -i cap; ps aux; ls -la /tmp /dev").await;
    println!("{}", out.text);
    let found = place.local.list().await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].running);
    let (progress, _) = Progress::new();
    let begin = std::time::Instant::now();
    place.local.reset(&place.spec("d-first"), &progress).await.unwrap();
    println!("reset {:?}", begin.elapsed());
    println!("{:?}", place.local.usage("d-first").await);
    println!("{}", place.local.logs("d-first", 20).await.unwrap());
    let begin = std::time::Instant::now();
    place.local.delete("d-first").await.unwrap();
    println!("delete {:?}", begin.elapsed());
    assert!(place.local.list().await.unwrap().is_empty());
}
