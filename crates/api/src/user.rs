//! Other users of a desk than the one that its programs belong to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Users that something was asked of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    pub users: Vec<String>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub name: String,
}
