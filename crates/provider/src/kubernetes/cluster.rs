//! The way to the API server: one gate for all requests, and its answers told in our words.
//!
//! So many requests at a time. One that the server throttles (429) or can't answer now (500, 502, 503, 504, a broken connection) is
//! sent again, after the pause that the server asked for or one that grows; while a throttled one waits, no other is sent either.
//! Every request can be repeated, because names are ours: what a lost answer had made is found to exist.

use super::{Config, NAME};
use crate::{Error, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use rand::RngExt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// One request: the server answers in milliseconds, or it is in trouble.
const ANSWER: Duration = Duration::from_secs(15);
/// A connection to an address that is not there must not take the whole of it.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a request is sent, and the pauses between. Together about 20 s: the fleet tries again after that.
const TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(8);
/// What a throttling server asks for when it does not say (its header is not passed on to us, and is one second).
const THROTTLED: Duration = Duration::from_secs(1);
/// A server that asks for more is not believed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Cluster {
    client: Client,
    pub(super) namespace: String,
    gate: Semaphore,
    /// Nothing is sent before this, because the server asked for it.
    not_before: Mutex<Option<Instant>>,
}

/// What a request came to, where it is not what was wished for.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is no such object.
    Missing,
    /// An object of that name exists already.
    Exists,
    Other(Error),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Missing => Self::NotFound("there is no such object in the cluster".into()),
            Fault::Exists => Self::Failed("an object of that name exists in the cluster already".into()),
            Fault::Other(error) => error,
        }
    }
}

impl Cluster {
    pub(super) async fn connect(config: &Config) -> Result<Self> {
        let away = |reason: String| Error::Unavailable { provider: NAME, reason };
        let options = KubeConfigOptions { context: config.context.clone(), cluster: None, user: None };
        let mut settings = match (&config.kubeconfig, &config.context) {
            (Some(path), _) => {
                let file = Kubeconfig::read_from(path).map_err(|e| away(format!("{}: {}", path.display(), chain(&e))))?;
                kube::Config::from_custom_kubeconfig(file, &options).await.map_err(|e| away(chain(&e)))?
            }
            (None, Some(_)) => kube::Config::from_kubeconfig(&options).await.map_err(|e| away(chain(&e)))?,
            (None, None) => kube::Config::infer().await.map_err(|e| away(chain(&e)))?,
        };
        settings.connect_timeout = Some(CONNECT);
        // We do it ourselves, for all requests together.
        settings.default_retry = false;
        let namespace = config.namespace.clone().unwrap_or_else(|| settings.default_namespace.clone());
        let client = Client::try_from(settings).map_err(|e| away(chain(&e)))?;
        Ok(Self { client, namespace, gate: Semaphore::new(config.requests as usize), not_before: Mutex::default() })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Objects of one kind in our namespace.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Asks, again and again if that can help. `what` completes "the API server was asked to …".
    pub(super) async fn ask<T, F>(&self, what: &str, question: impl Fn() -> F + Send) -> Result<T, Fault>
    where
        F: Future<Output = kube::Result<T>> + Send,
    {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let answer = {
                let _turn = self.gate.acquire().await;
                self.wait_for_gate().await;
                tokio::time::timeout(ANSWER, question()).await
            };
            let error = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(_) if attempt < TRIES => {
                    tracing::warn!(what, attempt, "the API server does not answer; asking again");
                    continue;
                }
                Err(_) => return Err(Fault::Other(away(format!("no answer in {} s to: {what}", ANSWER.as_secs())))),
            };
            let Some(wish) = worth_repeating(&error) else { return Err(fault(what, error)) };
            if attempt >= TRIES {
                return Err(Fault::Other(away(format!("asked {TRIES} times to {what}: {}", words(&error)))));
            }
            if let Wish::All(wish) = wish {
                self.close_gate(wish);
            } else {
                let jitter = rand::rng().random_range(0.5..1.5);
                tokio::time::sleep(pause.mul_f64(jitter)).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
            tracing::debug!(what, attempt, error = words(&error), "asking the API server again");
        }
        Err(Fault::Other(away(what.to_owned())))
    }

    fn close_gate(&self, time: Duration) {
        // Not all at the same moment afterwards.
        let time = time.mul_f64(rand::rng().random_range(1.0..1.5));
        let mut not_before = self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + time;
        if not_before.is_none_or(|known| known < until) {
            tracing::warn!(pause_ms = time.as_millis(), "the API server throttles us; waiting");
            *not_before = Some(until);
        }
    }

