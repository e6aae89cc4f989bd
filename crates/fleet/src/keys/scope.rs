//! What a key may do: the one place that decides it.

use crate::Who;
use crate::error::{Error, Result};
use hotdesk_api::fleet::Scope;

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Look at it: state, usage, log, events, cost.
    See,
    /// Reach it: the desk's own routes, its ports, its live view.
    Use,
    /// Start, stop, reset. Whoever uses a desk can do as much to it from inside.
    Run,
    /// Name, labels, policy, time to live.
    Change,
    /// Snapshot, fork, archive.
    Save,
    Delete,
    /// Make and revoke keys for it.
    Grant,
    /// Make desks.
    Create,
    /// Pools, keys, budgets, templates, the audit log, metrics.
    Rule,
}

/// What it is to be done to.
#[derive(Debug, Clone, Copy)]
pub enum On<'a> {
    Fleet,
    Project(&'a str),
    Desk { id: &'a str, project: &'a str },
}

/// Whether a key may do something. A desk that is not the key's own does not exist for it.
///
/// | key of    | the fleet | its project      | another | desks of its project / its desk      | other desks |
/// |-----------|-----------|------------------|---------|--------------------------------------|-------------|
/// | admin     | all       | all              | all     | all                                  | all         |
/// | a project | see       | see, create      | nothing | all but `Rule`                       | not found   |
/// | a desk    | see       | nothing          | nothing | see, use, run                        | not found   |
pub fn may(who: &Who, deed: Deed, on: On<'_>) -> Result<()> {
    let good = match (&who.scope, on) {
        (Scope::Admin, _) => true,
        (_, On::Fleet) => deed == Deed::See,
        (Scope::Project { project: own }, On::Project(project)) => own == project && matches!(deed, Deed::See | Deed::Create),
        (Scope::Desk { .. }, On::Project(_)) => false,
        (Scope::Project { project: own }, On::Desk { project, .. }) if own == project => deed != Deed::Rule,
        (Scope::Desk { desk: own }, On::Desk { id, .. }) if own == id => matches!(deed, Deed::See | Deed::Use | Deed::Run),
        (_, On::Desk { id, .. }) => return Err(Error::NotFound { what: "desk", id: id.into() }),
    };
    if good { Ok(()) } else { Err(Error::Denied(refusal(who, deed, on))) }
}

fn refusal(who: &Who, deed: Deed, on: On<'_>) -> String {
    let deed = match deed {
        Deed::See => "look at",
        Deed::Use => "use",
        Deed::Run => "start, stop or reset",
        Deed::Change => "change",
        Deed::Save => "save or fork",
        Deed::Delete => "delete",
        Deed::Grant => "make keys for",
        Deed::Create => "make desks in",
        Deed::Rule => "rule over",
    };
    let on = match on {
        On::Fleet => "the fleet".to_owned(),
        On::Project(project) => format!("project {project}"),
        On::Desk { id, .. } => format!("desk {id}"),
    };
    let scope = match &who.scope {
        Scope::Admin => "admin".to_owned(),
        Scope::Project { project } => format!("project {project}"),
        Scope::Desk { desk } => format!("desk {desk}"),
    };
    format!("key {} (scope {scope}) may not {deed} {on}; use a key of a wider scope", who.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Deed::*;

    const ALL: [Deed; 9] = [See, Use, Run, Change, Save, Delete, Grant, Create, Rule];

    fn who(scope: Scope) -> Who {
        Who { key: "k-1".into(), name: "test".into(), scope }
    }

    /// What is allowed; everything else is not.
    #[test]
    fn every_scope_deed_and_thing() {
        let admin = who(Scope::Admin);
        let project = who(Scope::Project { project: "a".into() });
        let desk = who(Scope::Desk { desk: "d-1".into() });
        let own = On::Desk { id: "d-1", project: "a" };
        let sibling = On::Desk { id: "d-2", project: "a" };
        let foreign = On::Desk { id: "d-3", project: "b" };
        // A project of the name of a desk, and the other way round.
        let odd = On::Desk { id: "a", project: "d-1" };
        let but_rule = &ALL[..8];
        let table: [(&Who, On<'_>, &[Deed]); 21] = [
            (&admin, On::Fleet, &ALL),
            (&admin, On::Project("a"), &ALL),
            (&admin, On::Project("b"), &ALL),
            (&admin, own, &ALL),
            (&admin, sibling, &ALL),
            (&admin, foreign, &ALL),
            (&admin, odd, &ALL),
            (&project, On::Fleet, &[See]),
            (&project, On::Project("a"), &[See, Create]),
            (&project, On::Project("b"), &[]),
            (&project, own, but_rule),
            (&project, sibling, but_rule),
            (&project, foreign, &[]),
            (&project, odd, &[]),
            (&desk, On::Fleet, &[See]),
            (&desk, On::Project("a"), &[]),
            (&desk, On::Project("d-1"), &[]),
            (&desk, own, &[See, Use, Run]),
            (&desk, sibling, &[]),
            (&desk, foreign, &[]),
            (&desk, odd, &[]),
        ];
        for (who, on, allowed) in table {
            for deed in ALL {
                let answer = may(who, deed, on);
                assert_eq!(answer.is_ok(), allowed.contains(&deed), "{:?} {deed:?} {on:?}: {answer:?}", who.scope);
                if let (Err(error), On::Desk { .. }) = (&answer, on) {
                    let hidden = allowed.is_empty();
                    assert_eq!(matches!(error, Error::NotFound { .. }), hidden, "{:?} {deed:?} {on:?}: {error}", who.scope);
                }
            }
        }
    }
}
