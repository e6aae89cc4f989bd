//! The machine's screen for people with a browser: noVNC, if the image has it, at the port that the field's images have it at.

use super::front::{Front, problem, starting, view};
use super::guest::{Kind, PORT};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use std::path::{Component, Path, PathBuf};

/// Where Debian's package `novnc` puts it.
const PAGES: &str = "/usr/share/novnc";
/// The page that shows the screen at once.
const START: &str = "/vnc.html?autoconnect=1&resize=scale&path=websockify";
/// Pages and scripts are some hundred kilobytes.
const LARGEST: u64 = 8 << 20;

pub(super) async fn answer(State(front): State<Front>, mut request: Request) -> Response {
    let Some((vm, kind)) = front.guest() else { return starting(&front.status(), true) };
    let path = request.uri().path().to_owned();
    if path != "/websockify" {
        return page(&path);
    }
    if !front.lets_in(&request) {
        return problem(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "The machine's token is missing",
            "add `?token=TOKEN` to the address",
        );
    }
    if kind == Kind::Other {
        return view(front, vm, request).await;
    }
    *request.uri_mut() = Uri::from_static("/v1/view/websockify");
    front.open(&mut request);
    super::front::pass(&vm, PORT, request).await
}

fn page(path: &str) -> Response {
    if path == "/" && Path::new(PAGES).is_dir() {
        return Redirect::temporary(START).into_response();
    }
    let nothing = || {
        let detail = "a viewer connects to the WebSocket `/websockify`; install the package `novnc` for pages";
        problem(StatusCode::NOT_FOUND, "not_found", "There is no such page", detail)
    };
    let inside = PathBuf::from(path.trim_start_matches('/'));
    if !inside.components().all(|part| matches!(part, Component::Normal(_))) {
        return nothing();
    }
    let file = Path::new(PAGES).join(inside);
    let Some(text) =
        file.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= LARGEST).and_then(|_| std::fs::read(&file).ok())
    else {
        return nothing();
    };
    let kind = match file.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    };
    ([(header::CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out() {
        for path in ["/../../../etc/passwd", "/a/../../b", "//etc/passwd/../x", "/none"] {
            assert_eq!(page(path).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }
}
