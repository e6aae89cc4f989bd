//! pyautogui without Python: programs inside a well-defined subset run natively, with the same X
//! events, output and exit status. Anything else is for the real interpreter.

use crate::input::Input;
use crate::place::Place;
use std::sync::Arc;

/// A program that was understood whole and can be run natively.
pub struct Program {}

/// What the program left behind, as a Python process would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub returncode: i32,
}

/// Decides, before anything is done, whether `python -c CODE` can be run natively.
pub fn understand(code: &str) -> Option<Program> {
    let _ = code;
    None
}

impl Program {
    /// Runs it on a thread of its own; parallel programs mix like parallel processes do.
    pub async fn run(self, input: &Input, place: Arc<Place>) -> crate::Result<Outcome> {
        let _ = (input, place);
        Err(crate::Error::internal("pyautogui"))
    }
}
