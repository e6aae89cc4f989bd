//! Other ports of a sandbox: whatever listens there, WebSockets too.

use super::desk::Sandbox;
use super::fault::{Fault, plain};
use super::{Inside, names, text, token};
use crate::app::App;
use crate::class::Class;
use crate::entrance::PassedOn;
use crate::listen::Peer;
use crate::proxy::{Target, pass};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::Response;

const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";

pub(super) async fn answer(app: App, peer: Peer, inside: Inside, mut request: Request) -> Response {
    let Some(desk) = inside.sandbox.as_deref().and_then(names::desk) else { return Fault::gone().into_response_of_data() };
    let Ok(door) = app.fleet.door(&token::user_of(&desk), &desk).await else { return Fault::gone().into_response_of_data() };
    let sandbox = Sandbox::new(app.clone(), desk.clone(), peer, text(request.headers(), header::HOST.as_str()));
    if let Err(fault) = super::envd::limited(&app, &desk) {
        return fault.into_response_of_data();
    }
    let private = match sandbox.kept().await {
        Ok(kept) => kept.private,
        Err(fault) => return fault.into_response_of_data(),
    };
    let given = text(request.headers(), TRAFFIC_TOKEN);
    if private && !given.is_some_and(|given| token::same(&given, &token::of_traffic(&door.secret))) {
        return plain(
            StatusCode::FORBIDDEN,
            "the sandbox is not public: the header e2b-traffic-access-token is missing or wrong",
        );
    }
    for name in [super::SANDBOX_ID, super::SANDBOX_PORT, TRAFFIC_TOKEN] {
        request.headers_mut().remove(name);
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let target = Target { port: Some(inside.port), path };
    let response = pass(&app, &sandbox.caller(Class::Port), &desk, target, request).await;
    if response.extensions().get::<PassedOn>().is_some() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    let runs = app.fleet.door(&token::user_of(&desk), &desk).await.is_ok();
    match runs {
        true => plain(StatusCode::BAD_GATEWAY, &format!("the sandbox runs, but the port is not open: {}", inside.port)),
        false => Fault::gone().into_response_of_data(),
    }
}
