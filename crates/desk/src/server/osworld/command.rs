//! Programs: `/execute`, `/execute_with_verification` and `/setup/launch`.

use super::Engines;
use super::answer::{Answer, Refusal, json, text};
use super::body::Fields;
use super::python;
use crate::error::Error;
use crate::lease::{Asker, with_asker};
use crate::place::Place;
use crate::process::{Command, Failure, OnLeave, OnTimeout, find_program};
use crate::pyautogui;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};
use std::future::Future;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(120);
/// What runs programs that are given as `python -c`.
const PYTHONS: [&str; 2] = ["python", "python3"];
/// How long the condition of a verification may take.
const CONDITION_LIMIT: Duration = Duration::from_secs(5);
/// The longest wait for a verification. The client's own limit is ten seconds above what it asks
/// for; nobody waits for an hour.
const LONGEST_WAIT: f64 = 3600.0;
/// How often the list of windows is looked at; it costs a few round trips to the X server.
const WINDOW_INTERVAL: f64 = 0.05;
/// A pause of nothing would keep a core busy.
const SHORTEST_INTERVAL: f64 = 0.01;

/// The header that tells which way a program took.
pub(super) const ENGINE: HeaderName = HeaderName::from_static("x-hotdesk-engine");

pub(super) async fn execute(State(desk): State<Engines>, fields: Fields) -> Answer {
    let wanted = Wanted::read(&fields, &desk.place)?;
    to_its_end(async move {
        let (engine, value) = wanted.run(&desk).await?.into_value();
        Ok(label(engine, json(&value)))
    })
    .await
}

pub(super) async fn execute_with_verification(State(desk): State<Engines>, fields: Fields) -> Answer {
    let wanted = Wanted::read(&fields, &desk.place)?;
    let verification = Verification::read(&fields)?;
    to_its_end(async move {
        let (engine, mut value) = wanted.run(&desk).await?.into_value();
        let Some(verification) = verification else { return Ok(label(engine, json(&value))) };
        match verification.wait(&desk).await {
            Some(seconds) => {
                value["verification"] = "passed".into();
                value["wait_time"] = json!(seconds);
                Ok(label(engine, json(&value)))
            }
            None => {
                value["status"] = "verification_failed".into();
                value["verification"] = "failed".into();
                value["wait_time"] = verification.max_wait.into();
                Err(Refusal::Json(StatusCode::INTERNAL_SERVER_ERROR, value))
            }
        }
    })
    .await
}

pub(super) async fn launch(State(desk): State<Engines>, fields: Fields) -> Answer {
    let mut wanted = Wanted::read(&fields, &desk.place)?;
    if cfg!(target_arch = "aarch64") {
        // There is no Chrome for Linux on ARM.
        wanted.replace("google-chrome", "chromium");
    }
    desk.processes.launch(Command::new(wanted.argv())).await.map_err(refused)?;
    Ok(text(format!("{} launched successfully", wanted.launched())))
}

/// Lets the work go on when the client leaves, as a thread of the original does: a program that
/// was begun is neither killed nor cut off from its pipes.
pub(super) async fn to_its_end(work: impl Future<Output = Answer> + Send + 'static) -> Answer {
    tokio::spawn(with_asker(Asker::now(), work)).await.unwrap_or_else(|e| Err(Error::internal(e).into()))
}

/// A command as the client gave it.
#[derive(Debug, PartialEq)]
enum Wanted {
    /// One text for the shell.
    Shell(String),
    /// A text for the shell and what it sees as `$0`, `$1`, …
    ShellList(Vec<String>),
    Direct(Vec<String>),
}

impl Wanted {
    fn read(fields: &Fields, place: &Place) -> Result<Self, Refusal> {
        let shell = fields.truthy("shell");
        let words = match fields.get("command") {
            Value::String(line) if shell => return Ok(Self::Shell(line.clone())),
            Value::String(line) => python::split_words(line).map_err(|e| {
                Refusal::Page(StatusCode::INTERNAL_SERVER_ERROR, format!("The command can't be split into words: {e}."))
            })?,
            Value::Array(words) => {
                words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(bad_command)?
            }
            Value::Null if !fields.has("command") && shell => return Ok(Self::Shell(String::new())),
            Value::Null if !fields.has("command") => Vec::new(),
            _ => return Err(bad_command()),
        };
        let home = python::home(place);
        let words = words.into_iter().map(|word| match word.strip_prefix("~/") {
            Some(rest) => format!("{}/{rest}", home.trim_end_matches('/')),
            None => word,
        });
        Ok(if shell { Self::ShellList(words.collect()) } else { Self::Direct(words.collect()) })
    }

    fn argv(&self) -> Vec<String> {
        let shell = || ["/bin/sh".to_owned(), "-c".to_owned()].into_iter();
        match self {
            Self::Shell(line) => shell().chain([line.clone()]).collect(),
            Self::ShellList(words) => shell().chain(words.iter().cloned()).collect(),
            Self::Direct(words) => words.clone(),
        }
    }

    /// The command as Python prints it.
    fn printed(&self) -> String {
        match self {
            Self::Shell(line) => line.clone(),
            Self::ShellList(words) | Self::Direct(words) => python::repr_list(words),
        }
    }

