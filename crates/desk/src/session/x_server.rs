//! The X server: Xvfb, or Xtigervnc where free resizing is wanted or nothing else is installed.

use super::child::{READY_FD, Spec};
use super::supervisor::{Service, Verdict};
use crate::config::{Config, XServerChoice};
use crate::error::{Error, Result};
use crate::place::{Claim, Place, numbers};
use hotdesk_api::action::Size;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// More than any desk uses; the default of 256 is reached by clients that leak connections.
const MAX_CLIENTS: &str = "2048";

pub(crate) struct XServer {
    program: PathBuf,
    kind: Kind,
    number: u16,
    size: Size,
    auth: PathBuf,
    /// Somebody else took the number in the moment between our choice and our start.
    taken: watch::Sender<bool>,
    ever_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Xvfb,
    Xtigervnc,
}

impl XServer {
    pub(crate) fn new(config: &Config, place: &Place, claim: &Claim, taken: watch::Sender<bool>) -> Result<Self> {
        let xvfb = [("Xvfb", Kind::Xvfb)];
        let tiger = [("Xtigervnc", Kind::Xtigervnc), ("Xvnc", Kind::Xtigervnc)];
        let wanted: Vec<_> = match config.x_server {
            XServerChoice::Auto => xvfb.into_iter().chain(tiger).collect(),
            XServerChoice::Xvfb => xvfb.to_vec(),
            XServerChoice::Xtigervnc => tiger.to_vec(),
        };
        let found = wanted.iter().find_map(|(name, kind)| place.find_program(name).map(|path| (path, *kind)));
        let (program, kind) = found.ok_or_else(|| Error::Unsupported {
            what: "a display".into(),
            reason: format!("{} is not installed", wanted.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ")),
            hint: super::tools::install_hint(if config.x_server == XServerChoice::Xtigervnc { "Xtigervnc" } else { "Xvfb" }),
        })?;
        let auth = claim.server_auth.clone().ok_or_else(|| Error::internal("a display of our own has a cookie of its own"))?;
        Ok(Self { program, kind, number: place.display.number, size: config.size, auth, taken, ever_ready: false })
    }
}

impl Service for XServer {
    const READY_LIMIT: Duration = Duration::from_secs(20);
    const GRACE: Duration = Duration::from_secs(2);

    fn spec(&mut self) -> Spec {
        numbers::make_socket_folder();
        numbers::remove_leftovers(self.number);
        let Size { width, height } = self.size;
        let mut spec = Spec::new([self.program.as_os_str()]);
        let mut add = |words: &[&str]| spec.words.extend(words.iter().map(Into::into));
        add(&[&format!(":{}", self.number)]);
        match self.kind {
            Kind::Xvfb => add(&["-screen", "0", &format!("{width}x{height}x24")]),
            // No port: whoever wants VNC gets it from us, with a password.
            Kind::Xtigervnc => add(&["-geometry", &format!("{width}x{height}"), "-depth", "24", "-rfbport", "-1"]),
        }
        add(&["-auth", &self.auth.to_string_lossy()]);
        // Without -noreset the server forgets everything when the last client leaves. The screen never goes dark.
        add(&["-displayfd", READY_FD, "-noreset", "-nolisten", "tcp", "-maxclients", MAX_CLIENTS, "-dpi", "96", "-s", "0"]);
        spec
    }

    async fn ready(&mut self, pipe: Option<pipe::Receiver>) -> std::result::Result<Option<String>, String> {
        let mut pipe = pipe.ok_or("its readiness can't be watched")?;
        let mut text = Vec::new();
        // To the end of the line: a server whose reader leaves earlier ends itself.
        while !text.ends_with(b"\n") {
            match pipe.read_buf(&mut text).await {
                Ok(0) => return Err("it did not start".into()),
                Ok(_) => {}
                Err(e) => return Err(format!("its readiness can't be read: {e}")),
            }
        }
        self.ever_ready = true;
        Ok(None)
    }

    fn gone(&mut self, pid: u32) {
        numbers::remove_leftovers_of(self.number, pid);
    }

    fn verdict(&mut self, _: ExitStatus, _: bool) -> Verdict {
        if !self.ever_ready && numbers::taken(self.number) {
            self.taken.send_replace(true);
            return Verdict::GiveUp(format!("display :{} is taken", self.number));
        }
        Verdict::Heal
    }
}
