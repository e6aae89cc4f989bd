//! Snapshots: names for a template with a size, and saved sandboxes.
//!
//! A template is a snapshot that everybody has. A snapshot that a client makes from an image is a note: which template stands
//! for the image, and how large sandboxes of it are. A snapshot of a sandbox is one of the fleet.

mod build;

pub(crate) use build::Builds;

use super::create::{self, BuildInfo, Origin};
use super::images::{self, Step};
use super::reply::{Failure, Reply, empty, ok};
use super::{Call, api, kept, sandboxes, view};
use crate::refusal::Refusal;
use crate::v1::to_its_end;
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use build::{BUILT, Build, prepared};
use hotdesk_api::desk::{Resources, ResourcesRequest, Snapshot, SnapshotState};
use hotdesk_api::fleet::Scope;
use hotdesk_image::Library;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The template that a sandbox gets when nothing is said.
pub(crate) const DEFAULT: &str = "base";
const KIND: &str = "daytona/snapshot";
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 200;
const LONGEST_NAME: usize = 128;
const MIB_PER_GIB: u64 = 1024;
/// Daytona's own snapshots, and their sizes: cores, GiB of memory, GiB of disk.
const SIZES: [(&str, u64, u64, u64); 3] = [("daytona-small", 1, 1, 3), ("daytona-medium", 2, 4, 8), ("daytona-large", 4, 8, 10)];

/// A snapshot that was made from an image.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Named {
    id: String,
    project: String,
    name: String,
    image: String,
    template: String,
    /// What is left out is the template's.
    resources: ResourcesRequest,
    env: BTreeMap<String, String>,
    entrypoint: Option<Vec<String>>,
    /// The same as a shell command, or that of the Dockerfile.
    #[serde(default)]
    command: Option<String>,
    dockerfile: Option<String>,
    created_at: String,
    /// Whether its template has to be built first, and what became of that.
    #[serde(default)]
    build: Build,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NewSnapshot {
    name: String,
    image_name: Option<String>,
    entrypoint: Option<Vec<String>>,
    cpu: Option<f32>,
    memory: Option<f64>,
    disk: Option<f64>,
    gpu: Option<f32>,
    build_info: Option<BuildInfo>,
}

pub(crate) async fn answer(call: Call, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::GET, []) => list(&call).await,
        (&Method::POST, []) => make(call).await,
        (&Method::GET, [id]) => ok(find(&call, id).await?.ok_or_else(|| missing(id))?.view(&call.app.images)),
        (&Method::DELETE, [id]) => delete(&call, id).await,
        (&Method::POST, [id, "activate"]) => ok(find(&call, id).await?.ok_or_else(|| missing(id))?.view(&call.app.images)),
        (&Method::GET, [id, "build-logs-url"]) => {
            find(&call, id).await?.ok_or_else(|| missing(id))?;
            let base = view::base(&call.app, &call.caller);
            ok(json!({"url": format!("{base}/daytona/api/snapshots/{}/build-logs", super::desk::encoded(id))}))
        }
        (&Method::GET, [id, "build-logs"]) => {
            let found = find(&call, id).await?.ok_or_else(|| missing(id))?;
            let told = kept(&call.app).builds.table().get(found.id()).cloned();
            match told {
                Some(told) => Ok(build::follow(told)),
                None => {
                    let printed = match &found {
                        Found::Named(named) if named.template.starts_with(BUILT) => build::printed(&call.app, &named.template),
                        _ => String::new(),
                    };
                    Ok(log(printed + &found.log()))
                }
            }
        }
        _ => Err(api::nothing(&call)),
    }
}

fn missing(name: &str) -> Failure {
    Failure::not_found(format!("Snapshot {name} not found"))
}

fn log(text: String) -> axum::response::Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from(text)).into_response()
}

/// Something that sandboxes can be made from.
enum Found {
    Named(Named),
    Template { name: String, size: Option<u64>, resources: Resources },
    Saved(Snapshot),
}

impl Found {
    fn id(&self) -> &str {
        match self {
            Self::Named(named) => &named.id,
            Self::Template { name, .. } => name,
            Self::Saved(snapshot) => &snapshot.id,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Named(named) => &named.name,
            Self::Template { name, .. } => name,
            Self::Saved(snapshot) => snapshot.name.as_deref().unwrap_or(&snapshot.id),
        }
    }

