//! The accessible tree of one program, as it was told.

use super::words::Interfaces;
use std::sync::Arc;

/// All nodes of one program; the first is the application itself.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    /// `false` if the program stopped answering before everything was told.
    pub(crate) complete: bool,
}

/// One accessible.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) role: u32,
    /// Only for roles that have no name of their own.
    pub(crate) role_name: Option<Box<str>>,
    pub(crate) name: Box<str>,
    pub(crate) states: u64,
    pub(crate) interfaces: Interfaces,
    pub(crate) attributes: Vec<(Box<str>, Box<str>)>,
    /// On the screen; only of what is visible and showing.
    pub(crate) area: Option<Area>,
    /// Of those that have the Text interface.
    pub(crate) text: Option<Box<str>>,
    pub(crate) value: Value,
    pub(crate) actions: Vec<Action>,
    /// Indices into [`Tree::nodes`].
    pub(crate) children: Vec<u32>,
}

/// Where an accessible is found: the program's name on the bus and a path in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) bus: Arc<str>,
    pub(crate) path: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

/// What the Value interface told; each may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Value {
    pub(crate) current: Option<f64>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) step: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) name: Box<str>,
    pub(crate) description: Box<str>,
    pub(crate) keys: Box<str>,
}

impl Node {
    pub(crate) fn at(place: Place) -> Self {
        Self {
            place,
            role: 0,
            role_name: None,
            name: "".into(),
            states: 0,
            interfaces: Interfaces::default(),
            attributes: Vec::new(),
            area: None,
            text: None,
            value: Value::default(),
            actions: Vec::new(),
            children: Vec::new(),
        }
    }

    pub(crate) fn has_state(&self, state: u64) -> bool {
        self.states & state == state
    }

    /// The role in words.
    pub(crate) fn role_name(&self) -> &str {
        super::words::role_name(self.role).or(self.role_name.as_deref()).unwrap_or("unknown")
    }
}

impl Area {
    pub(crate) fn contains(&self, other: &Self) -> bool {
        let inside = |from: i32, size: i32, other_from: i32, other_size: i32| {
            i64::from(from) <= i64::from(other_from)
                && i64::from(other_from) + i64::from(other_size) <= i64::from(from) + i64::from(size)
        };
        inside(self.x, self.width, other.x, other.width) && inside(self.y, self.height, other.y, other.height)
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        let apart = |from: i32, size: i32, other_from: i32, other_size: i32| {
            i64::from(from) + i64::from(size) <= i64::from(other_from)
                || i64::from(other_from) + i64::from(other_size) <= i64::from(from)
        };
        !apart(self.x, self.width, other.x, other.width) && !apart(self.y, self.height, other.y, other.height)
    }

    /// In pixels.
    pub(crate) fn size(&self) -> i64 {
        i64::from(self.width) * i64::from(self.height)
    }

    /// How far the edges are from those of another.
    pub(crate) fn distance(&self, other: &Self) -> i64 {
        let edges = |a: &Self| {
            let (x, y) = (i64::from(a.x), i64::from(a.y));
            [x, y, x + i64::from(a.width), y + i64::from(a.height)]
        };
        edges(self).into_iter().zip(edges(other)).map(|(a, b)| (a - b).abs()).sum()
    }

    pub(crate) fn holds(&self, x: i32, y: i32) -> bool {
        self.meets(&Self { x, y, width: 1, height: 1 })
    }
}

impl Tree {
    pub(crate) fn root(&self) -> Option<&Node> {
        self.nodes.first()
    }

    /// Where the program's windows are found.
    pub(crate) fn windows(&self) -> impl Iterator<Item = &Place> {
        self.root().into_iter().flat_map(|root| self.children(root)).map(|window| &window.place)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    /// The children of a node, in order.
    pub(crate) fn children<'t>(&'t self, node: &'t Node) -> impl Iterator<Item = &'t Node> {
        node.children.iter().filter_map(|&c| self.get(c))
    }
}
