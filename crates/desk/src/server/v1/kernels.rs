//! Kernel routes.

use crate::Desk;
use crate::error::Result;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use hotdesk_api::kernel::{ExecuteCode, Kernel, KernelEvent, KernelList, NewKernel};
use hotdesk_serve::Json;
use std::convert::Infallible;
use tokio_stream::wrappers::ReceiverStream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new()
        .routes(routes!(list_kernels, start_kernel))
        .routes(routes!(get_kernel, close_kernel))
        .routes(routes!(execute_code))
        .routes(routes!(interrupt_kernel))
}

/// List the kernels
#[utoipa::path(get, path = "/v1/kernels", tag = "kernels", responses((status = 200, body = KernelList)))]
async fn list_kernels(State(desk): State<Desk>) -> Json<KernelList> {
    Json(KernelList { kernels: desk.kernels.list() })
}

/// Start a kernel
///
/// A Python interpreter that remembers from one piece of code to the next.
#[utoipa::path(post, path = "/v1/kernels", tag = "kernels", request_body = NewKernel, responses(
    (status = 201, body = Kernel),
    (status = 409, description = "The name is taken."),
    (status = 501, description = "There is no Python on this desk."),
))]
async fn start_kernel(State(desk): State<Desk>, Json(request): Json<NewKernel>) -> Result<(StatusCode, Json<Kernel>)> {
    Ok((StatusCode::CREATED, Json(desk.kernels.start(request).await?.describe())))
}

/// Describe a kernel
#[utoipa::path(
    get, path = "/v1/kernels/{name}", tag = "kernels", params(("name" = String, Path)), responses((status = 200, body = Kernel))
)]
async fn get_kernel(State(desk): State<Desk>, Path(name): Path<String>) -> Result<Json<Kernel>> {
    Ok(Json(desk.kernels.get(&name)?.describe()))
}

/// Close a kernel
///
/// Everything that it started is ended.
#[utoipa::path(
    delete, path = "/v1/kernels/{name}", tag = "kernels", params(("name" = String, Path)),
    responses((status = 204, description = "It is gone."))
)]
async fn close_kernel(State(desk): State<Desk>, Path(name): Path<String>) -> Result<StatusCode> {
    desk.kernels.close(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Run code in a kernel
///
/// It runs when what was sent before it has ended. The answer is a stream of server-sent events, each with a `KernelEvent` as its
/// data and that event's name as its name. When the client leaves before the end, the code is interrupted.
#[utoipa::path(
    post, path = "/v1/kernels/{name}/execute", tag = "kernels", params(("name" = String, Path)), request_body = ExecuteCode,
    responses((status = 200, description = "Events.", content_type = "text/event-stream", body = KernelEvent))
)]
async fn execute_code(State(desk): State<Desk>, Path(name): Path<String>, Json(request): Json<ExecuteCode>) -> Result<Response> {
    let events = ReceiverStream::new(desk.kernels.get(&name)?.execute(request)?);
    Ok(Sse::new(events.map(|told| Ok::<_, Infallible>(event(&told)))).keep_alive(KeepAlive::default()).into_response())
}

/// Interrupt the code that runs in a kernel
///
/// As Ctrl-C does. What waits behind it runs then.
#[utoipa::path(
    post, path = "/v1/kernels/{name}/interrupt", tag = "kernels", params(("name" = String, Path)),
    responses((status = 204, description = "It is told; nothing happens if no code runs."))
)]
async fn interrupt_kernel(State(desk): State<Desk>, Path(name): Path<String>) -> Result<StatusCode> {
    desk.kernels.get(&name)?.interrupt().await?;
    Ok(StatusCode::NO_CONTENT)
}

fn event(told: &KernelEvent) -> Event {
    let name = match told {
        KernelEvent::Stdout { .. } => "stdout",
        KernelEvent::Stderr { .. } => "stderr",
        KernelEvent::Result { .. } => "result",
        KernelEvent::Error { .. } => "error",
        KernelEvent::End { .. } => "end",
    };
    Event::default().event(name).data(serde_json::to_string(told).unwrap_or_default())
}
