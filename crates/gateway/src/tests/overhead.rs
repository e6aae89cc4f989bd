//! What the gateway adds to a screenshot, against the same desk over its own socket. Printed, not judged: a busy machine would
//! decide. `cargo test -p hotdesk-gateway overhead -- --ignored --nocapture`

use super::*;
use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};

const ROUNDS: usize = 2000;

async fn sender(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> http1::SendRequest<Body> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn shot(sender: &mut http1::SendRequest<Body>, path: &str, key: &str) -> Duration {
    let request =
        Request::get(path).header("host", "x").header("authorization", format!("Bearer {key}")).body(Body::empty()).unwrap();
    let start = Instant::now();
    sender.ready().await.unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
    }
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and prints what it found"]
async fn overhead_of_a_screenshot() {
    let rates = crate::Rates { desks: crate::Rate { per_second: 0, burst: 0 }, ..Default::default() };
    let world = World::with(Config { rates, ..Config::default() }).await;
    let (desk, fake) = world.desk().await;
    let door = world.fleet.door(&crate::metrics::internal(), &desk.id).await.unwrap();
    let mut direct = sender(door.address.connect().await.unwrap()).await;
    let stream = tokio::net::TcpStream::connect(world.url.trim_start_matches("http://")).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut through = sender(stream).await;
    let path = format!("/v1/desks/{}/screenshot", desk.id);
    let real = std::env::var_os("HOTDESK_TEST_BINARY").is_some();
    for size in [1 << 10, 100 << 10, 300 << 10, 1 << 20] {
        fake.state.picture.send_replace(Bytes::from(vec![7; size]));
        let size = if real { world.get(&path).await.bytes().await.unwrap().len() } else { size };
        let (mut plain, mut passed) = (Vec::new(), Vec::new());
        // In turns, so that whatever else goes on falls on both.
        for _ in 0..ROUNDS {
            plain.push(shot(&mut direct, "/v1/screenshot", &door.secret).await);
            passed.push(shot(&mut through, &path, &world.admin).await);
        }
        plain.sort();
        passed.sort();
        let at = |list: &[Duration], share: f64| list[(list.len() as f64 * share) as usize].as_secs_f64() * 1e6;
        eprintln!(
            "{:>5} KiB: direct p50 {:.0} us p95 {:.0} us, through the gateway p50 {:.0} us p95 {:.0} us, overhead at the median {:.0} us",
            size >> 10,
            at(&plain, 0.5),
            at(&plain, 0.95),
            at(&passed, 0.5),
            at(&passed, 0.95),
            at(&passed, 0.5) - at(&plain, 0.5)
        );
    }
    world.end().await;
}
