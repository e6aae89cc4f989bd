//! The description of the fleet's API, made from its types.
//!
//! `docs/openapi-fleet.json` is its golden copy: a test compares them, so that the API changes only on
//! purpose. `UPDATE_GOLDEN=1 cargo test -p hotdesk-gateway openapi` writes it anew.

use crate::{dialects, refusal};
use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use hotdesk_api::Problem;
use std::collections::HashMap;
use std::sync::LazyLock;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, InfoBuilder, LicenseBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

/// The whole document.
pub fn document() -> OpenApi {
    let (_, mut document) = dialects::described().split_for_parts();
    document.info = InfoBuilder::new()
        .title("hotdesk fleet")
        .description(Some(
            "Many desktops for computer-use agents: made, stopped, reset, saved, forked, and driven. \
             Each desk's own API is passed through; it describes itself at `/v1/desks/{id}/openapi.json`. \
             A key can also stand before every path, as `/k/KEY/…`, for clients that know nothing but a base URL.",
        ))
        .version("1")
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    let components = document.components.get_or_insert_default();
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    components.add_security_scheme("header", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))));
    components.add_security_scheme("query", SecurityScheme::ApiKey(ApiKey::Query(ApiKeyValue::new("key"))));
    let scopes: [&str; 0] = [];
    document.security = Some(["bearer", "header", "query"].map(|name| SecurityRequirement::new(name, scopes)).into());
    name_operations(&mut document);
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            let answers = &mut operation.responses.responses;
            answers.entry("default".into()).or_insert_with(|| RefOr::T(problem_response()));
        }
    }
    document
}

/// `GET /v1/openapi.json`
pub(crate) async fn get() -> impl IntoResponse {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| document().to_json().unwrap_or_default().into());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone())
}

/// Handlers are named within their file, operations within the whole document.
fn name_operations(document: &mut OpenApi) {
    let mut names = HashMap::<String, usize>::new();
    for item in document.paths.paths.values_mut() {
        for (method, operation) in named_operations(item) {
            let tag = operation.tags.iter().flatten().next().cloned().unwrap_or_default();
            let handler = operation.operation_id.clone().unwrap_or_default();
            let mut id = format!("{tag}_{handler}");
            // One handler for several methods.
            if names.contains_key(&id) {
                id = format!("{id}_{method}");
            }
            *names.entry(id.clone()).or_default() += 1;
            operation.operation_id = Some(id);
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    named_operations(item).map(|(_, operation)| operation)
}

fn named_operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    [
        ("get", &mut item.get),
        ("put", &mut item.put),
        ("post", &mut item.post),
        ("delete", &mut item.delete),
        ("patch", &mut item.patch),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

fn problem_response() -> utoipa::openapi::Response {
    ResponseBuilder::new()
        .description("What went wrong, why, and what to do next.")
        .content(refusal::CONTENT_TYPE, Content::new(Some(RefOr::Ref(Ref::from_schema_name(Problem::name())))))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_openapi() {
        let now = document().to_pretty_json().unwrap() + "\n";
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi-fleet.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &now).unwrap();
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_default();
        let first = now.lines().zip(golden.lines()).find(|(a, b)| a != b);
        assert!(
            now == golden,
            "the API is not what docs/openapi-fleet.json says (first difference: {first:?}); if that is meant, run \
             `UPDATE_GOLDEN=1 cargo test -p hotdesk-gateway openapi`"
        );
    }

    #[test]
    fn every_operation_is_described() {
        let mut document = document();
        let mut names = std::collections::BTreeSet::new();
        for (path, item) in &mut document.paths.paths {
            for operation in operations(item) {
                let id = operation.operation_id.clone().unwrap_or_default();
                assert!(operation.summary.as_deref().is_some_and(|s| !s.is_empty()), "{path} {id} has no summary");
                assert!(names.insert(id.clone()), "{path}: the name `{id}` is taken");
                let answers = &operation.responses.responses;
                assert!(answers.keys().any(|code| code.starts_with('2') || code == "101"), "{path} {id} never succeeds");
                assert!(answers.contains_key("default"), "{path} {id} never fails");
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let value = serde_json::to_value(document()).unwrap();
        let mut todo = vec![&value];
        while let Some(next) = todo.pop() {
            match next {
                serde_json::Value::Object(map) => {
                    if let Some(target) = map.get("$ref").and_then(|r| r.as_str()) {
                        let pointer = target.trim_start_matches('#');
                        assert!(value.pointer(pointer).is_some(), "{target} is missing");
                    }
                    todo.extend(map.values());
                }
                serde_json::Value::Array(list) => todo.extend(list),
                _ => {}
            }
        }
    }
}
