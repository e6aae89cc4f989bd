//! Connections that become something else: WebSockets and plain TCP.

use crate::error::reason;
use crate::transport::Client;
use crate::{Error, Result};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use reqwest::{Method, StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Pieces of a screen are the largest messages of a desk.
const LARGEST_MESSAGE: usize = 64 << 20;

/// The bytes of a TCP connection to a port of a desk.
pub type Tunnel = Upgraded;

pub(crate) type Socket = WebSocketStream<Upgraded>;

pub(crate) struct Sender(SplitSink<Socket, Message>);

pub(crate) struct Receiver(SplitStream<Socket>);

impl Client {
    /// Opens a WebSocket.
    pub(crate) async fn socket(&self, path: &[&str], protocol: Option<&'static str>) -> Result<Socket> {
        let key = generate_key();
        let accept = derive_accept_key(key.as_bytes());
        let key = HeaderValue::from_str(&key).map_err(|e| Error::Strange(e.to_string()))?;
        let mut call = self
            .call(Method::GET, path)
            .once()
            .header(CONNECTION, HeaderValue::from_static("Upgrade"))
            .header(UPGRADE, HeaderValue::from_static("websocket"))
            .header(HeaderName::from_static("sec-websocket-version"), HeaderValue::from_static("13"))
            .header(HeaderName::from_static("sec-websocket-key"), key);
        if let Some(protocol) = protocol {
            call = call.header(HeaderName::from_static("sec-websocket-protocol"), HeaderValue::from_static(protocol));
        }
        let answer = call.send().await?;
        let accepted = answer.headers().get(SEC_WEBSOCKET_ACCEPT).is_some_and(|value| value.as_bytes() == accept.as_bytes());
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS || !accepted {
            return Err(Error::Strange(format!("the connection did not become a WebSocket ({})", answer.status())));
        }
        let stream = answer.upgrade().await.map_err(|e| Error::Broken(reason(&e)))?;
        let config = WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE)).max_frame_size(Some(LARGEST_MESSAGE));
        Ok(WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await)
    }

    /// Opens a connection that carries plain bytes.
    pub(crate) async fn tunnel(&self, path: &[&str]) -> Result<Tunnel> {
        let call = self
            .call(Method::GET, path)
            .once()
            .header(CONNECTION, HeaderValue::from_static("Upgrade"))
            .header(UPGRADE, HeaderValue::from_static("tcp"));
        let answer = call.send().await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::Strange(format!("the connection did not become a tunnel ({})", answer.status())));
        }
        answer.upgrade().await.map_err(|e| Error::Broken(reason(&e)))
    }
}

pub(crate) fn split(socket: Socket) -> (Sender, Receiver) {
    let (sink, stream) = socket.split();
    (Sender(sink), Receiver(stream))
}

impl Sender {
    pub(crate) async fn send(&mut self, message: Message) -> Result<()> {
        self.0.send(message).await.map_err(|e| Error::Broken(e.to_string()))
    }

    pub(crate) async fn control(&mut self, message: &impl serde::Serialize) -> Result<()> {
        let text = serde_json::to_string(message).map_err(|e| Error::Strange(e.to_string()))?;
        self.send(Message::text(text)).await
    }
}

impl Receiver {
    /// The next message that means something; `None` when the other side is done.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>> {
        loop {
            return match self.0.next().await {
                Some(Ok(message @ (Message::Binary(_) | Message::Text(_)))) => Ok(Some(message)),
                Some(Ok(Message::Close(_))) | None => Ok(None),
                // Pings are answered below us.
                Some(Ok(_)) => continue,
                Some(Err(e)) => Err(Error::Broken(e.to_string())),
            };
        }
    }
}
