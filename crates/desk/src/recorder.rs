//! Films of the screen, made by ffmpeg where it is installed.
//!
//! ```text
//!   idle ──start──► recording ──stop──► finished ──start──► recording …
//!                       └─ ffmpeg dies ──► broken ──stop──► finished (what there is of it)
//! ```
//!
//! ffmpeg writes in fragments, so that a film that breaks off can still be played; when it ends well
//! it is put into the plain form that every player seeks in.

mod ffmpeg;

use crate::error::{Error, Result};
use crate::place::Place;
use ffmpeg::Filming;
use hotdesk_api::action::Rect;
use hotdesk_api::recording::{Recording, RecordingRequest, RecordingState};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// A film has one frame a second at least, and no more than a screen shows.
const FPS: std::ops::RangeInclusive<u32> = 1..=60;
const DEFAULT_FPS: u32 = 30;
/// Codecs can't do with less than a few blocks.
const SMALLEST_SIDE: u32 = 16;

/// The recorder: one film at a time. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    place: Arc<Place>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    filming: Option<Filming>,
    finished: Option<Film>,
    /// Where films are kept; made for the first one.
    folder: Option<PathBuf>,
}

/// A film that is over.
#[derive(Debug, Clone)]
pub struct Film {
    pub file: PathBuf,
    pub length: Duration,
    pub frames: u64,
    pub bytes: u64,
    /// Why it is shorter than it should be.
    pub broken: Option<String>,
}

impl Recorder {
    pub fn new(place: Arc<Place>) -> Self {
        Self { place, state: Arc::default() }
    }

    /// Starts a film; returns once its first frame is written. `Conflict` while one is under way.
    pub async fn start(&self) -> Result<()> {
        self.start_with(RecordingRequest::default()).await
    }

    /// Starts a film of a part of the screen, or at another speed.
    pub async fn start_with(&self, request: RecordingRequest) -> Result<()> {
        let fps = request.fps.unwrap_or(DEFAULT_FPS);
        if !FPS.contains(&fps) {
            return Err(Error::Invalid(format!("`fps` is {fps}; it must be from {} to {}", FPS.start(), FPS.end())));
        }
        let mut state = self.state.lock().await;
        if let Some(filming) = &state.filming
            && filming.broken().is_none()
        {
            return Err(Error::Conflict("a film is under way already; end it first".into()));
        }
        let program = self.place.find_program("ffmpeg").ok_or_else(|| Error::Unsupported {
            what: "recording".into(),
            reason: "ffmpeg is not installed".into(),
            hint: crate::session::tools::install_hint("ffmpeg"),
        })?;
        let display = self.place.display.clone();
        let screen = tokio::task::spawn_blocking(move || ffmpeg::screen_size(&display)).await.map_err(Error::internal)??;
        let region = check_region(request.region, screen)?;
        // The one before goes only now, when nothing that the client got wrong can stop the new one.
        if let Some(mut broken) = state.filming.take() {
            broken.kill().await;
        }
        if let Some(old) = state.finished.take() {
            let _ = tokio::fs::remove_file(&old.file).await;
        }
        let folder = match &state.folder {
            Some(folder) => folder.clone(),
            None => state.folder.insert(make_folder()?).clone(),
        };
        let shot = ffmpeg::Take { program, region, fps, cursor: request.cursor.unwrap_or(true), folder };
        state.filming = Some(Filming::start(shot, &self.place).await?);
        Ok(())
    }

    /// Ends the film and returns its file, which stays until the next film begins. `Conflict` if none
    /// is under way.
    pub async fn stop(&self) -> Result<PathBuf> {
        Ok(self.finish().await?.file)
    }

    /// Ends the film and tells all about it.
    pub async fn finish(&self) -> Result<Film> {
        let mut state = self.state.lock().await;
        let filming = state.filming.take().ok_or_else(|| Error::Conflict("no film is under way".into()))?;
        let film = filming.finish(&self.place).await?;
        if let Some(why) = &film.broken {
            tracing::warn!(why, "the film broke off");
        }
        Ok(state.finished.insert(film).clone())
    }

