//! One request: sent, sent again where that is safe, and its answer or the reason why there is none.

use crate::error::{Refusal, reason};
use crate::settings::{Found, Target};
use crate::{Error, Result};
use hotdesk_api::Problem;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A machine that is there takes a connection within a round trip or a few.
const CONNECT: Duration = Duration::from_secs(10);
/// Answers that nothing is waited for.
const ANSWER: Duration = Duration::from_secs(60);
/// A fleet that is restarted or upgraded is back after about a second; this is long enough for a busy machine.
const RESTART: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longer than this only the caller can decide to wait.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(5);
/// A problem is a few sentences.
const LARGEST_PROBLEM: usize = 64 * 1024;

/// A fleet. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    base: Url,
    target: Target,
    key: Option<HeaderValue>,
    plain_key: Option<String>,
    /// It answered before, so it is worth waiting for while it is restarted.
    met: AtomicBool,
}

/// Makes a client that is not like the others.
pub struct Builder {
    found: Found,
    patience: Option<Duration>,
}

impl Builder {
    pub fn new(found: Found) -> Self {
        Self { found, patience: None }
    }

    /// Waits so long for a connection (10 s).
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.patience = Some(limit);
        self
    }

    pub fn build(self) -> Result<Client> {
        let Found { target, key, ca } = self.found;
        let unusable = |what: &str, why: String| Error::Settings {
            message: format!("{what} can't be used: {why}"),
            hint: "a key looks like hd_ and 43 letters, digits, - and _".into(),
        };
        let header = key.as_deref().map(|key| HeaderValue::from_str(&format!("Bearer {key}"))).transpose();
        let mut header = header.map_err(|_| unusable("the key", "it holds characters that no key has".into()))?;
        if let Some(header) = &mut header {
            header.set_sensitive(true);
        }
        let mut http = reqwest::Client::builder()
            .connect_timeout(self.patience.unwrap_or(CONNECT))
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .tcp_nodelay(true)
            .user_agent(concat!("hotdesk/", env!("CARGO_PKG_VERSION")));
        let base = match &target {
            Target::Unix(path) => {
                http = http.unix_socket(path.as_path());
                Url::parse("http://localhost")
            }
            Target::Http(url) => Ok(url.clone()),
        };
        let base = base.map_err(|e| unusable("the URL", e.to_string()))?;
        if target.is_loopback() {
            http = http.no_proxy();
        }
        http = match (base.scheme(), ca) {
            // Reading the system's certificates takes longer than everything else a small command does.
            ("http", _) => http.tls_backend_preconfigured(without_certificates()?),
            (_, ca) => {
                // Somebody else may have chosen one already, which is as good.
                let _ = rustls::crypto::ring::default_provider().install_default();
                match ca {
                    Some(file) => http.tls_certs_merge(certificates(&file)?),
                    None => http,
                }
            }
        };
        let http = http.build().map_err(|e| Error::Local(format!("no connection can be made: {}", reason(&e))))?;
        let met = AtomicBool::new(false);
        Ok(Client { inner: Arc::new(Inner { http, base, target, key: header, plain_key: key, met }) })
    }
}

fn without_certificates() -> Result<rustls::ClientConfig> {
    rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|config| config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
        .map_err(|e| Error::Local(format!("TLS can't be set up: {e}")))
}

fn certificates(file: &Path) -> Result<Vec<reqwest::Certificate>> {
    let wrong = |e: &dyn std::fmt::Display| Error::Settings {
        message: format!("the certificates in {} can't be used: {e}", file.display()),
        hint: "HOTDESK_CA names a file in PEM form".into(),
    };
    let text = std::fs::read(file).map_err(|e| wrong(&e))?;
    reqwest::Certificate::from_pem_bundle(&text).map_err(|e| wrong(&e))
}

impl Client {
    /// A fleet by its address and key.
    pub fn new(url: &str, key: &str) -> Result<Self> {
        Self::connect(&Found { target: url.parse()?, key: Some(key.to_owned()).filter(|key| !key.is_empty()), ca: None })
    }

