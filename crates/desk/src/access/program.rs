//! One program: its last tree, and whether that still holds.

use super::ask::Talk;
use super::bus::{Announced, Bus, Refusal};
use super::eyes::Seen;
use super::tree::{Area, Node, Place, Tree};
use super::walk::{Reference, Scope, place_of, states_of, walk};
use super::{OLDEST, lock, xml};
use futures_util::future::join_all;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use zbus::message::Message;

/// How long a program may be silent while its tree is built: long enough for one that is loading
/// something, short enough for whoever waits for the desktop.
const PATIENCE: Duration = Duration::from_millis(2500);
/// The same for a program that did not answer the last time either.
const LITTLE_PATIENCE: Duration = Duration::from_millis(400);
/// No program may take longer, however many answers it gives.
const BUILD_TIME: Duration = Duration::from_secs(8);
/// For the small question whether a tree still holds. A program that is busier than that is doing something.
const SMALL_QUESTION: Duration = Duration::from_millis(400);
/// States that are worth asking for; a program that announced more has really changed.
const MOST_DISPUTED: usize = 16;
/// More places where a program shows something are taken as "everywhere".
const MOST_AREAS: usize = 64;

pub(super) struct Program {
    pub(super) place: Place,
    /// Where it listens by itself; asked for once.
    peer: tokio::sync::OnceCell<Option<String>>,
    /// Held while the tree is built.
    kept: tokio::sync::Mutex<Kept>,
    /// Where it shows something, for the eyes. `None`: unknown, so everywhere.
    areas: Mutex<Option<Vec<Area>>>,
    /// Something was painted there since the walk began.
    painted: AtomicBool,
}

#[derive(Default)]
struct Kept {
    built: Option<Arc<Built>>,
    /// Changes that were announced when the walk began.
    changes: u64,
    silent: bool,
}

/// A tree and what was made of it.
pub(super) struct Built {
    pub(super) tree: Tree,
    xml: OnceLock<String>,
    when: Instant,
}

impl Built {
    pub(super) fn xml(&self) -> &str {
        self.xml.get_or_init(|| xml::application(&self.tree))
    }
}

