//! Steps that prepare a task: the wallpaper, and files that are opened with their program.

use super::Engines;
use super::answer::{Answer, Refusal, text};
use super::body::Fields;
use super::command::failure_text;
use super::desktop::whatever_comes;
use super::files::base_name;
use super::{python, serve};
use crate::process::{Command, find_program};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use std::time::Duration;
use tokio::time::Instant;

/// The setting that holds the wallpaper.
const BACKGROUND: [&str; 2] = ["org.gnome.desktop.background", "picture-uri"];
/// `gsettings` answers in milliseconds; one that hangs waits for a bus that is down.
const SETTINGS_LIMIT: Duration = Duration::from_secs(10);

/// How long a window may take to appear.
const WINDOW_LIMIT: Duration = Duration::from_secs(1800);
/// How often windows are looked at: closely while a program usually starts, then less.
const CLOSELY: Duration = Duration::from_millis(100);
const CLOSELY_FOR: Duration = Duration::from_secs(60);
const LATER: Duration = Duration::from_secs(1);

pub(super) async fn wallpaper(State(desk): State<Engines>, headers: HeaderMap) -> Answer {
    let no_setting =
        |why: &dyn std::fmt::Display| Refusal::Page(StatusCode::NOT_FOUND, format!("The wallpaper is not known: {why}."));
    let command = Command::new(["gsettings", "get"].into_iter().chain(BACKGROUND)).limit(SETTINGS_LIMIT);
    let output = desk.processes.run(command).await.map_err(|e| no_setting(&failure_text(e)))?;
    if !output.status.success() {
        return Err(no_setting(&python::decode(output.stderr).trim()));
    }
    let path = python::decode(output.stdout).trim().replace("file://", "").replace('\'', "");
    let served = serve::file(&desk.place.home.join(&path), "image/png".into(), String::new(), &headers).await;
    served.map_err(|e| Refusal::Page(StatusCode::INTERNAL_SERVER_ERROR, python::io_error(&e, &path)))
}

pub(super) async fn change_wallpaper(State(desk): State<Engines>, fields: Fields) -> Answer {
    let path = python::expand(&desk.place, fields.text("path")?.ok_or_else(no_path)?);
    if tokio::fs::metadata(desk.place.home.join(&path)).await.is_err() {
        return Err(Refusal::Text(StatusCode::NOT_FOUND, format!("File not found: {path}")));
    }
    let value = format!("file://{path}");
    let command = Command::new(["gsettings", "set"].into_iter().chain(BACKGROUND).chain([value.as_str()])).limit(SETTINGS_LIMIT);
    match desk.processes.run(command).await {
        Ok(_) => Ok(text("Wallpaper changed successfully")),
        Err(e) => {
            let why = format!("Failed to change wallpaper. Error: {}", failure_text(e));
            Err(Refusal::Text(StatusCode::INTERNAL_SERVER_ERROR, why))
        }
    }
}

pub(super) async fn open_file(State(desk): State<Engines>, fields: Fields) -> Answer {
    let given = fields.text("path")?.ok_or_else(no_path)?;
    let path = python::expand(&desk.place, given);
    let (command, names) = if tokio::fs::metadata(desk.place.home.join(&path)).await.is_ok() {
        let name = base_name(&path);
        (Command::new(["xdg-open", &path]), vec![name.to_owned(), without_extension(name).to_owned()])
    } else if find_program(&desk.place, given).is_some() {
        (Command::new([given]), vec![given.to_owned()])
    } else {
        return Err(Refusal::Text(StatusCode::NOT_FOUND, format!("Application/file not found: {given}")));
    };
    let failed = |why: String| Refusal::Text(StatusCode::INTERNAL_SERVER_ERROR, why);
    if let Err(e) = desk.processes.launch(command).await {
        return Err(failed(format!("Failed to open {given}. Error: {}", failure_text(e))));
    }
    let Some(window) = appears(&desk, &names).await else {
        let name = names.first().map_or(given, String::as_str);
        return Err(failed(format!("Failed to find window for {name} within {} seconds.", WINDOW_LIMIT.as_secs())));
    };
    whatever_comes(desk.windows.activate(window).await)?;
    Ok(text("File opened and window activated successfully"))
}

/// Waits for a window in whose line of the listing one of the names stands.
async fn appears(desk: &Engines, names: &[String]) -> Option<u32> {
    let begin = Instant::now();
    loop {
        // While the display is being healed there is nothing to be found.
        let listing = desk.windows.listing().await.unwrap_or_default();
        let line = listing.lines().find(|line| names.iter().any(|name| line.contains(name)));
        let id = line.and_then(|line| line.split_whitespace().next()).and_then(|id| id.strip_prefix("0x"));
        if let Some(id) = id.and_then(|id| u32::from_str_radix(id, 16).ok()) {
            return Some(id);
        }
        let waited = begin.elapsed();
        if waited >= WINDOW_LIMIT {
            return None;
        }
        tokio::time::sleep(if waited < CLOSELY_FOR { CLOSELY } else { LATER }).await;
    }
}

fn no_path() -> Refusal {
    Refusal::Text(StatusCode::BAD_REQUEST, "Path not supplied!".into())
}

/// `os.path.splitext(name)[0]`: dots at the beginning belong to the name.
fn without_extension(name: &str) -> &str {
    let leading = name.len() - name.trim_start_matches('.').len();
    match name.rfind('.') {
        Some(dot) if dot > leading => &name[..dot],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::without_extension;

    #[test]
    fn extensions() {
        for (name, stem) in [
            ("a.txt", "a"),
            ("a.tar.gz", "a.tar"),
            (".bashrc", ".bashrc"),
            ("..x", "..x"),
            ("..x.y", "..x"),
            ("a.", "a"),
            ("", ""),
        ] {
            assert_eq!(without_extension(name), stem, "{name}");
        }
    }
}