    fn log(&self) -> String {
        match self {
            Self::Named(named) => {
                format!(
                    "{}\nthe image {} stands for the template {} here\nready\n",
                    named.dockerfile.as_deref().unwrap_or("").trim_end(),
                    named.image,
                    named.template
                )
            }
            Self::Template { name, .. } => format!("{name} is a template of this fleet\n"),
            Self::Saved(snapshot) => format!("saved from sandbox {}\n", snapshot.desk),
        }
    }

    fn view(&self, images: &Library) -> Value {
        let general = matches!(self, Self::Template { .. });
        let resources = match self {
            // What it does not say is the template's.
            Self::Named(named) => named.resources.or(wanted(images, &named.template)),
            Self::Template { resources, .. } => *resources,
            Self::Saved(snapshot) => wanted(images, &snapshot.template),
        };
        let (project, image, state, created) = match self {
            Self::Named(named) => {
                let state = match &named.build {
                    Build::Done => "active",
                    Build::UnderWay(_) => "building",
                    Build::Failed(_) => "build_failed",
                };
                (named.project.as_str(), named.image.as_str(), state, named.created_at.as_str())
            }
            Self::Template { name, .. } => ("", name.as_str(), "active", "1970-01-01T00:00:00Z"),
            Self::Saved(snapshot) => {
                let state = match snapshot.state {
                    SnapshotState::Creating => "pending",
                    SnapshotState::Ready => "active",
                    SnapshotState::Deleting => "removing",
                    SnapshotState::Error => "error",
                };
                (snapshot.project.as_str(), snapshot.template.as_str(), state, snapshot.created_at.as_str())
            }
        };
        let mut view = json!({
            "id": self.id(),
            "organizationId": project,
            "general": general,
            "name": self.name(),
            "imageName": image,
            "enabled": true,
            "skipValidation": false,
            "state": state,
            "size": null,
            "entrypoint": null,
            "cpu": resources.cpus.ceil() as u64,
            "gpu": 0,
            "mem": resources.memory_mib.div_ceil(MIB_PER_GIB),
            "disk": resources.disk_mib.div_ceil(MIB_PER_GIB),
            "errorReason": null,
            "createdAt": created,
            "updatedAt": created,
            "lastUsedAt": null,
            "sourceSandboxId": null,
        });
        match self {
            Self::Named(named) => {
                view["entrypoint"] = json!(named.entrypoint);
                if let Build::Failed(reason) = &named.build {
                    view["errorReason"] = reason.as_str().into();
                }
                if let Some(text) = &named.dockerfile {
                    view["buildInfo"] = json!({
                        "dockerfileContent": text,
                        "contextHashes": [],
                        "createdAt": created,
                        "updatedAt": created,
                        "snapshotRef": named.template,
                    });
                }
            }
            Self::Template { size: Some(bytes), .. } => view["size"] = gib(*bytes),
            Self::Template { .. } => {}
            Self::Saved(snapshot) => {
                view["size"] = gib(snapshot.size_bytes);
                view["sourceSandboxId"] = snapshot.desk.as_str().into();
                if snapshot.state == SnapshotState::Error {
                    view["errorReason"] = snapshot.reason.as_str().into();
                }
            }
        }
        view
    }
}

/// What a template asks for.
fn wanted(images: &Library, template: &str) -> Resources {
    images.template(template).ok().and_then(|template| template.resources).unwrap_or_default()
}

fn gib(bytes: u64) -> Value {
    json!(bytes as f64 / f64::from(1 << 30))
}

/// Everything that the client can make sandboxes from; its own first.
async fn all(call: &Call) -> Reply<Vec<Found>> {
    let mut found = Vec::new();
    for (_, note) in call.app.fleet.store().notes(KIND).await? {
        let Ok(mut named) = serde_json::from_str::<Named>(&note) else { continue };
        if matches!(&named.build, Build::UnderWay(whose) if *whose != kept(&call.app).builds.name) {
            named.build = Build::Failed("the fleet was restarted while it was built: make it again".into());
        }
        if sees(call, &named.project) {
            found.push(Found::Named(named));
        }
    }
    let saved = call.app.fleet.snapshots(&call.caller.who).await?;
    found.extend(saved.into_iter().filter(|snapshot| snapshot.name.is_some()).map(Found::Saved));
    let app = call.app.clone();
    let templates = tokio::task::spawn_blocking(move || {
        let describe = |name: String| {
            let size = app.images.built(&name).ok().map(|built| built.size_bytes);
            let resources = wanted(&app.images, &name);
            Found::Template { name, size, resources }
        };
        // Those that were made for a Dockerfile have no name that anybody chose.
        let names = app.images.names().into_iter().filter(|name| !name.starts_with(BUILT));
        names.map(describe).collect::<Vec<_>>()
    });
    found.extend(templates.await.map_err(Refusal::internal)?);
    Ok(found)
}

