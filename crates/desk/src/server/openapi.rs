//! The description of the native API, made from its types.
//!
//! `docs/openapi.json` is its golden copy: a test compares them, so that the API changes only on
//! purpose. `UPDATE_GOLDEN=1 cargo test -p hotdesk-desk openapi` writes it anew.

use super::{problems, v1};
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
    let (_, mut document) = v1::router().split_for_parts();
    document.info = InfoBuilder::new()
        .title("hotdesk desk")
        .description(Some(
            "One desktop for computer-use agents: its screen, hands, accessibility, windows, clipboard, programs, terminals and files.",
        ))
        .version("1")
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    let components = document.components.get_or_insert_default();
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    components.add_security_scheme("query", SecurityScheme::ApiKey(ApiKey::Query(ApiKeyValue::new("token"))));
    // The empty one: on loopback no token is needed.
    let scopes: [&str; 0] = [];
    document.security = Some(vec![
        SecurityRequirement::default(),
        SecurityRequirement::new("bearer", scopes),
        SecurityRequirement::new("query", scopes),
    ]);
    let mut names = HashMap::<_, usize>::new();
    for name in document.paths.paths.values_mut().flat_map(operations).filter_map(|operation| operation.operation_id.clone()) {
        *names.entry(name).or_default() += 1;
    }
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            // Handlers are named within their file, operations within the whole document.
            let tag = operation.tags.iter().flatten().next().cloned().unwrap_or_default();
            if let Some(id) = &mut operation.operation_id
                && names.get(id).is_some_and(|count| *count > 1)
            {
                *id = format!("{tag}_{id}");
            }
            let answers = &mut operation.responses.responses;
            answers.entry("default".into()).or_insert_with(|| RefOr::T(problem_response()));
        }
    }
    document
}

/// `GET /v1/openapi.json`
pub(super) async fn get() -> impl IntoResponse {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| document().to_json().unwrap_or_default().into());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone())
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch].into_iter().filter_map(Option::as_mut)
}

fn problem_response() -> utoipa::openapi::Response {
    ResponseBuilder::new()
        .description("What went wrong, why, and what to do next.")
        .content(problems::CONTENT_TYPE, Content::new(Some(RefOr::Ref(Ref::from_schema_name(Problem::name())))))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_openapi() {
        let now = document().to_pretty_json().unwrap() + "\n";
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &now).unwrap();
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_default();
        let first = now.lines().zip(golden.lines()).find(|(a, b)| a != b);
        assert!(
            now == golden,
            "the API is not what docs/openapi.json says (first difference: {first:?}); if that is meant, run \
             `UPDATE_GOLDEN=1 cargo test -p hotdesk-desk openapi`"
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
