//! Walking one program's tree with as few questions as it allows.
//!
//! 1. `Cache.GetItems`: one call tells name, role, states, interfaces and child count of most nodes.
//!    These are right in every toolkit that was looked at. What it tells about parents and indices is
//!    not: GTK and LibreOffice name parents that do not have the child. So
//! 2. children are asked for, level by level, where there are any. Only Chromium's own structure is
//!    taken from the cache, and only where it is without gap and without doubt.
//! 3. Nodes that the cache did not tell are asked one by one, all of a level at once.
//! 4. At last everything that a node's interfaces promise: attributes, area, text, value, actions.
//!
//! A program that falls silent keeps what it told so far.

mod details;

use super::ask::{Ended, Question, Talk};
use super::sheet;
use super::tree::{Node, Place, Tree};
use super::words::{DOCUMENT_SPREADSHEET, Interfaces, TABLE, role_name};
use std::collections::HashMap;
use std::sync::Arc;
use zbus::zvariant::{ObjectPath, Value as Variant};

/// An element at this depth is written without children; applications are depth 1.
const DEEPEST: usize = 50;
/// Children beyond this many are not looked at.
pub(super) const WIDEST: usize = 1024;
/// A program with more is cut off: at some hundred bytes a node this bounds our memory.
const MOST_NODES: usize = 50_000;

/// Where AT-SPI's programs keep their root.
pub(super) const ROOT: &str = "/org/a11y/atspi/accessible/root";
/// Stands for "no such child".
const NULL: &str = "/org/a11y/atspi/null";

/// A reference as it travels.
pub(super) type Reference<'a> = (&'a str, ObjectPath<'a>);
/// What `GetItems` tells of a node: itself, application, parent, index, child count, interfaces, name, role,
/// description, states.
type Item<'a> = (Reference<'a>, Reference<'a>, Reference<'a>, i32, i32, Vec<&'a str>, &'a str, u32, &'a str, Vec<u32>);

/// How much of the tree is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Roles, names, states and structure.
    Outline,
    /// Everything.
    Whole,
}

/// The tree of the program behind `talk`. Empty if it told nothing at all.
pub(super) fn walk(talk: &mut Talk, bus: Arc<str>, path: &str, scope: Scope) -> Tree {
    let mut walk = Walk {
        talk,
        nodes: Vec::new(),
        facts: Vec::new(),
        bus: bus.clone(),
        items: HashMap::new(),
        below: HashMap::new(),
        toolkit: Toolkit::Other,
    };
    walk.add(Place { bus, path: path.into() }, false);
    let result = walk.everything(scope);
    if let Err(e) = &result {
        tracing::debug!(program = %walk.bus, "the tree is incomplete: {e}");
    }
    walk.finish(result.is_ok())
}

pub(super) struct Walk<'t> {
    pub(super) talk: &'t mut Talk,
    pub(super) nodes: Vec<Node>,
    /// Beside each node, what is needed only while walking.
    facts: Vec<Facts>,
    bus: Arc<str>,
    items: HashMap<Box<str>, Known>,
    /// Index and path of the children that the cache names, by the parent's path.
    below: HashMap<Box<str>, Vec<(i32, Box<str>)>>,
    toolkit: Toolkit,
}

#[derive(Debug, Default)]
struct Facts {
    /// Role and states are known: the node is told.
    told: bool,
    has_role: bool,
    has_states: bool,
    /// Below a spreadsheet.
    in_sheet: bool,
    /// Negative where the program does not tell it in advance.
    child_count: i32,
    /// A cell whose bounds of value are those of this one.
    like: Option<u32>,
}

/// A node as the cache tells it.
struct Known {
    child_count: i32,
    interfaces: Interfaces,
    name: Box<str>,
    role: u32,
    states: u64,
}

/// What is known about how a program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Toolkit {
    Chromium,
    /// Speaks AT-SPI through ATK's bridge: GTK 3, LibreOffice, Firefox.
    Atk,
    /// Qt, Java, AccessKit, …: nothing beyond the specification is relied on.
    Other,
}

