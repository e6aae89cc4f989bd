//! The desk behind a sandbox, asked over its own API.

use super::fault::{Code, Fault, Result};
use super::labels::{Pairs, old_environment};
use crate::app::App;
use crate::entrance::Caller;
use crate::proxy::{self, Proxied};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use hotdesk_desk_client::Client;
pub(super) use hotdesk_desk_client::encoded;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The user that a desk's programs belong to if nobody else is named.
pub(super) const DEFAULT_USER: &str = "user";
/// Lists of files are the largest answers.
const ANSWER_BYTES: usize = 64 << 20;

/// What a program prints, or what happens to files.
pub(super) type Events = hotdesk_desk_client::Events<Body>;

/// One sandbox, and whoever showed its token.
#[derive(Clone)]
pub(super) struct Sandbox {
    pub(super) app: App,
    /// The desk's id.
    pub(super) desk: String,
    caller: Caller,
}

/// A sandbox as one of its users.
#[derive(Clone)]
pub(super) struct User<'a> {
    sandbox: &'a Sandbox,
    /// None: the desk's own.
    name: Option<String>,
}

impl Sandbox {
    /// The sandbox that a guest was let into.
    pub(super) fn of(app: App, caller: Caller) -> Self {
        let desk = caller.guest.as_ref().map(|guest| guest.desk().to_owned()).unwrap_or_default();
        Self { app, desk, caller }
    }

    /// What its commands have in their environment.
    pub(super) async fn environment(&self) -> Result<Pairs> {
        let (fleet, who) = (&self.app.fleet, &self.caller.who);
        let mut all = fleet.environment(who, &self.desk).map_err(|_| Fault::gone())?;
        all.extend(old_environment(&fleet.desk(who, &self.desk).await.map_err(|_| Fault::gone())?));
        Ok(all)
    }

    /// The sandbox as its own user.
    pub(super) fn plain(&self) -> User<'_> {
        User { sandbox: self, name: None }
    }

    /// The sandbox as a user of it, who is looked for.
    pub(super) async fn user(&self, name: Option<&str>) -> Result<User<'_>> {
        let Some(name) = name.filter(|name| !name.is_empty() && *name != DEFAULT_USER) else { return Ok(self.plain()) };
        let path = format!("users/{}", encoded(name));
        match self.plain().get::<Value>(&path).await {
            Ok(_) => Ok(User { sandbox: self, name: Some(name.into()) }),
            Err(fault) if matches!(fault.code, Code::NotFound | Code::InvalidArgument) => {
                Err(Fault::unauthenticated(format!("the sandbox has no user `{}`", name.escape_default())))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Everybody under whom something runs: the desk's own user first.
    pub(super) async fn users(&self) -> Result<Vec<User<'_>>> {
        #[derive(serde::Deserialize)]
        struct Users {
            users: Vec<String>,
        }
        let others: Users = self.plain().get("users").await?;
        let others = others.users.into_iter().map(|name| User { sandbox: self, name: Some(name) });
        Ok(std::iter::once(self.plain()).chain(others).collect())
    }
}

impl User<'_> {
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        Ok(self.client().get(&self.path(path)).await?)
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, value: &impl Serialize) -> Result<T> {
        Ok(self.client().post(&self.path(path), value).await?)
    }

    /// A call whose answer says nothing.
    pub(super) async fn tell(&self, method: Method, path: &str, value: &impl Serialize) -> Result<()> {
        Ok(self.client().tell(method, &self.path(path), value).await?)
    }

    /// Writes what comes, and gives what the desk says about it.
    pub(super) async fn put<T: DeserializeOwned>(&self, path: &str, body: Body) -> Result<T> {
        let told = self.client().bytes(Method::PUT, &self.path(path), body).await?;
        serde_json::from_slice(&told.bytes).map_err(|e| Fault::internal(e.to_string()))
    }

    /// The answer to a request with headers of its own, as it comes: one with a status that is `fine`.
    pub(super) async fn send(&self, path: &str, mut request: Request, fine: impl Fn(StatusCode) -> bool) -> Result<Response> {
        let path = self.path(path);
        *request.uri_mut() = path.parse().map_err(|e| Fault::bad(format!("the path can't be used: {e}")))?;
        let client = self.client();
        let response = client.exchange(request).await?;
        if fine(response.status()) {
            return Ok(response);
        }
        Err(client.refusal(response).await.into())
    }

    /// A stream of server-sent events.
    pub(super) async fn events(&self, path: &str) -> Result<Events> {
        Ok(self.client().events(&self.path(path)).await?)
    }

    fn client(&self) -> Client<Proxied<'_>> {
        let Sandbox { app, desk, caller } = self.sandbox;
        proxy::desk(app, caller, desk).at_most(ANSWER_BYTES)
    }

    /// A path of the desk, as this user.
    fn path(&self, path: &str) -> String {
        match &self.name {
            None => format!("/v1/{path}"),
            Some(name) => format!("/v1/users/{}/{path}", encoded(name)),
        }
    }
}
