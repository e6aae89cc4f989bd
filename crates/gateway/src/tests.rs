//! End to end: a real fleet with a real store, and a gateway on a real socket. Its desks are small servers on Unix sockets that
//! play the desk (`desk`), placed there by a provider of tests (`provider`).

mod any_input;
mod auth;
mod building;
mod control;
mod desk;
mod doors;
mod edges;
mod events;
mod guests;
mod overhead;
mod page;
mod passing;
mod ports;
mod provider;
mod seen;
mod serve;
mod sessions;
mod tiny;
mod tls;
mod toolbox;
mod traces;
mod within;

use crate::{Config, Gateway};
use desk::FakeDesk;
use hotdesk_api::desk::Desk;
use hotdesk_api::fleet::{MadeKey, NewKey, Scope};
use hotdesk_fleet::Fleet;
use provider::FakeProvider;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fleet and its gateway.
struct World {
    url: String,
    admin: String,
    fleet: Fleet,
    provider: Arc<FakeProvider>,
    client: reqwest::Client,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(Config::default()).await
    }

    /// Settings but for the address, which is one of loopback.
    async fn with(config: Config) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_owned();
        let store = hotdesk_fleet::store::sqlite::Sqlite::open(data.join("fleet.db")).await.unwrap();
        let provider = Arc::new(FakeProvider::new(data.join("desks")));
        let settings = hotdesk_fleet::Config { data: data.clone(), ..Default::default() };
        let fleet = Fleet::open(settings, Arc::new(store), vec![provider.clone()]).await.unwrap();
        let admin = std::fs::read_to_string(fleet.admin_key().await.unwrap()).unwrap().trim().to_owned();
        let images = Arc::new(hotdesk_image::Library::open(data.join("images")).unwrap());
        let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], ..config };
        let gateway = Gateway::bind(config, fleet.clone(), images).await.unwrap();
        let url = gateway.url().unwrap();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(gateway.run(shutdown.clone()));
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .danger_accept_invalid_certs(true)
            .timeout(PATIENCE)
            .build()
            .unwrap();
        Self { url, admin, fleet, provider, client, shutdown, running, _directory: directory }
    }

    fn ask(&self, method: Method, path: &str, key: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(key)
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path, &self.admin).send().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Response {
        self.ask(Method::POST, path, &self.admin).json(&body).send().await.unwrap()
    }

    async fn delete(&self, path: &str) -> Response {
        self.ask(Method::DELETE, path, &self.admin).send().await.unwrap()
    }

    /// A running desk and what plays it.
    async fn desk(&self) -> (Desk, Arc<FakeDesk>) {
        self.desk_with(json!({})).await
    }

    async fn desk_with(&self, request: Value) -> (Desk, Arc<FakeDesk>) {
        let response = self.post("/v1/desks", request).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::CREATED, "{text}");
        let desk: Desk = serde_json::from_str(&text).unwrap();
        let fake = self.provider.desk(&desk.id).expect("the provider has it");
        (desk, fake)
    }

    async fn key(&self, name: &str, scope: Scope, ttl_s: u64) -> MadeKey {
        let new = NewKey { name: name.into(), scope, ttl_s, max_desks: None };
        let response = self.post("/v1/keys", serde_json::to_value(new).unwrap()).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        response.json().await.unwrap()
    }

    async fn project_key(&self, project: &str) -> String {
        self.key(project, Scope::Project { project: project.into() }, 0).await.secret
    }

    async fn end(self) {
        self.shutdown.cancel();
        tokio::time::timeout(PATIENCE, self.running).await.expect("the gateway ends").unwrap();
        self.fleet.close().await;
    }
}

/// What a problem says.
async fn problem(response: Response) -> hotdesk_api::Problem {
    let kind = response.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned());
    let (status, text) = (response.status(), response.text().await.unwrap());
    assert_eq!(kind.as_deref(), Some("application/problem+json"), "{status} {text}");
    let problem: hotdesk_api::Problem = serde_json::from_str(&text).unwrap();
    assert_eq!(problem.status, status.as_u16());
    problem
}

/// Waits until something is so.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !so().await {
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
