//! The tree as the XML that OSWorld's server answers, attribute for attribute.

use super::tree::{Node, Tree};
use super::words::state_names;
use crate::python;
use std::fmt::Write;

/// The root's start tag: every namespace, in this order, here and nowhere else.
const OPENING: &str = "<desktop-frame \
xmlns:st=\"https://accessibility.ubuntu.example.org/ns/state\" \
xmlns:attr=\"https://accessibility.ubuntu.example.org/ns/attributes\" \
xmlns:cp=\"https://accessibility.ubuntu.example.org/ns/component\" \
xmlns:doc=\"https://accessibility.ubuntu.example.org/ns/document\" \
xmlns:docattr=\"https://accessibility.ubuntu.example.org/ns/document/attributes\" \
xmlns:txt=\"https://accessibility.ubuntu.example.org/ns/text\" \
xmlns:val=\"https://accessibility.ubuntu.example.org/ns/value\" \
xmlns:act=\"https://accessibility.ubuntu.example.org/ns/action\">";
const CLOSING: &str = "</desktop-frame>";

/// The whole document of the given applications.
pub(crate) fn document<'a>(applications: impl IntoIterator<Item = &'a str>) -> String {
    let applications: Vec<&str> = applications.into_iter().collect();
    let size = applications.iter().map(|a| a.len()).sum::<usize>() + OPENING.len() + CLOSING.len();
    let mut out = String::with_capacity(size);
    out.push_str(OPENING);
    out.extend(applications);
    out.push_str(CLOSING);
    out
}

/// One application and all that is below it.
pub(crate) fn application(tree: &Tree) -> String {
    let mut out = String::new();
    if let Some(root) = tree.root() {
        element(&mut out, tree, root);
    }
    out.shrink_to_fit();
    out
}

/// Trees are at most 50 deep, so recursion is safe here.
fn element(out: &mut String, tree: &Tree, node: &Node) {
    let tag = node.role_name().trim().replace(' ', "-");
    let tag = if is_name(&tag) { tag.as_str() } else { "unknown" };
    out.push('<');
    out.push_str(tag);
    attributes(out, node);
    let text = node.text.as_deref().unwrap_or_default();
    let before = out.len();
    out.push('>');
    let start = out.len();
    escape(out, text, false);
    for child in tree.children(node) {
        element(out, tree, child);
    }
    if out.len() == start {
        out.truncate(before);
        out.push_str("/>");
    } else {
        out.push_str("</");
        out.push_str(tag);
        out.push('>');
    }
}

/// In the order of the original: name, st, attr, cp, image, selection, val, act.
fn attributes(out: &mut String, node: &Node) {
    attribute(out, "", "name", &node.name);
    for state in state_names(node.states) {
        attribute(out, "st:", state, "true");
    }
    for (key, value) in &node.attributes {
        if is_name(key) {
            attribute(out, "attr:", key, value);
        }
    }
    // Writing to a String cannot fail.
    if let Some(area) = &node.area {
        let _ = write!(out, " cp:screencoord=\"({}, {})\" cp:size=\"({}, {})\"", area.x, area.y, area.width, area.height);
    }
    if node.interfaces.has(super::words::Interfaces::IMAGE) {
        attribute(out, "", "image", "true");
    }
    if node.interfaces.has(super::words::Interfaces::SELECTION) {
        attribute(out, "", "selection", "true");
    }
    let value = &node.value;
    for (key, number) in [("value", value.current), ("min", value.minimum), ("max", value.maximum), ("step", value.step)] {
        if let Some(number) = number {
            attribute(out, "val:", key, &python::float(number));
        }
    }
    actions(out, node);
}

/// A later action of the same name overwrites the words of the first, which keeps its place.
fn actions(out: &mut String, node: &Node) {
    let mut written: Vec<(String, &str, &str)> = Vec::with_capacity(node.actions.len());
    for action in &node.actions {
        let name = action.name.replace(' ', "-");
        match written.iter_mut().find(|(n, _, _)| *n == name) {
            Some(entry) => (entry.1, entry.2) = (&action.description, &action.keys),
            None => written.push((name, &action.description, &action.keys)),
        }
    }
    for (name, description, keys) in written {
        if is_name(&format!("{name}_desc")) {
            attribute(out, "act:", &format!("{name}_desc"), description);
            attribute(out, "act:", &format!("{name}_kb"), keys);
        }
    }
}

