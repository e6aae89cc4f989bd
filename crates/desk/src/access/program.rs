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
use zbus::zvariant::Value;

/// How long a program may be silent while its tree is built: long enough for one that is loading
/// something, short enough for whoever waits for the desktop.
const PATIENCE: Duration = Duration::from_millis(2500);
/// No program may take longer, however many answers it gives.
const BUILD_TIME: Duration = Duration::from_secs(10);
/// For the small question whether a tree still holds. A program that is busier than that is doing something.
const SMALL_QUESTION: Duration = Duration::from_millis(400);
/// Nodes that are worth asking for; a program that announced more has really changed.
const MOST_DISPUTED: usize = 32;
/// More places where a program shows something are taken as "everywhere".
const MOST_AREAS: usize = 64;

pub(super) struct Program {
    pub(super) place: Place,
    /// Where it listens by itself; asked for once.
    peer: tokio::sync::OnceCell<Option<String>>,
    pid: tokio::sync::OnceCell<Option<u32>>,
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
    pub(super) fn new(tree: Tree) -> Self {
        Self { tree, xml: OnceLock::new(), when: Instant::now() }
    }

    pub(super) fn xml(&self) -> &str {
        self.xml.get_or_init(|| xml::application(&self.tree))
    }
}

impl Program {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            peer: tokio::sync::OnceCell::new(),
            pid: tokio::sync::OnceCell::new(),
            kept: tokio::sync::Mutex::default(),
            areas: Mutex::new(None),
            painted: AtomicBool::new(true),
        }
    }

    /// Whether the program has this name; case does not matter.
    pub(super) async fn is_named(&self, bus: &Bus, name: &str) -> bool {
        let told = bus.get(&self.place, "org.a11y.atspi.Accessible", "Name", SMALL_QUESTION).await;
        let told = told.ok().and_then(|m| m.body().deserialize::<Value<'_>>().ok().and_then(|v| String::try_from(v).ok()));
        told.is_some_and(|n| n.to_lowercase() == name.to_lowercase())
    }

    async fn says_something(&self, bus: &Bus) -> bool {
        let word = bus.get(&self.place, "org.a11y.atspi.Accessible", "Name", SMALL_QUESTION).await;
        !matches!(word, Err(Refusal::Silence))
    }

    /// Asks for the program's windows, if there is a tree that may still hold. After this, all announcements
    /// that it made so far are counted. `None` if it did not say.
    pub(super) async fn windows(&self, bus: &Bus) -> Option<Vec<Place>> {
        // A tree that is being built may be older than this request, too.
        if self.kept.try_lock().is_ok_and(|kept| kept.built.is_none()) {
            return None;
        }
        let answer = bus.ask(&self.place, "org.a11y.atspi.Accessible", "GetChildren", &(), SMALL_QUESTION).await.ok()?;
        let body = answer.body();
        let windows: Vec<Reference<'_>> = body.deserialize().ok()?;
        Some(windows.iter().filter_map(|r| place_of(&self.place.bus, r)).collect())
    }

    /// The process; `None` if the bus does not know it.
    pub(super) async fn pid(&self, bus: &Bus) -> Option<u32> {
        *self.pid.get_or_init(|| bus.pid_of(&self.place.bus)).await
    }

    pub(super) fn known_pid(&self) -> Option<u32> {
        self.pid.get().copied().flatten()
    }

    /// Notes whether this program painted something, or may have.
    pub(super) fn screen_changed(&self, seen: &Seen) {
        let meets = |painted: &[Area]| match &*lock(&self.areas) {
            None => !painted.is_empty(),
            Some(areas) => painted.iter().any(|p| areas.iter().any(|a| a.meets(p))),
        };
        let by_owner = match self.known_pid() {
            Some(pid) => seen.owners.contains(&pid),
            None => meets(&seen.painted),
        };
        if seen.blind || by_owner || meets(&seen.unowned) {
            self.painted.store(true, Ordering::Release);
        }
    }

    /// The tree: the kept one if it still holds, else a new one. `None` if the program tells nothing.
    pub(super) async fn tree(&self, bus: &Bus, windows: Option<Vec<Place>>) -> Option<Arc<Built>> {
        let mut kept = self.kept.lock().await;
        if let Some(built) = &kept.built {
            let may_hold = built.tree.complete
                && windows.is_some_and(|w| built.tree.windows().eq(&w))
                && !self.painted.load(Ordering::Acquire)
                && built.when.elapsed() < OLDEST;
            if may_hold && self.is_as_told(bus, &built.tree, kept.changes).await {
                return Some(built.clone());
            }
        }
        *lock(&self.areas) = None;
        self.painted.store(false, Ordering::Release);
        let changes = bus.begin(&self.place.bus);
        // Who said nothing the last time has to say a word first.
        let speaks = !kept.silent || self.says_something(bus).await;
        let tree = if speaks { self.build(bus, Scope::Whole, PATIENCE).await } else { Tree::default() };
        kept.silent = tree.nodes.is_empty();
        if tree.nodes.is_empty() {
            // A frozen program still shows what it showed.
            return kept.built.clone();
        }
        *lock(&self.areas) = areas_of(&tree);
        let built = Arc::new(Built::new(tree));
        kept.changes = changes;
        kept.built = Some(built.clone());
        Some(built)
    }

    /// Whether the tree holds after what was announced since its walk began. News about roles and states is
    /// checked: GTK says of some buttons that they are checked, each time when asked, and they are not.
    async fn is_as_told(&self, bus: &Bus, tree: &Tree, changes: u64) -> bool {
        let Some(disputed) = disputed(tree, changes, &bus.announced(&self.place.bus)) else { return false };
        let check = async |node: Node| {
            let ask = |member| bus.ask(&node.place, "org.a11y.atspi.Accessible", member, &(), SMALL_QUESTION);
            let (states, role) = tokio::join!(ask("GetState"), ask("GetRole"));
            states.is_ok_and(|a| a.body().deserialize::<Vec<u32>>().is_ok_and(|s| states_of(&s) == node.states))
                && role.is_ok_and(|a| a.body().deserialize::<u32>().is_ok_and(|r| r == node.role))
        };
        join_all(disputed.into_iter().map(check)).await.into_iter().all(|same| same)
    }

    /// Walks the program in a thread of its own.
    pub(super) async fn build(&self, bus: &Bus, scope: Scope, patience: Duration) -> Tree {
        let Ok(peer) = self.peer(bus, patience).await else { return Tree::default() };
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

    /// Where the program listens by itself, if it does; an error if it says nothing at all.
    async fn peer(&self, bus: &Bus, time: Duration) -> Result<Option<String>, Refusal> {
        let ask = async || match bus.ask(&self.place, "org.a11y.atspi.Application", "GetApplicationBusAddress", &(), time).await {
            Ok(answer) => {
                let address = answer.body().deserialize::<String>().unwrap_or_default();
                Ok(Some(address).filter(|a| !a.is_empty()))
            }
            Err(Refusal::Error { .. }) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        self.peer.get_or_try_init(ask).await.cloned()
    }
}

/// The nodes about which something else was announced since the tree's walk began than the tree says.
/// `None` if more changed than can be asked for.
fn disputed(tree: &Tree, changes: u64, announced: &Announced) -> Option<Vec<Node>> {
    let find = |path: &str| tree.nodes.iter().find(|n| *n.place.path == *path);
    let mut nodes: Vec<&Node> = Vec::new();
    for ((path, bit), set) in &announced.states {
        let node = find(path)?;
        if (node.states >> bit & 1 == 1) != *set {
            nodes.push(node);
        }
    }
    for path in &announced.roles {
        nodes.push(find(path)?);
    }
    nodes.sort_unstable_by(|a, b| a.place.path.cmp(&b.place.path));
    nodes.dedup_by(|a, b| a.place == b.place);
    let few = announced.changes == changes && nodes.len() <= MOST_DISPUTED;
    few.then(|| nodes.into_iter().map(|n| Node { children: Vec::new(), ..n.clone() }).collect())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn node(path: &str, states: u64) -> Node {
        Node { states, ..Node::at(Place { bus: ":1.1".into(), path: path.into() }) }
    }

    fn announced(changes: u64, states: &[(&str, u8, bool)]) -> Announced {
        let states: HashMap<_, _> = states.iter().map(|(path, bit, set)| (((*path).into(), *bit), *set)).collect();
        Announced { changes, states, ..Announced::default() }
    }

    #[test]
    fn what_the_tree_knows_is_not_disputed() {
        let tree = Tree { nodes: vec![node("/a", 1 << 4), node("/b", 0)], complete: true };
        let count = |a: &Announced| disputed(&tree, 3, a).map(|nodes| nodes.len());
        assert_eq!(count(&announced(3, &[])), Some(0));
        assert_eq!(count(&announced(3, &[("/a", 4, true), ("/b", 4, false)])), Some(0));
        assert_eq!(count(&announced(3, &[("/a", 4, false), ("/a", 5, true), ("/b", 4, true)])), Some(2));
        assert_eq!(count(&Announced { roles: ["/b".into()].into(), ..announced(3, &[("/b", 4, true)]) }), Some(1));
        assert_eq!(count(&announced(4, &[])), None, "more than states changed");
        assert_eq!(count(&announced(3, &[("/new", 4, true)])), None, "an element that the tree does not have");
    }

    #[test]
    fn areas_are_those_not_inside_others() {
        let with = |area| Node { area: Some(area), ..node("/", 0) };
        let window = Area { x: 10, y: 10, width: 100, height: 100 };
        let inside = Area { x: 20, y: 20, width: 10, height: 10 };
        let menu = Area { x: 100, y: 100, width: 50, height: 50 };
        let tree = Tree { nodes: vec![node("/", 0), with(window), with(inside), with(menu)], complete: true };
        assert_eq!(areas_of(&tree), Some(vec![window, menu]));
        let far_apart = (0..100).map(|i| with(Area { x: i * 10, y: 0, width: 5, height: 5 })).collect();
        assert_eq!(areas_of(&Tree { nodes: far_apart, complete: true }), None);
    }

    #[test]
    fn painting_of_others_does_not_matter() {
        let program = Program::new(Place { bus: ":1.1".into(), path: "/".into() });
        let touches = |seen: Seen| {
            program.painted.store(false, Ordering::Release);
            program.screen_changed(&seen);
            program.painted.load(Ordering::Acquire)
        };
        let spot = |x| vec![Area { x, y: 0, width: 10, height: 10 }];
        *lock(&program.areas) = Some(vec![Area { x: 0, y: 0, width: 100, height: 100 }]);
        assert!(touches(Seen::blind()));
        assert!(touches(Seen { painted: spot(50), owners: [7].into(), ..Seen::default() }), "its process is not known yet");
        program.pid.set(Some(7)).unwrap();
        assert!(touches(Seen { painted: spot(50), owners: [7].into(), ..Seen::default() }));
        assert!(!touches(Seen { painted: spot(50), owners: [8].into(), ..Seen::default() }));
        assert!(touches(Seen { painted: spot(50), unowned: spot(50), ..Seen::default() }));
        assert!(!touches(Seen { painted: spot(100), unowned: spot(100), ..Seen::default() }));
    }
}
