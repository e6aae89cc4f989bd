//! The desk behind the proxy, for handlers that ask it by themselves: under the caller's rights, and within the budget of its key.

use super::{Target, pass};
use crate::app::App;
use crate::buffers::Share;
use crate::entrance::{Caller, PassedOn};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hotdesk_desk_client::{Client, Result, Transport};

/// The way of everybody's requests, for one of ours.
pub(crate) struct Proxied<'a> {
    app: &'a App,
    caller: &'a Caller,
    desk: &'a str,
}

/// A desk, as the caller named it.
pub(crate) fn desk<'a>(app: &'a App, caller: &'a Caller, desk: &'a str) -> Client<Proxied<'a>> {
    Client::new(Proxied { app, caller, desk })
}

impl Transport for Proxied<'_> {
    type Sent = Body;
    type Received = Body;
    type Budget = Share;

    async fn exchange(&self, request: Request) -> Result<Response> {
        let target = Target::desk(request.uri().to_string());
        Ok(pass(self.app, self.caller, self.desk, target, request).await)
    }

    fn is_from_desk(&self, response: &Response) -> bool {
        response.extensions().get::<PassedOn>().is_some()
    }

    fn budget(&self) -> Share {
        self.app.buffers.share(&self.caller.who.key)
    }
}
