//! How the program ends, and how it tells people why.

use hotdesk_desk::Error;
use hotdesk_desk::config::ConfigError;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// What the exit status means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked. A desk that was asked to stop, and stopped, is one of these.
    Success,
    /// Something went wrong.
    Failure,
    /// The command line, a variable or the settings file can't be used.
    Usage,
    /// Something that is needed is not installed.
    Missing,
    /// The address, the display or the name is taken by somebody else, or the desk's state does not allow it.
    Taken,
    /// There is no such desk, key, template, file.
    NotFound,
    /// The key is missing, wrong, or not allowed to.
    Denied,
    /// A limit is reached, or the money is spent.
    Limit,
    /// The fleet does not answer, or the connection broke.
    Unreachable,
    /// It took longer than was waited for.
    Late,
    /// The program could not be run on the desk at all.
    NotRun,
    /// What a program on a desk ended with.
    Program(u8),
    /// It was asked to stop twice and did not wait for anything.
    Signal(i32),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Missing => 3,
            Self::Taken => 4,
            Self::NotFound => 5,
            Self::Denied => 6,
            Self::Limit => 7,
            Self::Unreachable => 8,
            Self::Late => 9,
            Self::NotRun => 125,
            Self::Program(code) => code,
            Self::Signal(number) => u8::try_from(128 + number).unwrap_or(255),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::Invalid(_) => Self::Usage,
            Error::Unsupported { .. } => Self::Missing,
            Error::Conflict(_) => Self::Taken,
            _ => Self::Failure,
        }
    }
}

/// Tells what went wrong and what to do.
pub(crate) fn complain(message: &str, hint: Option<&str>) {
    let mut stderr = std::io::stderr().lock();
    let colour = stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (red, cyan, plain) = if colour { ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m") } else { ("", "", "") };
    let _ = writeln!(stderr, "{red}error{plain}: {message}");
    if let Some(hint) = hint {
        let _ = writeln!(stderr, "{cyan}hint{plain}: {hint}");
    }
}

pub(crate) fn complain_about_settings(error: &ConfigError) -> Exit {
    complain(&error.message, error.hint.as_deref());
    Exit::Usage
}

pub(crate) fn complain_about(error: &Error) -> Exit {
    let problem = error.problem();
    complain(&problem.detail, problem.hint.as_deref());
    error.into()
}

/// Data goes to stdout. A reader that leaves early, such as `head`, is no failure.
pub(crate) fn print(data: &[u8]) -> Exit {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(&format!("the output can't be written: {e}"), None);
            Exit::Failure
        }
        _ => Exit::Success,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_code() {
        let all = [Exit::Success, Exit::Failure, Exit::Usage, Exit::Missing, Exit::Taken, Exit::NotFound, Exit::Denied];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4, 5, 6]);
        let all = [Exit::Limit, Exit::Unreachable, Exit::Late, Exit::NotRun, Exit::Program(42), Exit::Signal(15)];
        assert_eq!(all.map(Exit::code), [7, 8, 9, 125, 42, 143]);
        assert_eq!(Exit::from(&Error::Conflict(String::new())), Exit::Taken);
    }
}
