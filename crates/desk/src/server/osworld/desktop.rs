//! The desktop: what it shows, what is open, where the pointer is, and its film.

use super::Engines;
use super::answer::{Answer, Refusal, json, text};
use super::body::{Fields, form_field};
use super::{python, serve};
use crate::error::Error;
use crate::screen::{Cursor, ShotRequest};
use crate::windows::Match;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::json;
use std::time::SystemTime;

pub(super) async fn screenshot(State(desk): State<Engines>, headers: HeaderMap) -> Answer {
    let shot = desk.screen.shot(ShotRequest { cursor: Cursor::Osworld, ..Default::default() }).await?;
    let label = serve::Label {
        kind: "image/png".into(),
        disposition: "inline; filename=screenshot.png".into(),
        etag: if shot.etag.contains('"') { shot.etag } else { format!("\"{}\"", shot.etag) },
        modified: SystemTime::now(),
    };
    Ok(serve::bytes(shot.bytes, &label, &headers))
}

pub(super) async fn accessibility(State(desk): State<Engines>) -> Answer {
    Ok(json(&json!({"AT": desk.access.osworld_xml().await?})))
}

pub(super) async fn terminal(State(desk): State<Engines>) -> Answer {
    Ok(json(&json!({"output": desk.access.terminal_text().await?, "status": "success"})))
}

pub(super) async fn platform() -> Answer {
    Ok(text("Linux"))
}

pub(super) async fn cursor_position(State(desk): State<Engines>) -> Answer {
    let at = desk.input.pointer().await?;
    Ok(json(&json!([at.x, at.y])))
}

pub(super) async fn screen_size(State(desk): State<Engines>) -> Answer {
    let size = desk.screen.size().await?;
    Ok(json(&json!({"width": size.width, "height": size.height})))
}

pub(super) async fn window_size(State(desk): State<Engines>, request: Request) -> Answer {
    let name = form_field(request, "app_class_name").await.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refusal::error(StatusCode::BAD_REQUEST, "app_class_name is required"))?.to_lowercase();
    let windows = desk.windows.list().await?;
    let found = windows.iter().find(|w| w.instance.to_lowercase() == name || w.class.to_lowercase() == name);
    let window = found.ok_or_else(|| Refusal::error(StatusCode::NOT_FOUND, format!("there is no window of class {name}")))?;
    Ok(json(&json!({"width": window.area.width, "height": window.area.height})))
}

pub(super) async fn desktop_path(State(desk): State<Engines>) -> Answer {
    let path = format!("{}/Desktop", python::home(&desk.place).trim_end_matches('/'));
    if tokio::fs::metadata(&path).await.is_err() {
        return Err(Refusal::error(StatusCode::NOT_FOUND, "Unsupported operating system or desktop path not found"));
    }
    Ok(json(&json!({"desktop_path": path})))
}

pub(super) async fn activate_window(State(desk): State<Engines>, fields: Fields) -> Answer {
    let name = fields.text("window_name")?.ok_or_else(name_required)?;
    if let Some(window) = desk.windows.find(name, how(&fields)).await? {
        whatever_comes(desk.windows.activate(window.id).await)?;
    }
    Ok(text("Window activated successfully"))
}

pub(super) async fn close_window(State(desk): State<Engines>, fields: Fields) -> Answer {
    let name = match fields.text("window_name")? {
        Some(name) => name,
        // An empty name is part of every title, so it is good for the first window.
        None if fields.has("window_name") => "",
        None => return Err(name_required()),
    };
    if let Some(window) = desk.windows.find(name, how(&fields)).await? {
        whatever_comes(desk.windows.close(window.id).await)?;
    }
    Ok(text("Window closed successfully."))
}

fn how(fields: &Fields) -> Match {
    Match { strict: fields.truthy("strict"), by_class: fields.truthy("by_class") }
}

fn name_required() -> Refusal {
    Refusal::Text(StatusCode::BAD_REQUEST, "window_name required".into())
}

/// These routes say nothing about windows that resist or vanish; only a display that is down matters.
pub(super) fn whatever_comes(result: crate::Result<()>) -> Result<(), Refusal> {
    match result {
        Err(e @ (Error::Unavailable { .. } | Error::PersonDrives { .. })) => Err(e.into()),
        _ => Ok(()),
    }
}

pub(super) async fn start_recording(State(desk): State<Engines>) -> Answer {
    match desk.recorder.start().await {
        Ok(()) => Ok(json(&json!({"status": "success", "message": "Started recording successfully."}))),
        Err(Error::Conflict(_)) => Err(not_now("Recording is already in progress.")),
        Err(e @ Error::Unavailable { .. }) => Err(e.into()),
        Err(e) => Err(Refusal::message(format!("Failed to start recording. {e}"))),
    }
}

pub(super) async fn end_recording(State(desk): State<Engines>, headers: HeaderMap) -> Answer {
    let film = match desk.recorder.stop().await {
        Ok(film) => film,
        Err(Error::Conflict(_)) => return Err(not_now("No recording in progress to stop.")),
        Err(e @ Error::Unavailable { .. }) => return Err(e.into()),
        Err(e) => return Err(Refusal::message(format!("Failed to stop recording. {e}"))),
    };
    let gone = |why: &dyn std::fmt::Display| {
        Refusal::Page(StatusCode::INTERNAL_SERVER_ERROR, format!("The recording can't be sent: {why}."))
    };
    if tokio::fs::metadata(&film).await.map_err(|e| gone(&e))?.len() == 0 {
        return Err(gone(&"its file is empty"));
    }
    let name = film.file_name().unwrap_or_default().to_string_lossy();
    serve::file(&film, "video/mp4".into(), serve::attachment(&name), &headers).await.map_err(|e| gone(&e))
}

fn not_now(why: &str) -> Refusal {
    Refusal::Json(StatusCode::BAD_REQUEST, json!({"status": "error", "message": why}))
}
