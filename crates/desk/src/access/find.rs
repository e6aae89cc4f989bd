//! The tree in the words of the native API: the whole, what is looked for, what is at a point.

use super::eyes::Shape;
use super::program::Built;
use super::tree::{Area, Node, Tree};
use super::words::{SHOWING, STATES, VISIBLE, state_names};
use crate::error::{Error, Result};
use hotdesk_api::access::{AtReply, Element, ElementAction, ElementValue, FindReply, FindRequest, TreeQuery, TreeReply};
use hotdesk_api::action::Rect;
use hotdesk_api::trace::ElementName;
use std::sync::Arc;

const USUAL_LIMIT: usize = 20;
/// An answer of this many elements is still below a megabyte.
const LARGEST_LIMIT: usize = 1000;

/// Which fields of an element are told.
#[derive(Debug, Clone, Copy)]
struct Fields {
    name: bool,
    states: bool,
    text: bool,
    area: bool,
    value: bool,
    actions: bool,
    attributes: bool,
}

const ALL: Fields = Fields { name: true, states: true, text: true, area: true, value: true, actions: true, attributes: true };

pub(super) fn tree(trees: &[Arc<Built>], query: &TreeQuery, complete: bool) -> Result<TreeReply> {
    let fields = query.fields.as_deref().map_or(Ok(ALL), Fields::parse)?;
    let window = query.window.as_deref().map(str::to_lowercase);
    let mut apps = Vec::new();
    let mut all_there = complete;
    for built in trees {
        let tree = &built.tree;
        let Some(root) = tree.root().filter(|r| is_app(r, query.app.as_deref())) else { continue };
        all_there &= tree.complete;
        let mut app = element(root, fields);
        let windows: Vec<&Node> = tree.children(root).filter(|w| contains(&w.name, window.as_deref())).collect();
        if window.is_some() && windows.is_empty() {
            continue;
        }
        let depth = query.depth.unwrap_or(u32::MAX);
        add_children(&mut app, tree, windows.into_iter(), fields, depth, query.visible_only);
        apps.push(app);
    }
    Ok(TreeReply { apps, complete: all_there })
}

fn add_children<'t>(
    element: &mut Element,
    tree: &'t Tree,
    nodes: impl Iterator<Item = &'t Node>,
    fields: Fields,
    depth: u32,
    visible_only: bool,
) {
    let nodes = nodes.filter(|n| !visible_only || n.has_state(VISIBLE | SHOWING));
    if depth == 0 {
        element.children_left_out = Some(nodes.count()).filter(|n| *n > 0);
        return;
    }
    for node in nodes {
        let mut child = self::element(node, fields);
        add_children(&mut child, tree, tree.children(node), fields, depth - 1, visible_only);
        element.children.push(child);
    }
}

/// Everything that holds, in the order of the tree.
pub(super) fn find(trees: &[Arc<Built>], request: &FindRequest) -> Result<FindReply> {
    let limit = request.limit.unwrap_or(USUAL_LIMIT);
    if limit == 0 || limit > LARGEST_LIMIT {
        return Err(Error::Invalid(format!("`limit` must be between 1 and {LARGEST_LIMIT}")));
    }
    let wanted = Wanted::parse(request)?;
    let mut found = Vec::new();
    for built in trees {
        let tree = &built.tree;
        let Some(root) = tree.root().filter(|r| is_app(r, request.app.as_deref())) else { continue };
        for window in tree.children(root).filter(|w| contains(&w.name, wanted.window.as_deref())) {
            let mut open = vec![window];
            while let Some(node) = open.pop() {
                if wanted.holds(node) {
                    if found.len() == limit {
                        return Ok(FindReply { found, more: true });
                    }
                    found.push(alone(root, window, node));
                }
                open.extend(tree.children(node).collect::<Vec<_>>().into_iter().rev());
            }
        }
    }
    Ok(FindReply { found, more: false })
}

/// What an element is called, and which of those that are called so.
pub(super) fn name_of(trees: &[Arc<Built>], wanted: &str) -> Option<ElementName> {
    let tree = trees.iter().map(|built| &built.tree).find(|tree| tree.nodes.iter().any(|node| id(node) == wanted))?;
    let node = tree.nodes.iter().find(|node| id(node) == wanted)?;
    let (app, role, name) = (tree.root()?.name.to_string(), role(node), node.name.to_string());
    let request = FindRequest {
        app: Some(app.clone()),
        role: Some(role.clone()),
        name: Some(name.clone()),
        hidden: true,
        limit: Some(LARGEST_LIMIT),
        ..FindRequest::default()
    };
    let alike = find(trees, &request).ok()?.found;
    Some(ElementName { app, role, name, nth: alike.iter().position(|element| element.id == wanted)? })
}

/// A [`FindRequest`], checked and prepared.
struct Wanted<'r> {
    role: Option<String>,
    request: &'r FindRequest,
    name_part: Option<String>,
    text_part: Option<String>,
    window: Option<String>,
    set: u64,
    unset: u64,
}

impl<'r> Wanted<'r> {
    fn parse(request: &'r FindRequest) -> Result<Self> {
        let (mut set, mut unset) = (0, 0);
        for state in &request.states {
            let (name, bits) = state.strip_prefix('!').map_or((state.as_str(), &mut set), |name| (name, &mut unset));
            let Some(bit) = STATES.iter().position(|s| *s == name.replace('-', "_")) else {
                return Err(Error::Invalid(format!("there is no state `{name}`; states are {}", STATES.join(", "))));
            };
            *bits |= 1 << bit;
        }
        if !request.hidden {
            set |= VISIBLE | SHOWING;
        }
        Ok(Self {
            role: request.role.as_ref().map(|r| r.trim().replace(' ', "-")),
            request,
            name_part: request.name_contains.as_deref().map(str::to_lowercase),
            text_part: request.text_contains.as_deref().map(str::to_lowercase),
            window: request.window.as_deref().map(str::to_lowercase),
            set,
            unset,
        })
    }

