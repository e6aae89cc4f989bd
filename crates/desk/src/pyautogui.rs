//! pyautogui without Python: programs inside a well-defined subset run natively, with the same X
//! events, output and exit status. Anything else is for the real interpreter.
//!
//! ```text
//!   code ── lower ──▶ Script ── evaluate on a Rehearsal ──▶ Program ── evaluate on the Desk ──▶ Outcome
//!             │                        │
//!             └── outside the subset ──┴──▶ None: the caller hands the code to Python, untouched
//! ```
//!
//! After the first click there is no way back to Python, so everything is decided before it. The
//! program is parsed and must lie wholly inside the subset; then it is rehearsed, from its start to
//! its end, on a world that does nothing. What the world will only tell later (where the pointer
//! is, how large the screen is, where home is) is *unknown* in the rehearsal: such values have a type
//! and a bound, may be computed with and printed, and may decide nothing. A rehearsal that meets
//! anything that could come out differently in Python refuses the program. The run itself then
//! goes the same way as the rehearsal, step by step; only the fail-safe, the clock and the display
//! can end it earlier.

mod builtin;
mod easing;
mod evaluate;
mod gestures;
mod handed;
mod keys;
mod literal;
mod lower;
mod modules;
mod operate;
mod player;
mod shadow;
mod stop;
mod strings;
mod syntax;
mod text;
mod value;
mod world;

#[cfg(test)]
mod tests;

pub use shadow::{shadowed, shadowed_in};
pub use world::Event;

use crate::error::Error;
use crate::input::Input;
use crate::lease::Pass;
use crate::place::Place;
use evaluate::Machine;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stop::Stop;
use syntax::Script;
use tokio::sync::{Semaphore, oneshot};
use world::{Desk, Rehearsal, World};

/// Programs that run at the same time. Each has a thread and a connection, of which an X server
/// has 256; more programs wait for their turn.
const MOST_PROGRAMS: usize = 64;
/// What the evaluator needs at its deepest, with room to spare.
const STACK: usize = 2 << 20;

/// A program that is still not back so long after its time waits for a display that hangs.
const GRACE: Duration = Duration::from_secs(2);

static TURNS: Semaphore = Semaphore::const_new(MOST_PROGRAMS);

/// A program that was understood whole and can be run natively.
#[derive(Debug, Clone)]
pub struct Program {
    script: Script,
    reads_variables: bool,
}

/// What the program left behind, as a Python process would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub returncode: i32,
}

/// Decides, before anything is done, whether `python -c CODE` can be run natively.
pub fn understand(code: &str) -> Option<Program> {
    let script = lower::lower(code)?;
    let mut machine = Machine::new(Rehearsal::blind());
    if let Err(Stop::Refuse(reason)) = machine.run(&script) {
        tracing::debug!(reason, line = machine.line, "left to the real interpreter");
        return None;
    }
    Some(Program { script, reads_variables: machine.read_variables })
}

/// The program of a command line, if it is exactly `python -c CODE`.
pub fn from_argv(argv: &[String]) -> Option<Program> {
    match argv {
        [interpreter, flag, code] if flag == "-c" && is_python(interpreter) => understand(code),
        _ => None,
    }
}

/// Whether a command is Python 3, found by name or in a usual place.
pub fn is_python(command: &str) -> bool {
    let name = ["/usr/bin/", "/usr/local/bin/", "/bin/"].iter().find_map(|folder| command.strip_prefix(folder));
    let version = name.unwrap_or(command).strip_prefix("python");
    version.is_some_and(|version| {
        version.is_empty() || version == "3" || version.strip_prefix("3.").is_some_and(|minor| minor.parse::<u8>().is_ok())
    })
}

/// What Python says to a program whose grammar is broken, for desks that have no Python to say it.
pub fn syntax_error(code: &str) -> Option<Outcome> {
    let (line, words) = lower::syntax_error(code)?;
    let text = code.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
    let stderr = format!("  File \"<string>\", line {line}\n    {text}\nSyntaxError: {words}\n");
    Some(Outcome { stdout: String::new(), stderr, returncode: 1 })
}

impl Program {
    /// Runs it on a thread of its own; parallel programs mix like parallel processes do.
    ///
    /// It goes on to its end when the caller loses interest. An error means that it had no effect,
    /// except for [`Error::Timeout`], after which it makes no more events.
    pub async fn run(self, input: &Input, place: Arc<Place>, limit: Duration) -> crate::Result<Outcome> {
        if !self.script.needs_display {
            return self.run_with(input, place, limit, Pass::default()).await;
        }
        input.gate().turn(Vec::new, |pass| self.run_with(input, place, limit, pass)).await
    }

