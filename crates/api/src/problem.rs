//! Errors as clients see them (RFC 9457, `application/problem+json`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, why, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A short word for programs: `invalid`, `not_found`, `unavailable`, …
    pub code: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, for people.
    pub title: String,
    /// Why, with the names and numbers of this case.
    pub detail: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether sending the same request again can help.
    pub retry: bool,
}
