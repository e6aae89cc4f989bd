//! The state machine of a desk, all of it.
//!
//! ```text
//!              create                      stop / idle                archive / age
//!                │                  ┌──────────────────────┐        ┌───────────────┐
//!                ▼                  │                      ▼        │               ▼
//!           ╔══════════╗        ┌───┴─────┐  ╔══════════╗ ┌─────────┴┐ ╔═══════════╗ ┌──────────┐
//!           ║ creating ╟───────►│ running │  ║ stopping ╟►│ stopped  │ ║ archiving ╟►│ archived │
//!           ╚════╤═════╝        └─┬─▲─▲─┬─┘  ╚══════════╝ └┬──┬───▲──┘ ╚═════╤═════╝ └────┬─────┘
//!                │         reset  │ │ │ │                  │  │   └──────────┘ failed     │ start
//!                │                ▼ │ │ │ desk was lost    │  │ start                     ▼
//!                │      ╔═══════════╧╗│ └──────────┐       │  │                      ╔═══════════╗
//!                │      ║ resetting  ║│            ▼       │  │                      ║ restoring ║
//!                │      ╚═══════════▲╝│        ╔══════════╗◄──┘                      ╚════╤══════╝
//!                │ failed    reset  │ └────────╢ starting ║◄──────────────────────────────┘
//!                ▼                  │          ╚══════════╝
//!           ┌─────────┐─────────────┘               ▲
//!           │  error  │─────────────────────────────┘ start
//!           └─────────┘◄── starting, stopping, resetting that failed
//!
//!           any state ── delete / age ──► ╔══════════╗ ──► deleted
//!                                         ║ deleting ║ (tried until it worked)
//!                                         ╚══════════╝
//! ```
//!
//! **Double frames are steps**: work is under way or has to be taken up. A step is entered by writing the state to the store; that line is the
//! order, and whoever holds the desk's lease carries it out. So a fleet that dies leaves its orders behind, and the next one finds them.
//! **Single frames are rests**: nothing happens by itself.
//!
//! | step | what is done | entered by | ends in |
//! |---|---|---|---|
//! | `creating` | `provider.create` | request, pool | `running`; `error` after what was made is removed |
//! | `starting` | `provider.start` (`create` if it never ran) | request; reconcile, when a running desk was lost | `running`; `error` |
//! | `stopping` | `provider.stop` | request; policy (idle); reconcile, when a stopped desk is found running | `stopped`; `error` |
//! | `resetting` | `provider.reset` | request | `running`; `error` |
//! | `archiving` | `provider.export` → archive, then `provider.delete` | request; policy (age) | `archived`; `stopped`, the desk is still whole |
//! | `restoring` | archive → `provider.import` | request (`start`) | `starting`; `archived`, the archive is still whole |
//! | `deleting` | `provider.delete`, the archive removed | request; policy (age, end of life) | `deleted`; never gives up |
//!
//! **Requests in the midst of a step**: `delete` supersedes whatever goes on. A request for what the step leads to anyway changes nothing. All others wait
//! until the step is over ([`Next::Wait`]).

use crate::error::{Error, Result};
use hotdesk_api::desk::State;

/// What somebody wants of a desk, or what became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    Start,
    Stop,
    Reset,
    Archive,
    Delete,
    /// Reconcile: it should run, and does not.
    Lost,
    /// Reconcile: it should be stopped, and runs.
    Stray,
    /// Reconcile: it should have files, and has none.
    Gone,
    /// Reconcile: its files are here, though an older copy of the store says that they are not.
    Found,
    /// The step under way came to its end.
    Done,
    /// The step under way can't be brought to its end.
    Failed,
}

/// What follows from an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Write this state down, then act.
    To(State),
    /// It is so already, or on its way there.
    Stay,
    /// The step under way must end first.
    Wait,
}

/// Whether work is under way, or has to be taken up.
pub fn is_step(state: State) -> bool {
    use State::{Archiving, Creating, Deleting, Resetting, Restoring, Starting, Stopping};
    matches!(state, Creating | Starting | Stopping | Resetting | Archiving | Restoring | Deleting)
}

/// Whether the desk uses CPU and memory, or is about to.
pub fn is_up(state: State) -> bool {
    use State::{Creating, Resetting, Running, Starting, Stopping};
    matches!(state, Creating | Running | Starting | Resetting | Stopping)
}

/// Whether the desk uses disk.
pub fn has_files(state: State) -> bool {
    !matches!(state, State::Archived | State::Deleted)
}