    fn holds(&self, node: &Node) -> bool {
        let text = || node.text.as_deref().unwrap_or_default();
        node.has_state(self.set)
            && node.states & self.unset == 0
            && self.role.as_ref().is_none_or(|r| *r == role(node))
            && self.request.name.as_ref().is_none_or(|n| **n == *node.name)
            && self.request.text.as_ref().is_none_or(|t| **t == *text())
            && contains(&node.name, self.name_part.as_deref())
            && (self.text_part.is_none() || contains(text(), self.text_part.as_deref()))
    }
}

/// The smallest element at a point, within the program and the window that are on top there.
pub(super) fn at(trees: &[Arc<Built>], x: i32, y: i32, top: Option<&Shape>, bus: Option<&str>) -> AtReply {
    let of_top = |b: &&Arc<Built>| bus.is_none_or(|bus| b.tree.root().is_some_and(|r| *r.place.bus == *bus));
    let mut best: Option<(i64, Vec<&Node>)> = None;
    for built in trees.iter().filter(of_top) {
        let tree = &built.tree;
        let Some(root) = tree.root() else { continue };
        let windows = tree.children(root).filter(|w| w.area.is_some_and(|a| a.holds(x, y)));
        // Of several windows of the program the one that looks most like what is on top.
        let unlike = |w: &&Node| top.zip(w.area).map_or(0, |(t, a)| a.distance(&t.area));
        let Some(window) = windows.min_by_key(unlike) else { continue };
        let mut open = vec![vec![window]];
        while let Some(path) = open.pop() {
            let Some(&node) = path.last() else { continue };
            if let Some(area) = node.area.filter(|a| a.holds(x, y)) {
                let size = area.size();
                if best.as_ref().is_none_or(|(s, p)| size < *s || size == *s && path.len() > p.len()) {
                    best = Some((size, [root].into_iter().chain(path.iter().copied()).collect()));
                }
            }
            for child in tree.children(node).filter(|c| c.has_state(SHOWING)) {
                open.push(path.iter().copied().chain([child]).collect());
            }
        }
    }
    let Some((_, path)) = best else { return AtReply { element: None, within: Vec::new() } };
    let mut inside_out = path.iter().rev().map(|n| element(n, ALL));
    let mut found = inside_out.next();
    if let (Some(found), Some(app)) = (&mut found, path.first()) {
        found.app = Some(app.name.to_string());
        found.window = path.get(1).map(|w| w.name.to_string());
    }
    AtReply { element: found, within: inside_out.collect() }
}

/// An element outside its tree, with the names of what it is in.
fn alone(root: &Node, window: &Node, node: &Node) -> Element {
    Element { app: Some(root.name.to_string()), window: Some(window.name.to_string()), ..element(node, ALL) }
}

fn element(node: &Node, fields: Fields) -> Element {
    let value = node.value;
    let value = ElementValue {
        current: finite(value.current),
        minimum: finite(value.minimum),
        maximum: finite(value.maximum),
        step: finite(value.step),
    };
    let has_value = node.value != super::tree::Value::default();
    let action = |a: &super::tree::Action| ElementAction {
        name: a.name.to_string(),
        description: a.description.to_string(),
        keys: a.keys.to_string(),
    };
    let attributes = node.attributes.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    Element {
        id: id(node),
        role: role(node),
        name: fields.name.then(|| node.name.to_string()),
        states: fields.states.then(|| state_names(node.states).map(str::to_owned).collect()),
        text: node.text.as_deref().filter(|_| fields.text).map(str::to_owned),
        area: node.area.filter(|_| fields.area).map(rect),
        value: (fields.value && has_value).then_some(value),
        actions: if fields.actions { node.actions.iter().map(action).collect() } else { Vec::new() },
        attributes: if fields.attributes { attributes.collect() } else { Default::default() },
        app: None,
        window: None,
        children: Vec::new(),
        children_left_out: None,
    }
}

/// Name on the bus and path, which begins with a slash: one string that splits in only one way.
fn id(node: &Node) -> String {
    format!("{}{}", node.place.bus, node.place.path)
}

fn role(node: &Node) -> String {
    node.role_name().trim().replace(' ', "-")
}

fn rect(area: Area) -> Rect {
    Rect { x: area.x, y: area.y, width: area.width.max(0) as u32, height: area.height.max(0) as u32 }
}

/// JSON has no words for the others.
fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|n| n.is_finite())
}

fn is_app(root: &Node, name: Option<&str>) -> bool {
    name.is_none_or(|n| n.to_lowercase() == root.name.to_lowercase())
}

/// `part` is in lower case; no part is in everything.
fn contains(text: &str, part: Option<&str>) -> bool {
    part.is_none_or(|p| text.to_lowercase().contains(p))
}

impl Fields {
    fn parse(list: &str) -> Result<Self> {
        let mut fields =
            Self { name: false, states: false, text: false, area: false, value: false, actions: false, attributes: false };
        for word in list.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word {
                "id" | "role" => {}
                "name" => fields.name = true,
                "states" => fields.states = true,
                "text" => fields.text = true,
                "area" => fields.area = true,
                "value" => fields.value = true,
                "actions" => fields.actions = true,
                "attributes" => fields.attributes = true,
                _ => {
                    return Err(Error::Invalid(format!(
                        "there is no field `{word}`; fields are name, states, text, area, value, actions, attributes"
                    )));
                }
            }
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests;