    fn launched(&self) -> String {
        match self {
            Self::Direct(words) => words.join(" "),
            _ => self.printed(),
        }
    }

    fn replace(&mut self, old: &str, new: &str) {
        if let Self::ShellList(words) | Self::Direct(words) = self {
            words.iter_mut().filter(|word| *word == old).for_each(|word| *word = new.to_owned());
        }
    }

    /// The text of `python -c TEXT`.
    fn python_program(&self) -> Option<&str> {
        match self {
            Self::Direct(words) => match words.as_slice() {
                [python, flag, program] if PYTHONS.contains(&python.as_str()) && flag == "-c" => Some(program),
                _ => None,
            },
            _ => None,
        }
    }

    async fn run(&self, desk: &Engines) -> Result<Ran, Refusal> {
        if let Some(code) = self.python_program() {
            match natively(desk, code, &desk.place.home, &PYTHONS, LIMIT).await {
                Ok(Some(ran)) => return Ok(ran),
                Ok(None) => {}
                Err(Error::Timeout { .. }) => return Err(self.too_slow()),
                Err(e) => return Err(e.into()),
            }
        }
        let mut argv = self.argv();
        let engine = match argv.first().map(|name| name.rsplit('/').next().unwrap_or_default()) {
            Some(name) if name.starts_with("python") => "python",
            _ => "process",
        };
        // Many systems have no `python` any more, and what agents send is for any Python 3.
        if argv.first().is_some_and(|name| name == "python")
            && find_program(&desk.place, "python").is_none()
            && find_program(&desk.place, "python3").is_some()
        {
            argv[0] = "python3".into();
        }
        let mut command = Command::new(argv).limit(LIMIT);
        command.on_timeout = OnTimeout::KillChild;
        command.on_leave = OnLeave::Keep;
        match desk.processes.run(command).await {
            Ok(output) => Ok(Ran::process(output, engine)),
            Err(Failure::TimedOut { .. }) => Err(self.too_slow()),
            Err(failure) => Err(refused(failure)),
        }
    }

    fn too_slow(&self) -> Refusal {
        Refusal::message(format!("Command '{}' timed out after {} seconds", self.printed(), LIMIT.as_secs()))
    }
}