impl Program {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            peer: tokio::sync::OnceCell::new(),
            kept: tokio::sync::Mutex::default(),
            areas: Mutex::new(None),
            painted: AtomicBool::new(true),
        }
    }

    /// Asks for the program's windows. `true` if they are those of the kept tree; after this, all
    /// announcements that it made so far are counted.
    pub(super) async fn is_as_announced(&self, bus: &Bus) -> bool {
        // Being built right now: the one who builds is after us.
        let Ok(kept) = self.kept.try_lock() else { return true };
        let Some(built) = kept.built.clone() else { return false };
        drop(kept);
        let answer = bus.ask(&self.place, "org.a11y.atspi.Accessible", "GetChildren", &(), SMALL_QUESTION).await;
        answer.is_ok_and(|answer| self.has_windows(&built.tree, &answer))
    }

    fn has_windows(&self, tree: &Tree, answer: &Message) -> bool {
        let body = answer.body();
        let Ok(now) = body.deserialize::<Vec<Reference<'_>>>() else { return false };
        let Some(root) = tree.root() else { return false };
        let now = now.iter().filter_map(|r| place_of(&self.place.bus, r));
        tree.children(root).map(|n| n.place.clone()).eq(now)
    }

    /// Notes whether something was painted where this program is.
    pub(super) fn screen_changed(&self, seen: &Seen) {
        let touched = seen.windows_changed
            || match &*lock(&self.areas) {
                None => !seen.painted.is_empty(),
                Some(areas) => seen.painted.iter().any(|p| areas.iter().any(|a| a.meets(p))),
            };
        if touched {
            self.painted.store(true, Ordering::Release);
        }
    }

    /// The tree: the kept one if it still holds, else a new one. `None` if the program tells nothing.
    pub(super) async fn tree(&self, bus: &Bus, as_announced: bool) -> Option<Arc<Built>> {
        let mut kept = self.kept.lock().await;
        if let Some(built) = &kept.built {
            let may_hold =
                as_announced && built.tree.complete && !self.painted.load(Ordering::Acquire) && built.when.elapsed() < OLDEST;
            if may_hold && self.is_as_told(bus, &built.tree, kept.changes).await {
                return Some(built.clone());
            }
        }
        *lock(&self.areas) = None;
        self.painted.store(false, Ordering::Release);
        let (when, changes) = (Instant::now(), bus.begin(&self.place.bus));
        let patience = if kept.silent { LITTLE_PATIENCE } else { PATIENCE };
        let tree = self.build(bus, Scope::Whole, patience).await;
        kept.silent = !tree.complete;
        if tree.nodes.is_empty() {
            // A frozen program still shows what it showed.
            return kept.built.clone();
        }
        *lock(&self.areas) = areas_of(&tree);
        let built = Arc::new(Built { tree, xml: OnceLock::new(), when });
        kept.changes = changes;
        kept.built = Some(built.clone());
        Some(built)
    }

    /// Whether the tree holds after what was announced since its walk began. What is announced about states
    /// is checked: GTK says of some buttons that they are checked, each time when asked, and they are not.
    async fn is_as_told(&self, bus: &Bus, tree: &Tree, changes: u64) -> bool {
        let Some(disputed) = disputed(tree, changes, &bus.announced(&self.place.bus)) else { return false };
        let check = async |node: Node| {
            let answer = bus.ask(&node.place, "org.a11y.atspi.Accessible", "GetState", &(), SMALL_QUESTION).await;
            answer.is_ok_and(|a| a.body().deserialize::<Vec<u32>>().is_ok_and(|s| states_of(&s) == node.states))
        };
        join_all(disputed.into_iter().map(check)).await.into_iter().all(|same| same)
    }

    /// Walks the program in a thread of its own.
    pub(super) async fn build(&self, bus: &Bus, scope: Scope, patience: Duration) -> Tree {
        let peer = self.peer(bus, patience).await;
        let (place, address) = (self.place.clone(), bus.address.clone());
        let work = move || match Talk::with(place.bus.clone(), peer.as_deref(), address, patience, BUILD_TIME) {
            Ok(mut talk) => walk(&mut talk, place.bus, &place.path, scope),
            Err(e) => {
                tracing::debug!(program = %place.bus, "no talk with the program: {e}");
                Tree::default()
            }
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_default()
    }

    async fn peer(&self, bus: &Bus, time: Duration) -> Option<String> {
        let ask = async || match bus.ask(&self.place, "org.a11y.atspi.Application", "GetApplicationBusAddress", &(), time).await {
            Ok(answer) => {
                let address = answer.body().deserialize::<String>().unwrap_or_default();
                Ok(Some(address).filter(|a| !a.is_empty()))
            }
            Err(Refusal::Error { .. }) => Ok(None),
            // Not an answer: ask again the next time.
            Err(refusal) => Err(refusal),
        };
        self.peer.get_or_try_init(ask).await.ok().cloned().flatten()
    }
}

/// The nodes whose states are not what was announced since the tree's walk began. `None` if more than
/// states changed, or too much to ask for.
fn disputed(tree: &Tree, changes: u64, announced: &Announced) -> Option<Vec<Node>> {
    let mut nodes: Vec<Node> = Vec::new();
    for ((path, bit), set) in &announced.states {
        let node = tree.nodes.iter().find(|n| n.place.path == *path)?;
        if (node.states >> bit & 1 == 1) != *set && nodes.iter().all(|n| n.place != node.place) {
            nodes.push(Node { children: Vec::new(), ..node.clone() });
        }
    }
    (announced.changes == changes && nodes.len() <= MOST_DISPUTED).then_some(nodes)
}

/// The places where a program shows something, each not inside another that came before.
fn areas_of(tree: &Tree) -> Option<Vec<Area>> {
    let mut areas: Vec<Area> = Vec::new();
    for area in tree.nodes.iter().filter_map(|n| n.area) {
        if !areas.iter().any(|a| a.contains(&area)) {
            if areas.len() == MOST_AREAS {
                return None;
            }
            areas.push(area);
        }
    }
    Some(areas)
}
