//! A gateway for tools outside (schemathesis, a browser): prints its address and key, and serves until its input ends.
//! `cargo test -p hotdesk-gateway serve_for_others -- --ignored --nocapture`

use super::*;
use tokio::io::AsyncReadExt;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "serves until its input ends"]
async fn serve_for_others() {
    let none = crate::Rate { per_second: 0, burst: 0 };
    let rates = crate::Rates { control: none, desks: none, keyless: none, failures: none };
    let world = World::with(Config { rates, ..Config::default() }).await;
    let (desk, _) = world.desk_with(json!({"name": "first"})).await;
    eprintln!("{} {} {}", world.url, world.admin, desk.id);
    let mut rest = Vec::new();
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    world.end().await;
}
