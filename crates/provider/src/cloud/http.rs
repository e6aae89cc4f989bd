//! One vendor's HTTP API.

use super::{Fault, Kind, Pace, Patience};
use crate::{Error, Result};
use hotdesk_desk_client::encoded;
use http_body_util::BodyExt;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// A connection is there in a fraction of a second, or not at all.
const CONNECT: Duration = Duration::from_secs(10);
/// The slowest calls wait for a machine on the vendor's side (Daytona: 30 s, E2B: a pause of gigabytes).
const ANSWER: Duration = Duration::from_secs(90);
/// Lists of a hundred sandboxes take some hundred KiB.
const LARGEST_ANSWER: usize = 16 << 20;
/// A vendor's error may be a whole web page; people read its beginning.
const LONGEST_MESSAGE: usize = 400;

/// What differs from vendor to vendor.
#[derive(Debug, Clone, Copy)]
pub struct Vendor {
    pub name: &'static str,
    /// Reads a refusal's status and message, where the status alone does not tell its kind.
    pub sort: fn(u16, &str) -> Option<Kind>,
}

/// A vendor's API.
pub struct Api {
    vendor: Vendor,
    base: String,
    client: reqwest::Client,
    pace: Pace,
    patience: Patience,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client holds the key.
        f.debug_struct("Api").field("vendor", &self.vendor.name).field("base", &self.base).finish_non_exhaustive()
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    base: Option<String>,
    path: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Option<serde_json::Value>,
    repeatable: bool,
    limit: Duration,
}

/// An answer that was no refusal.
#[derive(Debug)]
pub struct Reply {
    provider: &'static str,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: bytes::Bytes,
}

impl Call {
    fn new(method: Method, path: impl Into<String>, repeatable: bool) -> Self {
        let (path, query, headers) = (path.into(), Vec::new(), HeaderMap::new());
        Self { method, base: None, path, query, headers, body: None, repeatable, limit: ANSWER }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, true)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path, true)
    }

    /// Sent once: if its reply gets lost, whoever asks has to look what became of it.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path, false)
    }

    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path, true)
    }

    /// Twice has the effect of once, so it may be sent again when nobody knows whether it arrived.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    #[must_use]
    pub fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(name == "authorization");
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    #[must_use]
    pub fn json(mut self, body: impl Serialize) -> Self {
        self.body = serde_json::to_value(body).ok();
        self
    }

    /// At another address of the same vendor, which gets the key too.
    #[must_use]
    pub fn at(mut self, base: &str) -> Self {
        self.base = Some(base.trim_end_matches('/').to_owned());
        self
    }

    /// Waits no longer than this for one answer.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Reply {
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_slice(&self.body)
            .map_err(|e| Fault::new(self.provider, Kind::Fault, format!("{}'s answer can't be read: {e}", self.provider)))
    }
}

impl Api {
    /// An API at `base` (`https://HOST/PATH`). `headers` go with every request; mark secret ones as sensitive.
    pub fn new(vendor: Vendor, base: &str, insecure: bool, ca: Option<&Path>, headers: HeaderMap, pace: Pace) -> Result<Self> {
        let wrong = |reason: String| Error::Unavailable { provider: vendor.name, reason };
        let url: http::Uri = base.parse().map_err(|e| wrong(format!("its address {base} can't be used: {e}")))?;
        let host = url.host().ok_or_else(|| wrong(format!("its address {base} has no host")))?;
        let secure = url.scheme_str() == Some("https");
        if !secure && !insecure && !crate::door::is_loopback(host) {
            return Err(wrong(format!(
                "its address {base} is plain HTTP, which would show the key to the network; use https, or set insecure = true"
            )));
        }
        let tls = crate::door::tls_config(ca).map_err(|e| wrong(e.to_string()))?;
        let mut headers = headers;
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(concat!("hotdesk/", env!("CARGO_PKG_VERSION"))));
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured((*tls).clone())
            .default_headers(headers)
            .connect_timeout(CONNECT)
            // A redirect would carry the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| wrong(chain(&e)))?;
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self { vendor, base, client, pace, patience: Patience::default() })
    }

    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks, and again where that can't do harm.
    pub async fn ask(&self, call: Call) -> Result<Reply, Fault> {
        let mut tries = self.patience.begin();
        loop {
            match self.once(&call).await {
                // What never arrived, and what was refused for haste, was not done.
                Err(fault) if fault.passes() && (call.repeatable || fault.unsent || fault.kind == Kind::Slow) => {
                    tries.pause(fault).await?;
                }
                other => return other,
            }
        }
    }

    /// The same, and reads the answer.
    pub async fn ask_for<T: DeserializeOwned>(&self, call: Call) -> Result<T, Fault> {
        self.ask(call).await?.json()
    }

    async fn once(&self, call: &Call) -> Result<Reply, Fault> {
        self.pace.turn().await;
        let mut request = self.client.request(call.method.clone(), self.address(call)).headers(call.headers.clone());
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let begun = tokio::time::Instant::now();
        let exchange = async {
            let answer = request.send().await?;
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            Ok::<_, reqwest::Error>((status, headers, reqwest::Body::from(answer)))
        };
        let name = self.vendor.name;
        let read = async {
            let (status, headers, body) = exchange.await.map_err(|e| self.silent(&e))?;
            let body = http_body_util::Limited::new(body, LARGEST_ANSWER).collect().await;
            let body = body.map_err(|e| Fault::new(name, Kind::Fault, format!("{name}'s answer broke off: {e}")))?.to_bytes();
            Ok((status, headers, body))
        };
        let late = || Fault::new(name, Kind::Fault, format!("{name} did not answer in {} s", call.limit.as_secs()));
        let (status, headers, body) = tokio::time::timeout(call.limit, read).await.map_err(|_| late())??;
        tracing::debug!(provider = name, method = %call.method, path = call.path, status, ms = begun.elapsed().as_millis() as u64, "asked");
        if (200..300).contains(&status) {
            return Ok(Reply { provider: name, status, headers, body });
        }
        let message = message_of(&body);
        let kind = (self.vendor.sort)(status, &message).unwrap_or_else(|| Fault::kind_of(status));
        Err(Fault { provider: name, kind, status: Some(status), message, retry_after: retry_after(&headers), unsent: false })
    }

    fn address(&self, call: &Call) -> String {
        let mut address = format!("{}{}", call.base.as_deref().unwrap_or(&self.base), call.path);
        for (at, (name, value)) in call.query.iter().enumerate() {
            let _ = write!(address, "{}{name}={}", if at == 0 { '?' } else { '&' }, encoded(value));
        }
        address
    }

    fn silent(&self, error: &reqwest::Error) -> Fault {
        let name = self.vendor.name;
        // The address of a request may hold what is nobody's business.
        let text = format!("{name} at {} can't be reached: {}", self.base, chain_without_url(error));
        Fault { unsent: error.is_connect(), ..Fault::new(name, Kind::Fault, text) }
    }
}