/// Runs a program without Python, where nobody can tell the difference. `None` if it is for the
/// real interpreter, which then gets it untouched; nothing has happened in that case.
///
/// The interpreter would be the first of `pythons`, and look for modules in `directory` first.
pub(super) async fn natively(
    desk: &Engines,
    code: &str,
    directory: &Path,
    pythons: &[&str],
    limit: Duration,
) -> crate::Result<Option<Ran>> {
    let has_python = pythons.iter().any(|name| find_program(&desk.place, name).is_some());
    // What Python makes of a NUL depends on its version and on how it gets the program.
    if has_python && (code.contains('\0') || pyautogui::shadowed_in(&desk.place, directory)) {
        return Ok(None);
    }
    let Some(program) = pyautogui::understand(code) else {
        return Ok(if has_python { None } else { pyautogui::syntax_error(code).map(Ran::natively) });
    };
    match program.run(&desk.input, desk.place.clone(), limit).await {
        Ok(outcome) => Ok(Some(Ran::natively(outcome))),
        Err(e @ (Error::Unavailable { .. } | Error::Timeout { .. } | Error::PersonDrives { .. })) => Err(e),
        Err(e) if has_python => {
            tracing::debug!(%e, "left to the real interpreter");
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn bad_command() -> Refusal {
    Refusal::bad_request("command must be a string or a list of strings.")
}

/// What the original says about a command that could not be started.
fn refused(failure: Failure) -> Refusal {
    Refusal::message(failure_text(failure))
}

/// What Python says about a program that could not be started.
pub(super) fn failure_text(failure: Failure) -> String {
    match failure {
        Failure::Empty => "list index out of range".into(),
        Failure::Nul => "embedded null byte".into(),
        Failure::Start { errno, name } => python::os_error(errno, Some(&name)),
        failure => failure.to_string(),
    }
}

/// A program that has ended.
pub(super) struct Ran {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) code: i32,
    pub(super) engine: &'static str,
}

impl Ran {
    fn natively(outcome: pyautogui::Outcome) -> Self {
        Self { stdout: outcome.stdout, stderr: outcome.stderr, code: outcome.returncode, engine: "native" }
    }

    pub(super) fn process(output: crate::process::Output, engine: &'static str) -> Self {
        let mut stderr = python::decode(output.stderr);
        if output.truncated {
            stderr.push_str("\nhotdesk: the output was too large and its end was dropped\n");
        }
        Self { stdout: python::decode(output.stdout), stderr, code: output.status.code(), engine }
    }

    /// The way that it took, and the answer of `/execute`. Moved, not copied: it may be large.
    fn into_value(self) -> (&'static str, Value) {
        let value = json!({"status": "success", "output": null, "error": null, "returncode": self.code});
        let Value::Object(mut fields) = value else { return (self.engine, value) };
        fields.insert("output".into(), self.stdout.into());
        fields.insert("error".into(), self.stderr.into());
        (self.engine, Value::Object(fields))
    }
}

/// Adds the header that tells which way a program took.
pub(super) fn label(engine: &'static str, mut response: Response) -> Response {
    response.headers_mut().insert(ENGINE, HeaderValue::from_static(engine));
    response
}

/// What must become true after a command.
struct Verification {
    window: Option<String>,
    condition: Option<String>,
    max_wait: serde_json::Number,
    interval: f64,
}

impl Verification {
    /// `None` if nothing is to be verified.
    fn read(fields: &Fields) -> Result<Option<Self>, Refusal> {
        let max_wait = fields.number("max_wait_time", 10)?;
        let interval = fields.number("check_interval", 1)?.as_f64().unwrap_or(1.0);
        let wanted = match fields.get("verification") {
            Value::Object(wanted) => wanted,
            value if !python::truthy(value) => return Ok(None),
            _ => return Err(Refusal::bad_request("verification must be an object.")),
        };
        let text = |name: &str| match wanted.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Refusal::bad_request(format!("{name} must be a string."))),
        };
        let (window, condition) = (text("window_exists")?, text("command_success")?);
        Ok((!wanted.is_empty()).then_some(Self { window, condition, max_wait, interval }))
    }

    /// Waits until everything holds; returns how long that took.
    async fn wait(&self, desk: &Engines) -> Option<f64> {
        let begin = Instant::now();
        let limit = self.max_wait.as_f64().unwrap_or(0.0).min(LONGEST_WAIT);
        // A condition is a program that may have effects, so it is asked as often as was said;
        // looking at windows is free.
        let longest = if self.condition.is_some() { LONGEST_WAIT } else { WINDOW_INTERVAL };
        let pause = Duration::from_secs_f64(self.interval.min(longest).max(SHORTEST_INTERVAL));
        while begin.elapsed().as_secs_f64() < limit {
            if self.holds(desk).await {
                return Some(begin.elapsed().as_secs_f64());
            }
            tokio::time::sleep(pause).await;
        }
        None
    }

    async fn holds(&self, desk: &Engines) -> bool {
        if let Some(name) = &self.window {
            let listing = desk.windows.listing().await.unwrap_or_default();
            if !listing.to_lowercase().contains(&name.to_lowercase()) {
                return false;
            }
        }
        let Some(condition) = &self.condition else { return true };
        let mut command = Command::new(["/bin/sh", "-c", condition]).limit(CONDITION_LIMIT);
        command.on_timeout = OnTimeout::KillChild;
        command.output_limit = 0;
        desk.processes.run(command).await.is_ok_and(|output| output.status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(fields: Value) -> Wanted {
        let env = [("HOME".to_owned(), "/h".to_owned())].into();
        let display = crate::Display { number: 0, cookie: None };
        let place = Place { display, home: "/h".into(), runtime_dir: "/".into(), bus: String::new(), env };
        Wanted::read(&Fields::of(fields), &place).unwrap()
    }

    #[test]
    fn commands_are_read_as_python_would() {
        let direct = |words: &[&str]| Wanted::Direct(words.iter().map(|w| w.to_string()).collect());
        assert_eq!(wanted(json!({"command": "a 'b c' ~/d ~ '~/e f'"})), direct(&["a", "b c", "/h/d", "~", "/h/e f"]));
        assert_eq!(wanted(json!({"command": ["~/a", "~root/", "--x=~/y"]})), direct(&["/h/a", "~root/", "--x=~/y"]));
        assert_eq!(wanted(json!({"command": "a ~/b", "shell": "false"})), Wanted::Shell("a ~/b".into()));
        assert_eq!(wanted(json!({"command": ["~/a b"], "shell": 1})), Wanted::ShellList(vec!["/h/a b".into()]));
        assert_eq!(wanted(json!({})), direct(&[]));
        assert_eq!(wanted(json!({"shell": true})), Wanted::Shell(String::new()));
    }

    #[test]
    fn python_programs_are_seen() {
        assert_eq!(wanted(json!({"command": ["python", "-c", "x"]})).python_program(), Some("x"));
        assert_eq!(wanted(json!({"command": "python3 -c 'x y'"})).python_program(), Some("x y"));
        for command in [
            json!(["python", "-c"]),
            json!(["python", "-c", "x", "y"]),
            json!(["python3.11", "-c", "x"]),
            json!(["python", "-u", "x"]),
        ] {
            assert_eq!(wanted(json!({"command": command})).python_program(), None);
        }
        assert_eq!(wanted(json!({"command": ["python", "-c", "x"], "shell": true})).python_program(), None);
    }

    #[test]
    fn commands_are_printed_as_python_would() {
        assert_eq!(wanted(json!({"command": ["true a"], "shell": true})).launched(), "['true a']");
        assert_eq!(wanted(json!({"command": "true   a 'b c'"})).launched(), "true a b c");
        assert_eq!(wanted(json!({"command": "true  a", "shell": true})).launched(), "true  a");
        assert_eq!(wanted(json!({"command": ["sleep", "170"]})).printed(), "['sleep', '170']");
    }
}
