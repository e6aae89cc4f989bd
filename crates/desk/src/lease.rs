//! The lease: one driver at a time.
//!
//! ```text
//!   agent drives ──a person takes──▶ person drives ──gives back, or is idle──▶ agent drives
//! ```
//!
//! Whatever acts passes the [`Gate`] in the engine that it acts through, so no entrance can forget it.
//! While a person drives, everybody else is refused with how long that may last; who only looks is not
//! asked. A turn that was let in carries a [`Pass`], which ends with the driver, so that a list of
//! actions stops at the next one when somebody takes over.

mod asker;
mod gate;
#[cfg(test)]
mod tests;

pub use asker::{Asker, asked, with_asker};
pub use gate::Gate;

use crate::error::{Error, Result};
use crate::trace::Scribe;
use hotdesk_api::lease::{Driver, TakeLease};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// After so long without input a person gives the desk back, unless they ask for more or less.
pub const IDLE: Duration = Duration::from_secs(60);
/// Less would take the desk from somebody who reads a sentence; more would leave an agent waiting for a person who went home.
const IDLE_BOUNDS: std::ops::RangeInclusive<u64> = 5..=3600;
/// Characters of a name or of a viewer's word: they are shown in a chip and sent in a header.
const LONGEST_NAME: usize = 80;
/// Those who watch learn of a person's input no more often than this.
const PULSE: Duration = Duration::from_secs(1);
/// What the driver is called who came with a plain VNC viewer.
const VNC_VIEWER: &str = "VNC viewer";

/// Who drives. Cheap to clone.
#[derive(Clone, Default)]
pub struct Lease(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Told after every change, and now and then while a person is busy.
    changes: watch::Sender<()>,
}

struct State {
    person: Option<Person>,
    /// Milliseconds since 1970.
    since: i64,
    /// Grows whenever the driver changes; passes of older numbers are void.
    number: u64,
    idle_limit: Duration,
    told: Instant,
}

#[derive(Debug, Clone)]
struct Person {
    name: Option<String>,
    /// Missing while the desk is kept free for whoever comes.
    viewer: Option<String>,
    last_input: Instant,
}

/// What a change of drivers needs of the rest of the desk: that nothing stays pressed.
pub(crate) trait LetGo: Clone + Send + Sync + 'static {
    fn let_go(&self) -> impl Future<Output = ()> + Send;
}

/// What becomes of an event of a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It counts.
    Goes,
    /// It counts, and its viewer has just taken over.
    TookOver,
    /// Somebody else drives.
    Dropped,
}

/// Leave to act, as long as the driver does not change.
#[derive(Clone)]
pub struct Pass {
    lease: Lease,
    number: u64,
    pub(crate) driver: Driver,
    pub(crate) name: Option<String>,
    /// Writes down what a program does with it.
    pub(crate) scribe: Option<Scribe>,
}

impl Lease {
    /// Who drives now.
    pub fn look(&self) -> hotdesk_api::lease::Lease {
        let state = self.lock();
        let person = state.person.as_ref();
        hotdesk_api::lease::Lease {
            driver: if person.is_some() { Driver::Person } else { Driver::Agent },
            name: person.and_then(|person| person.name.clone()),
            viewer: person.and_then(|person| person.viewer.clone()),
            since: time_text(state.since),
            idle_limit_s: state.idle_limit.as_secs(),
            returns_in_s: person.map(|person| whole_seconds(state.left(person))),
        }
    }

    /// Is told whenever [`Lease::look`] says something new.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// A person takes over; `hands` let go of what the last driver held.
    pub(crate) async fn take(&self, how: TakeLease, hands: impl LetGo) -> Result<hotdesk_api::lease::Lease> {
        let idle_limit = how.idle_s.unwrap_or(IDLE.as_secs());
        if !IDLE_BOUNDS.contains(&idle_limit) {
            let (least, most) = (IDLE_BOUNDS.start(), IDLE_BOUNDS.end());
            return Err(Error::Invalid(format!("`idle_s` is {idle_limit}; it must be from {least} to {most}")));
        }
        for (what, text) in [("name", &how.name), ("viewer", &how.viewer)] {
            let fits =
                |text: &String| !text.is_empty() && text.chars().count() <= LONGEST_NAME && !text.chars().any(char::is_control);
            if !text.as_ref().is_none_or(fits) {
                return Err(Error::Invalid(format!(
                    "`{what}` has from 1 to {LONGEST_NAME} characters, and none that can't be seen"
                )));
            }
        }
        let changed = self.enter(how.name, how.viewer, Duration::from_secs(idle_limit), how.force)?;
        if changed {
            hands.let_go().await;
            self.return_when_idle(hands);
        }
        Ok(self.look())
    }

    /// The desk goes back to the agent, whoever drives; `hands` let go first, while nobody else may act yet.
    pub(crate) async fn give(&self, hands: impl LetGo) -> hotdesk_api::lease::Lease {
        let number = self.lock().number;
        if self.look().driver == Driver::Person {
            hands.let_go().await;
            self.end(number);
        }
        self.look()
    }

