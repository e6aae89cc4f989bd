//! Accessibility: the tree of the desk's programs over AT-SPI.
//!
//! ```text
//!   Access ── bus      the registry, and a count of what each program announced
//!          ├─ eyes     what was painted on the screen since the last look
//!          ├─ program  one per program: its last tree and whether that still holds
//!          │    └─ walk ── ask ── wire     building a tree, thousands of questions at once
//!          │         └─ sheet              the visible cells of a spreadsheet
//!          ├─ xml      the tree in OSWorld's words
//!          ├─ find     the tree, a part of it, or one element in the words of the native API
//!          └─ act      doing something to an element
//! ```
//!
//! # When a tree is used again
//!
//! A tree is kept for each program, and given out again only if all of this holds; otherwise that
//! program is walked anew:
//!
//! 1. The program announced nothing since the walk *began*. It is asked one small question through
//!    the bus first; as messages of one sender keep their order, everything that it announced before
//!    its answer has been counted when the answer is there.
//! 2. It still has the windows that it had (that is the small question).
//! 3. It painted nothing, except things as thin as a caret, and none of its windows came, went, moved or
//!    was resized. Areas change silently in most toolkits, but never invisibly. Where it is not known
//!    who painted, everything that lies there counts.
//! 4. The tree is younger than [`OLDEST`], in case a program both hides and forgets to announce.
//!
//! Without XDamage rule 3 cannot be checked, and nothing is used again.

mod act;
mod ask;
mod bus;
mod eyes;
mod find;
mod program;
mod sheet;
mod terminal;
mod tree;
mod walk;
pub(crate) mod wire;
mod words;
mod xml;

use crate::error::Result;
use crate::lease::Gate;
use crate::place::Place;
use bus::Bus;
use eyes::{Eyes, Seen};
use futures_util::future::join_all;
use hotdesk_api::access::{Act, ActReply, AtReply, FindReply, FindRequest, TreeQuery, TreeReply};
use hotdesk_api::trace::{Deed, OtherDeed};
use program::{Built, Program};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// No tree is given out for longer without looking again at all of it.
const OLDEST: Duration = Duration::from_secs(5);
/// When nobody asked for this long, trees are dropped and programs need no longer announce things.
const IDLE: Duration = Duration::from_secs(60);
/// After a failure to reach the bus, the next try.
const TRY_AGAIN: Duration = Duration::from_millis(300);

/// The accessibility engine. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
    gate: Gate,
}

struct Inner {
    place: Arc<Place>,
    /// Held while connecting, so that many requests make one connection.
    session: tokio::sync::Mutex<Reach>,
    eyes: Mutex<Option<Eyes>>,
}

/// Whether the bus is reached.
enum Reach {
    Not,
    Failed(crate::Error, Instant),
    Connected(Arc<Session>),
}

/// Everything that lives as long as one connection to the bus.
struct Session {
    bus: Bus,
    programs: Mutex<HashMap<Box<str>, Arc<Program>>>,
    last_use: Mutex<Instant>,
}

impl Access {
    pub fn new(place: Arc<Place>) -> Self {
        let inner = Inner { place, session: tokio::sync::Mutex::new(Reach::Not), eyes: Mutex::new(None) };
        Self { inner: Arc::new(inner), gate: Gate::default() }
    }

    /// The same behind a gate.
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// The whole desktop as the XML that OSWorld's server answers.
    pub async fn osworld_xml(&self) -> Result<String> {
        let trees = self.trees().await?;
        Ok(xml::document(trees.iter().map(|t| t.xml())))
    }

    /// The text of the active gnome-terminal, as OSWorld's `/terminal` answers it.
    pub async fn terminal_text(&self) -> Result<Option<String>> {
        let session = self.session().await?;
        terminal::text(&session).await
    }

    /// The tree, or a part of it, in the words of the native API.
    pub async fn tree(&self, query: &TreeQuery) -> Result<TreeReply> {
        let (trees, complete) = self.trees_of(query.app.as_deref()).await?;
        find::tree(&trees, query, complete)
    }

    /// The elements for which everything that is asked holds.
    pub async fn find(&self, request: &FindRequest) -> Result<FindReply> {
        let (trees, _) = self.trees_of(request.app.as_deref()).await?;
        find::find(&trees, request)
    }

    /// The element that a click at a place would meet.
    pub async fn at(&self, x: i32, y: i32) -> Result<AtReply> {
        let place = self.inner.place.clone();
        let look = move || Eyes::open(&place.display)?.top_at(x, y);
        let top = tokio::task::spawn_blocking(look).await.map_err(crate::Error::internal)??;
        let Some(top) = top else { return Ok(AtReply { element: None, within: Vec::new() }) };
        let session = self.session().await?;
        let programs = session.programs().await?;
        let pids = join_all(programs.iter().map(|p| p.pid(&session.bus))).await;
        let owner = programs.iter().zip(pids).find(|(_, pid)| pid.is_some() && *pid == top.pid);
        let owner = owner.map(|(program, _)| program.place.bus.clone());
        let trees = self.trees().await?;
        Ok(find::at(&trees, x, y, Some(&top), owner.as_deref()))
    }

