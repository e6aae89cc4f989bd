//! The inside of a sandbox: programs, sessions, terminals, files, the desktop.

mod a11y;
mod code;
mod computer;
mod download;
mod files;
mod git;
mod interpreter;
pub(crate) mod links;
mod process;
mod pty;
mod recordings;
mod sessions;
mod stream;
mod upload;

use super::desk::Desk;
use super::reply::{Reply, ok};
use super::{Call, api};
use axum::http::Method;
use hotdesk_api::file::FileInfo;
use serde_json::json;

/// `words` is the path behind either prefix.
pub(crate) async fn answer(call: Call, id: &str, words: &[&str]) -> Reply {
    let desk = Desk::of(&call, id);
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::GET, ["user-home-dir" | "work-dir" | "project-dir"]) => ok(json!({"dir": home(&desk).await?})),
        (&Method::GET, ["version"]) => ok(json!({"version": env!("CARGO_PKG_VERSION")})),
        (&Method::GET, ["system", "metrics"]) => process::metrics(&desk).await,
        (_, ["process", "session", rest @ ..]) => sessions::answer(call, desk, rest).await,
        (_, ["process", "pty", rest @ ..]) => pty::answer(call, desk, rest).await,
        (&Method::POST, ["process", "execute"]) => process::execute(call, &desk).await,
        (&Method::POST, ["process", "code-run"]) => code::run(call, &desk).await,
        (_, ["process", "interpreter", rest @ ..]) => interpreter::answer(call, desk, rest).await,
        (&Method::POST, ["env"]) => process::change_variables(call, &desk).await,
        (_, ["git", rest @ ..]) => git::answer(call, desk, rest).await,
        (_, ["files", rest @ ..]) => files::answer(call, desk, rest).await,
        (_, ["computeruse", "recordings", rest @ ..]) => recordings::answer(call, desk, rest).await,
        (_, ["computeruse", "a11y", rest @ ..]) => a11y::answer(call, desk, rest).await,
        (_, ["computeruse", rest @ ..]) => computer::answer(call, desk, rest).await,
        (&Method::GET, ["port"]) => process::ports(&desk).await,
        (&Method::GET, ["port", port, "in-use"]) => process::port_in_use(&call, &desk, port).await,
        _ => Err(api::nothing(&call)),
    }
}

/// The user's home, which is the working directory too.
pub(crate) async fn home(desk: &Desk) -> Reply<String> {
    let home: FileInfo = desk.get("/v1/files/stat?path=~").await?;
    Ok(home.path)
}
