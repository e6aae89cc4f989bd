//! Films of the screen. The desk keeps its last one; ours are files in the user's home, each with a note beside it.

use super::super::desk::{Desk, encoded};
use super::super::reply::{Failure, Reply, empty, ok};
use super::super::{Call, api};
use super::{download, home};
use axum::body::Body;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use hotdesk_api::file::FileList;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Below the home.
const DIRECTORY: &str = ".local/share/recordings";
const RECORDING: &str = "recording";
const COMPLETED: &str = "completed";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recording {
    id: String,
    file_name: String,
    file_path: String,
    start_time: String,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
}

pub(crate) async fn answer(mut call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    match (&method, words) {
        (&Method::GET, []) => ok(json!({"recordings": all(&desk).await?})),
        (&Method::POST, ["start"]) => start(call, &desk).await,
        (&Method::POST, ["stop"]) => {
            let Stop { id } = call.json().await?;
            stop(&desk, &id).await
        }
        (&Method::GET, [id]) => ok(find(&desk, id).await?),
        (&Method::GET, [id, "download"]) => {
            let recording = find(&desk, id).await?;
            download::file(&desk, &recording.file_path).await
        }
        (&Method::DELETE, [id]) => {
            let recording = find(&desk, id).await?;
            if recording.status == RECORDING {
                return Err(
                    Failure::conflict("conflict: the recording is still active: stop it first").daemon("RECORDING_STILL_ACTIVE")
                );
            }
            for path in [recording.file_path.clone(), note_path(&recording)] {
                let _ = desk.delete(&format!("/v1/files?path={}", encoded(&path))).await;
            }
            empty(StatusCode::NO_CONTENT)
        }
        _ => Err(api::nothing(&call)),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Start {
    label: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stop {
    id: String,
}

async fn start(mut call: Call, desk: &Desk) -> Reply {
    let Start { label } = call.json().await?;
    let begun: Reply<Value> = desk.post("/v1/recording", &json!({})).await;
    begun.map_err(|failure| match failure.status() {
        StatusCode::NOT_IMPLEMENTED => failure.with_status(StatusCode::SERVICE_UNAVAILABLE).daemon("RECORDING_FFMPEG_NOT_FOUND"),
        _ => failure,
    })?;
    let id = format!("{:016x}", rand::random::<u64>());
    let plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
    let label: String = label.unwrap_or_default().chars().filter(plain).take(64).collect();
    let file_name = if label.is_empty() { format!("{id}.mp4") } else { format!("{label}-{id}.mp4") };
    let recording = Recording {
        file_path: format!("{}/{DIRECTORY}/{file_name}", home(desk).await?),
        id,
        file_name,
        start_time: jiff::Timestamp::now().to_string(),
        status: RECORDING.into(),
        end_time: None,
        duration_seconds: None,
        size_bytes: None,
    };
    note(desk, &recording).await?;
    Ok((StatusCode::CREATED, axum::Json(recording)).into_response())
}

async fn stop(desk: &Desk, id: &str) -> Reply {
    let mut recording = find(desk, id).await?;
    if recording.status != RECORDING {
        return Err(Failure::bad_request("bad request: the recording has ended already"));
    }
    let film = desk.call(Method::POST, "/v1/recording/stop", Body::empty()).await?;
    let place = format!("/v1/files/content?make_parents=true&path={}", encoded(&recording.file_path));
    let written: hotdesk_api::file::Written = {
        let bytes = desk.bytes(Method::PUT, &place, film.into_body()).await?.bytes.clone();
        serde_json::from_slice(&bytes).map_err(crate::refusal::Refusal::internal)?
    };
    let now = jiff::Timestamp::now();
    let begun: Option<jiff::Timestamp> = recording.start_time.parse().ok();
    recording.duration_seconds = begun.map(|begun| now.duration_since(begun).as_secs_f64());
    recording.end_time = Some(now.to_string());
    recording.size_bytes = Some(written.size);
    recording.status = COMPLETED.into();
    note(desk, &recording).await?;
    ok(recording)
}

fn note_path(recording: &Recording) -> String {
    format!("{}.json", recording.file_path)
}

async fn note(desk: &Desk, recording: &Recording) -> Reply<()> {
    let text = serde_json::to_vec(recording).map_err(crate::refusal::Refusal::internal)?;
    let place = format!("/v1/files/content?make_parents=true&path={}", encoded(&note_path(recording)));
    desk.call(Method::PUT, &place, Body::from(text)).await.map(drop)
}

async fn all(desk: &Desk) -> Reply<Vec<Recording>> {
    let list: Reply<FileList> = desk.get(&format!("/v1/files?path={}", encoded(&format!("~/{DIRECTORY}")))).await;
    let entries = match list {
        Ok(list) => list.entries,
        Err(failure) if failure.status() == StatusCode::NOT_FOUND => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let mut found: Vec<Recording> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.name.ends_with(".mp4.json")) {
        // Anybody in the sandbox may have written there; what is no note of ours is left out.
        if let Ok(recording) = desk.get(&format!("/v1/files/content?path={}", encoded(&entry.path))).await {
            found.push(recording);
        }
    }
    found.sort_by(|a, b| a.start_time.cmp(&b.start_time));
    Ok(found)
}

async fn find(desk: &Desk, id: &str) -> Reply<Recording> {
    let found = all(desk).await?.into_iter().find(|recording| recording.id == id);
    found.ok_or_else(|| Failure::not_found(format!("not found: there is no recording {}", id.escape_default())))
}
