//! Who drives: one driver at a time, an agent or a person.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Names the person whose request it is: the `viewer` that it took the lease with.
pub const VIEWER_HEADER: &str = "x-hotdesk-viewer";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Driver {
    /// Whoever acts by the API.
    #[default]
    Agent,
    /// Somebody who took over.
    Person,
}

/// Who drives the desk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    pub driver: Driver,
    /// What the person is called, if that was said.
    pub name: Option<String>,
    /// Which of the people who look drives. Missing while the desk is only kept free for whoever comes.
    pub viewer: Option<String>,
    /// Since when, RFC 3339.
    pub since: String,
    /// A person who does nothing for so many seconds gives the desk back.
    pub idle_limit_s: u64,
    /// Seconds until then, if nothing more is done. Only while a person drives.
    pub returns_in_s: Option<u64>,
}

/// A person takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TakeLease {
    /// What the person is called, up to 80 characters.
    pub name: Option<String>,
    /// A word that only this person's requests and view carry, up to 80 characters. Without one the desk is
    /// kept free for whoever looks at it first.
    pub viewer: Option<String>,
    /// Seconds without input after which the desk goes back to the agent, from 5 to 3600; 60 if left out.
    #[schema(minimum = 5, maximum = 3600)]
    pub idle_s: Option<u64>,
    /// Take it from another person, too.
    pub force: bool,
}