fn sees(call: &Call, project: &str) -> bool {
    match &call.caller.who.scope {
        Scope::Admin => true,
        Scope::Project { project: own } => own == project,
        Scope::Desk { .. } => false,
    }
}

fn own_project(call: &Call) -> Reply<String> {
    match &call.caller.who.scope {
        Scope::Admin => Ok(hotdesk_fleet::DEFAULT_PROJECT.into()),
        Scope::Project { project } => Ok(project.clone()),
        Scope::Desk { .. } => Err(Failure::new(StatusCode::FORBIDDEN, "this key is for one sandbox and makes nothing else")),
    }
}

async fn find(call: &Call, name: &str) -> Reply<Option<Found>> {
    let mut all = all(call).await?;
    let at = all.iter().position(|found| found.id() == name).or_else(|| all.iter().position(|found| found.name() == name));
    Ok(at.map(|at| all.swap_remove(at)))
}

async fn list(call: &Call) -> Reply {
    let query = call.query();
    let mut all = all(call).await?;
    if let Some(source) = query.get("sourceSandboxId") {
        all.retain(|found| matches!(found, Found::Saved(snapshot) if snapshot.desk == source));
    }
    let size = query.number::<usize>("limit")?.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
    let page = query.number::<usize>("page")?.unwrap_or(1).max(1);
    let items: Vec<Value> =
        all.iter().skip((page - 1).saturating_mul(size)).take(size).map(|found| found.view(&call.app.images)).collect();
    ok(json!({"items": items, "total": all.len(), "page": page, "totalPages": all.len().div_ceil(size)}))
}

async fn make(mut call: Call) -> Reply {
    let new: NewSnapshot = call.json().await?;
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.:/@".contains(c);
    if new.name.is_empty() || new.name.len() > LONGEST_NAME || !new.name.chars().all(good) {
        return Err(Failure::bad_request(format!(
            "a snapshot's name is 1 to {LONGEST_NAME} letters, digits and any of - _ . : / @"
        )));
    }
    if new.gpu.is_some_and(|gpu| gpu > 0.0) {
        return Err(Failure::unsupported("sandboxes here have no GPU"));
    }
    let (text, dockerfile) = match (&new.image_name, &new.build_info) {
        (Some(image), None) => (format!("FROM {image}\n"), None),
        (None, Some(build)) if new.entrypoint.is_none() => {
            (build.dockerfile_content.clone(), Some(build.dockerfile_content.clone()))
        }
        (None, Some(_)) => return Err(Failure::bad_request("an entrypoint is given in the Dockerfile, not beside it")),
        _ => return Err(Failure::bad_request("a snapshot is made from an image name or from a build, and from one of them")),
    };
    let project = own_project(&call)?;
    if find(&call, &new.name).await?.is_some() {
        return Err(Failure::conflict(format!("Snapshot with name {} already exists", new.name)));
    }
    let (template, recipe) = create::of_image(&call.app, &text)?;
    let origin = prepared(&call, &template, &recipe).await?;
    let named = Named {
        id: format!("snap-{:016x}", rand::random::<u64>()),
        project: project.clone(),
        name: new.name.clone(),
        image: recipe.image,
        template: origin.template.unwrap_or(template),
        resources: create::sized(ResourcesRequest::default(), new.cpu, new.memory, new.disk),
        env: origin.env,
        command: new.entrypoint.as_deref().filter(|words| !words.is_empty()).map(images::command_of).or(origin.entrypoint),
        entrypoint: new.entrypoint,
        dockerfile,
        created_at: jiff::Timestamp::now().to_string(),
        build: Build::Done,
    };
    // A build of minutes, or of a moment if the same was built before; clients read its log only while it is not ready.
    let ready = !recipe.steps.iter().any(|step| matches!(step, Step::Run(_)));
    let named = match ready {
        true => named,
        false => Named { build: Build::UnderWay(kept(&call.app).builds.name.clone()), ..named },
    };
    let note = serde_json::to_string(&named).map_err(Refusal::internal)?;
    if !call.app.fleet.store().put_note(KIND, &format!("{project}/{}", new.name), &note, None, false).await? {
        return Err(Failure::conflict(format!("Snapshot with name {} already exists", new.name)));
    }
    if !ready {
        build::start(&call, named.clone());
    }
    ok(Found::Named(named).view(&call.app.images))
}

