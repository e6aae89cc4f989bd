//! The OSWorld dialect: the 26 paths of its in-desktop server.

use crate::Desk;
use axum::Router;

pub fn router() -> Router<Desk> {
    Router::new()
}