/// The one table of transitions.
pub fn next(state: State, intent: Intent) -> Result<Next> {
    use Intent::{Archive, Delete, Done, Failed, Found, Gone, Lost, Reset, Start, Stop, Stray};
    use Next::{Stay, To, Wait};
    use State::{
        Archived, Archiving, Creating, Deleted, Deleting, Error as Broken, Resetting, Restoring, Running, Starting, Stopped,
        Stopping,
    };
    Ok(match (state, intent) {
        (Deleted | Deleting, Delete) => Stay,
        (_, Delete) => To(Deleting),
        (Deleted | Deleting, Start | Stop | Reset | Archive) => {
            return Err(Error::Conflict("the desk is deleted; make a new one".into()));
        }

        (Stopped | Broken, Start) => To(Starting),
        (Archived, Start) => To(Restoring),
        (Creating | Running | Starting | Resetting | Restoring, Start) => Stay,
        (Stopping | Archiving, Start) => Wait,

        (Running, Stop) => To(Stopping),
        (Stopping | Stopped | Archiving | Archived, Stop) => Stay,
        (Creating | Starting | Resetting | Restoring, Stop) => Wait,

        (Running | Stopped | Broken, Reset) => To(Resetting),
        (Resetting, Reset) => Stay,
        (Creating | Starting | Stopping | Archiving | Restoring, Reset) => Wait,
        (Archived, Reset) => return Err(Error::Conflict("the desk is archived; start it first, then reset it".into())),

        (Stopped, Archive) => To(Archiving),
        (Archiving | Archived, Archive) => Stay,
        (Stopping, Archive) => Wait,
        (Running | Creating | Starting | Resetting | Restoring, Archive) => {
            return Err(Error::Conflict("only a stopped desk can be archived; stop it first".into()));
        }
        (Broken, Stop | Archive) => {
            return Err(Error::Conflict(
                "the desk is in error; start it to try again, reset it to begin anew, or delete it".into(),
            ));
        }

        (Running, Lost) => To(Starting),
        (Stopped, Stray) => To(Stopping),
        (Running | Stopped, Gone) => To(Broken),
        (Archived | Broken, Found) => To(Stopped),

        (Creating | Starting | Resetting, Done) => To(Running),
        (Stopping, Done) => To(Stopped),
        (Archiving, Done) => To(Archived),
        (Restoring, Done) => To(Starting),
        (Deleting, Done) => To(Deleted),

        (Creating | Starting | Stopping | Resetting, Failed) => To(Broken),
        (Archiving, Failed) => To(Stopped),
        (Restoring, Failed) => To(Archived),
        // Whatever stands in the way, it is tried again.
        (Deleting, Failed) => Stay,

        // What reconcile or a driver saw is no longer so.
        (_, Lost | Stray | Gone | Found | Done | Failed) => Stay,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 12] = [
        State::Creating,
        State::Running,
        State::Stopping,
        State::Stopped,
        State::Starting,
        State::Resetting,
        State::Archiving,
        State::Archived,
        State::Restoring,
        State::Deleting,
        State::Deleted,
        State::Error,
    ];
    const REQUESTS: [Intent; 5] = [Intent::Start, Intent::Stop, Intent::Reset, Intent::Archive, Intent::Delete];

    #[test]
    fn delete_wins_over_everything() {
        for state in STATES {
            let expected = if matches!(state, State::Deleted | State::Deleting) { Next::Stay } else { Next::To(State::Deleting) };
            assert_eq!(next(state, Intent::Delete).unwrap(), expected, "{state:?}");
        }
    }

    #[test]
    fn every_step_ends() {
        for state in STATES.into_iter().filter(|s| is_step(*s)) {
            let mut at = state;
            for _ in 0..3 {
                if let Next::To(to) = next(at, Intent::Done).unwrap() {
                    at = to;
                }
            }
            assert!(!is_step(at), "{state:?} ended in {at:?}");
            match next(state, Intent::Failed).unwrap() {
                Next::To(to) => assert!(!is_step(to), "{state:?} failed into {to:?}"),
                Next::Stay => assert_eq!(state, State::Deleting),
                Next::Wait => panic!("a failure can't wait"),
            }
        }
    }

    #[test]
    fn requests_wait_only_for_steps_and_enter_only_steps() {
        for state in STATES {
            for request in REQUESTS {
                match next(state, request) {
                    Ok(Next::To(to)) => {
                        assert!(is_step(to), "{state:?} {request:?}");
                        assert!(!is_step(state) || request == Intent::Delete, "{state:?} {request:?} breaks into a step");
                    }
                    Ok(Next::Wait) => assert!(is_step(state), "{state:?} {request:?}"),
                    Ok(Next::Stay) => {}
                    Err(e) => assert!(matches!(e, Error::Conflict(_)), "{e}"),
                }
            }
        }
    }

    #[test]
    fn a_rest_is_left_by_requests_and_reconcile_alone() {
        for state in STATES.into_iter().filter(|s| !is_step(*s)) {
            for intent in [Intent::Done, Intent::Failed] {
                assert_eq!(next(state, intent).unwrap(), Next::Stay, "{state:?} {intent:?}");
            }
        }
        assert_eq!(next(State::Running, Intent::Lost).unwrap(), Next::To(State::Starting));
        assert_eq!(next(State::Stopping, Intent::Lost).unwrap(), Next::Stay);
    }
}
