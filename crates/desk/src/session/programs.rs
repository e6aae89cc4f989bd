//! What the template says: programs that are started with the session, and the browser that some
//! desks keep open.

use super::board::Up;
use super::child::Spec;
use super::supervisor::{Service, Verdict};
use crate::config::Config;
use crate::place::Place;
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// A program that starts before the window manager or before accessibility gets neither; but one
/// that waits for ever is worse.
const PATIENCE: Duration = Duration::from_secs(3);

const BROWSERS: &[&str] = &["google-chrome", "google-chrome-stable", "chromium", "chromium-browser", "chrome"];

pub(crate) struct Program {
    command: String,
    /// What should be there first.
    after: Vec<watch::Receiver<Up>>,
}

impl Program {
    pub(crate) fn new(command: String, after: Vec<watch::Receiver<Up>>) -> Self {
        Self { command, after }
    }
}

impl Service for Program {
    const GRACE: Duration = Duration::from_secs(2);

    fn spec(&mut self) -> Spec {
        Spec::new(["/bin/sh", "-c", &self.command])
    }

    async fn prepare(&mut self) {
        let all = async {
            for one in &mut self.after {
                let _ = one.wait_for(|up| up.decided()).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, all).await;
    }

    async fn ready(&mut self, _: Option<pipe::Receiver>) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Programs are closed by people and agents; only what broke is started again.
    fn verdict(&mut self, status: ExitStatus, _: bool) -> Verdict {
        const ASKED: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
        let asked = |signal: i32| ASKED.iter().any(|known| *known as i32 == signal);
        match (status.code(), status.signal()) {
            (Some(0), _) => Verdict::Ended,
            // How a shell tells that its program was ended by a signal.
            (Some(code), _) if asked(code - 128) => Verdict::Ended,
            (None, Some(signal)) if asked(signal) => Verdict::Ended,
            _ => Verdict::Heal,
        }
    }
}

/// The command of the browser, as OpenManus' images start it. The reason where there is none.
pub(crate) fn browser(config: &Config, place: &Place) -> Result<Option<String>, String> {
    if !config.browser.persistent {
        return Ok(None);
    }
    let program = BROWSERS
        .iter()
        .find_map(|name| place.find_program(name))
        .ok_or_else(|| format!("no browser is installed; {}", super::tools::install_hint("chromium")))?;
    let data = place.home.join(".config/hotdesk-browser");
    // It takes addresses, not names.
    let host = config.browser.debugging_host.as_str();
    let mut words = vec![
        program.to_string_lossy().into_owned(),
        // A browser of today opens its debugging port only for a profile that is not the default one.
        format!("--user-data-dir={}", data.display()),
        format!("--remote-debugging-port={}", config.browser.debugging_port),
        format!("--remote-debugging-address={}", if host == "localhost" { "127.0.0.1" } else { host }),
        "--window-position=0,0".into(),
        format!("--window-size={},{}", config.size.width, config.size.height),
        "--start-maximized".into(),
        "--no-first-run".into(),
        "--no-default-browser-check".into(),
        "--disable-dev-shm-usage".into(),
        "--disable-gpu".into(),
        "--force-renderer-accessibility".into(),
        "--password-store=basic".into(),
    ];
    if !config.browser.telemetry {
        words.extend(["--metrics-recording-only", "--disable-breakpad", "--disable-crash-reporter"].map(String::from));
    }
    if nix::unistd::geteuid().is_root() {
        // It refuses to run as root with its sandbox on.
        words.push("--no-sandbox".into());
    }
    words.push("about:blank".into());
    let line = shlex::try_join(words.iter().map(String::as_str)).map_err(|_| "its command holds a zero byte".to_owned())?;
    Ok(Some(format!("exec {line}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_broke_is_healed() {
        let mut program = Program::new(String::new(), Vec::new());
        let mut heals = |raw: i32| matches!(program.verdict(ExitStatus::from_raw(raw), true), Verdict::Heal);
        assert!(!heals(0), "closed");
        assert!(heals(1 << 8), "failed");
        assert!(!heals(15), "asked to end");
        assert!(!heals(143 << 8), "asked to end, below a shell");
        assert!(heals(11), "crashed");
        assert!(heals(9), "killed");
    }

    #[test]
    fn the_browser_is_started_as_asked() {
        let folder = tempfile::tempdir().unwrap();
        let fake = folder.path().join("chromium");
        std::fs::write(&fake, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let place = Place {
            display: crate::place::Display { number: 0, cookie: None },
            home: "/home/a b".into(),
            runtime_dir: "/tmp".into(),
            bus: String::new(),
            env: [("PATH".to_owned(), folder.path().to_string_lossy().into_owned())].into(),
        };
        let mut config = Config::default();
        assert_eq!(browser(&config, &place), Ok(None));
        config.browser.persistent = true;
        config.browser.debugging_port = 1337;
        let command = browser(&config, &place).unwrap().unwrap();
        assert!(command.contains("--remote-debugging-port=1337"));
        assert!(command.contains("'--user-data-dir=/home/a b/.config/hotdesk-browser'"), "{command}");
        assert!(command.contains("--disable-breakpad"));
    }
}
