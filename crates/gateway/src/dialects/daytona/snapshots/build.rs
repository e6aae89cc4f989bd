//! Images with steps of their own: a template for each, built once, and what its build tells.

use super::super::create::Origin;
use super::super::images::{Recipe, Step, quoted};
use super::super::reply::{Failure, Reply};
use super::super::{Call, kept};
use super::{KIND, Named};
use crate::app::App;
use crate::refusal::Refusal;
use crate::seal::Seal;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use hotdesk_api::fleet::Scope;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Of a build's log: what its last steps printed.
const LOG_LINES: usize = 200;
/// How names of templates begin that are made here.
pub(super) const BUILT: &str = "image-";
/// Of the names of templates that are made here: enough that no two meet.
const NAME_LENGTH: usize = 26;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Build {
    #[default]
    Done,
    /// By whom: one that has ended meanwhile builds no more.
    UnderWay(String),
    Failed(String),
}

/// Snapshots that are being made, and what they tell.
pub(crate) struct Builds {
    /// Of this process.
    pub(super) name: String,
    under_way: Mutex<BTreeMap<String, watch::Receiver<String>>>,
}

impl Default for Builds {
    fn default() -> Self {
        Self { name: format!("{:016x}", rand::random::<u64>()), under_way: Mutex::default() }
    }
}

impl Builds {
    pub(super) fn table(&self) -> MutexGuard<'_, BTreeMap<String, watch::Receiver<String>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a build tells, until it ends.
pub(super) fn follow(mut told: watch::Receiver<String>) -> axum::response::Response {
    let lines = async_stream::stream! {
        let mut sent = 0;
        loop {
            let text = told.borrow_and_update().clone();
            if text.len() > sent {
                yield Ok::<_, std::convert::Infallible>(axum::body::Bytes::from(text[sent..].to_owned()));
                sent = text.len();
            }
            if told.changed().await.is_err() {
                return;
            }
        }
    };
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(lines)).into_response()
}

/// What the last steps of a template's build printed.
pub(super) fn printed(app: &App, template: &str) -> String {
    let log = app.images.log(template).unwrap_or_default();
    let skipped = log.lines().count().saturating_sub(LOG_LINES);
    log.lines().skip(skipped).map(|line| format!("{line}\n")).collect()
}

/// Builds the template of a snapshot, and writes down how that went.
pub(super) fn start(call: &Call, named: Named) {
    let app = call.app.clone();
    let (tell, told) = watch::channel(String::new());
    kept(&app).builds.table().insert(named.id.clone(), told);
    tokio::spawn(async move {
        let add = |line: &str| tell.send_modify(|text| text.push_str(&format!("{}\n", line.trim_end())));
        add(named.dockerfile.as_deref().unwrap_or_default());
        let built = app.images.build(&named.template, add).await;
        // What the steps printed is in the log, which is complete only now.
        add(&printed(&app, &named.template));
        let outcome = match built {
            Ok(_) => Build::Done,
            Err(e) => Build::Failed(e.to_string()),
        };
        let name = format!("{}/{}", named.project, named.name);
        let note = serde_json::to_string(&Named { build: outcome, ..named.clone() }).unwrap_or_default();
        // Not if it was deleted meanwhile.
        let store = app.fleet.store();
        if matches!(store.note(KIND, &name).await, Ok(Some(_)))
            && let Err(e) = store.put_note(KIND, &name, &note, None, true).await
        {
            tracing::warn!(error = %e, snapshot = name, "how a build ended can't be written down");
        }
        kept(&app).builds.table().remove(&named.id);
    });
}

/// A template with the steps of a Dockerfile done. The same steps are the same template, which is built once.
pub(super) async fn prepared(call: &Call, template: &str, recipe: &Recipe) -> Reply<Origin> {
    let (mut env, mut directory, mut run) = (BTreeMap::new(), String::from("/"), Vec::new());
    for step in &recipe.steps {
        match step {
            Step::Env(name, value) => drop(env.insert(name.clone(), value.clone())),
            Step::Directory(path) if path.starts_with('/') => directory.clone_from(path),
            Step::Directory(path) => directory = format!("{}/{path}", directory.trim_end_matches('/')),
            Step::Run(command) => {
                let exports: String = env.iter().map(|(name, value)| format!("export {name}={}; ", quoted(value))).collect();
                let place = quoted(&directory);
                run.push(format!("mkdir -p {place}; cd {place}; {exports}{command}"));
            }
        }
    }
    let placed = recipe.steps.iter().any(|step| matches!(step, Step::Directory(_)));
    let entrypoint = recipe.entrypoint.as_ref().map(|command| match placed {
        true => format!("cd {} && {command}", quoted(&directory)),
        false => command.clone(),
    });
    if run.is_empty() {
        return Ok(Origin { template: Some(template.into()), env, entrypoint, ..Origin::default() });
    }
    // The steps run as root of the tree, on the machine that builds it; templates are made by whoever rules the fleet.
    if call.caller.who.scope != Scope::Admin {
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            "an image with RUN steps is built by a key of the whole fleet alone: have it made as a template, and use that",
        ));
    }
    let text = json!({"description": "Built from a Dockerfile", "extends": template, "run": run});
    let text = toml::to_string(&text).map_err(Refusal::internal)?;
    let name = format!("{BUILT}{}", Seal::new(b"image").text(&text).replace(['_', '-'], "0").to_ascii_lowercase());
    let name: String = name.chars().take(NAME_LENGTH).collect();
    let (images, added) = (call.app.images.clone(), name.clone());
    let written = tokio::task::spawn_blocking(move || images.add(&added, &text)).await.map_err(Refusal::internal)?;
    written.map_err(Refusal::from)?;
    Ok(Origin { template: Some(name), env, entrypoint, ..Origin::default() })
}