    /// An event of a viewer's keyboard or mouse. A plain one, which can't ask, takes over with it where it may.
    pub(crate) async fn touch(&self, viewer: &str, plain: bool, hands: impl LetGo) -> Touch {
        {
            let mut state = self.lock();
            let now = Instant::now();
            if let Some(person) = &mut state.person
                && person.viewer.as_deref() == Some(viewer)
            {
                person.last_input = now;
                let tell = now.duration_since(state.told) >= PULSE;
                if tell {
                    state.told = now;
                }
                drop(state);
                if tell {
                    self.0.changes.send_replace(());
                }
                return Touch::Goes;
            }
            if !plain || state.person.as_ref().is_some_and(|person| person.viewer.is_some()) {
                return Touch::Dropped;
            }
        }
        let how = TakeLease { name: Some(VNC_VIEWER.into()), viewer: Some(viewer.to_owned()), ..TakeLease::default() };
        match self.take(how, hands).await {
            Ok(_) => Touch::TookOver,
            Err(_) => Touch::Dropped,
        }
    }

    /// Whether a viewer's text may go to the clipboard. Plain viewers send theirs unasked, so that takes nothing over.
    pub(crate) fn may_copy(&self, viewer: &str, plain: bool) -> bool {
        match &self.lock().person {
            Some(person) => person.viewer.as_deref() == Some(viewer),
            None => plain,
        }
    }

    /// Leave for whoever asks, or the refusal.
    pub(crate) fn pass(&self, asker: &Asker) -> Result<Pass> {
        let mut state = self.lock();
        let number = state.number;
        let pass = |driver, name| Pass { lease: self.clone(), number, driver, name, scribe: None };
        let left = state.person.as_ref().map(|person| state.left(person));
        match &mut state.person {
            None => Ok(pass(Driver::Agent, None)),
            Some(person) if person.viewer.is_some() && person.viewer == asker.viewer => {
                person.last_input = Instant::now();
                Ok(pass(Driver::Person, person.name.clone()))
            }
            Some(person) => Err(refusal(person, left.unwrap_or_default())),
        }
    }

    /// Puts a person in the driver's seat; whether that is somebody else than before.
    fn enter(&self, name: Option<String>, viewer: Option<String>, idle_limit: Duration, force: bool) -> Result<bool> {
        let mut state = self.lock();
        let changed = match &state.person {
            Some(person) if person.viewer == viewer && (viewer.is_some() || person.name == name) => false,
            // Kept free for whoever comes first.
            Some(person) if person.viewer.is_none() && viewer.is_some() => true,
            Some(person) if !force => {
                let who = person.name.as_deref().unwrap_or("another person");
                return Err(Error::Conflict(format!("{who} drives this desk; send `force` to take it from them")));
            }
            _ => true,
        };
        state.person = Some(Person { name, viewer, last_input: Instant::now() });
        state.idle_limit = idle_limit;
        if changed {
            state.number += 1;
            state.since = now_ms();
        }
        drop(state);
        self.0.changes.send_replace(());
        Ok(changed)
    }

    /// Ends what began with this number, unless that is over already.
    fn end(&self, number: u64) {
        let mut state = self.lock();
        if state.number == number && state.person.is_some() {
            *state = State { number: number + 1, ..State::default() };
            drop(state);
            self.0.changes.send_replace(());
        }
    }

    fn return_when_idle(&self, hands: impl LetGo) {
        let lease = self.clone();
        let number = lease.lock().number;
        let mut changes = lease.watch();
        tokio::spawn(async move {
            loop {
                let left = {
                    let state = lease.lock();
                    match &state.person {
                        Some(person) if state.number == number => state.left(person),
                        _ => return,
                    }
                };
                if left.is_zero() {
                    hands.let_go().await;
                    tracing::info!("the person who drove was idle; the agent drives again");
                    return lease.end(number);
                }
                // The limit may become another one meanwhile.
                let _ = tokio::time::timeout(left, changes.changed()).await;
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How long the person may go on doing nothing.
    fn left(&self, person: &Person) -> Duration {
        self.idle_limit.saturating_sub(person.last_input.elapsed())
    }
}

impl Default for State {
    fn default() -> Self {
        Self { person: None, since: now_ms(), number: 0, idle_limit: IDLE, told: Instant::now() }
    }
}

impl Default for Inner {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: watch::channel(()).0 }
    }
}

impl Default for Pass {
    /// Leave for ever, where nobody can take over.
    fn default() -> Self {
        Self { lease: Lease::default(), number: 0, driver: Driver::Agent, name: None, scribe: None }
    }
}

impl Pass {
    /// Whether it still holds.
    pub(crate) fn check(&self) -> Result<()> {
        let state = self.lease.lock();
        match &state.person {
            _ if state.number == self.number => Ok(()),
            Some(person) => Err(refusal(person, state.left(person))),
            None => Err(Error::Conflict("the driver changed meanwhile".into())),
        }
    }
}

fn refusal(person: &Person, left: Duration) -> Error {
    Error::PersonDrives { who: person.name.clone().unwrap_or_else(|| "a person".into()), returns_in: left }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// A time as RFC 3339.
pub(crate) fn time_text(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

/// Rounded up: 0 would be a promise that nobody keeps.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
