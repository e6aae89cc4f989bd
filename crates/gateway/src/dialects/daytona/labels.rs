//! What only this dialect knows of a desk, kept in labels of the desk that its clients don't see.

use hotdesk_api::desk::Desk;
use std::collections::BTreeMap;

/// How names of such labels begin.
const PREFIX: &str = "daytona/";
/// Whether ports can be seen without a token.
pub(crate) const PUBLIC: &str = "daytona/public";
/// Changes with each start; a part of every preview token.
pub(crate) const START: &str = "daytona/start";
/// The snapshot as the client named it; empty for a sandbox made from an image.
pub(crate) const SNAPSHOT: &str = "daytona/snapshot";
/// The region that the client named.
pub(crate) const TARGET: &str = "daytona/target";
/// Whether the desktop counts as stopped: for us it always runs.
pub(crate) const DESKTOP: &str = "daytona/desktop";

/// Labels as clients know them.
pub(crate) fn seen(desk: &Desk) -> BTreeMap<&str, &str> {
    desk.labels.iter().filter(|(name, _)| !hidden(name)).map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

pub(crate) fn hidden(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// What makes the tokens of one start differ from those of the next.
pub(crate) fn fresh_start() -> String {
    format!("{:016x}", rand::random::<u64>())
}

pub(crate) fn is_public(desk: &Desk) -> bool {
    desk.labels.get(PUBLIC).is_some_and(|value| value == "true")
}
