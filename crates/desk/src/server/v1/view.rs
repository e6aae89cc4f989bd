//! The live view over WebSocket, and who looks.

use crate::Desk;
use crate::error::{Error, Result};
use crate::view::{self, Door, Entrance, Options};
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::response::Response;
use futures_util::{SinkExt, StreamExt, future};
use hotdesk_api::view::{ViewInfo, ViewQuery, ViewerInfo};
use hotdesk_serve::Json;
use std::io;
use std::sync::atomic::Ordering;
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What a viewer may send in one message; texts for the clipboard are the longest.
const LONGEST_MESSAGE: usize = 2 << 20;

pub fn router() -> OpenApiRouter<Desk> {
    OpenApiRouter::new().routes(routes!(view)).routes(routes!(view_websockify)).routes(routes!(view_info))
}

/// The screen, live: RFB (VNC) in binary messages, as noVNC speaks it.
#[utoipa::path(
    get,
    path = "/v1/view",
    tag = "view",
    params(ViewQuery),
    responses((status = 101, description = "RFB 3.8 in binary messages"), (status = 400, description = "Not a WebSocket"))
)]
async fn view(State(desk): State<Desk>, Query(query): Query<ViewQuery>, upgrade: WebSocketUpgrade) -> Result<Response> {
    open(desk, &query, upgrade)
}

/// The same, under the name that viewers of websockify look for.
#[utoipa::path(
    get,
    path = "/v1/view/websockify",
    tag = "view",
    params(ViewQuery),
    responses((status = 101, description = "RFB 3.8 in binary messages"), (status = 400, description = "Not a WebSocket"))
)]
async fn view_websockify(
    State(desk): State<Desk>,
    Query(query): Query<ViewQuery>,
    upgrade: WebSocketUpgrade,
) -> Result<Response> {
    open(desk, &query, upgrade)
}

/// Who looks at the desk right now.
#[utoipa::path(get, path = "/v1/view/info", tag = "view", responses((status = 200, body = ViewInfo)))]
async fn view_info(State(desk): State<Desk>) -> Json<ViewInfo> {
    let viewer = |viewer: std::sync::Arc<view::Viewer>| ViewerInfo {
        id: viewer.id,
        from: viewer.from.clone(),
        view_only: viewer.view_only,
        seconds: viewer.since.elapsed().as_secs(),
        frames: viewer.frames.load(Ordering::Relaxed),
        bytes: viewer.bytes.load(Ordering::Relaxed),
    };
    let options = desk.view.options();
    Json(ViewInfo {
        viewers: desk.view.viewers().list().into_iter().map(viewer).collect(),
        most_viewers: options.most_viewers,
        password: desk.view.password().is_some(),
        view_only: options.view_only,
        name: view::name(&desk),
    })
}

fn open(desk: Desk, query: &ViewQuery, upgrade: WebSocketUpgrade) -> Result<Response> {
    if desk.view.viewers().count() >= desk.view.options().most_viewers {
        return Err(Error::Conflict("as many viewers as are allowed look at this desk already".into()));
    }
    let entrance = entrance(desk.view.options(), desk.view.password(), query);
    let upgrade = upgrade.protocols(["binary"]).max_message_size(LONGEST_MESSAGE).max_frame_size(LONGEST_MESSAGE);
    Ok(upgrade.on_upgrade(async move |socket| {
        let (view, name, closing) = (desk.view.clone(), view::name(&desk), desk.view.closing());
        view.attend(desk, &name, bytes(socket), entrance, closing).await;
    }))
}

/// Whoever came this far has shown the desk's token or is on its machine, unless the desk is open to all.
fn entrance(options: &Options, full: Option<view::Password>, query: &ViewQuery) -> Entrance {
    let view_only = options.view_only_password.clone();
    let door =
        if options.open && (full.is_some() || view_only.is_some()) { Door::Locked { full, view_only } } else { Door::Open };
    Entrance {
        door,
        from: None,
        view_only: query.view_only || options.view_only,
        resize: query.resize || options.resize,
        word: query.viewer.clone().filter(|word| !word.is_empty()),
    }
}

/// A WebSocket as a stream of bytes.
fn bytes(socket: WebSocket) -> impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {
    let (sink, stream) = socket.split();
    let received = stream.filter_map(|message| {
        future::ready(match message {
            Ok(Message::Binary(bytes)) => Some(Ok(bytes)),
            Ok(Message::Close(_)) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            // Text has no place in RFB; pings are answered below us.
            Ok(_) => None,
            Err(e) => Some(Err(io::Error::other(e))),
        })
    });
    let sent = sink.sink_map_err(io::Error::other).with(|bytes: Bytes| future::ready(Ok::<_, io::Error>(Message::Binary(bytes))));
    tokio::io::join(StreamReader::new(received), SinkWriter::new(CopyToBytes::new(sent)))
}

#[cfg(test)]
mod tests {
    use crate::Desk;
    use crate::config::{AttachTarget, Config};
    use crate::x11::tests::TestDisplay;
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::connect_async;
    use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_browser_sees_the_screen() {
        let display = TestDisplay::bare();
        let config = Config {
            attach: Some(AttachTarget(display.place.display.number)),
            home: Some(display.place.home.clone()),
            ..Config::default()
        };
        let desk = Desk::start(config).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, crate::server::app(desk.clone())).into_future());

        let mut request = format!("ws://{address}/v1/view?view_only=true").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "binary".parse().unwrap());
        let (mut socket, response) = connect_async(request).await.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "binary");
        let mut heard = Vec::new();
        // Text is no RFB, and messages may be cut anywhere.
        socket.send(Message::text("hello")).await.unwrap();
        socket.send(Message::binary(b"RFB 003.".to_vec())).await.unwrap();
        socket.send(Message::binary(b"008\n\x01".to_vec())).await.unwrap();
        socket.send(Message::binary(b"\x01".to_vec())).await.unwrap();
        while heard.len() < 12 + 2 + 4 + 24 {
            if let Message::Binary(bytes) = socket.next().await.unwrap().unwrap() {
                heard.extend_from_slice(&bytes);
            }
        }
        assert_eq!(heard[18..22], [5, 0, 3, 0x20], "1280 by 800");
        let viewers = desk.view.viewers().list();
        assert!(viewers.len() == 1 && viewers[0].view_only);
        desk.view.close();
        while let Some(Ok(_)) = socket.next().await {}
        desk.view.viewers().watch().wait_for(|n| *n == 0).await.unwrap();
        assert!(connect_async(format!("ws://{address}/v1/view?nonsense=1")).await.is_err());
    }
}
