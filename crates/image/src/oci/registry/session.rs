//! Requests to one registry, with whatever it wants to know about us.

use super::super::blob::{Blob, Source};
use super::challenge::Challenge;
use super::upload::Patience;
use super::{Credentials, Push, Reference};
use crate::{Error, Result};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::Mutex;

const CONNECT: Duration = Duration::from_secs(10);
/// Questions that carry nothing. Some registries look into a slow object store before they answer.
const ANSWER: Duration = Duration::from_secs(60);
/// Tokens and reasons are some kilobytes; no more of an answer is held.
const LARGEST_ANSWER: usize = 1 << 20;
/// Text of an error that is worth showing.
const LONGEST_REASON: usize = 300;

/// Why something did not work.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may work in a moment.
    Passing(String),
    /// It won't.
    Final(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

pub(super) struct Session {
    http: Client,
    base: Url,
    host: String,
    pub(super) repository: String,
    mount_from: Vec<String>,
    insecure: bool,
    credentials: Option<Credentials>,
    /// The header that opened the door last.
    authorization: Mutex<Option<String>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    /// Finds the registry and says who we are.
    pub(super) async fn open(to: &Reference, how: &Push) -> Result<Self> {
        let plain = to.is_loopback() || how.insecure;
        // Somebody else may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = Client::builder().connect_timeout(CONNECT).user_agent(concat!("hotdesk/", env!("CARGO_PKG_VERSION")));
        if to.is_loopback() {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|e| Error::Failed(format!("no connection can be made: {}", chain(&e))))?;
        let scheme = if plain { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{}/v2/", to.host))
            .map_err(|e| Error::Invalid(format!("`{}` is not the address of a registry: {e}", to.host)))?;
        let credentials = match &how.credentials {
            Some(credentials) => Some(credentials.clone()),
            None => Credentials::find(&to.host)?,
        };
        let session = Self {
            http,
            base,
            host: to.host.clone(),
            repository: to.repository.clone(),
            mount_from: how.mount_from.clone(),
            insecure: plain,
            credentials,
            authorization: Mutex::new(None),
        };
        let url = session.base.clone();
        match session.ask(Method::GET, &url).await {
            Ok(answer) if answer.status().is_success() => Ok(session),
            Ok(answer) if answer.status() == StatusCode::NOT_FOUND => {
                Err(Error::Failed(format!("there is no registry at {}: nothing answers at /v2/", to.host)))
            }
            Ok(answer) => Err(session.refused("the registry does not answer as one", answer).await),
            Err(Trouble::Final(error)) => Err(error),
            Err(Trouble::Passing(why)) => {
                let hint = if plain { "" } else { "; plain HTTP is only spoken to this machine, or with --insecure" };
                Err(Error::Failed(format!("the registry at {} can't be reached: {why}{hint}", to.host)))
            }
        }
    }

    /// `/v2/REPOSITORY/REST`.
    pub(super) fn url(&self, repository: &str, rest: &str) -> Result<Url> {
        self.base.join(&format!("{repository}/{rest}")).map_err(|e| Error::Invalid(format!("{repository}/{rest}: {e}")))
    }

    /// A question without a body.
    pub(super) async fn ask(&self, method: Method, url: &Url) -> Result<Response, Trouble> {
        self.send(url, || Ok(self.http.request(method.clone(), url.clone()).timeout(ANSWER))).await
    }

    pub(super) fn request(&self, method: Method, url: &Url) -> RequestBuilder {
        self.http.request(method, url.clone())
    }

    /// Sends what `make` makes, once more if the registry wants to know who we are.
    pub(super) async fn send(&self, url: &Url, make: impl Fn() -> Result<RequestBuilder, Trouble>) -> Result<Response, Trouble> {
        let attempt = async |authorization: Option<String>| {
            let mut request = make()?;
            // Secrets are for the registry alone, wherever it sends us.
            if let Some(value) = authorization.filter(|_| same_place(url, &self.base)) {
                request = request.header(AUTHORIZATION, value);
            }
            request.send().await.map_err(|e| Trouble::Passing(chain(&e)))
        };
        let known = self.authorization.lock().await.clone();
        let mut answer = attempt(known.clone()).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let value = self.authorize(answer.headers(), known).await?;
            answer = attempt(Some(value)).await?;
        }
        let status = answer.status();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            let reason = reason(answer).await;
            return Err(Trouble::Final(self.denied(&reason)));
        }
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(Trouble::Passing(format!("it answered {}", reason(answer).await)));
        }
        Ok(answer)
    }

    /// Finds what lets us in. Whoever comes second finds what the first got.
    async fn authorize(&self, headers: &HeaderMap, failed: Option<String>) -> Result<String, Trouble> {
        let mut authorization = self.authorization.lock().await;
        if *authorization != failed
            && let Some(value) = &*authorization
        {
            return Ok(value.clone());
        }
        let mut offers = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| Challenge::parse(value.to_str().ok()?));
        let value = match offers.next_back() {
            Some(Challenge::Basic) => match self.credentials.as_ref().and_then(Credentials::basic) {
                Some(value) => value,
                None => return Err(Trouble::Final(self.denied("it wants a name and a password"))),
            },
            Some(Challenge::Bearer { realm, service, .. }) => {
                format!("Bearer {}", self.fetch_token(&realm, service.as_deref()).await?)
            }
            None => return Err(Trouble::Final(self.denied("it wants something that is not known here"))),
        };
        *authorization = Some(value.clone());
        Ok(value)
    }

    async fn fetch_token(&self, realm: &str, service: Option<&str>) -> Result<String, Trouble> {
        let strange =
            |why: String| Trouble::Final(Error::Failed(format!("the registry at {} sends us to `{realm}`: {why}", self.host)));
        let mut url = Url::parse(realm).map_err(|e| strange(e.to_string()))?;
        if url.scheme() != "https" && !(self.insecure && url.scheme() == "http") {
            return Err(strange("that is no safe place for a password".into()));
        }
        // Asked for by name, because the first answer came from `/v2/`, which is about no repository.
        let mut scopes = vec![format!("repository:{}:pull,push", self.repository)];
        scopes.extend(self.mount_from.iter().map(|from| format!("repository:{from}:pull")));
        let request = match &self.credentials {
            Some(Credentials::Token(token)) => {
                let mut form = url.clone();
                form.query_pairs_mut()
                    .clear()
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("client_id", "hotdesk")
                    .append_pair("service", service.unwrap_or_default())
                    .append_pair("scope", &scopes.join(" "))
                    .append_pair("refresh_token", token);
                let body = form.query().unwrap_or_default().to_owned();
                self.http.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body)
            }
            other => {
                if let Some(service) = service {
                    url.query_pairs_mut().append_pair("service", service);
                }
                for scope in &scopes {
                    url.query_pairs_mut().append_pair("scope", scope);
                }
                let request = self.http.get(url);
                match other.as_ref().and_then(Credentials::basic) {
                    Some(basic) => request.header(AUTHORIZATION, basic),
                    None => request,
                }
            }
        };
        let answer = request.timeout(ANSWER).send().await.map_err(|e| Trouble::Passing(chain(&e)))?;
        if answer.status().is_server_error() {
            return Err(Trouble::Passing(format!("its token server answered {}", reason(answer).await)));
        }
        if !answer.status().is_success() {
            let reason = reason(answer).await;
            return Err(Trouble::Final(self.denied(&reason)));
        }
        let text = beginning(answer).await.map_err(|e| Trouble::Passing(chain(&e)))?;
        let answer: TokenAnswer = serde_json::from_slice(&text).map_err(|e| strange(e.to_string()))?;
        answer
            .token
            .or(answer.access_token)
            .filter(|token| !token.is_empty())
            .ok_or_else(|| strange("there is no token there".into()))
    }

    /// The last step: the image has its name.
    pub(super) async fn put_manifest(&self, manifest: &Blob, tag: &str, how: &Push) -> Result<()> {
        let Source::Bytes(bytes) = &manifest.source else { return Err(Error::Failed("the manifest is not at hand".into())) };
        let url = self.url(&self.repository, &format!("manifests/{tag}"))?;
        let mut patience = Patience::new(how.patience);
        loop {
            let make = || {
                let request = self.http.put(url.clone()).timeout(ANSWER).header(CONTENT_TYPE, &manifest.media_type);
                Ok(request.body(bytes.clone()))
            };
            match self.send(&url, make).await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) => return Err(self.refused("the registry does not take the manifest", answer).await),
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Passing(why)) => patience.wait(&self.host, &why).await?,
            }
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    fn denied(&self, why: &str) -> Error {
        let host = &self.host;
        let who = match &self.credentials {
            None => format!("nobody is logged in there; `docker login {host}` writes down who you are"),
            Some(Credentials::Password { name, .. }) => {
                format!("we are `{name}` there; may `{name}` push to `{}`?", self.repository)
            }
            Some(Credentials::Token(_)) => {
                format!("the token of `docker login {host}` was used; may it push to `{}`?", self.repository)
            }
        };
        Error::Failed(format!("the registry at {host} does not let us in: {why}; {who}"))
    }

    pub(super) async fn refused(&self, what: &str, answer: Response) -> Error {
        Error::Failed(format!("{what} ({}): {}", self.host, reason(answer).await))
    }
}

fn same_place(a: &Url, b: &Url) -> bool {
    a.origin() == b.origin()
}

/// What an answer holds, as far as it is looked at.
async fn beginning(mut answer: Response) -> reqwest::Result<Vec<u8>> {
    let mut text = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        text.extend_from_slice(&piece[..piece.len().min(LARGEST_ANSWER - text.len())]);
        if text.len() == LARGEST_ANSWER {
            break;
        }
    }
    Ok(text)
}

/// Status and what the registry says about it, in one line.
async fn reason(answer: Response) -> String {
    #[derive(Deserialize)]
    struct Said {
        errors: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let status = answer.status();
    let text = beginning(answer).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let said = match serde_json::from_str::<Said>(&text) {
        Ok(said) => {
            said.errors.iter().map(|one| format!("{} {}", one.code, one.message).trim().to_owned()).collect::<Vec<_>>().join(", ")
        }
        Err(_) => text.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let said: String = said.chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect();
    if said.is_empty() { status.to_string() } else { format!("{status}, {said}") }
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}