    /// A fleet that [`Settings::find`](crate::Settings::find) found. Nothing is sent yet.
    pub fn connect(found: &Found) -> Result<Self> {
        Builder::new(found.clone()).build()
    }

    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// The key, for those who hand it on: `hotdesk env`.
    pub fn key(&self) -> Option<&str> {
        self.inner.plain_key.as_deref()
    }

    /// An address below the fleet's, as others would write it down. Not for Unix sockets.
    pub fn address(&self, path: &[&str]) -> String {
        self.url(path).to_string()
    }

    /// Any request of the API that has no name here.
    pub fn call(&self, method: Method, path: &[&str]) -> Call {
        let again =
            if matches!(method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE) { Again::Safe } else { Again::Never };
        let call = Call {
            client: self.clone(),
            url: self.url(path),
            method,
            headers: Vec::new(),
            body: None,
            again,
            limit: Some(ANSWER),
        };
        match &self.inner.key {
            Some(key) => call.header(reqwest::header::AUTHORIZATION, key.clone()),
            None => call,
        }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.inner.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            // Dots would climb out of the path; no desk, key or template has such a name.
            let harmless = path.iter().map(|segment| if matches!(*segment, "" | "." | "..") { "%" } else { segment });
            segments.pop_if_empty().extend(harmless);
        }
        url
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("target", &self.inner.target).finish_non_exhaustive()
    }
}

/// Whether a request may be sent again when nobody knows whether it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Safe,
    Never,
}

/// A request that is put together.
#[must_use = "it is not sent yet"]
pub struct Call {
    client: Client,
    url: Url,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Body>,
    again: Again,
    limit: Option<Duration>,
}

enum Body {
    Bytes(bytes::Bytes),
    Stream(reqwest::Body),
}

