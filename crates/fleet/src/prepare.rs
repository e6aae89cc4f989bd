//! Templates made ready for their desks: each once at a time, whoever asks, and some before anybody asks.
//!
//! A template that is not built yet takes minutes. Whoever waits for it may leave; what was begun goes on for the next one.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fleet::Fleet;
use hotdesk_provider::{Progress, Provider};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// A template that has to be built first: hundreds of packages, on a machine that has other things to do.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
/// A template that is built is found good in a moment. Whoever has no time to wait for a build waits so long.
const MOMENT: Duration = Duration::from_secs(2);

/// What is being prepared, by provider and template.
#[derive(Default)]
pub(crate) struct Preparations {
    under_way: Mutex<HashMap<(String, String), watch::Receiver<Stand>>>,
    /// Why the last try failed, for those who come after it.
    failed: Mutex<BTreeMap<(String, String), String>>,
}

/// How far a preparation is.
#[derive(Debug, Clone, Default)]
struct Stand {
    stage: String,
    outcome: Option<Result<()>>,
}

impl Preparations {
    fn under_way(&self) -> MutexGuard<'_, HashMap<(String, String), watch::Receiver<Stand>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<(String, String), String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether desks of a template can be made at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepared {
    Ready,
    /// It is being built, and how far that is.
    UnderWay(String),
}

impl Fleet {
    /// Whether desks of a template can be made at once at a provider (the first if none is named). If not, it is built from now on.
    pub async fn prepare(&self, provider: Option<&str>, template: &str) -> Result<Prepared> {
        let provider = self.engine.providers.choose(provider)?;
        let (silent, _) = Progress::new();
        match tokio::time::timeout(MOMENT, self.engine.prepare(provider, template, &silent)).await {
            Ok(done) => done.map(|()| Prepared::Ready),
            Err(_) => {
                let told = self.preparation(provider.name(), template).unwrap_or_default();
                Ok(Prepared::UnderWay(told))
            }
        }
    }

    /// How far the preparation of a template is, if one is under way.
    pub fn preparation(&self, provider: &str, template: &str) -> Option<String> {
        let key = (provider.to_owned(), template.to_owned());
        let stage = self.engine.preparations.under_way().get(&key)?.borrow().stage.clone();
        let stage = if stage.is_empty() { "it has just begun".to_owned() } else { stage };
        Some(match self.engine.preparations.failed().get(&key) {
            Some(reason) => format!("{stage}; the try before failed: {reason}"),
            None => stage,
        })
    }

    /// Builds what the settings want built ahead, one after another, in the background: what is said there, or the default template and
    /// `usual`; and those of pools.
    pub fn prepare_ahead(&self, usual: Vec<String>) {
        let engine = Arc::clone(&self.engine);
        self.engine.spawn("ahead", async move {
            tokio::select! {
                () = engine.closing.cancelled() => {}
                () = ahead(&engine, usual) => {}
            }
        });
    }
}

async fn ahead(engine: &Arc<Engine>, usual: Vec<String>) {
    let mut reconciled = engine.reconciled.subscribe();
    let _ = reconciled.wait_for(|done| *done).await;
    let config = &engine.config;
    let said = config.build_ahead.clone();
    let names = said.unwrap_or_else(|| [vec![config.template.clone()], usual].concat());
    let pools = engine.pool_list().into_iter().map(|pool| (pool.spec.provider, pool.spec.template));
    let mut seen = BTreeSet::new();
    for (provider, template) in names.into_iter().map(|name| (None, name)).chain(pools) {
        let Ok(provider) = engine.providers.choose(provider.as_deref()) else { continue };
        // Elsewhere it costs money, or is made by somebody else.
        let known = provider.is_here() && provider.capabilities().await.templates.contains(&template);
        if !known || !seen.insert((provider.name(), template.clone())) {
            continue;
        }
        let (silent, _) = Progress::new();
        match engine.prepare(provider, &template, &silent).await {
            Ok(()) => tracing::info!(provider = provider.name(), template, "the template is ready"),
            Err(e) => {
                tracing::warn!(provider = provider.name(), template, error = %e, "the template was not built ahead; `hotdesk template build` shows why");
            }
        }
    }
}

impl Engine {
    /// Waits until desks of a template can be made, and tells `progress` how far that is.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        provider: &Arc<dyn Provider>,
        template: &str,
        progress: &Progress,
    ) -> Result<()> {
        if self.providers.is_prepared(provider.name(), template) {
            return Ok(());
        }
        let mut stand = self.preparation(provider, template);
        loop {
            let now = stand.borrow_and_update().clone();
            match now.outcome {
                Some(outcome) => return outcome,
                None if !now.stage.is_empty() => progress.stage(now.stage),
                None => {}
            }
            if stand.changed().await.is_err() {
                return Err(match self.closing.is_cancelled() {
                    true => Error::Conflict("the fleet is closing; ask again when it is back".into()),
                    false => Error::Store("a template was not prepared, by a fault of the fleet's own; its log says more".into()),
                });
            }
        }
    }

    /// The one that is under way, or a new one.
    fn preparation(self: &Arc<Self>, provider: &Arc<dyn Provider>, template: &str) -> watch::Receiver<Stand> {
        let key = (provider.name().to_owned(), template.to_owned());
        let mut under_way = self.preparations.under_way();
        if let Some(stand) = under_way.get(&key) {
            return stand.clone();
        }
        let (tell, stand) = watch::channel(Stand::default());
        under_way.insert(key.clone(), stand.clone());
        drop(under_way);
        let (engine, provider) = (Arc::clone(self), Arc::clone(provider));
        self.spawn("prepare", async move {
            let listed = Listed { engine: &engine, key: &key };
            let begun = tokio::time::Instant::now();
            let (progress, mut stages) = Progress::new();
            let told = async {
                while stages.changed().await.is_ok() {
                    let stage = stages.borrow_and_update().clone();
                    tell.send_modify(|stand| stand.stage = stage);
                }
                std::future::pending::<()>().await;
            };
            let work = tokio::time::timeout(BUILD_LIMIT, provider.prepare(&key.1, &progress));
            let outcome = tokio::select! {
                () = engine.closing.cancelled() => return,
                () = told => return,
                outcome = work => match outcome {
                    Ok(outcome) => outcome.map_err(Error::from),
                    Err(_) => Err(Error::Timeout { what: "building the template".into(), limit: BUILD_LIMIT }),
                },
            };
            match &outcome {
                Ok(()) => {
                    engine.providers.set_prepared(&key.0, &key.1);
                    engine.preparations.failed().remove(&key);
                }
                // What fails at once, such as a name that nobody knows, is told to whoever asked.
                Err(e) if begun.elapsed() > MOMENT => drop(engine.preparations.failed().insert(key.clone(), e.to_string())),
                Err(_) => {}
            }
            drop(listed);
            tell.send_modify(|stand| stand.outcome = Some(outcome));
        });
        stand
    }
}

/// Taken off the list when it is over, however it ends, so that whoever asks next begins anew.
struct Listed<'a> {
    engine: &'a Engine,
    key: &'a (String, String),
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.engine.preparations.under_way().remove(self.key);
    }
}
