//! The measuring hand of `make bench`. `bench/run` starts it in the desk's environment and sends one
//! JSON command per line; each is answered by one JSON line.
//!
//! ```text
//! {"do":"paint","what":"full"}                         the whole screen changes
//! {"do":"paint","what":"part"}                         a hundredth of it changes: a box, or a "line"
//! {"do":"unpaint"}                                     the painted window goes away
//! {"do":"get","path":"/screenshot"}                    → {"ms":0.4,"bytes":553000,"status":200}
//! {"do":"post","path":"/execute","body":{…}}
//! {"do":"parallel","path":"/screenshot","clients":8,"seconds":5}  → {"per_second":900.0,"errors":0,…}
//! ```

mod paint;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Command {
    Paint { what: paint::What },
    Unpaint,
    Get { path: String },
    Post { path: String, body: Value },
    Parallel { path: String, clients: usize, seconds: f64 },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).context("usage: hotdesk-bench URL")?;
    // The crate's TLS wants a provider even for plain HTTP.
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = reqwest::Client::builder().tcp_nodelay(true).build()?;
    let mut painter = None;
    for line in std::io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Command::Paint { what } => {
                if painter.is_none() {
                    painter = Some(paint::Painter::new()?);
                }
                painter.as_mut().context("no painter")?.paint(what)?;
                json!({})
            }
            Command::Unpaint => {
                painter = None;
                json!({})
            }
            Command::Get { path } => timed(client.get(format!("{url}{path}"))).await?,
            Command::Post { path, body } => timed(client.post(format!("{url}{path}")).json(&body)).await?,
            Command::Parallel { path, clients, seconds } => parallel(format!("{url}{path}"), clients, seconds).await?,
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

/// From the first byte sent to the last byte received.
async fn timed(request: reqwest::RequestBuilder) -> Result<Value> {
    let start = Instant::now();
    let response = request.send().await?;
    let status = response.status().as_u16();
    let engine = response.headers().get("x-hotdesk-engine").and_then(|v| v.to_str().ok()).map(str::to_owned);
    let bytes = response.bytes().await?.len();
    Ok(json!({ "ms": start.elapsed().as_secs_f64() * 1e3, "bytes": bytes, "status": status, "engine": engine }))
}

/// So many clients ask as fast as they are answered.
async fn parallel(url: String, clients: usize, seconds: f64) -> Result<Value> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let url = url.clone();
        tasks.push(tokio::spawn(async move {
            let client = reqwest::Client::builder().tcp_nodelay(true).build()?;
            let (mut good, mut bad) = (0u64, 0u64);
            while Instant::now() < end {
                match client.get(&url).send().await {
                    Ok(r) if r.status().is_success() => match r.bytes().await {
                        Ok(body) if body.ends_with(b"IEND\xaeB`\x82") => good += 1,
                        _ => bad += 1,
                    },
                    _ => bad += 1,
                }
            }
            anyhow::Ok((good, bad))
        }));
    }
    let (mut good, mut bad) = (0, 0);
    for task in tasks {
        let (g, b) = task.await??;
        good += g;
        bad += b;
    }
    Ok(json!({ "per_second": good as f64 / start.elapsed().as_secs_f64(), "answers": good, "errors": bad }))
}
