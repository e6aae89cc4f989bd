//! Window routes.

#[cfg(test)]
mod tests;

use crate::Desk;
use crate::error::{Error, Result};
use crate::windows::Windows;
use axum::extract::{FromRef, Path, State};
use hotdesk_api::Problem;
use hotdesk_api::window::{NewArea, WaitForWindow, Waited, Window, WindowChange, WindowList};
use hotdesk_serve::Json;
use std::time::{Duration, Instant};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long a window is waited for unless said.
const WAIT: Duration = Duration::from_secs(10);

impl FromRef<Desk> for Windows {
    fn from_ref(desk: &Desk) -> Self {
        desk.windows.clone()
    }
}

pub fn router() -> OpenApiRouter<Desk> {
    router_of()
}

fn router_of<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Windows: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(list_windows))
        .routes(routes!(get_window))
        .routes(routes!(change_window))
        .routes(routes!(place_window))
        .routes(routes!(wait_for_window))
}

/// All windows that the window manager knows, oldest first.
#[utoipa::path(get, path = "/v1/windows", tag = "windows", responses(
    (status = 200, body = WindowList),
    (status = 503, description = "The display or the window manager is down.", body = Problem),
))]
async fn list_windows(State(windows): State<Windows>) -> Result<Json<WindowList>> {
    let windows = windows.list().await?.into_iter().map(Window::from).collect();
    Ok(Json(WindowList { windows }))
}

/// One window.
#[utoipa::path(get, path = "/v1/windows/{id}", tag = "windows",
    params(("id" = String, Path, description = "The window's number, in decimal or as `0x…`.")),
    responses(
        (status = 200, body = Window),
        (status = 404, description = "There is no such window.", body = Problem),
        (status = 503, description = "The display or the window manager is down.", body = Problem),
))]
async fn get_window(State(windows): State<Windows>, Path(id): Path<String>) -> Result<Json<Window>> {
    Ok(Json(windows.get(number(&id)?).await?.into()))
}

/// Activates, closes, minimizes, maximizes, fills the screen with or restores a window.
///
/// The answer comes when the window manager has done it, or after a second and a half if it has
/// not; `window` is the window as it is then, and null once it is gone.
#[utoipa::path(post, path = "/v1/windows/{id}/{change}", tag = "windows",
    params(
        ("id" = String, Path, description = "The window's number, in decimal or as `0x…`."),
        ("change" = inline(WindowChange), Path, description = "What to do."),
    ),
    responses(
        (status = 200, body = Waited),
        (status = 404, description = "There is no such window.", body = Problem),
        (status = 503, description = "The display or the window manager is down.", body = Problem),
))]
async fn change_window(State(windows): State<Windows>, Path((id, change)): Path<(String, WindowChange)>) -> Result<Json<Waited>> {
    let start = Instant::now();
    let window = windows.change(number(&id)?, change).await?;
    Ok(Json(waited(window, start)))
}

/// Moves and resizes a window's own area, which is the one without the frame.
///
/// A maximized window is restored first. Programs may round their size; the answer says how it is.
#[utoipa::path(put, path = "/v1/windows/{id}/area", tag = "windows", request_body = NewArea,
    params(("id" = String, Path, description = "The window's number, in decimal or as `0x…`.")),
    responses(
        (status = 200, body = Waited),
        (status = 400, body = Problem),
        (status = 404, description = "There is no such window.", body = Problem),
        (status = 503, description = "The display or the window manager is down.", body = Problem),
))]
async fn place_window(State(windows): State<Windows>, Path(id): Path<String>, Json(area): Json<NewArea>) -> Result<Json<Waited>> {
    let start = Instant::now();
    let window = windows.place(number(&id)?, area).await?;
    Ok(Json(waited(window, start)))
}

/// Waits until there is a window of a title or class, or until there is none.
#[utoipa::path(post, path = "/v1/windows/wait", tag = "windows", request_body = WaitForWindow, responses(
    (status = 200, body = Waited),
    (status = 400, body = Problem),
    (status = 503, description = "The display is down.", body = Problem),
    (status = 504, description = "It took longer than the limit.", body = Problem),
))]
async fn wait_for_window(State(windows): State<Windows>, Json(wanted): Json<WaitForWindow>) -> Result<Json<Waited>> {
    let start = Instant::now();
    let limit = wanted.limit_ms.map_or(WAIT, |ms| Duration::from_millis(ms.into()));
    let window = windows.wait(wanted, limit).await?;
    Ok(Json(waited(window, start)))
}

fn waited(window: Option<crate::windows::Window>, start: Instant) -> Waited {
    Waited { window: window.map(Window::from), ms: start.elapsed().as_millis() as u64 }
}

fn number(id: &str) -> Result<u32> {
    let parsed = match id.strip_prefix("0x").or_else(|| id.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => id.parse(),
    };
    parsed.map_err(|_| Error::Invalid("a window's number is decimal, or hexadecimal after `0x`".into()))
}
