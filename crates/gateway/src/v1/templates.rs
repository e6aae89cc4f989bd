//! Templates: what desks can be made of, and building them.

use super::wait::to_its_end;
use crate::app::App;
use crate::entrance::Caller;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::extract::{Path, State};
use hotdesk_api::Problem;
use hotdesk_api::calls::{TemplateInfo, TemplateList};
use hotdesk_api::desk::Event;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(build))
}

/// Lists templates
#[utoipa::path(get, path = "/v1/templates", tag = "templates", responses((status = 200, body = TemplateList)))]
async fn list(State(app): State<App>, _: Caller) -> Result<Json<TemplateList>> {
    // Looks at files.
    let templates =
        tokio::task::spawn_blocking(move || app.images.names().iter().map(|name| describe(&app, name)).collect()).await;
    Ok(Json(TemplateList { templates: templates.map_err(Refusal::internal)? }))
}

/// Builds a template, if it is not built yet
///
/// Answers when it is built; its stages come as events of the kind `template`.
#[utoipa::path(post, path = "/v1/templates/{name}/build", tag = "templates", params(("name" = String, Path, description = "Name")), responses(
    (status = 200, body = TemplateInfo),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is no such template", body = Problem, content_type = "application/problem+json"),
    (status = 422, description = "The template is not right", body = Problem, content_type = "application/problem+json"),
    (status = 502, description = "The build failed", body = Problem, content_type = "application/problem+json"),
))]
async fn build(State(app): State<App>, caller: Caller, Path(name): Path<String>) -> Result<Json<TemplateInfo>> {
    let by = caller.admin()?.name.clone();
    if !app.images.names().contains(&name) {
        let known = app.images.names().join(", ");
        return Err(hotdesk_image::Error::Unknown { name, known }.into());
    }
    to_its_end(async move {
        let (stages, mut told) = tokio::sync::mpsc::unbounded_channel::<String>();
        let teller = tokio::spawn({
            let (app, name) = (app.clone(), name.clone());
            async move {
                while let Some(stage) = told.recv().await {
                    tell(&app, &by, format!("{name}: {stage}")).await;
                }
            }
        });
        let built = app.images.build(&name, move |stage| {
            let _ = stages.send(stage.to_owned());
        });
        built.await?;
        let _ = teller.await;
        let info = tokio::task::spawn_blocking(move || describe(&app, &name)).await.map_err(Refusal::internal)?;
        Ok(Json(info))
    })
    .await
}

async fn tell(app: &App, by: &str, reason: String) {
    let event = Event {
        number: 0,
        at: jiff::Timestamp::now().to_string(),
        desk: None,
        project: None,
        kind: "template".into(),
        state: None,
        reason,
        by: by.into(),
    };
    if let Err(e) = app.fleet.store().event(event).await {
        tracing::warn!(error = %e, "a stage of a build can't be written down");
    }
}

fn describe(app: &App, name: &str) -> TemplateInfo {
    let built = app.images.built(name).ok();
    TemplateInfo {
        name: name.into(),
        description: app.images.template(name).map(|template| template.description).unwrap_or_default(),
        built: built.is_some(),
        digest: built.as_ref().map(|built| built.digest.clone()),
        size_bytes: built.map(|built| built.size_bytes),
    }
}
