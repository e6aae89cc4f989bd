//! The text of the terminal that has the focus, found without looking at any other program.

use super::Session;
use super::program::Program;
use super::tree::{Node, Tree};
use super::walk::Scope;
use super::words::{ACTIVE, FOCUSED, FRAME, TERMINAL};
use crate::error::Result;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use zbus::zvariant::Value;

const PROGRAM: &str = "gnome-terminal-server";
/// A program that is too busy to say its name within this time is not asked for text.
const NAME_TIME: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_millis(1000);

pub(super) async fn text(session: &Session) -> Result<Option<String>> {
    let programs = session.programs().await?;
    let names = join_all(programs.iter().map(|p| is_terminal(session, p))).await;
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

async fn is_terminal(session: &Session, program: &Arc<Program>) -> bool {
    let name = session.bus.get(&program.place, "org.a11y.atspi.Accessible", "Name", NAME_TIME).await;
    name.is_ok_and(|n| n.body().deserialize::<Value<'_>>().is_ok_and(|v| v == Value::from(PROGRAM)))
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
