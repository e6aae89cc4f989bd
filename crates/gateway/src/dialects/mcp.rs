//! MCP, the Model Context Protocol: desks as tools that a model calls.
//!
//! ```text
//!   /mcp            streamable HTTP, with a key as everywhere; each request stands alone, so there are no sessions to leak
//!   hotdesk mcp     the same tools over stdin and stdout, for clients that start their servers themselves
//! ```
//!
//! Pictures are as large as models see without loss, and coordinates are pixels of the picture. Errors are sentences that the
//! model reads, not codes that its client swallows. Texts are bounded, and say where they were cut.

mod arguments;
mod files;
mod life;
mod programs;
mod resources;
mod screen;
mod text;
mod tools;
mod tree;

use crate::app::App;
use crate::dialects::Dialect;
use crate::dialects::native::{Api, Inside, Native};
use crate::entrance::{Base, Caller};
use crate::refusal::Refusal;
use crate::route::{Claim, Class};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use hotdesk_api::Problem;
use rmcp::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/mcp";

/// The largest message: a file of some megabytes in base64.
const LARGEST_MESSAGE: usize = 16 << 20;
/// A refusal is a sentence.
const LONGEST_REFUSAL: usize = 16 << 10;
/// How long a client may keep the list of tools; it changes with our version only.
const TOOLS_TTL: Duration = Duration::from_secs(3600);

/// What a model should know before its first call.
const INSTRUCTIONS: &str = "\
Desks are Linux desktops with a screen, a mouse, a keyboard, programs and files. Make one with create_desk (or find one with \
list_desks), see it with look, drive it with act, and delete it with delete_desk when it is not needed any more. \
Coordinates are always pixels of the picture that look and act show. tree names what is on the screen and where, which is often \
surer than looking; run starts programs. While only one desk runs, `desk` can be left out.";

pub(super) struct Mcp;

impl Dialect for Mcp {
    /// What a message is about is known, and written to the audit log, when its tools ask for it.
    fn claim(&self, request: &mut Request) -> Option<Claim> {
        let ours = request.uri().path() == PATH;
        ours.then(|| Claim { audited_within: true, ..Claim::new(Class::Control, None) })
    }

    fn routes(&self) -> Router<App> {
        Router::new().route(PATH, any(http))
    }
}

async fn http(State(app): State<App>, Extension(Base(router)): Extension<Base>, caller: Caller, request: Request) -> Response {
    // Who may ask from where was decided at the entrance, so the hosts and origins that it knows are not asked about once more.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_cancellation_token(app.closing.clone())
        .with_max_request_body_bytes(LARGEST_MESSAGE)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let server = Server::new(Arc::new(Inside { app, router, caller }), None);
    let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::new(NeverSessionManager::default()), config);
    told(service.handle(request).await.map(Body::new)).await
}

/// A refusal of the protocol's own server, which is plain text, as a problem of the same status.
async fn told(response: Response) -> Response {
    let status = response.status();
    let plain = !response.headers().contains_key(header::CONTENT_TYPE);
    if !status.is_client_error() || !plain || status == StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    let text = axum::body::to_bytes(response.into_body(), LONGEST_REFUSAL).await.unwrap_or_default();
    let (code, title) = match status {
        StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "Too large"),
        _ => ("invalid", "The request can't be understood"),
    };
    Refusal::new(status, code, title, String::from_utf8_lossy(&text)).into_response()
}

/// Serves the tools over stdin and stdout until the client closes them. `desk` is the one that is meant when none is named.
pub async fn stdio(api: Arc<dyn Api>, desk: Option<String>) -> std::io::Result<()> {
    let server = Server::new(api, desk);
    let running = match rmcp::serve_server(server, rmcp::transport::stdio()).await {
        Ok(running) => running,
        // Closed before anything was said, as by somebody who only looks whether it starts.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(std::io::Error::other(error)),
    };
    running.waiting().await.map(|_| ()).map_err(std::io::Error::other)
}

/// Answers one client.
#[derive(Clone)]
pub(crate) struct Server {
    native: Native,
    /// The desk that is meant when none is named.
    desk: Option<String>,
}

impl Server {
    pub(crate) fn new(api: Arc<dyn Api>, desk: Option<String>) -> Self {
        Self { native: Native::new(api), desk }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("hotdesk", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = tools::all().iter().map(|entry| entry.tool.clone()).collect();
        Ok(ListToolsResult::with_all_items(tools).with_ttl_ms(TOOLS_TTL.as_millis() as u64).with_cache_scope(CacheScope::Public))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::named(name).map(|entry| entry.tool.clone())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(entry) = tools::named(&call.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", call.name.escape_default()), None));
        };
        let work = (entry.run)(self.clone(), call.arguments.unwrap_or_default());
        tokio::select! {
            result = work => Ok(tools::result(result).into()),
            _ = context.ct.cancelled() => Err(ErrorData::internal_error("the client called it off", None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = resources::list(&self.native).await.map_err(protocol_error)?;
        Ok(ListResourcesResult::with_all_items(list).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let ttl = TOOLS_TTL.as_millis() as u64;
        let list = ListResourceTemplatesResult::with_all_items(resources::templates());
        Ok(list.with_ttl_ms(ttl).with_cache_scope(CacheScope::Public))
    }

    async fn read_resource(
        &self,
        what: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result = resources::read(&self.native, &what.uri).await.map_err(protocol_error)?;
        Ok(result.with_ttl_ms(0).with_cache_scope(CacheScope::Private).into())
    }
}

/// Where there is no tool to answer for.
fn protocol_error(problem: Problem) -> ErrorData {
    let text = text::sentence(&problem);
    match problem.status {
        404 => ErrorData::resource_not_found(text, None),
        400..500 => ErrorData::invalid_params(text, None),
        _ => ErrorData::internal_error(text, None),
    }
}
