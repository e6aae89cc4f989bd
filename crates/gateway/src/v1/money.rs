//! Costs and budgets.

use super::wait::to_its_end;
use crate::app::App;
use crate::body::Input;
use crate::entrance::Caller;
use crate::refusal::Result;
use axum::Json;
use axum::extract::State;
use hotdesk_api::Problem;
use hotdesk_api::calls::BudgetList;
use hotdesk_api::fleet::{Budget, Costs};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(costs)).routes(routes!(budgets, set_budget))
}

/// Money spent
#[utoipa::path(get, path = "/v1/costs", tag = "money", responses((status = 200, body = Costs)))]
async fn costs(State(app): State<App>, caller: Caller) -> Result<Json<Costs>> {
    Ok(Json(app.fleet.costs(&caller.who).await?))
}

/// Lists budgets
#[utoipa::path(get, path = "/v1/budgets", tag = "money", responses((status = 200, body = BudgetList)))]
async fn budgets(State(app): State<App>, caller: Caller) -> Result<Json<BudgetList>> {
    Ok(Json(BudgetList { budgets: app.fleet.budgets(&caller.who).await? }))
}

/// Sets the budget of a project
#[utoipa::path(put, path = "/v1/budgets", tag = "money", request_body = Budget, responses(
    (status = 200, body = Budget),
    (status = 403, description = "The key is not one of the whole fleet", body = Problem, content_type = "application/problem+json"),
))]
async fn set_budget(State(app): State<App>, caller: Caller, Input(budget): Input<Budget>) -> Result<Json<Budget>> {
    to_its_end(async move {
        app.fleet.set_budget(&caller.who, budget.clone()).await?;
        Ok(Json(budget))
    })
    .await
}
