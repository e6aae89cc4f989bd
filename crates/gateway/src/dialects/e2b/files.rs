//! `/files`: content of files, read and written; with the sandbox's token, or with a signature made of it.

use super::desk::{Sandbox, encoded};
use super::envd::{admitted, open, refused};
use super::fault::{Code, Fault, Result, plain};
use super::filesystem::path_or_home;
use super::token::{self, Wanted};
use super::{Inside, names, upload};
use crate::app::App;
use crate::entrance::Caller;
use crate::listen::Peer;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::Response;
use hotdesk_api::desk::State;

/// What `/files` is asked for.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) user: String,
    signature: Option<String>,
    expiration: Option<String>,
}

impl Asked {
    fn read(uri: &Uri) -> Self {
        let pairs = pairs(uri.query().unwrap_or_default());
        let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        Self {
            path: value("path").unwrap_or_default(),
            user: value("username").unwrap_or_default(),
            signature: value("signature").filter(|s| !s.is_empty()),
            expiration: value("signature_expiration").filter(|s| !s.is_empty()),
        }
    }
}

pub(super) async fn admit(app: &App, peer: Peer, inside: &Inside, request: &Parts) -> Result<Caller, Response> {
    let operation = match request.method {
        Method::GET | Method::HEAD => "read",
        Method::POST => "write",
        _ => return Err(plain(StatusCode::METHOD_NOT_ALLOWED, "files are read by GET and written by POST")),
    };
    let asked = Asked::read(&request.uri);
    may(app, peer, inside, request, &asked, operation).await.map_err(Fault::into_response_of_data)
}

pub(super) async fn answer(sandbox: Sandbox, request: Request) -> Response {
    let asked = Asked::read(request.uri());
    let outcome = match *request.method() {
        Method::POST => upload::write(&sandbox, &asked, request).await,
        _ => read(&sandbox, &asked, request).await,
    };
    outcome.unwrap_or_else(Fault::into_response_of_data)
}

/// The sandbox, if the request has its token or a signature that is good for this.
async fn may(app: &App, peer: Peer, inside: &Inside, request: &Parts, asked: &Asked, operation: &str) -> Result<Caller> {
    let Some(signature) = &asked.signature else { return open(app, peer, inside, request).await };
    let expiration = match &asked.expiration {
        Some(text) => Some(text.parse::<i64>().map_err(|_| refused(app, peer))?),
        None => None,
    };
    let wanted = Wanted { path: &asked.path, operation, user: &asked.user, expiration };
    let desk = match &inside.sandbox {
        Some(id) => {
            let desk = names::desk(id).ok_or_else(Fault::gone)?;
            let right = token::of(app, &desk).await.map_err(|_| Fault::gone())?;
            token::same(&wanted.signature(&right), signature).then_some(desk)
        }
        None => {
            if let Err(refusal) = app.limits.keyless(peer.network()) {
                return Err(Fault::new(Code::ResourceExhausted, refusal.problem.detail.clone()));
            }
            token::signed(app, signature, &wanted).await
        }
    };
    let desk = desk.ok_or_else(|| refused(app, peer))?;
    if expiration.is_some_and(|end| end < jiff::Timestamp::now().as_second()) {
        return Err(Fault::unauthenticated("signature is already expired"));
    }
    let runs = app.fleet.desk(&token::user_of(&desk), &desk).await.is_ok_and(|desk| desk.state == State::Running);
    if !runs {
        return Err(Fault::gone());
    }
    admitted(app, peer, desk, request).await
}

async fn read(sandbox: &Sandbox, asked: &Asked, request: Request) -> Result<Response> {
    let user = sandbox.user(Some(&asked.user)).await?;
    let (parts, _) = request.into_parts();
    let mut wish = Request::new(Body::empty());
    *wish.method_mut() = parts.method;
    for name in [header::RANGE, header::IF_RANGE, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE] {
        if let Some(value) = parts.headers.get(&name) {
            wish.headers_mut().insert(name, value.clone());
        }
    }
    let fine = |status: StatusCode| {
        status.is_success() || status == StatusCode::NOT_MODIFIED || status == StatusCode::RANGE_NOT_SATISFIABLE
    };
    let path = format!("files/content?path={}", encoded(path_or_home(&asked.path)));
    // A directory is no file.
    user.send(&path, wish, fine).await.map_err(|fault| fault.when(Code::AlreadyExists, Code::InvalidArgument))
}

/// The pairs of a query, decoded.
pub(super) fn pairs(query: &str) -> Vec<(String, String)> {
    let uri: Option<Uri> = format!("/?{query}").parse().ok();
    let pairs = uri.and_then(|uri| axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri).ok());
    pairs.map(|pairs| pairs.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let asked = Asked::read(&"/files?path=a%20b%2Bc%26d&username=root&signature=v1_a%2Bb%2F".parse().unwrap());
        assert_eq!((asked.path.as_str(), asked.user.as_str()), ("a b+c&d", "root"));
        assert_eq!(asked.signature.as_deref(), Some("v1_a+b/"));
        assert_eq!(asked.expiration, None);
    }
}
