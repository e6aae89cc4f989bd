//! Calls to the desk behind a sandbox, through the same door as everybody's.

use super::Call;
use super::reply::{Failure, Reply};
use crate::buffers::Share;
use crate::proxy::{self, Proxied};
use crate::refusal::Refusal;
use axum::body::Body;
use axum::http::{Method, StatusCode};
use axum::response::Response;
pub(crate) use hotdesk_desk_client::encoded;
use hotdesk_desk_client::{Buffered, Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An answer of the desk that is read as a whole: output of programs is the largest.
const LARGEST_ANSWER: usize = 256 << 20;

/// A desk, for one request of a client.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) app: crate::app::App,
    pub(crate) caller: crate::entrance::Caller,
    /// As the client named it.
    pub(crate) id: String,
}

impl Desk {
    pub(crate) fn of(call: &Call, id: &str) -> Self {
        Self { app: call.app.clone(), caller: call.caller.clone(), id: id.to_owned() }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Reply<T> {
        self.json(Method::GET, path, &()).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Reply<T> {
        self.json(Method::POST, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply<()> {
        self.client().tell(Method::DELETE, path, &()).await.map_err(|e| self.failure(e))
    }

    /// A call whose body and answer are JSON; `null` is no body, and no answer is `null`.
    pub(crate) async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Reply<T> {
        self.client().json(method, path, body).await.map_err(|e| self.failure(e))
    }

    pub(crate) async fn bytes(&self, method: Method, path: &str, body: Body) -> Reply<Buffered<Share>> {
        self.client().bytes(method, path, body).await.map_err(|e| self.failure(e))
    }

    /// The answer as it comes, if it is a good one.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Body) -> Reply<Response> {
        self.client().stream(method, path, body).await.map_err(|e| self.failure(e))
    }

    /// The client of the desk.
    pub(crate) fn client(&self) -> Client<Proxied<'_>> {
        proxy::desk(&self.app, &self.caller, &self.id).entrance("daytona").at_most(LARGEST_ANSWER)
    }

    /// What SDKs are told when the desk did not do it.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        let unread = |status| Failure::new(status, format!("the sandbox's answer can't be read: {error}"));
        match &error {
            // By these words SDKs and their users know that the sandbox has to be started first.
            Error::Refused(refusal) | Error::NotForwarded(refusal) if refusal.problem.code == "not_running" => {
                Failure::bad_request(format!("bad request: {}. Is the Sandbox started?", refusal.problem.detail))
            }
            Error::NotForwarded(refusal) if refusal.problem.code == "not_found" => Failure::no_sandbox(&self.id),
            Error::Refused(refusal) | Error::NotForwarded(refusal) => Failure::from(refusal.problem.clone()),
            Error::OverBudget => unread(StatusCode::TOO_MANY_REQUESTS),
            Error::InvalidRequest(_) => Failure::bad_request(format!("bad request: {error}")),
            Error::Malformed(_) => Refusal::internal(error).into(),
            Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) | Error::TooLarge(_) => unread(StatusCode::BAD_GATEWAY),
        }
    }
}
