//! JSON of requests and answers. Unlike axum's own, a request's list is never taken for an object ([`hotdesk_api::json`]).

use axum::extract::rejection::{BytesRejection, JsonRejection as Axums};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A JSON body, of a request or an answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json<T>(pub T);

/// Why a body can't be read.
#[derive(Debug)]
pub enum JsonRejection {
    /// It did not come, or is too large.
    Body(BytesRejection),
    /// The request does not say that it is JSON.
    Type,
    Text(Axums),
    /// It has a list in the place of an object.
    List(String),
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = JsonRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, JsonRejection> {
        if !is_json(request.headers()) {
            return Err(JsonRejection::Type);
        }
        let text = Bytes::from_request(request, state).await.map_err(JsonRejection::Body)?;
        hotdesk_api::json::from_slice(&text).map(Self).map_err(|error| match axum::Json::<T>::from_bytes(&text) {
            // It says where in the body the mistake is.
            Err(told) if !hotdesk_api::json::is_list(&error) => JsonRejection::Text(told),
            _ => JsonRejection::List(error.to_string()),
        })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl JsonRejection {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Body(told) => told.status(),
            Self::Type => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Text(told) => told.status(),
            Self::List(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    pub fn body_text(&self) -> String {
        match self {
            Self::Body(told) => told.body_text(),
            Self::Type => "Expected request with `Content-Type: application/json`".into(),
            Self::Text(told) => told.body_text(),
            Self::List(told) => format!("Failed to deserialize the JSON body into the target type: {told}"),
        }
    }
}

impl IntoResponse for JsonRejection {
    fn into_response(self) -> Response {
        (self.status(), self.body_text()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    async fn read(kind: &str, text: &'static str) -> (u16, String) {
        let request = Request::post("/").header("content-type", kind).body(Body::from(text)).unwrap();
        match Json::<hotdesk_api::desk::NewDesk>::from_request(request, &()).await {
            Ok(_) => (200, String::new()),
            Err(refused) => (refused.status().as_u16(), refused.body_text()),
        }
    }

    #[tokio::test]
    async fn each_mistake_has_its_status_and_says_what_it_is() {
        assert_eq!(read("application/json; charset=utf-8", "{}").await.0, 200);
        assert_eq!(read("text/plain", "{}").await.0, 415);
        assert_eq!(read("application/json", "{").await.0, 400);
        let (status, told) = read("application/json", r#"{"resources": {"cpus": "a"}}"#).await;
        assert!(status == 422 && told.contains("resources.cpus"), "{status} {told}");
        for list in ["[]", r#"{"resources": [1]}"#] {
            let (status, told) = read("application/json", list).await;
            assert!(status == 422 && told.contains("a list, expected an object"), "{status} {told}");
        }
    }
}
