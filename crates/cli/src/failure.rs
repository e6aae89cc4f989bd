//! Why a command did not do what it was asked for, told so that people know what to do next.

use crate::exit::Exit;
use crate::text::safe;
use hotdesk_client::Error;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// What a command comes to.
pub(crate) type Outcome<T = Exit> = Result<T, Failure>;

#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), causes: Vec::new(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something on this machine.
    pub(crate) fn local(message: impl Into<String>) -> Self {
        Self::new(Exit::Failure, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Another cause, behind the others.
    pub(crate) fn because(mut self, cause: &str) -> Self {
        self.causes.push(cause.to_owned());
        self
    }

    /// What was being done; what went wrong becomes the cause.
    pub(crate) fn during(mut self, what: impl Into<String>) -> Self {
        self.causes.insert(0, std::mem::replace(&mut self.message, what.into()));
        self
    }

    /// All of it on one line.
    pub(crate) fn text(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// Another exit status.
    pub(crate) fn with(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Tells it on stderr.
    pub(crate) fn tell(&self) -> Exit {
        let mut stderr = std::io::stderr().lock();
        let colour = stderr.is_terminal() && crate::text::colours();
        let (red, cyan, plain) = if colour { ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m") } else { ("", "", "") };
        let _ = writeln!(stderr, "{red}error{plain}: {}", safe(&self.message));
        for cause in &self.causes {
            let _ = writeln!(stderr, "  {red}caused by{plain}: {}", safe(cause));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(stderr, "{cyan}hint{plain}: {}", safe(hint));
        }
        self.exit
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = error.hint().map(plain);
        let failure = match &error {
            Error::NoFleet { message, .. } => Self::new(Exit::Unreachable, message.clone()),
            Error::Settings { message, .. } => Self::usage(plain(message)),
            Error::Unreachable { url, reason } => Self::new(Exit::Unreachable, format!("the fleet at {url} can't be reached"))
                .hint(match reason.contains("certificate") {
                    true => "HOTDESK_CA names a file with the certificates that are trusted",
                    false => "is it running? hotdesk up starts one on this machine, hotdesk doctor tells what is missing",
                })
                .because(reason),
            Error::Broken(reason) => {
                Self::new(Exit::Unreachable, "the connection to the fleet broke before the answer was there")
                    .hint("what was asked for may have been done: look with hotdesk ls before you repeat it")
                    .because(reason)
            }
            Error::Late(limit) => Self::new(Exit::Late, format!("there was no answer in {}", crate::text::span(limit.as_secs())))
                .hint("it may still be done: look with hotdesk ls"),
            Error::Strange(why) => Self::new(Exit::Failure, "the answer of the fleet can't be understood")
                .hint("do the versions fit? hotdesk --version, and the server's at /health")
                .because(why),
            Error::Local(message) => Self::new(Exit::Failure, message.clone()),
            Error::Refused(refusal) => {
                let message = if refusal.problem.detail.is_empty() { &refusal.problem.title } else { &refusal.problem.detail };
                let mut failure = Self::new(exit(refusal.problem.status, &refusal.problem.code), plain(message));
                if let Some(wait) = refusal.retry_after.filter(|wait| *wait > Duration::ZERO) {
                    failure = failure.hint(format!("try again in {}", crate::text::span(wait.as_secs())));
                } else if refusal.problem.status == 401 {
                    failure = failure.hint("set HOTDESK_KEY to a key of this fleet, or use --key");
                }
                failure
            }
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Texts of the API have their names in backticks; in a terminal they stand bare.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

fn exit(status: u16, code: &str) -> Exit {
    match (status, code) {
        (_, "limit" | "budget" | "full") | (402 | 429 | 507, _) => Exit::Limit,
        (400 | 405 | 413 | 415 | 422, _) => Exit::Usage,
        (401 | 403, _) => Exit::Denied,
        (404 | 410, _) => Exit::NotFound,
        (409 | 412, _) => Exit::Taken,
        (501, _) => Exit::Missing,
        (503, _) => Exit::Unreachable,
        (408 | 504, _) => Exit::Late,
        _ => Exit::Failure,
    }
}
