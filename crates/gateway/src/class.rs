//! What a path is about: which limits hold for it, how it is counted, whose desk it is.

use axum::http::Method;

/// What the fleet itself answers below `/v1/desks/{id}`; everything else there is the desk's.
pub(crate) const VERBS: [&str; 9] = ["start", "stop", "reset", "archive", "extend", "snapshot", "fork", "usage", "console"];

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `/health`, `/ready`, `/metrics`, the description.
    Probe,
    /// To the fleet.
    Control,
    /// A picture of a desk.
    Screenshot,
    /// Something is done on a desk.
    Action,
    /// Anything else of a desk.
    Desk,
    /// A port of a desk.
    Port,
}

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Control => "control",
            Self::Screenshot => "screenshot",
            Self::Action => "action",
            Self::Desk => "desk",
            Self::Port => "port",
        }
    }

    /// Whether a desk answers.
    pub(crate) fn is_passed_on(self) -> bool {
        matches!(self, Self::Screenshot | Self::Action | Self::Desk | Self::Port)
    }
}

/// The class of a request, and the desk that it names.
pub(crate) fn of<'a>(method: &Method, path: &'a str) -> (Class, Option<&'a str>) {
    let mut parts = path.trim_start_matches('/').splitn(4, '/');
    let first = parts.next().unwrap_or_default();
    let second = parts.next();
    let third = parts.next();
    let rest = parts.next();
    match (first, second, third) {
        ("health" | "ready" | "metrics", None, _) => (Class::Probe, None),
        ("v1", Some("openapi.json"), None) => (Class::Probe, None),
        ("v1", Some("desks"), Some(id)) if !id.is_empty() => (below_desk(method, rest), Some(id)),
        ("osworld", Some(id), rest) if !id.is_empty() => (osworld(method, rest.unwrap_or_default()), Some(id)),
        ("daytona", Some("toolbox"), Some(id)) => (daytona(rest.unwrap_or_default()), Some(id)),
        ("daytona", Some("preview"), Some(id)) => (Class::Port, Some(id)),
        ("daytona", Some("api"), Some("toolbox")) => match rest.and_then(|rest| rest.split_once('/')) {
            Some((id, rest)) => (daytona(rest.strip_prefix("toolbox/").unwrap_or(rest)), Some(id)),
            None => (Class::Control, None),
        },
        ("vm", Some(id), Some("screenshot")) => (Class::Screenshot, Some(id)),
        ("vm", Some(id), Some("execute")) => (Class::Action, Some(id)),
        ("vm", Some(id), Some("delete")) => (Class::Control, Some(id)),
        _ => (Class::Control, None),
    }
}

fn below_desk(method: &Method, rest: Option<&str>) -> Class {
    let Some(rest) = rest else { return Class::Control };
    let changes = !method.is_safe();
    match rest.split('/').next().unwrap_or_default() {
        verb if VERBS.contains(&rest) && !verb.is_empty() => Class::Control,
        "screenshot" => Class::Screenshot,
        "input" | "computer" if changes => Class::Action,
        "processes" if changes && rest == "processes/run" => Class::Action,
        "ports" => Class::Port,
        _ => Class::Desk,
    }
}

fn daytona(rest: &str) -> Class {
    match rest {
        rest if rest.starts_with("computeruse/screenshot") => Class::Screenshot,
        rest if rest.starts_with("computeruse/mouse") || rest.starts_with("computeruse/keyboard") => Class::Action,
        "process/execute" | "process/code-run" => Class::Action,
        _ => Class::Desk,
    }
}

fn osworld(method: &Method, first: &str) -> Class {
    match first {
        "screenshot" => Class::Screenshot,
        "execute" | "execute_with_verification" | "run_python" | "run_bash_script" if !method.is_safe() => Class::Action,
        _ => Class::Desk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        for (method, path, class, desk) in [
            ("GET", "/health", Class::Probe, None),
            ("GET", "/v1/openapi.json", Class::Probe, None),
            ("GET", "/v1/desks", Class::Control, None),
            ("POST", "/v1/desks", Class::Control, None),
            ("GET", "/v1/desks/d-1", Class::Control, Some("d-1")),
            ("POST", "/v1/desks/d-1/start", Class::Control, Some("d-1")),
            ("GET", "/v1/desks/d-1/start/x", Class::Desk, Some("d-1")),
            ("GET", "/v1/desks/d-1/screenshot", Class::Screenshot, Some("d-1")),
            ("POST", "/v1/desks/d-1/input", Class::Action, Some("d-1")),
            ("GET", "/v1/desks/d-1/input/keys", Class::Desk, Some("d-1")),
            ("POST", "/v1/desks/d-1/computer/openai", Class::Action, Some("d-1")),
            ("POST", "/mcp", Class::Control, None),
            ("POST", "/v1/desks/d-1/processes/run", Class::Action, Some("d-1")),
            ("GET", "/v1/desks/d-1/ports/9222/json", Class::Port, Some("d-1")),
            ("GET", "/osworld/d-1/screenshot", Class::Screenshot, Some("d-1")),
            ("POST", "/osworld/d-1/execute", Class::Action, Some("d-1")),
            ("POST", "/osworld/d-1/setup/launch", Class::Desk, Some("d-1")),
            ("POST", "/vm/create", Class::Control, None),
            ("GET", "/vm/d-1/screenshot", Class::Screenshot, Some("d-1")),
            ("DELETE", "/vm/d-1/delete", Class::Control, Some("d-1")),
            ("GET", "/v1/desks//x", Class::Control, None),
            ("POST", "/daytona/api/sandbox", Class::Control, None),
            ("POST", "/daytona/toolbox/d-1/process/execute", Class::Action, Some("d-1")),
            ("GET", "/daytona/api/toolbox/d-1/toolbox/computeruse/screenshot", Class::Screenshot, Some("d-1")),
            ("GET", "/daytona/preview/d-1/80/x", Class::Port, Some("d-1")),
        ] {
            let method = method.parse().unwrap();
            assert_eq!(of(&method, path), (class, desk), "{method} {path}");
        }
    }
}
