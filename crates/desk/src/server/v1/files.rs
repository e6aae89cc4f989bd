//! File routes.

use crate::Desk;
use utoipa_axum::router::OpenApiRouter;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
}
