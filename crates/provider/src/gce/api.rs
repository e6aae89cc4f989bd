//! The compute API: requests that are sent again until they are answered, and operations that are awaited.

use super::NAME;
use super::config::Config;
use super::fault::{self, Fault, Outcome};
use super::model::Operation;
use crate::Result;
use crate::cloud::{self, Call, Pace, Vendor, fresh_token};
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder};
use object_store::{ClientOptions, RetryConfig};
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Where a file with credentials is named, as all of Google's own tools have it.
const CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Google allows a project 1,500 requests of each kind in a minute; others may want some too.
const PER_SECOND: f64 = 20.0;
const BURST: u32 = 100;
/// Google holds a `wait` for two minutes at most.
const WAIT_LIMIT: Duration = Duration::from_secs(150);
/// Pauses between two looks at an operation, for answers that came before its end.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(5);
/// Pages of lists that are as long as Google makes them, and no list without an end.
const PAGE: &str = "500";
const MOST_PAGES: usize = 1000;

const VENDOR: Vendor = Vendor { name: NAME, sort: fault::sort };

pub(super) struct Api {
    cloud: cloud::Api,
    project: String,
    request_limit: Duration,
    credentials: OnceCell<GcpCredentialProvider>,
}

impl Api {
    pub(super) fn new(config: &Config) -> Result<Self> {
        // An error says that one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cloud = cloud::Api::new(VENDOR, &config.endpoint, false, None, HeaderMap::new(), Pace::new(PER_SECOND, BURST))?;
        let request_limit = Duration::from_secs(config.request_limit_s.max(1));
        Ok(Self { cloud, project: config.project.clone(), request_limit, credentials: OnceCell::new() })
    }

    /// Application default credentials: `GOOGLE_APPLICATION_CREDENTIALS`, gcloud's own file, or the machine's metadata server.
    /// The client of the bucket knows how to find, fetch and renew them; their tokens are good for all that the account may do.
    pub(super) async fn credentials(&self) -> Outcome<&GcpCredentialProvider> {
        let make = || async {
            let options = ClientOptions::new().with_timeout(self.request_limit).with_connect_timeout(self.request_limit);
            let retry = RetryConfig { max_retries: 2, retry_timeout: 2 * self.request_limit, ..RetryConfig::default() };
            let mut builder =
                GoogleCloudStorageBuilder::new().with_bucket_name("any").with_client_options(options).with_retry(retry);
            if let Ok(file) = std::env::var(CREDENTIALS) {
                builder = builder.with_application_credentials(file);
            }
            let found = builder.build().map_err(|e| Fault::Refused(format!("there are no usable credentials: {e}")))?;
            Ok(Arc::clone(found.credentials()))
        };
        self.credentials.get_or_try_init(make).await
    }

    pub(super) fn project(&self) -> &str {
        &self.project
    }