/// What the body of a refusal says, in the forms that vendors have.
fn message_of(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Array(list) => {
            Some(list.iter().filter_map(|value| value.as_str()).collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
        }
        _ => None,
    };
    let said = ["message", "error", "detail"].iter().find_map(|name| text(value.get(name)?));
    // Google's form: the reason in one word beside the message, which is what tells a quota from a refusal.
    let reason = || value.get("error")?.get("errors")?.get(0)?.get("reason")?.as_str();
    let with_reason = |text: String| reason().map_or_else(|| text.clone(), |reason| format!("{text} ({reason})"));
    let said = said.or_else(|| text(value.get("error")?.get("message")?).map(with_reason));
    let said = said.unwrap_or_else(|| String::from_utf8_lossy(body).split_whitespace().collect::<Vec<_>>().join(" "));
    match said.char_indices().nth(LONGEST_MESSAGE) {
        Some((at, _)) => format!("{}…", &said[..at]),
        None if said.is_empty() => "no reason was given".into(),
        None => said,
    }
}

/// `Retry-After` in seconds or as a date; also in Daytona's form, with the limiter's name behind it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let own = headers.get(RETRY_AFTER);
    let named = || headers.iter().find(|(name, _)| name.as_str().starts_with("retry-after-")).map(|(_, value)| value);
    let text = own.or_else(named)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (0.0..=1e6).contains(&seconds).then(|| Duration::from_secs_f64(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default())
}

fn chain_without_url(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(error) = next {
        let part = error.to_string();
        if !text.contains(&part) {
            text = if text.is_empty() { part } else { format!("{text}: {part}") };
        }
        next = error.source();
    }
    if text.is_empty() { "the request could not be sent".into() } else { text }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read_in_every_vendors_form() {
        assert_eq!(message_of(br#"{"statusCode":400,"message":"no room","error":"Bad Request"}"#), "no room");
        assert_eq!(message_of(br#"{"message":["a","b"]}"#), "a; b");
        assert_eq!(message_of(br#"{"error":{"code":403,"message":"Quota exceeded"}}"#), "Quota exceeded");
        let google = br#"{"error":{"code":403,"message":"No","errors":[{"reason":"quotaExceeded","message":"No"}]}}"#;
        assert_eq!(message_of(google), "No (quotaExceeded)");
        assert_eq!(message_of(b"<html>\n bad gateway</html>"), "<html> bad gateway</html>");
        assert_eq!(message_of(b""), "no reason was given");
        assert!(message_of("ü".repeat(5000).as_bytes()).chars().count() <= LONGEST_MESSAGE + 1);
    }

    #[test]
    fn the_time_to_wait_is_read_in_every_form() {
        let of = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            retry_after(&headers)
        };
        assert_eq!(of("retry-after", "3"), Some(Duration::from_secs(3)));
        assert_eq!(of("retry-after-sandbox-create", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(of("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(of("retry-after", "soon"), None);
        assert_eq!(of("retry-after", "-1"), None);
    }

    #[test]
    fn a_key_does_not_go_through_the_network_in_clear() {
        let vendor = Vendor { name: "e2b", sort: |_, _| None };
        let open = |base: &str, insecure| Api::new(vendor, base, insecure, None, HeaderMap::new(), Pace::new(1.0, 1));
        assert!(open("http://api.example", false).unwrap_err().to_string().contains("https"));
        assert!(open("http://api.example", true).is_ok() && open("http://127.0.0.1:3000/api/", false).is_ok());
        assert!(open("nonsense", false).is_err());
    }
}
