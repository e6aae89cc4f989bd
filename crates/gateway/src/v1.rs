//! The native API of the fleet.

mod desks;
mod events;
mod fleet;
mod keys;
mod money;
mod orphans;
mod pools;
mod snapshots;
mod templates;
mod verbs;
mod volumes;
mod wait;

pub(crate) use desks::idempotency;
pub(crate) use verbs::memory;
pub(crate) use wait::{arrived, refuse_failed, to_its_end};

use crate::app::App;
use utoipa_axum::router::OpenApiRouter;

/// What the fleet itself answers below `/v1/desks/{id}`; everything else there is the desk's.
pub(crate) const VERBS: [&str; 9] = ["start", "stop", "reset", "archive", "extend", "snapshot", "fork", "usage", "console"];

/// Every route of the fleet itself, with its description.
pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(fleet::router())
        .merge(desks::router())
        .merge(verbs::router())
        .merge(snapshots::router())
        .merge(volumes::router())
        .merge(events::router())
        .merge(pools::router())
        .merge(keys::router())
        .merge(money::router())
        .merge(orphans::router())
        .merge(templates::router())
}
