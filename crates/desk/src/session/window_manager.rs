//! The window manager: openbox, or whichever is installed.

use super::child::Spec;
use super::supervisor::Service;
use super::witness::Sight;
use crate::config::WindowManagerChoice;
use crate::place::Place;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// In this order they are looked for: light ones that need no desktop around them come first.
const KNOWN: &[&[&str]] = &[
    &["openbox", "--sm-disable"],
    &["xfwm4", "--compositor=off", "--sm-client-disable"],
    &["marco", "--no-composite", "--sm-disable"],
    &["metacity", "--no-composite", "--sm-disable"],
    &["icewm", "--no-configure"],
    &["fluxbox"],
    &["jwm"],
    &["kwin_x11"],
    &["mutter", "--x11", "--sm-disable"],
    &["i3"],
];
/// One that has not announced itself by then does not speak EWMH, but may well do its work.
const EWMH_LIMIT: Duration = Duration::from_secs(3);

pub(crate) struct WindowManager {
    words: Vec<OsString>,
    sight: watch::Receiver<Sight>,
}

impl WindowManager {
    /// The reason where there is none.
    pub(crate) fn new(choice: &WindowManagerChoice, place: &Place, sight: watch::Receiver<Sight>) -> Result<Self, String> {
        let words = match choice {
            WindowManagerChoice::None => return Err("none is wanted".into()),
            WindowManagerChoice::Command(words) => words.iter().map(OsString::from).collect(),
            WindowManagerChoice::Auto => KNOWN
                .iter()
                .find_map(|words| {
                    let (name, arguments) = words.split_first()?;
                    let program = place.find_program(name)?;
                    Some(std::iter::once(program.into()).chain(arguments.iter().map(OsString::from)).collect())
                })
                .ok_or_else(|| format!("none is installed; {}", super::tools::install_hint("openbox")))?,
        };
        Ok(Self { words, sight })
    }
}

/// Names of the window managers that are found by themselves.
pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().filter_map(|words| words.first()).copied()
}

impl Service for WindowManager {
    fn spec(&mut self) -> Spec {
        Spec::new(self.words.clone())
    }

    /// The witness may be slower than we are to see the last one go.
    async fn prepare(&mut self) {
        let gone = self.sight.wait_for(|sight| sight.window_manager.is_none());
        let _ = tokio::time::timeout(Duration::from_millis(500), gone).await;
    }

    async fn ready(&mut self, _: Option<pipe::Receiver>) -> Result<Option<String>, String> {
        let seen = self.sight.wait_for(|sight| sight.window_manager.is_some());
        match tokio::time::timeout(EWMH_LIMIT, seen).await {
            Ok(Ok(_)) => Ok(None),
            Ok(Err(_)) => Err("the display can't be watched".into()),
            Err(_) => {
                let name = self
                    .words
                    .first()
                    .map(Path::new)
                    .and_then(Path::file_name)
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                Ok(Some(format!("{name} does not announce itself (EWMH), so windows can't be listed")))
            }
        }
    }
}