    async fn run_with(self, input: &Input, place: Arc<Place>, limit: Duration, pass: Pass) -> crate::Result<Outcome> {
        let turn = TURNS.acquire().await.map_err(Error::internal)?;
        let (sender, receiver) = oneshot::channel();
        let input = input.clone();
        let thread = std::thread::Builder::new().name("pyautogui".into()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let outcome = self.run_here(&input, place, limit, pass);
            drop(turn);
            // Nobody may be waiting any more.
            let _ = sender.send(outcome);
        });
        spawned.map_err(|e| Error::internal(format!("no thread for a program: {e}")))?;
        match tokio::time::timeout(limit + GRACE, receiver).await {
            Ok(outcome) => outcome.unwrap_or_else(|_| Err(Error::internal("a program's thread failed"))),
            Err(_) => Err(Error::Timeout { what: "the program".into(), limit }),
        }
    }

    fn run_here(&self, input: &Input, place: Arc<Place>, limit: Duration, pass: Pass) -> crate::Result<Outcome> {
        let deadline = Instant::now() + limit;
        if self.reads_variables {
            check_variables(&place)?;
        }
        let hands = if self.script.needs_display { Some(input.hands()?) } else { None };
        let mut desk = Desk::new(place, hands, deadline, pass);
        if self.script.needs_display {
            check_screen(&mut desk)?;
        }
        let mut machine = Machine::new(desk);
        let result = machine.run(&self.script);
        let touched = machine.player.world.touched;
        match result {
            Err(Stop::Late) => Err(Error::Timeout { what: "the program".into(), limit }),
            Err(Stop::Display(error) | Stop::Taken(error)) if !touched => Err(error),
            Err(Stop::Refuse(reason)) if !touched => Err(Error::internal(format!("the program can't be run: {reason}"))),
            result => Ok(outcome(machine, result)),
        }
    }

    /// Runs it where nothing happens: what would it do on a screen of this size, with the pointer
    /// there? Keys have made-up codes.
    pub fn rehearse(&self, size: (u16, u16), pointer: (u16, u16)) -> (Vec<Event>, Outcome) {
        let at = |(x, y): (u16, u16)| (i64::from(x), i64::from(y));
        let mut machine = Machine::new(Rehearsal::seeing(at(size), at(pointer)));
        let result = machine.run(&self.script);
        let events = machine.player.world.events.take().unwrap_or_default();
        (events, outcome(machine, result))
    }
}

fn outcome<W: World>(machine: Machine<W>, result: stop::Outcome<()>) -> Outcome {
    let (mut stderr, line) = (machine.stderr, machine.line);
    let mut traceback = |words: &str| {
        stderr.push_str("Traceback (most recent call last):\n");
        stderr.push_str(&format!("  File \"<string>\", line {line}, in <module>\n{words}\n"));
        1
    };
    let returncode = match result {
        Ok(()) => 0,
        Err(Stop::Raise(class, words)) => traceback(&format!("{class}: {words}")),
        Err(Stop::Exit(code, words)) => {
            stderr.push_str(&words);
            code
        }
        Err(Stop::Display(error)) => {
            traceback(&format!("Xlib.error.ConnectionClosedError: Display connection closed by server ({error})"))
        }
        Err(Stop::Taken(error)) => traceback(&format!("RuntimeError: {error}")),
        Err(Stop::Refuse(reason)) => traceback(&format!("RuntimeError: hotdesk can't go on: {reason}")),
        Err(Stop::Late) => traceback("TimeoutError: the time is up"),
    };
    Outcome { stdout: machine.stdout, stderr, returncode }
}

/// The rehearsal took it for granted that these are there, and not longer than it reckoned.
fn check_variables(place: &Place) -> crate::Result<()> {
    let is_sane = |name: &&str| place.env.get(*name).is_some_and(|value| value.len() <= builtin::LONGEST_VARIABLE);
    match builtin::variables().iter().find(|name| !is_sane(name)) {
        Some(name) => Err(Error::internal(format!("the environment of programs has no usable {name}"))),
        None => Ok(()),
    }
}

/// The rehearsal took it for granted that places on the screen are within bounds.
fn check_screen(desk: &mut Desk) -> crate::Result<()> {
    let bounds = 1..=player::FARTHEST + 1;
    match desk.size() {
        Ok((width, height)) if bounds.contains(&width) && bounds.contains(&height) => Ok(()),
        Ok((width, height)) => Err(Error::internal(format!("a screen of {width}x{height} is beyond every bound"))),
        Err(Stop::Display(error)) => Err(error),
        Err(_) => Err(Error::internal("the size of the screen is unknown")),
    }
}