    /// Below the project.
    fn path(&self, rest: &str) -> String {
        format!("/projects/{}/{rest}", self.project)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Outcome<T> {
        self.ask(Call::get(self.path(path)).limit(self.request_limit)).await
    }

    /// The same of another project, which may hold the images.
    pub(super) async fn get_of<T: DeserializeOwned>(&self, project: &str, path: &str) -> Outcome<T> {
        self.ask(Call::get(format!("/projects/{project}/{path}")).limit(self.request_limit)).await
    }

    /// All pages of a list.
    pub(super) async fn list<T: DeserializeOwned>(&self, path: &str, filter: &str) -> Outcome<Vec<T>> {
        let mut all = Vec::new();
        for page in self.pages(path, filter).await? {
            all.extend(items(page.get("items"))?);
        }
        Ok(all)
    }

    /// All pages of a list over all zones. A zone that did not answer is no empty zone.
    pub(super) async fn list_everywhere<T: DeserializeOwned>(&self, what: &str, filter: &str) -> Outcome<Vec<T>> {
        let mut all = Vec::new();
        for page in self.pages(&format!("aggregated/{what}"), filter).await? {
            if let Some(away) = page.get("unreachables").and_then(Value::as_array).filter(|list| !list.is_empty()) {
                return Err(Fault::Away(format!("some zones do not answer: {away:?}")));
            }
            for (zone, part) in page.get("items").and_then(Value::as_object).into_iter().flatten() {
                if part.pointer("/warning/code").and_then(Value::as_str) == Some("UNREACHABLE") {
                    return Err(Fault::Away(format!("{zone} does not answer")));
                }
                all.extend(items(part.get(what))?);
            }
        }
        Ok(all)
    }

    async fn pages(&self, path: &str, filter: &str) -> Outcome<Vec<Value>> {
        let mut pages: Vec<Value> = Vec::new();
        let mut token = String::new();
        for _ in 0..MOST_PAGES {
            let mut call = Call::get(self.path(path)).limit(self.request_limit).query("filter", filter).query("maxResults", PAGE);
            if !token.is_empty() {
                call = call.query("pageToken", &token);
            }
            let page: Value = self.ask(call).await?;
            let next = page.get("nextPageToken").and_then(Value::as_str).unwrap_or_default().to_owned();
            pages.push(page);
            if next.is_empty() {
                return Ok(pages);
            }
            token = next;
        }
        Err(Fault::Away(format!("a list has more than {MOST_PAGES} pages")))
    }

    /// Changes something and waits until it is done. However often it arrives at Google, it is done once.
    pub(super) async fn post(&self, path: &str, body: Option<Value>, limit: Duration) -> Outcome<Operation> {
        let call = match body {
            Some(body) => Call::post(self.path(path)).json(body),
            None => empty_post(self.path(path)),
        };
        self.change(call.repeatable(), limit).await
    }

    pub(super) async fn delete(&self, path: &str, limit: Duration) -> Outcome<Operation> {
        self.change(Call::delete(self.path(path)), limit).await
    }

    async fn change(&self, call: Call, limit: Duration) -> Outcome<Operation> {
        let operation = self.ask(call.query("requestId", fresh_token()).limit(self.request_limit)).await?;
        self.wait(operation, limit).await
    }

    /// Waits for the end of an operation, for at most `limit`: then it goes on without us.
    async fn wait(&self, mut operation: Operation, limit: Duration) -> Outcome<Operation> {
        let end = Instant::now() + limit;
        let mut pause = FIRST_LOOK;
        while !operation.is_done() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::Away(format!("Google did not finish within {} s; it may still do so", limit.as_secs())));
            }
            let place = operation.zone().map_or_else(|| "global".to_owned(), |zone| format!("zones/{zone}"));
            let call = empty_post(self.path(&format!("{place}/operations/{}/wait", operation.name)));
            let waited = tokio::time::timeout(left, self.ask(call.repeatable().limit(WAIT_LIMIT))).await;
            operation = match waited {
                Ok(Ok(answer)) => answer,
                // Google forgot the operation, which says nothing about what it was for.
                Ok(Err(Fault::Gone(why))) => return Err(Fault::Away(why)),
                Ok(Err(fault)) => return Err(fault),
                Err(_) => continue,
            };
            if !operation.is_done() {
                tokio::time::sleep(pause.min(left)).await;
                pause = (pause * 2).min(LAST_LOOK);
            }
        }
        match &operation.error {
            Some(told) => Err(told.fault(operation.http_error_status_code)),
            None => Ok(operation),
        }
    }

    async fn ask<T: DeserializeOwned>(&self, call: Call) -> Outcome<T> {
        let credential = self.credentials().await?.get_credential().await.map_err(|e| match e {
            object_store::Error::Unauthenticated { .. } | object_store::Error::PermissionDenied { .. } => {
                Fault::Refused(format!("no access token: {e}"))
            }
            _ => Fault::Away(format!("no access token: {e}")),
        })?;
        let call = call.header("authorization", &format!("Bearer {}", credential.bearer));
        Ok(self.cloud.ask_for(call).await?)
    }
}

/// Google wants to know the length of nothing, too.
fn empty_post(path: String) -> Call {
    Call::post(path).header("content-length", "0")
}

fn items<T: DeserializeOwned>(list: Option<&Value>) -> Outcome<Vec<T>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    serde_json::from_value(list.clone()).map_err(|e| Fault::Away(format!("an answer of Google's can't be understood: {e}")))
}
