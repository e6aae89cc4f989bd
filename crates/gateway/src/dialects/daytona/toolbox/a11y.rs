//! Accessibility trees: the desk's own, in Daytona's words.

use super::super::desk::Desk;
use super::super::reply::{Failure, Reply, ok};
use super::super::{Call, api};
use axum::http::{Method, StatusCode};
use hotdesk_api::access::{Act, ActReply, Element, FindReply, FindRequest, TreeReply};
use hotdesk_api::window::WindowList;
use serde::Deserialize;
use serde_json::{Value, json};

/// How many nodes are found if nothing is said; the desk's own limit is larger.
const USUAL: usize = 100;
const MOST: usize = 1000;

pub(crate) async fn answer(mut call: Call, desk: Desk, words: &[&str]) -> Reply {
    let method = call.parts.method.clone();
    let answered = match (&method, words) {
        (&Method::GET, ["tree"]) => tree(&call, &desk).await,
        (&Method::POST, ["find"]) => find(call.json().await?, &desk).await,
        (&Method::POST, ["node", what]) => node(call.json().await?, &desk, what).await,
        _ => return Err(api::nothing(&call)),
    };
    answered.map_err(|failure| match failure.status() {
        StatusCode::SERVICE_UNAVAILABLE => failure.daemon("A11Y_UNAVAILABLE"),
        _ => failure,
    })
}

