//! The OSWorld dialect: the 26 paths of its in-desktop server.
//!
//! What clients see is what the original gives them, down to its error texts, because agents and
//! evaluators read them; where the original is known to be wrong it is repaired. A client sends
//! an action again when it does not get 200, so nothing here answers an error once a program ran,
//! but for the time limits, whose clients have left by then.

mod answer;
mod body;
mod command;
mod desktop;
mod files;
mod python;
mod scripts;
mod serve;
mod setup;
mod upload;

use crate::Desk;
use crate::access::Access;
use crate::input::Input;
use crate::place::Place;
use crate::process::Processes;
use crate::recorder::Recorder;
use crate::screen::Screen;
use crate::windows::Windows;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef};
use axum::handler::Handler;
use axum::routing::{MethodRouter, get, post};
use std::sync::Arc;

/// Forms hold one path or one name.
const FORM_LIMIT: usize = 1 << 20;

/// What the dialect speaks to.
#[derive(Clone)]
pub struct Engines {
    pub place: Arc<Place>,
    pub screen: Screen,
    pub input: Input,
    pub access: Access,
    pub windows: Windows,
    pub processes: Processes,
    pub recorder: Recorder,
}

impl FromRef<Desk> for Engines {
    fn from_ref(desk: &Desk) -> Self {
        Self {
            place: desk.place.clone(),
            screen: desk.screen.clone(),
            input: desk.input.clone(),
            access: desk.access.clone(),
            windows: desk.windows.clone(),
            processes: desk.processes.clone(),
            recorder: desk.recorder.clone(),
        }
    }
}

pub fn router() -> Router<Desk> {
    routes()
}

/// The dialect on anything that has the engines. Also answers paths that nobody knows.
pub fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Engines: FromRef<S>,
{
    Router::new()
        .route("/accessibility", reads(desktop::accessibility))
        .route("/cursor_position", reads(desktop::cursor_position))
        .route("/desktop_path", posts(desktop::desktop_path))
        .route("/end_recording", posts(desktop::end_recording))
        .route("/execute", posts(command::execute))
        .route("/execute_with_verification", posts(command::execute_with_verification))
        .route("/file", posts(files::file).layer(DefaultBodyLimit::max(FORM_LIMIT)))
        .route("/list_directory", posts(files::list_directory))
        .route("/platform", reads(desktop::platform))
        .route("/run_bash_script", posts(scripts::run_bash_script))
        .route("/run_python", posts(scripts::run_python))
        .route("/screen_size", posts(desktop::screen_size))
        .route("/screenshot", reads(desktop::screenshot))
        .route("/setup/activate_window", posts(desktop::activate_window))
        .route("/setup/change_wallpaper", posts(setup::change_wallpaper))
        .route("/setup/close_window", posts(desktop::close_window))
        .route("/setup/download_file", posts(upload::download))
        .route("/setup/execute", posts(command::execute))
        .route("/setup/execute_with_verification", posts(command::execute_with_verification))
        .route("/setup/launch", posts(command::launch))
        .route("/setup/open_file", posts(setup::open_file))
        // Streamed to disk, so the disk is the limit.
        .route("/setup/upload", posts(upload::upload).layer(DefaultBodyLimit::disable()))
        .route("/start_recording", posts(desktop::start_recording))
        .route("/terminal", reads(desktop::terminal))
        .route("/wallpaper", posts(setup::wallpaper))
        .route("/window_size", posts(desktop::window_size).layer(DefaultBodyLimit::max(FORM_LIMIT)))
        .fallback(answer::no_such_path)
}

/// A route for GET, and thereby for HEAD.
fn reads<H: Handler<T, S>, T: 'static, S: Clone + Send + Sync + 'static>(handler: H) -> MethodRouter<S> {
    const METHODS: &str = "GET, HEAD, OPTIONS";
    get(handler).options(async || answer::methods(METHODS)).fallback(async || answer::wrong_method(METHODS))
}

/// A route for POST.
fn posts<H: Handler<T, S>, T: 'static, S: Clone + Send + Sync + 'static>(handler: H) -> MethodRouter<S> {
    const METHODS: &str = "POST, OPTIONS";
    post(handler).options(async || answer::methods(METHODS)).fallback(async || answer::wrong_method(METHODS))
}

#[cfg(test)]
mod tests;
