//! Finding things in a tree that is made by hand.

use super::super::tree::{Action, Place, Value};
use super::super::words::{FOCUSED, FRAME};
use super::*;

fn node(path: &str, role: u32, name: &str, states: u64, area: (i32, i32, i32, i32), children: &[u32]) -> Node {
    let mut node = Node::at(Place { bus: ":1.7".into(), path: path.into() });
    let (x, y, width, height) = area;
    (node.role, node.name, node.states) = (role, name.into(), states);
    node.area = (states & SHOWING != 0).then_some(Area { x, y, width, height });
    node.children = children.to_vec();
    node
}

/// An application with a window, in it a button, a text field and a hidden button.
fn desktop() -> Vec<Arc<Built>> {
    let on = VISIBLE | SHOWING;
    let mut button = node("/2", 43, "Save As", on, (10, 10, 40, 20), &[]);
    button.actions = vec![Action { name: "click".into(), description: "Clicks".into(), keys: "".into() }];
    let mut text = node("/3", 61, "", on | FOCUSED, (10, 40, 80, 50), &[]);
    text.text = Some("Dear Bob".into());
    text.value = Value { current: Some(f64::NAN), minimum: Some(1.0), ..Value::default() };
    let nodes = vec![
        node("/0", 75, "Editor", 0, (0, 0, 0, 0), &[1]),
        node("/1", FRAME, "letter.txt - Editor", on, (0, 0, 100, 100), &[2, 3, 4]),
        button,
        text,
        node("/4", 43, "Save", 0, (0, 0, 0, 0), &[]),
    ];
    vec![Arc::new(Built::new(Tree { nodes, complete: true }))]
}

fn names(request: FindRequest) -> Vec<String> {
    find(&desktop(), &request).unwrap().found.into_iter().map(|e| e.id).collect()
}

#[test]
fn everything_that_is_asked_must_hold() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(names(FindRequest { role: some("push button"), ..Default::default() }), [":1.7/2"]);
    assert_eq!(names(FindRequest { role: some("push-button"), hidden: true, ..Default::default() }), [":1.7/2", ":1.7/4"]);
    assert_eq!(names(FindRequest { name: some("Save"), ..Default::default() }), [""; 0]);
    assert_eq!(names(FindRequest { name_contains: some("save"), ..Default::default() }), [":1.7/2"]);
    assert_eq!(names(FindRequest { text_contains: some("bob"), ..Default::default() }), [":1.7/3"]);
    assert_eq!(names(FindRequest { text: some("Dear Bob"), app: some("editor"), ..Default::default() }), [":1.7/3"]);
    assert_eq!(names(FindRequest { states: vec!["focused".into()], ..Default::default() }), [":1.7/3"]);
    assert_eq!(names(FindRequest { states: vec!["!focused".into()], ..Default::default() }), [":1.7/1", ":1.7/2"]);
    assert_eq!(names(FindRequest { window: some("LETTER"), ..Default::default() }).len(), 3);
    assert_eq!(names(FindRequest { window: some("other"), ..Default::default() }).len(), 0);
    assert_eq!(names(FindRequest { app: some("other"), ..Default::default() }).len(), 0);
}

#[test]
fn what_is_found_stands_alone() {
    let found = find(&desktop(), &FindRequest { limit: Some(1), ..Default::default() }).unwrap();
    assert!(found.more);
    assert_eq!(found.found[0].window.as_deref(), Some("letter.txt - Editor"));
    assert_eq!(found.found[0].app.as_deref(), Some("Editor"));
    assert!(found.found[0].children.is_empty());
}

#[test]
fn wrong_requests_are_refused() {
    for request in [
        FindRequest { limit: Some(0), ..Default::default() },
        FindRequest { limit: Some(1001), ..Default::default() },
        FindRequest { states: vec!["shiny".into()], ..Default::default() },
    ] {
        assert!(matches!(find(&desktop(), &request), Err(Error::Invalid(_))));
    }
    let query = TreeQuery { fields: Some("name,colour".into()), ..Default::default() };
    assert!(matches!(tree(&desktop(), &query, true), Err(Error::Invalid(_))));
}

#[test]
fn the_tree_is_cut_as_asked() {
    let whole = tree(&desktop(), &TreeQuery::default(), true).unwrap();
    assert_eq!(whole.apps[0].children[0].children.len(), 3);
    let text = &whole.apps[0].children[0].children[1];
    assert_eq!(text.value.unwrap().minimum, Some(1.0));
    assert_eq!(text.value.unwrap().current, None, "JSON has no word for it");
    let query = TreeQuery { depth: Some(1), visible_only: true, fields: Some("name, area".into()), ..Default::default() };
    let cut = tree(&desktop(), &query, true).unwrap();
    let window = &cut.apps[0].children[0];
    assert!(window.children.is_empty() && window.states.is_none() && window.area.is_some());
    assert_eq!(window.children_left_out, Some(2));
    let none = tree(&desktop(), &TreeQuery { window: Some("other".into()), ..Default::default() }, true).unwrap();
    assert!(none.apps.is_empty());
}

#[test]
fn the_smallest_element_is_at_a_point() {
    let id = |x, y| at(&desktop(), x, y, None, Some(":1.7")).element.map(|e| e.id);
    assert_eq!(id(15, 15).as_deref(), Some(":1.7/2"));
    assert_eq!(id(5, 5).as_deref(), Some(":1.7/1"));
    assert_eq!(id(200, 5), None);
    let reply = at(&desktop(), 15, 45, None, None);
    assert_eq!(reply.element.unwrap().text.as_deref(), Some("Dear Bob"));
    assert_eq!(reply.within.iter().map(|e| e.role.as_str()).collect::<Vec<_>>(), ["frame", "application"]);
    assert!(at(&desktop(), 15, 15, None, Some(":1.8")).element.is_none());
}
