//! Keeps sandboxes alive: E2B ends each at its time-out, so that is moved ahead while a desk runs.

use super::Team;
use crate::cloud::{Call, Kind, escaped};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// So often within one time-out; two misses in a row do no harm.
const SHARE: u32 = 4;
const SHORTEST: Duration = Duration::from_secs(2);

pub(super) async fn keep(team: Arc<Team>) {
    let pause = (Duration::from_secs(u64::from(team.config.timeout_s)) / SHARE).max(SHORTEST);
    loop {
        tokio::time::sleep(pause).await;
        let sandboxes = match team.sandboxes(None).await {
            Ok(sandboxes) => sandboxes,
            Err(e) => {
                tracing::warn!(error = %e, "E2B's sandboxes could not be kept alive; trying again");
                continue;
            }
        };
        let soon = jiff::Timestamp::now() + Duration::from_secs(u64::from(team.config.timeout_s)).saturating_sub(pause / 2);
        for listed in sandboxes.iter().filter(|listed| listed.is_running() && listed.end_at < soon) {
            let body = json!({ "timeout": team.config.timeout_s });
            let call = Call::post(format!("/sandboxes/{}/timeout", escaped(&listed.sandbox_id))).json(body).repeatable();
            match team.api.ask(call).await {
                Ok(_) => {}
                Err(fault) if fault.kind == Kind::NotFound => {}
                // The plan's longest session: it is paused then, and resumed by the fleet with a new clock.
                Err(fault) if matches!(fault.kind, Kind::Refused | Kind::Quota) => {
                    tracing::info!(sandbox = listed.sandbox_id, %fault, "a sandbox can't live longer; it will be paused and resumed");
                }
                Err(fault) => tracing::warn!(sandbox = listed.sandbox_id, %fault, "a sandbox was not kept alive; trying again"),
            }
        }
    }
}