impl Call {
    pub fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.url.query_pairs_mut().append_pair(name, &value.to_string());
        self
    }

    /// All fields of a structure as parameters; those that are null are left out.
    pub fn queries(mut self, fields: &impl Serialize) -> Self {
        if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(fields) {
            for (name, value) in fields {
                match value {
                    serde_json::Value::Null => {}
                    serde_json::Value::String(text) => self = self.query(&name, text),
                    other => self = self.query(&name, other),
                }
            }
        }
        self
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub fn json(self, body: &impl Serialize) -> Result<Self> {
        let text = serde_json::to_vec(body).map_err(|e| Error::Local(format!("the request can't be written: {e}")))?;
        Ok(self.bytes("application/json", text.into()))
    }

    pub fn bytes(mut self, content_type: &'static str, body: bytes::Bytes) -> Self {
        self.body = Some(Body::Bytes(body));
        self.header(reqwest::header::CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// A body whose type a header names already.
    pub fn body(mut self, body: bytes::Bytes) -> Self {
        self.body = Some(Body::Bytes(body));
        self
    }

    /// A body that can be read only once, so the request is sent only once.
    pub(crate) fn stream(mut self, body: reqwest::Body) -> Self {
        self.body = Some(Body::Stream(body));
        self.again = Again::Never;
        self
    }

    /// Doing it twice is the same as doing it once.
    pub fn idempotent(mut self) -> Self {
        self.again = Again::Safe;
        self
    }

    /// Doing it twice is not the same.
    pub fn once(mut self) -> Self {
        self.again = Again::Never;
        self
    }

    /// The longest time until the answer begins, or with [`Self::answer`] until it is there; `None` is for ever.
    pub fn within(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit;
        self
    }

    /// The answer's head; its body is still to be read.
    pub async fn send(self) -> Result<Response> {
        let limit = self.limit;
        match limit {
            Some(limit) => tokio::time::timeout(limit, self.send_until_done()).await.map_err(|_| Error::Late(limit))?,
            None => self.send_until_done().await,
        }
    }

    /// The answer as a value.
    pub async fn answer<T: DeserializeOwned>(self) -> Result<T> {
        self.answer_with_status().await.map(|(_, value)| value)
    }

    pub(crate) async fn answer_with_status<T: DeserializeOwned>(self) -> Result<(StatusCode, T)> {
        let (status, body) = self.whole().await?;
        let value = serde_json::from_slice(&body).map_err(|e| Error::Strange(e.to_string()))?;
        Ok((status, value))
    }

    /// The answer does not matter, as long as it is a good one.
    pub async fn done(self) -> Result<()> {
        self.whole().await.map(|_| ())
    }

    pub async fn text(self) -> Result<String> {
        self.whole().await.map(|(_, body)| String::from_utf8_lossy(&body).into_owned())
    }

    async fn whole(self) -> Result<(StatusCode, bytes::Bytes)> {
        let limit = self.limit;
        let whole = async {
            let answer = self.send_until_done().await?;
            let status = answer.status();
            Ok((status, answer.bytes().await.map_err(|e| Error::Broken(reason(&e)))?))
        };
        match limit {
            Some(limit) => tokio::time::timeout(limit, whole).await.map_err(|_| Error::Late(limit))?,
            None => whole.await,
        }
    }

    async fn send_until_done(mut self) -> Result<Response> {
        let begin = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let streams = matches!(self.body, Some(Body::Stream(_)));
            let error = match self.attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let wait = match &error {
                // It never left, but the stream may have been taken apart.
                Error::Unreachable { .. } if !streams => self.client.met().then_some(pause),
                Error::Broken(_) if self.again == Again::Safe => self.client.met().then_some(pause),
                Error::Refused(refusal) if self.may_ask_again(refusal) => Some(refusal.retry_after.unwrap_or(pause)),
                _ => None,
            };
            match wait {
                Some(wait) if begin.elapsed() + wait < RESTART => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Too many requests were not even looked at; what only reads may be asked for again when a part is down.
    fn may_ask_again(&self, refusal: &Refusal) -> bool {
        let soon = refusal.retry_after.is_none_or(|wait| wait <= LONGEST_RETRY_AFTER);
        let reads = self.method == Method::GET && refusal.problem.status == 503 && refusal.retry_after.is_some();
        let rated = refusal.problem.status == 429 && refusal.problem.code == "rate_limited";
        self.again == Again::Safe && refusal.problem.retry && soon && (reads || rated)
    }

    async fn attempt(&mut self) -> Result<Response> {
        let mut request: RequestBuilder = self.client.inner.http.request(self.method.clone(), self.url.clone());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request = match &mut self.body {
            None => request,
            Some(Body::Bytes(bytes)) => request.body(bytes.clone()),
            Some(Body::Stream(body)) => request.body(std::mem::take(body)),
        };
        let answer = request.send().await.map_err(|e| self.client.failure(&e))?;
        self.client.inner.met.store(true, Ordering::Relaxed);
        let status = answer.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        Err(refused(answer).await)
    }
}

impl Client {
    fn met(&self) -> bool {
        self.inner.met.load(Ordering::Relaxed)
    }

    fn failure(&self, error: &reqwest::Error) -> Error {
        if error.is_connect() {
            let reason = match error.is_timeout() {
                true => "no connection within 10 s".into(),
                false => reason(error),
            };
            return Error::Unreachable { url: self.inner.target.to_string(), reason };
        }
        Error::Broken(reason(error))
    }
}

async fn refused(answer: Response) -> Error {
    let status = answer.status();
    let header = |name| answer.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::to_owned);
    let retry_after = header(reqwest::header::RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let body = limited(answer).await;
    // Not ours: a proxy between, or another server.
    let problem = hotdesk_desk_client::problem(status, &body).unwrap_or_else(|| Problem {
        hint: Some("is this the address of a hotdesk fleet?".into()),
        ..hotdesk_desk_client::foreign(status, &body)
    });
    Error::Refused(Box::new(Refusal { problem, retry_after }))
}

async fn limited(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        body.extend_from_slice(&piece[..piece.len().min(LARGEST_PROBLEM - body.len())]);
        if body.len() == LARGEST_PROBLEM {
            break;
        }
    }
    body
}
