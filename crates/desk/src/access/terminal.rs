//! The text of the terminal that has the focus, found without looking at any other program.

use super::Session;
use super::tree::{Node, Tree};
use super::walk::Scope;
use super::words::{ACTIVE, FOCUSED, FRAME, TERMINAL};
use crate::error::Result;
use futures_util::future::join_all;
use std::time::Duration;

const PROGRAM: &str = "gnome-terminal-server";
const PATIENCE: Duration = Duration::from_millis(1000);

pub(super) async fn text(session: &Session) -> Result<Option<String>> {
    let programs = session.programs().await?;
    let names = join_all(programs.iter().map(|p| p.is_named(&session.bus, PROGRAM))).await;
    let terminals = programs.iter().zip(names).filter(|(_, is)| *is).map(|(p, _)| p);
    let mut found = Vec::new();
    for program in terminals {
        let tree = program.build(&session.bus, Scope::Outline, PATIENCE).await;
        found.extend(focused(&tree).into_iter().map(|n| n.place.clone()));
    }
    // More than one is as none.
    let [place] = found.as_slice() else { return Ok(None) };
    let Ok(answer) = session.bus.ask(place, "org.a11y.atspi.Text", "GetText", &(0i32, -1i32), PATIENCE).await else {
        return Ok(None);
    };
    let text: String = answer.body().deserialize().unwrap_or_default();
    let text = text.replace(['\u{fffc}', '\u{fffd}'], "");
    Ok((!text.is_empty()).then(|| right_stripped(&text).to_owned()))
}

/// Terminals that have the focus below an active frame.
fn focused(tree: &Tree) -> Vec<&Node> {
    let mut found = Vec::new();
    let Some(root) = tree.root() else { return found };
    let mut open: Vec<&Node> = tree.children(root).filter(|n| n.role == FRAME && n.has_state(ACTIVE)).collect();
    while let Some(node) = open.pop() {
        for child in tree.children(node) {
            if child.role == TERMINAL && child.has_state(FOCUSED) {
                found.push(child);
            }
            open.push(child);
        }
    }
    found
}

/// Python's `rstrip`, which takes four separators for space that Unicode does not.
fn right_stripped(text: &str) -> &str {
    text.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::tree::Place;

    fn node(role: u32, states: u64, children: &[u32]) -> Node {
        let mut node = Node::at(Place { bus: ":1.1".into(), path: "/".into() });
        (node.role, node.states, node.children) = (role, states, children.to_vec());
        node
    }

    #[test]
    fn only_focused_terminals_of_active_frames_count() {
        let nodes = vec![
            node(75, 0, &[1, 2]),
            node(FRAME, ACTIVE, &[3]),
            node(FRAME, 0, &[4]),
            node(20, 0, &[5, 6]),
            node(TERMINAL, FOCUSED, &[]),
            node(TERMINAL, FOCUSED, &[]),
            node(TERMINAL, 0, &[]),
        ];
        let tree = Tree { nodes, complete: true };
        assert_eq!(focused(&tree).len(), 1);
        assert!(focused(&Tree::default()).is_empty());
    }

    #[test]
    fn space_at_the_end_goes() {
        assert_eq!(right_stripped(" a b \n\n\u{1f}\u{2003}"), " a b");
        assert_eq!(right_stripped(" \n"), "");
    }
}