fn attribute(out: &mut String, prefix: &str, key: &str, value: &str) {
    out.push(' ');
    out.push_str(prefix);
    out.push_str(key);
    out.push_str("=\"");
    escape(out, value, true);
    out.push('"');
}

/// Characters that XML forbids are left out.
fn escape(out: &mut String, text: &str, in_attribute: bool) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' if in_attribute => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            '\n' if in_attribute => out.push_str("&#10;"),
            '\t' if in_attribute => out.push_str("&#9;"),
            '\t' | '\n' => out.push(c),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => {}
            _ => out.push(c),
        }
    }
}

/// Whether XML takes it as a name without a prefix.
fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(is_name_start)
        && chars.all(|c| {
            is_name_start(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
        })
}

fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | 'a'..='z' | '_'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
        | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
        | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Action, Area, Place, Value};
    use super::super::words::{ACTIVE, Interfaces, SHOWING, VISIBLE};
    use super::*;

    fn node(role: u32, name: &str) -> Node {
        let mut node = Node::at(Place { bus: ":1.1".into(), path: "/".into() });
        node.role = role;
        node.name = name.into();
        node
    }

    fn action(name: &str, description: &str, keys: &str) -> Action {
        Action { name: name.into(), description: description.into(), keys: keys.into() }
    }

    #[test]
    fn an_empty_desktop_declares_every_namespace_once() {
        let xml = document([]);
        assert!(xml.starts_with("<desktop-frame xmlns:st=\"https://accessibility.ubuntu.example.org/ns/state\" xmlns:attr="));
        assert!(xml.ends_with("ns/action\"></desktop-frame>"));
        assert_eq!(xml.matches("xmlns:").count(), 8);
    }

    #[test]
    fn one_node_with_everything_in_its_order() {
        let mut all = node(43, "a <b> & \"c\"\n\u{7}d");
        all.states = ACTIVE | SHOWING | VISIBLE;
        all.interfaces = Interfaces::of(["org.a11y.atspi.Image", "org.a11y.atspi.Selection"]);
        all.attributes = vec![("toolkit".into(), "gtk".into()), ("bad key".into(), "x".into()), ("9".into(), "x".into())];
        all.area = Some(Area { x: -3, y: 4, width: 50, height: 60 });
        all.text = Some("one\ttwo\nthree\r<\u{1b}".into());
        all.value = Value { current: Some(100.0), minimum: Some(1e-5), maximum: None, step: Some(5.0) };
        all.actions =
            vec![action("click it", "first", "a"), action("", "", ""), action("click it", "second", "b"), action("1", "x", "y")];
        let tree = Tree { nodes: vec![all], complete: true };
        assert_eq!(
            application(&tree),
            "<push-button name=\"a &lt;b&gt; &amp; &quot;c&quot;&#10;d\" st:active=\"true\" st:showing=\"true\" st:visible=\"true\" \
             attr:toolkit=\"gtk\" cp:screencoord=\"(-3, 4)\" cp:size=\"(50, 60)\" image=\"true\" selection=\"true\" \
             val:value=\"100.0\" val:min=\"1e-05\" val:step=\"5.0\" act:click-it_desc=\"second\" act:click-it_kb=\"b\" \
             act:_desc=\"\" act:_kb=\"\">one\ttwo\nthree&#13;&lt;</push-button>"
        );
    }

    #[test]
    fn children_follow_the_text() {
        let mut root = node(75, "app");
        root.text = Some("words".into());
        root.children = vec![2, 1, 9];
        let mut odd = node(70, "");
        odd.role_name = Some("my own role ".into());
        let mut odder = node(70, "");
        odder.role_name = Some("<script>".into());
        let tree = Tree { nodes: vec![root, odd, odder], complete: true };
        assert_eq!(
            application(&tree),
            "<application name=\"app\">words<unknown name=\"\"/><my-own-role name=\"\"/></application>"
        );
    }

    #[test]
    fn names_are_those_of_xml() {
        for good in ["a", "_", "text-align", "a.b", "x1", "größe"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "1", "-a", "a b", "a:b", "a=b", "{x}"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