async fn tree(call: &Call, desk: &Desk) -> Reply {
    let query = call.query();
    let depth = query.number::<i64>("maxDepth")?.unwrap_or(-1);
    let scope = Scope::of(query.get("scope"), query.number("pid")?)?;
    let below = |depth: i64| if depth < 0 { String::new() } else { format!("?depth={depth}") };
    match scope {
        Scope::All => {
            let tree: TreeReply =
                desk.get(&format!("/v1/accessibility{}", below(if depth < 0 { depth } else { (depth - 1).max(0) }))).await?;
            let apps: &[Element] = if depth == 0 { &[] } else { &tree.apps };
            let children: Vec<Value> = apps.iter().map(describe).collect();
            let root = json!({"id": "desktop", "role": "desktop frame", "name": "main", "states": [], "children": children});
            ok(json!({"root": root, "truncated": !tree.complete || cut(apps)}))
        }
        scope => {
            let app = app(desk, &scope).await?;
            let name = super::super::desk::encoded(app.name.as_deref().unwrap_or_default());
            let more = below(depth).replace('?', "&");
            let tree: TreeReply = desk.get(&format!("/v1/accessibility?app={name}{more}")).await?;
            // Two programs may have one name.
            let found = tree.apps.iter().find(|one| one.id == app.id).or(tree.apps.first()).ok_or_else(|| missing(&scope))?;
            ok(json!({"root": describe(found), "truncated": !tree.complete || cut(std::slice::from_ref(found))}))
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Find {
    scope: Option<String>,
    pid: Option<u32>,
    role: Option<String>,
    name: Option<String>,
    name_match: Option<String>,
    states: Option<Vec<String>>,
    limit: Option<usize>,
}

async fn find(wanted: Find, desk: &Desk) -> Reply {
    let scope = Scope::of(wanted.scope.as_deref(), wanted.pid)?;
    let app = match scope {
        Scope::All => None,
        scope => app(desk, &scope).await?.name,
    };
    let limit = wanted.limit.filter(|limit| *limit > 0).unwrap_or(USUAL).min(MOST);
    let name = wanted.name.filter(|name| !name.is_empty());
    let (mut exact, mut part, mut pattern) = (None, None, None);
    match wanted.name_match.as_deref().unwrap_or("exact") {
        "" | "exact" => exact = name,
        "substring" => part = name,
        "regex" => pattern = name,
        other => return Err(Failure::bad_request(format!("bad request: nameMatch is exact, substring or regex, not {other}"))),
    }
    let pattern = pattern.map(|text| regex::Regex::new(&text)).transpose();
    let pattern = pattern.map_err(|e| Failure::bad_request(format!("bad request: name is no pattern: {e}")))?;
    let request = FindRequest {
        // What AT-SPI calls so today was a push button when most toolkits were written.
        role: wanted.role.filter(|role| !role.is_empty()).map(|role| if role == "button" { "push-button".into() } else { role }),
        name: exact,
        name_contains: part,
        states: wanted.states.unwrap_or_default().iter().map(|state| state.replace(' ', "-").to_lowercase()).collect(),
        app,
        hidden: true,
        limit: Some(if pattern.is_some() { MOST } else { limit }),
        ..FindRequest::default()
    };
    let reply: FindReply = desk.post("/v1/accessibility/find", &request).await?;
    let fits = |element: &&Element| pattern.as_ref().is_none_or(|p| p.is_match(element.name.as_deref().unwrap_or_default()));
    let mut matches: Vec<Value> = reply.found.iter().filter(fits).map(describe).collect();
    let truncated = reply.more || matches.len() > limit;
    matches.truncate(limit);
    ok(json!({"matches": matches, "truncated": truncated}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    id: String,
    action: Option<String>,
    value: String,
}

async fn node(wanted: Node, desk: &Desk, what: &str) -> Reply {
    let Node { id, action, value } = wanted;
    if id.is_empty() {
        return Err(Failure::bad_request("bad request: id is required"));
    }
    let act = async |act: Act| desk.post::<ActReply>("/v1/accessibility/act", &act).await;
    match what {
        "focus" => act(Act::Focus { id }).await?,
        "invoke" => act(Act::Invoke { id, action: action.filter(|action| !action.is_empty()) }).await?,
        "value" => match (act(Act::SetText { id: id.clone(), text: value.clone() }).await, value.trim().parse()) {
            // It holds no text; a number may be meant for a slider.
            (Err(failure), Ok(value)) if failure.status() == StatusCode::BAD_REQUEST => act(Act::SetValue { id, value }).await?,
            (done, _) => done?,
        },
        _ => return Err(Failure::not_found(format!("not found: nothing called {} is done to nodes", what.escape_default()))),
    };
    ok(json!({}))
}

// ── which program ──

enum Scope {
    Focused,
    Process(u32),
    All,
}

impl Scope {
    fn of(scope: Option<&str>, pid: Option<u32>) -> Reply<Self> {
        match (scope.unwrap_or_default(), pid) {
            ("pid", None) => Err(Failure::bad_request("bad request: scope pid needs a pid")),
            ("pid", Some(pid)) | ("", Some(pid)) => Ok(Self::Process(pid)),
            ("" | "focused", _) => Ok(Self::Focused),
            ("all", _) => Ok(Self::All),
            (other, _) => {
                Err(Failure::bad_request(format!("bad request: scope is focused, pid or all, not {}", other.escape_default())))
            }
        }
    }
}

fn missing(scope: &Scope) -> Failure {
    Failure::not_found(match scope {
        Scope::Process(pid) => format!("not found: the process {pid} shows no accessible window"),
        _ => "not found: no program has the keyboard, or it tells nothing about itself".into(),
    })
}

/// The program of a scope: by the window that is active, or by the titles of a process's windows.
async fn app(desk: &Desk, scope: &Scope) -> Reply<Element> {
    let tree: TreeReply = desk.get("/v1/accessibility?depth=1&fields=name,states").await?;
    let windows: WindowList = desk.get("/v1/windows").await?;
    let is_ours = |window: &hotdesk_api::window::Window| match scope {
        Scope::Process(pid) => window.pid == Some(*pid),
        _ => window.active,
    };
    let titles: Vec<&str> = windows.windows.iter().filter(|window| is_ours(window)).map(|window| window.title.as_str()).collect();
    let active = |element: &Element| element.states.iter().flatten().any(|state| state == "active");
    let fits = |app: &&Element| {
        let named = app.children.iter().any(|window| titles.contains(&window.name.as_deref().unwrap_or_default()));
        match scope {
            Scope::Process(_) => named,
            _ => named || app.children.iter().any(active),
        }
    };
    tree.apps.iter().find(fits).cloned().ok_or_else(|| missing(scope))
}

// ── nodes ──

fn describe(element: &Element) -> Value {
    let mut node = json!({
        "id": element.id,
        // With spaces, as AT-SPI itself says it.
        "role": element.role.replace('-', " "),
        "name": element.name.as_deref().unwrap_or_default(),
        "description": element.attributes.get("description").map_or("", String::as_str),
        "states": element.states.as_deref().unwrap_or_default(),
        "actions": element.actions.iter().map(|action| action.name.as_str()).collect::<Vec<_>>(),
        "children": element.children.iter().map(describe).collect::<Vec<_>>(),
    });
    if let Some(area) = element.area {
        node["bounds"] = json!({"x": area.x, "y": area.y, "width": area.width, "height": area.height});
    }
    node
}

/// Whether children were left out.
fn cut(elements: &[Element]) -> bool {
    elements.iter().any(|element| element.children_left_out.is_some() || cut(&element.children))
}