async fn delete(call: &Call, id: &str) -> Reply {
    match find(call, id).await?.ok_or_else(|| missing(id))? {
        Found::Named(named) => {
            // What was built for it stays for sandboxes that run on it, and for the next who asks for the same.
            call.app.fleet.store().remove_note(KIND, &format!("{}/{}", named.project, named.name)).await?;
        }
        Found::Saved(snapshot) => call.app.fleet.delete_snapshot(&call.caller.who, &snapshot.id).await?,
        Found::Template { name, .. } => {
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                format!("{name} is a template of this fleet: `hotdesk template rm` removes it"),
            ));
        }
    }
    empty(StatusCode::OK)
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OfSandbox {
    name: String,
    include_memory: bool,
}

/// Saves a sandbox.
pub(crate) async fn of_sandbox(mut call: Call, id: &str) -> Reply {
    let wanted: OfSandbox = call.json().await?;
    let desk = sandboxes::find(&call, id).await?;
    if find(&call, &wanted.name).await?.is_some() {
        return Err(Failure::conflict(format!("Snapshot with name {} already exists", wanted.name)));
    }
    let (app, who, id) = (call.app.clone(), call.caller.who.clone(), desk.id.clone());
    to_its_end(async move {
        app.fleet.snapshot(&who, &id, Some(wanted.name), wanted.include_memory).await?;
        Ok(())
    })
    .await?;
    sandboxes::get(call, &desk.id).await
}

/// What a sandbox of that snapshot is made of.
pub(crate) async fn origin(call: &Call, name: &str) -> Reply<Origin> {
    if let Some((_, cpu, memory, disk)) = SIZES.iter().find(|(known, ..)| *known == name) {
        let none = ResourcesRequest::default();
        let resources = create::sized(none, Some(*cpu as f32), Some(*memory as f64), Some(*disk as f64));
        return Ok(Origin { resources, ..Origin::default() });
    }
    match find(call, name).await? {
        Some(Found::Named(named)) => {
            let entrypoint = named.command.or_else(|| named.entrypoint.as_deref().map(images::command_of));
            let (template, resources, env) = (Some(named.template), named.resources, named.env);
            Ok(Origin { template, resources, env, entrypoint, ..Origin::default() })
        }
        Some(Found::Template { name, .. }) => Ok(Origin { template: Some(name), ..Origin::default() }),
        Some(Found::Saved(snapshot)) => Ok(Origin { snapshot: Some(snapshot.id), ..Origin::default() }),
        // Old releases name the image that their default sandbox was made from.
        None => match create::of_image(&call.app, &format!("FROM {name}\n")) {
            Ok((template, _)) if name.contains([':', '/']) => Ok(Origin { template: Some(template), ..Origin::default() }),
            _ => Err(Failure::bad_request(format!("Snapshot {name} not found. Did you add it through the Daytona API?"))),
        },
    }
}

/// What a sandbox of an image is made of.
pub(crate) async fn built(call: &Call, build: &BuildInfo) -> Reply<Origin> {
    if build.context_hashes.as_ref().is_some_and(|hashes| !hashes.is_empty()) {
        return Err(Failure::unsupported("images with files of the client can't be built here: upload the files to the sandbox"));
    }
    let (template, recipe) = create::of_image(&call.app, &build.dockerfile_content)?;
    prepared(call, &template, &recipe).await
}

/// What is told while a sandbox is made.
pub(crate) async fn sandbox_logs(call: Call, id: &str) -> Reply {
    let desk = sandboxes::find(&call, id).await?;
    let stage = view::building(&call.app, &desk).map(|stage| format!(": {stage}")).unwrap_or_default();
    Ok(log(format!("sandbox {} of template {}: {}{stage}\n", desk.id, desk.template, view::state_of(&call.app, &desk))))
}
