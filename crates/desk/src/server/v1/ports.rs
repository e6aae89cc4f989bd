//! Ports of the desk: what listens, and a way to it through the desk's own address, so that what listens on its loopback can be
//! reached from outside without a second way in.

use crate::Desk;
use crate::error::{Error, Result};
use axum::extract::{Path, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hotdesk_api::port::{ListeningPort, PortList};
use hotdesk_serve::Json;
use hyper_util::rt::TokioIo;
use procfs::net::TcpState;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::net::TcpStream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Loopback answers at once or not at all, unless its queue is full.
const CONNECT: Duration = Duration::from_secs(5);

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(list_ports)).routes(routes!(tunnel))
}

/// List the TCP ports that something listens on
///
/// As the kernel tells it: also ports of programs that nobody started over this API, and the desk's own.
#[utoipa::path(get, path = "/v1/ports", tag = "ports", responses((status = 200, body = PortList)))]
async fn list_ports() -> Result<Json<PortList>> {
    let ports = tokio::task::spawn_blocking(listening).await.map_err(Error::internal)?;
    Ok(Json(PortList { ports: ports.map_err(|e| Error::Internal(format!("the kernel's table of ports can't be read: {e}")))? }))
}

fn listening() -> procfs::ProcResult<Vec<ListeningPort>> {
    let mut sockets = procfs::net::tcp()?;
    match procfs::net::tcp6() {
        Ok(more) => sockets.extend(more),
        // A kernel without IPv6 has no such table.
        Err(procfs::ProcError::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    let listening = sockets.iter().filter(|socket| socket.state == TcpState::Listen).map(|socket| socket.local_address);
    let mut ports: Vec<_> =
        listening.map(|local| ListeningPort { port: local.port(), address: local.ip().to_string() }).collect();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

/// A connection to a port of the desk
///
/// Send `Connection: Upgrade` and `Upgrade: tcp`. After the 101 the connection carries the bytes of a TCP
/// connection to that port of the desk's loopback.
#[utoipa::path(get, path = "/v1/ports/{port}", tag = "ports", params(("port" = u16, Path, description = "The port, 1 to 65535")), responses(
    (status = 101, description = "Bytes of the TCP connection follow."),
    (status = 400, description = "Not an upgrade to `tcp`."),
    (status = 503, description = "Nothing listens on that port."),
))]
async fn tunnel(Path(port): Path<u16>, mut request: Request) -> Result<Response> {
    let asked = request.headers().get(header::UPGRADE).is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"tcp"));
    if !asked || port == 0 {
        return Err(Error::Invalid("send `Connection: Upgrade` and `Upgrade: tcp`, and a port from 1 to 65535".into()));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let mut inner = connect(port).await?;
    tokio::spawn(async move {
        if let Ok(outer) = upgrade.await {
            // Either side may break off; there is nobody to tell.
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(outer), &mut inner).await;
        }
    });
    let mut answer = StatusCode::SWITCHING_PROTOCOLS.into_response();
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("tcp"));
    Ok(answer)
}

/// Programs listen on IPv4, on IPv6, or on both.
async fn connect(port: u16) -> Result<TcpStream> {
    let unavailable =
        |reason: String| Error::Unavailable { part: "the port", reason: format!("port {port} of the desk: {reason}") };
    let mut last = String::new();
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        match tokio::time::timeout(CONNECT, TcpStream::connect((address, port))).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            // What IPv4 says is the more telling one.
            Ok(Err(e)) if last.is_empty() => last = e.to_string(),
            Ok(Err(_)) => {}
            Err(_) => return Err(unavailable("no answer in 5 s".into())),
        }
    }
    Err(unavailable(last))
}