    /// The last film that is over.
    pub async fn last(&self) -> Option<Film> {
        self.state.lock().await.finished.clone()
    }

    /// How the recorder is.
    pub async fn state(&self) -> Recording {
        let state = self.state.lock().await;
        match (&state.filming, &state.finished) {
            (Some(filming), _) => {
                let broken = filming.broken();
                Recording {
                    state: if broken.is_some() { RecordingState::Broken } else { RecordingState::Recording },
                    length_ms: Some(millis(filming.length())),
                    frames: Some(filming.frames()),
                    bytes: None,
                    reason: broken,
                }
            }
            (None, Some(film)) => Recording {
                state: RecordingState::Finished,
                length_ms: Some(millis(film.length)),
                frames: Some(film.frames),
                bytes: Some(film.bytes),
                reason: film.broken.clone(),
            },
            (None, None) => Recording { state: RecordingState::Idle, length_ms: None, frames: None, bytes: None, reason: None },
        }
    }

    /// Ends what is under way and removes all films: the desk stops.
    pub async fn shutdown(&self) {
        let mut state = self.state.lock().await;
        if let Some(mut filming) = state.filming.take() {
            filming.kill().await;
        }
        state.finished = None;
        if let Some(folder) = state.folder.take() {
            let _ = tokio::fs::remove_dir_all(folder).await;
        }
    }
}

/// The part of the screen that is filmed.
fn check_region(wanted: Option<Rect>, screen: hotdesk_api::action::Size) -> Result<Rect> {
    let whole = Rect { x: 0, y: 0, width: screen.width, height: screen.height };
    let Some(region) = wanted else { return Ok(whole) };
    let fits = |start: i32, length: u32, limit: u32| {
        u32::try_from(start).ok().and_then(|start| start.checked_add(length)).is_some_and(|end| end <= limit)
    };
    if region.width < SMALLEST_SIDE || region.height < SMALLEST_SIDE {
        return Err(Error::Invalid(format!("`region` must be at least {SMALLEST_SIDE} pixels wide and high")));
    }
    if !fits(region.x, region.width, screen.width) || !fits(region.y, region.height, screen.height) {
        return Err(Error::Invalid(format!("`region` reaches beyond the screen of {}x{} pixels", screen.width, screen.height)));
    }
    Ok(region)
}

fn make_folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("hotdesk-films-{:016x}", rand::random::<u64>()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(|e| Error::Internal(format!("no folder for films can be made: {}: {e}", folder.display())))?;
    Ok(folder)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotdesk_api::action::Size;

    #[test]
    fn regions_lie_on_the_screen() {
        let screen = Size { width: 640, height: 480 };
        let rect = |x, y, width, height| Rect { x, y, width, height };
        assert_eq!(check_region(None, screen).unwrap(), rect(0, 0, 640, 480));
        assert!(check_region(Some(rect(0, 0, 640, 480)), screen).is_ok());
        assert!(check_region(Some(rect(624, 464, 16, 16)), screen).is_ok());
        for bad in [
            rect(-1, 0, 100, 100),
            rect(0, 0, 641, 480),
            rect(1, 0, 640, 480),
            rect(0, 0, 15, 100),
            rect(i32::MAX, i32::MAX, u32::MAX, u32::MAX),
            rect(0, 0, 0, 0),
        ] {
            assert!(check_region(Some(bad), screen).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_said() {
        let place = Place {
            display: crate::place::Display { number: 0, cookie: None },
            home: "/".into(),
            runtime_dir: "/tmp".into(),
            bus: String::new(),
            env: [("PATH".to_owned(), "/nowhere".to_owned())].into(),
        };
        let recorder = Recorder::new(Arc::new(place));
        assert!(matches!(recorder.start().await, Err(Error::Unsupported { hint, .. }) if hint.contains("ffmpeg")));
        assert!(matches!(recorder.stop().await, Err(Error::Conflict(_))));
        assert_eq!(recorder.state().await.state, RecordingState::Idle);
        let fast = RecordingRequest { fps: Some(1000), ..RecordingRequest::default() };
        assert!(matches!(recorder.start_with(fast).await, Err(Error::Invalid(_))));
    }
}
