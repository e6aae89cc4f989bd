//! A web server with the habits of real ones: with ranges or without, slow, dying, changing its mind.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response, StatusCode};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub(crate) struct Habits {
    pub(crate) no_ranges: bool,
    /// After so many bytes in all, every connection breaks.
    pub(crate) dies_after: Option<u64>,
    pub(crate) tag: String,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) habits: Arc<Mutex<Habits>>,
    pub(crate) sent: Arc<AtomicU64>,
}

impl Server {
    pub(crate) async fn start(files: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Self {
        let files: HashMap<String, Bytes> = files.into_iter().map(|(name, data)| (format!("/{name}"), data.into())).collect();
        let habits = Arc::new(Mutex::new(Habits { tag: "\"one\"".into(), ..Habits::default() }));
        let sent = Arc::new(AtomicU64::new(0));
        let (kept, counted) = (habits.clone(), sent.clone());
        let app = axum::Router::new().fallback(move |request: axum::extract::Request| {
            let (habits, sent) = (kept.clone(), counted.clone());
            let data = files.get(request.uri().path()).cloned();
            async move { answer(data, request.headers(), &habits, sent) }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, habits, sent }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Habits)) {
        change(&mut self.habits.lock().unwrap());
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }
}

fn answer(data: Option<Bytes>, headers: &HeaderMap, habits: &Mutex<Habits>, sent: Arc<AtomicU64>) -> Response<Body> {
    let Some(data) = data else { return Response::builder().status(StatusCode::NOT_FOUND).body(Body::empty()).unwrap() };
    let habits = habits.lock().unwrap();
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    let fresh = header("if-range").is_none_or(|tag| tag == habits.tag);
    let range = header("range").filter(|_| !habits.no_ranges && fresh).and_then(|range| {
        let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?.min(data.len().saturating_sub(1))))
    });
    let mut response = Response::builder();
    if !habits.no_ranges {
        response = response.header("etag", &habits.tag);
    }
    if data.is_empty() && range.is_some() {
        return response.status(StatusCode::RANGE_NOT_SATISFIABLE).body(Body::empty()).unwrap();
    }
    let (status, part) = match range {
        Some((from, to)) => {
            response = response.header("content-range", format!("bytes {from}-{to}/{}", data.len()));
            (StatusCode::PARTIAL_CONTENT, data.slice(from..=to))
        }
        None => (StatusCode::OK, data),
    };
    response = response.status(status).header("content-length", part.len());
    let limit = habits.dies_after;
    let pieces: Vec<Bytes> = part.chunks(64 << 10).map(Bytes::copy_from_slice).collect();
    let stream = futures_util::stream::iter(pieces.into_iter().map(move |piece| {
        let before = sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        match limit {
            Some(limit) if before >= limit => Err(std::io::Error::other("the server dies")),
            _ => Ok(piece),
        }
    }));
    response.body(Body::from_stream(stream)).unwrap()
}
