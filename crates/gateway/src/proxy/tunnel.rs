//! Upgraded connections: WebSockets and raw ports, bytes in both directions until either side has enough.

use super::exchange::finish;
use super::pool::connect;
use super::{Passage, headers};
use crate::entrance::PassedOn;
use crate::metrics;
use crate::refusal::{Refusal, Result};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tracing::Instrument;

/// How long one side may go on alone, without a byte, after the other has said all it had to say.
const HALF_OPEN: Duration = Duration::from_secs(60);
/// The same after a failure: what is on its way arrives at once or never.
const LINGER: Duration = Duration::from_secs(2);
/// A frame of a live view fits a few times.
const BUFFER: usize = 64 << 10;

pub(super) async fn open(passage: Passage, mut request: Request, protocol: &str) -> Result<Response> {
    let started = Instant::now();
    let why = if is_view(&passage.target.path) { "live view" } else { "request" };
    let mut work = passage.works(why, Duration::ZERO);
    let client = hyper::upgrade::on(&mut request);
    let mut request = passage.outgoing(request)?;
    ask_upgrade(request.headers_mut(), protocol)?;
    let mut sender = match connect(&passage.door, &passage.way()).await {
        Ok(sender) => sender,
        Err(reason) => return Err(passage.no_way(reason).await),
    };
    let mut answer = match sender.send_request(request).await {
        Ok(answer) => answer,
        Err(error) => return Err(Refusal::unavailable(format!("the desk {} broke off: {error}", passage.desk))),
    };
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return finish(passage, answer, None, work, started).await;
    }
    let desk = hyper::upgrade::on(&mut answer);
    let mut given = std::mem::take(answer.headers_mut());
    let agreed = given.get(header::UPGRADE).and_then(|p| p.to_str().ok()).unwrap_or(protocol).to_owned();
    headers::from_desk(&mut given, &passage);
    ask_upgrade(&mut given, &agreed)?;
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    *response.headers_mut() = given;
    response.extensions_mut().insert(PassedOn);

    let app = passage.app.clone();
    let tunnel = async move {
        let (_open, _sender) = (metrics::Open::tunnel(), sender);
        let (Ok(client), Ok(desk)) = tokio::join!(client, desk) else { return };
        let reason = tokio::select! {
            ended = join(TokioIo::new(client), TokioIo::new(desk)) => ended.map_or_else(|e| e.to_string(), |()| "both sides are done".into()),
            _ = app.closing.cancelled() => "the gateway ends".to_owned(),
            reason = &mut work => reason.unwrap_or_default(),
        };
        tracing::debug!(reason, seconds = started.elapsed().as_secs(), "a tunnel ended");
    };
    passage.app.tunnels.spawn(tunnel.instrument(tracing::Span::current()));
    Ok(response)
}

fn is_view(path: &str) -> bool {
    path.starts_with("/v1/view") || path.starts_with("/v1/screen/stream")
}

fn ask_upgrade(headers: &mut HeaderMap, protocol: &str) -> Result<()> {
    let protocol = HeaderValue::from_str(protocol).map_err(|_| Refusal::invalid("the header `Upgrade` can't be passed on"))?;
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
    Ok(())
}

/// Carries bytes both ways. An end in one direction is handed on as an end, and the other direction goes on for as long as it
/// has something to say. So it does, for a moment, after a failure: a desk that is done may be written to no more, but what it
/// said last is still on its way, and would be lost if the client's connection were closed with something of it unread.
async fn join<A, B>(a: A, b: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let moved = AtomicU64::new(0);
    let (from_a, to_a) = tokio::io::split(a);
    let (from_b, to_b) = tokio::io::split(b);
    let there = pin!(carry(from_a, to_b, &moved));
    let back = pin!(carry(from_b, to_a, &moved));
    let (first, mut rest) = futures_util::future::select(there, back).await.factor_first();
    let limit = if first.is_ok() { HALF_OPEN } else { LINGER };
    let mut before = moved.load(Ordering::Relaxed);
    loop {
        if let Ok(ended) = tokio::time::timeout(limit, &mut rest).await {
            return first.and(ended);
        }
        let now = moved.load(Ordering::Relaxed);
        if now == before {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "one side is gone, and the other says nothing"));
        }
        before = now;
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, moved: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) => return to.shutdown().await,
            Ok(count) => count,
            Err(failure) => {
                let _ = to.shutdown().await;
                return Err(failure);
            }
        };
        let written = async {
            to.write_all(&buffer[..count]).await?;
            to.flush().await
        };
        if let Err(failure) = written.await {
            // Heard out, so that it can hear the rest.
            let all = async { while !matches!(from.read(&mut buffer).await, Ok(0) | Err(_)) {} };
            let _ = tokio::time::timeout(LINGER, all).await;
            return Err(failure);
        }
        moved.fetch_add(count as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn one_side_may_end_and_still_hear_the_other() {
        let (mut client, a) = duplex(64);
        let (b, mut desk) = duplex(64);
        let joined = tokio::spawn(join(a, b));
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        desk.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "question");
        // Longer than the limit in all, but it moves.
        for _ in 0..5 {
            tokio::time::sleep(HALF_OPEN * 2 / 3).await;
            desk.write_all(b"answer").await.unwrap();
        }
        drop(desk);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer".repeat(5));
        joined.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_a_desk_says_last_arrives_though_it_hears_no_more() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..50 {
            let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (gateway, _) = listener.accept().await.unwrap();
            let (inside, mut desk) = tokio::net::UnixStream::pair().unwrap();
            let joined = tokio::spawn(join(gateway, inside));
            client.write_all(b"never read").await.unwrap();
            desk.write_all(&[7; 100_000]).await.unwrap();
            drop(desk);
            let _ = client.write_all(b"nor this").await;
            let mut said = Vec::new();
            client.read_to_end(&mut said).await.unwrap();
            assert_eq!(said.len(), 100_000);
            drop(client);
            let _ = joined.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_stays_silent_after_the_others_end_is_given_up() {
        let (client, a) = duplex(64);
        let (b, mut desk) = duplex(64);
        let joined = tokio::spawn(join(a, b));
        desk.shutdown().await.unwrap();
        let error = joined.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }
}