impl Walk<'_> {
    fn everything(&mut self, scope: Scope) -> Result<(), Ended> {
        self.learn_items()?;
        let mut level = vec![0];
        for depth in 1..=DEEPEST {
            self.learn_basics(&level)?;
            if depth == DEEPEST {
                break;
            }
            level = self.learn_children(&level)?;
            if level.is_empty() {
                break;
            }
        }
        if scope == Scope::Whole {
            self.learn_details()?;
        }
        Ok(())
    }

    fn learn_items(&mut self) -> Result<(), Ended> {
        let (mut items, mut below, mut toolkit) = (HashMap::new(), HashMap::<_, Vec<_>>::new(), Toolkit::Other);
        let bus = self.bus.clone();
        self.talk.ask(&mut self.nodes, &[(0, Question::Toolkit), (0, Question::Items)], |_, i, answer| {
            if i == 0 {
                let name = answer.read::<Variant<'_>>().ok();
                toolkit = match name.as_ref().and_then(|n| n.downcast_ref::<&str>().ok()) {
                    Some("Chromium") => Toolkit::Chromium,
                    Some("gtk" | "GAIL" | "Gecko" | "WebKitGTK" | "WebKitGtk" | "VCL") => Toolkit::Atk,
                    _ => Toolkit::Other,
                };
                return;
            }
            // Programs without a cache, and those with the cache of another version, are walked.
            let Ok(told) = answer.read::<Vec<Item<'_>>>() else { return };
            for (own, _, parent, index, child_count, interfaces, name, role, _, states) in told {
                if own.0 != &*bus {
                    continue;
                }
                if toolkit == Toolkit::Chromium && parent.0 == &*bus {
                    below.entry(parent.1.as_str().into()).or_default().push((index, own.1.as_str().into()));
                }
                let known = Known {
                    child_count,
                    interfaces: Interfaces::of(interfaces),
                    name: name.into(),
                    role,
                    states: states_of(&states),
                };
                items.insert(own.1.as_str().into(), known);
            }
        })?;
        (self.items, self.below, self.toolkit) = (items, below, toolkit);
        self.recall(0);
        Ok(())
    }

    /// Asks for what the cache did not tell of these nodes.
    fn learn_basics(&mut self, level: &[u32]) -> Result<(), Ended> {
        let mut questions = Vec::new();
        for &node in level {
            let Some(facts) = self.facts.get(node as usize) else { continue };
            if !facts.told {
                questions.extend([Question::Role, Question::Name, Question::Interfaces, Question::ChildCount].map(|q| (node, q)));
                if !facts.has_states {
                    questions.push((node, Question::State));
                }
            } else if self.nodes.get(node as usize).is_some_and(|n| role_name(n.role).is_none()) {
                questions.push((node, Question::RoleName));
            }
        }
        self.basics(&questions)?;
        // The rare roles without a name of their own.
        let unnamed: Vec<_> = level
            .iter()
            .filter(|&&n| self.nodes.get(n as usize).is_some_and(|n| role_name(n.role).is_none() && n.role_name.is_none()))
            .map(|&n| (n, Question::RoleName))
            .collect();
        self.basics(&unnamed)
    }

    fn basics(&mut self, questions: &[(u32, Question)]) -> Result<(), Ended> {
        let facts = &mut self.facts;
        self.talk.ask(&mut self.nodes, questions, |nodes, i, answer| {
            let Some(&(at, question)) = questions.get(i) else { return };
            let (Some(node), Some(facts)) = (nodes.get_mut(at as usize), facts.get_mut(at as usize)) else { return };
            match question {
                Question::Role => {
                    if let Ok(role) = answer.read::<u32>() {
                        node.role = role;
                        facts.has_role = true;
                        facts.told = facts.has_states;
                    }
                }
                Question::State => {
                    if let Ok(states) = answer.read::<Vec<u32>>() {
                        node.states = states_of(&states);
                        facts.has_states = true;
                        facts.told = facts.has_role;
                    }
                }
                Question::Name => {
                    if let Some(name) = answer.read::<Variant<'_>>().ok().as_ref().and_then(|v| v.downcast_ref::<&str>().ok()) {
                        node.name = name.into();
                    }
                }
                Question::Interfaces => {
                    if let Ok(names) = answer.read::<Vec<&str>>() {
                        node.interfaces = Interfaces::of(names);
                    }
                }
                Question::ChildCount => {
                    if let Ok(Variant::I32(count)) = answer.read::<Variant<'_>>() {
                        facts.child_count = count;
                    }
                }
                Question::RoleName => node.role_name = answer.read::<&str>().ok().map(Into::into),
                _ => {}
            }
        })
    }

    /// Adds the children of a level and returns them: the next level.
    fn learn_children(&mut self, level: &[u32]) -> Result<Vec<u32>, Ended> {
        self.learn_counts(level)?;
        let mut places: Vec<Vec<Option<Place>>> = Vec::new();
        places.resize_with(level.len(), Vec::new);
        let mut questions = Vec::new();
        let mut origins = Vec::new();
        let mut sheets = Vec::new();
        for (slot, &at) in level.iter().enumerate() {
            let (Some(node), Some(facts)) = (self.nodes.get(at as usize), self.facts.get(at as usize)) else { continue };
            if !facts.told || facts.child_count <= 0 {
                continue;
            }
            let (path, count) = (node.place.path.clone(), facts.child_count);
            if node.role == TABLE && facts.in_sheet {
                sheets.push(at);
                continue;
            }
            let wanted = (count as usize).min(WIDEST);
            if let Some(paths) = self.children_in_cache(&path, count) {
                let places_of = paths.into_iter().take(wanted).map(|path| Some(Place { bus: self.bus.clone(), path }));
                if let Some(slot) = places.get_mut(slot) {
                    *slot = places_of.collect();
                }
            } else if count as usize <= WIDEST {
                questions.push((at, Question::Children));
                origins.push((slot, 0));
            } else {
                if let Some(slot) = places.get_mut(slot) {
                    slot.resize(wanted, None);
                }
                questions.extend((0..wanted).map(|i| (at, Question::Child(i as i32))));
                origins.extend((0..wanted).map(|i| (slot, i)));
            }
        }
        let bus = self.bus.clone();
        self.talk.ask(&mut self.nodes, &questions, |_, i, answer| {
            let (Some(&(slot, index)), Some((_, question))) = (origins.get(i), questions.get(i)) else { return };
            let Some(slot) = places.get_mut(slot) else { return };
            if let Question::Children = question {
                if let Ok(children) = answer.read::<Vec<Reference<'_>>>() {
                    *slot = children.into_iter().take(WIDEST).map(|r| place_of(&bus, &r)).collect();
                }
            } else if let (Ok(child), Some(slot)) = (answer.read::<Reference<'_>>(), slot.get_mut(index)) {
                *slot = place_of(&bus, &child);
            }
        })?;
        let mut next = Vec::new();
        for (&at, places) in level.iter().zip(places) {
            let in_sheet = self.facts.get(at as usize).is_some_and(|f| f.in_sheet)
                || self.nodes.get(at as usize).is_some_and(|n| n.role == DOCUMENT_SPREADSHEET);
            for place in places.into_iter().flatten() {
                if self.nodes.len() >= MOST_NODES {
                    return Ok(next);
                }
                let child = self.add(place, in_sheet);
                if let Some(node) = self.nodes.get_mut(at as usize) {
                    node.children.push(child);
                }
                next.push(child);
            }
        }
        for table in sheets {
            next.extend(self.learn_cells(table)?);
        }
        Ok(next)
    }

    /// The cells of a sheet. There are more than a thousand on a screen, all objects of one kind: when
    /// those in the corners have the same role, interfaces and child count, the others are not asked
    /// for them.
    fn learn_cells(&mut self, table: u32) -> Result<Vec<u32>, Ended> {
        let shown = sheet::cells(self, table)?;
        let mut cells = Vec::with_capacity(shown.len());
        for (place, states) in shown.into_iter().take(MOST_NODES.saturating_sub(self.nodes.len())) {
            let cell = self.add(place, true);
            if let (Some(node), Some(facts)) = (self.nodes.get_mut(cell as usize), self.facts.get_mut(cell as usize)) {
                node.states = states;
                facts.has_states = true;
            }
            cells.push(cell);
        }
        if let Some(table) = self.nodes.get_mut(table as usize) {
            table.children = cells.clone();
        }
        let (Some(&first), Some(&last), Some(&middle)) = (cells.first(), cells.last(), cells.get(cells.len() / 2)) else {
            return Ok(cells);
        };
        self.learn_basics(&[first, middle, last])?;
        let kind = |at: u32| {
            let (node, facts) = (self.nodes.get(at as usize)?, self.facts.get(at as usize)?);
            facts.told.then_some((node.role, node.interfaces, facts.child_count))
        };
        let Some((role, interfaces, child_count)) = kind(first).filter(|k| Some(*k) == kind(middle) && Some(*k) == kind(last))
        else {
            return Ok(cells);
        };
        let others: Vec<u32> = cells.iter().copied().filter(|c| ![first, middle, last].contains(c)).collect();
        for &at in &others {
            if let (Some(node), Some(facts)) = (self.nodes.get_mut(at as usize), self.facts.get_mut(at as usize)) {
                (node.role, node.interfaces) = (role, interfaces);
                (facts.told, facts.child_count, facts.like) = (true, child_count, Some(first));
            }
        }
        let names: Vec<_> = others.iter().map(|&at| (at, Question::Name)).collect();
        self.basics(&names)?;
        Ok(cells)
    }

    /// Nodes that manage their descendants do not tell in the cache how many these are.
    fn learn_counts(&mut self, level: &[u32]) -> Result<(), Ended> {
        let unknown = |&&at: &&u32| self.facts.get(at as usize).is_some_and(|f| f.told && f.child_count < 0);
        let questions: Vec<_> = level.iter().filter(unknown).map(|&at| (at, Question::ChildCount)).collect();
        self.basics(&questions)
    }

    /// Children by the cache, if it names exactly one for each index.
    fn children_in_cache(&mut self, path: &str, count: i32) -> Option<Vec<Box<str>>> {
        let mut children = self.below.remove(path)?;
        children.sort_unstable_by_key(|c| c.0);
        let whole = children.len() == count as usize && children.iter().zip(0..).all(|(c, i)| c.0 == i);
        whole.then(|| children.into_iter().map(|c| c.1).collect())
    }

    fn add(&mut self, place: Place, in_sheet: bool) -> u32 {
        let at = self.nodes.len() as u32;
        self.nodes.push(Node::at(place));
        self.facts.push(Facts { in_sheet, ..Facts::default() });
        self.recall(at);
        at
    }

    /// Takes what the cache told about a node.
    fn recall(&mut self, at: u32) {
        let (Some(node), Some(facts)) = (self.nodes.get_mut(at as usize), self.facts.get_mut(at as usize)) else { return };
        if node.place.bus != self.bus {
            return;
        }
        if let Some(known) = self.items.get(&node.place.path) {
            node.name = known.name.clone();
            node.role = known.role;
            node.states = known.states;
            node.interfaces = known.interfaces;
            facts.child_count = known.child_count;
            facts.told = true;
        }
    }

    /// Leaves out the nodes that were never told, with all below them.
    fn finish(mut self, complete: bool) -> Tree {
        let told: Vec<bool> = self.facts.iter().map(|f| f.told).collect();
        let is_told = |at: u32| told.get(at as usize).copied().unwrap_or(false);
        if !is_told(0) {
            return Tree::default();
        }
        for node in &mut self.nodes {
            node.children.retain(|&c| is_told(c));
            details::drop_unknown(node);
        }
        let complete = complete && self.nodes.len() < MOST_NODES;
        Tree { nodes: self.nodes, complete }
    }
}

pub(super) fn states_of(words: &[u32]) -> u64 {
    let word = |i: usize| words.get(i).copied().map_or(0, u64::from);
    word(0) | word(1) << 32
}

/// `None` for the reference that stands for nothing.
pub(super) fn place_of(own: &Arc<str>, reference: &Reference<'_>) -> Option<Place> {
    let (bus, path) = (reference.0, reference.1.as_str());
    if path == NULL || path.is_empty() || bus.is_empty() {
        return None;
    }
    let bus = if bus == &**own { own.clone() } else { bus.into() };
    Some(Place { bus, path: path.into() })
}