    /// Does something to an element.
    pub async fn act(&self, act: &Act) -> Result<ActReply> {
        let work = async |_| {
            let session = self.session().await?;
            act::act(&session.bus, act).await
        };
        // Found again on another desk by its name; whoever acts has read the tree, so it is at hand.
        let element = match self.gate.records() {
            true => self.trees().await.ok().and_then(|trees| find::name_of(&trees, act.id())),
            false => None,
        };
        self.gate.turn(|| vec![Deed::Other(OtherDeed::Element { act: act.clone(), element })], work).await
    }

    /// Forgets all trees, so that the next answer is built from nothing.
    pub async fn forget(&self) {
        if let Reach::Connected(session) = &*self.inner.session.lock().await {
            lock(&session.programs).clear();
        }
    }

    /// The trees of all programs, in the order of the registry. Programs that tell nothing are left out.
    async fn trees(&self) -> Result<Vec<Arc<Built>>> {
        Ok(self.trees_of(None).await?.0)
    }

    /// The same for one program only, and whether every program told its tree.
    async fn trees_of(&self, app: Option<&str>) -> Result<(Vec<Arc<Built>>, bool)> {
        let session = self.session().await?;
        let mut programs = session.programs().await?;
        if let Some(app) = app {
            let named = join_all(programs.iter().map(|p| p.is_named(&session.bus, app))).await;
            programs = programs.into_iter().zip(named).filter(|(_, is)| *is).map(|(p, _)| p).collect();
        }
        let windows = join_all(programs.iter().map(|p| p.windows(&session.bus))).await;
        join_all(programs.iter().map(|p| p.pid(&session.bus))).await;
        self.look(&programs).await;
        let built = programs.iter().zip(windows).map(|(program, windows)| program.tree(&session.bus, windows));
        let built = join_all(built).await;
        let complete = built.iter().all(Option::is_some);
        Ok((built.into_iter().flatten().collect(), complete))
    }

    async fn session(&self) -> Result<Arc<Session>> {
        let mut reach = self.inner.session.lock().await;
        match &*reach {
            Reach::Connected(session) if session.bus.is_alive() => {
                *lock(&session.last_use) = Instant::now();
                return Ok(session.clone());
            }
            Reach::Failed(error, when) if when.elapsed() < TRY_AGAIN => return Err(error.clone()),
            _ => {}
        }
        match Bus::connect(&self.inner.place.bus).await {
            Ok(bus) => {
                let session = Arc::new(Session { bus, programs: Mutex::default(), last_use: Mutex::new(Instant::now()) });
                *reach = Reach::Connected(session.clone());
                self.rest_when_idle();
                Ok(session)
            }
            Err(error) => {
                *reach = Reach::Failed(error.clone(), Instant::now());
                Err(error)
            }
        }
    }

    /// Drops the session and the eyes after a while without use.
    fn rest_when_idle(&self) {
        let inner = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE / 2).await;
                let Some(inner) = inner.upgrade() else { return };
                let mut reach = inner.session.lock().await;
                let idle = match &*reach {
                    Reach::Connected(session) => lock(&session.last_use).elapsed() >= IDLE,
                    _ => true,
                };
                if idle {
                    *reach = Reach::Not;
                    *lock(&inner.eyes) = None;
                    return;
                }
            }
        });
    }

    /// Tells every program what was painted since the last look.
    async fn look(&self, programs: &[Arc<Program>]) {
        let inner = self.inner.clone();
        let watched = programs.to_vec();
        let look = move || {
            let mut eyes = lock(&inner.eyes);
            let seen = match &mut *eyes {
                Some(open) => open.look(),
                // What was before they opened was not seen.
                None => Eyes::watch(&inner.place.display).map(|open| {
                    *eyes = Some(open);
                    Seen::blind()
                }),
            };
            let mut seen = seen.unwrap_or_else(|e| {
                tracing::debug!("the screen can't be watched, so no tree is used again: {e}");
                *eyes = None;
                Seen::blind()
            });
            seen.keep_owners(&watched.iter().filter_map(|p| p.known_pid()).collect());
            for program in &watched {
                program.screen_changed(&seen);
            }
        };
        if tokio::task::spawn_blocking(look).await.is_err() {
            programs.iter().for_each(|p| p.screen_changed(&Seen::blind()));
        }
    }
}

impl Session {
    /// The programs of the registry. Forgets those that are gone.
    async fn programs(&self) -> Result<Vec<Arc<Program>>> {
        let places = self.bus.programs().await?;
        let mut known = lock(&self.programs);
        known.retain(|bus, _| places.iter().any(|p| *p.bus == **bus));
        let programs = places.into_iter().map(|place| {
            let bus: Box<str> = (&*place.bus).into();
            known.entry(bus).or_insert_with(|| Arc::new(Program::new(place))).clone()
        });
        let programs = programs.collect();
        self.bus.forget(|bus| known.contains_key(bus));
        Ok(programs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