    async fn wait_for_gate(&self) {
        let until = *self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// How long to wait before a request is sent again.
enum Wish {
    /// As long as we like.
    Alone,
    /// The server wants fewer requests for so long.
    All(Duration),
}

fn worth_repeating(error: &kube::Error) -> Option<Wish> {
    match error {
        kube::Error::Api(status) => {
            let told = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            match status.code {
                429 if told > 0 => Some(Wish::All(Duration::from_secs(told.into()).min(LONGEST_PAUSE))),
                429 => Some(Wish::All(THROTTLED)),
                500 | 502 | 503 | 504 => Some(Wish::Alone),
                _ => None,
            }
        }
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => Some(Wish::Alone),
        _ => None,
    }
}

fn fault(what: &str, error: kube::Error) -> Fault {
    let kube::Error::Api(status) = &error else { return Fault::Other(away(format!("{what}: {}", words(&error)))) };
    let message = &status.message;
    match status.code {
        404 => Fault::Missing,
        409 if status.is_already_exists() => Fault::Exists,
        403 if message.contains("exceeded quota") || message.contains("failed quota") => {
            Fault::Other(Error::Full(message.clone()))
        }
        401 | 403 => Fault::Other(Error::Failed(format!(
            "the API server refuses to {what}: {message}; hotdesk doctor lists the rights that are needed"
        ))),
        code => Fault::Other(Error::Failed(format!("the API server answered {code} to: {what}: {message}"))),
    }
}

pub(super) fn away(reason: String) -> Error {
    Error::Unavailable { provider: NAME, reason }
}

/// An error of the client in few words.
pub(super) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => chain(other),
    }
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::Arc;

    /// A server that answers with these, and then that there is no such Pod; and when each request came.
    fn cluster(answers: &'static [(u16, u32)]) -> (Cluster, Arc<Mutex<Vec<Instant>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let times = Arc::clone(&asked);
        let service = tower::service_fn(move |_: Request<Body>| {
            let mut times = times.lock().unwrap();
            times.push(Instant::now());
            let (code, seconds) = answers.get(times.len() - 1).copied().unwrap_or((404, 0));
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "as the test wants it", "code": code,
                "reason": "", "details": {"retryAfterSeconds": seconds},
            });
            let answer = Response::builder().status(code).body(Body::from(status.to_string().into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(answer) }
        });
        let client = Client::new(service, "desks");
        let cluster = Cluster { client, namespace: "desks".into(), gate: Semaphore::new(4), not_before: Mutex::default() };
        (cluster, asked)
    }

    async fn look(cluster: &Cluster) -> Result<Pod, Fault> {
        let pods = cluster.api::<Pod>();
        cluster.ask("find a Pod", || pods.get("x")).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_throttles_gets_its_pause_from_all() {
        let (cluster, asked) = cluster(&[(429, 7)]);
        let begin = Instant::now();
        assert!(matches!(look(&cluster).await, Err(Fault::Missing)));
        assert!(begin.elapsed() >= Duration::from_secs(7), "{:?}", begin.elapsed());
        cluster.close_gate(Duration::from_secs(5));
        let begin = Instant::now();
        assert!(matches!(look(&cluster).await, Err(Fault::Missing)));
        assert!(begin.elapsed() >= Duration::from_secs(5), "others wait too");
        assert_eq!(asked.lock().unwrap().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_an_hour_is_not_believed() {
        let (cluster, _) = cluster(&[(429, 3600)]);
        let begin = Instant::now();
        assert!(matches!(look(&cluster).await, Err(Fault::Missing)));
        assert!(begin.elapsed() <= LONGEST_PAUSE.mul_f64(1.6), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn faults_that_pass_are_waited_out_and_others_told_at_once() {
        let (cluster, asked) = cluster(&[(503, 0), (500, 0), (504, 0)]);
        assert!(matches!(look(&cluster).await, Err(Fault::Missing)));
        assert_eq!(asked.lock().unwrap().len(), 4);
        let (cluster, asked) = self::cluster(&[(400, 0)]);
        assert!(matches!(look(&cluster).await, Err(Fault::Other(Error::Failed(_)))));
        assert_eq!(asked.lock().unwrap().len(), 1);
        let (cluster, asked) = self::cluster(&[(503, 0); 100]);
        assert!(matches!(look(&cluster).await, Err(Fault::Other(Error::Unavailable { .. }))));
        assert_eq!(asked.lock().unwrap().len(), TRIES as usize);
    }
}
