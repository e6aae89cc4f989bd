//! What computer-use models say and see: their own actions, in the pixels of the pictures that they are shown.
//!
//! ```text
//!   POST /v1/desks/{id}/computer/anthropic    a `tool_use` block of Claude's → its `tool_result`
//!   POST /v1/desks/{id}/computer/openai       a `computer_call` item → its `computer_call_output`
//!   GET  of the same                          the tool as it is declared to the model
//! ```
//!
//! A model sees a picture that is smaller than the screen, or of the size that its tool declares. Its coordinates are pixels of
//! that picture; [`View`] leads them to the screen and back.

pub(crate) mod anthropic;
mod keys;
pub(crate) mod openai;
mod routes;
mod view;

use super::Dialect;
use crate::app::App;
use crate::route::{Claim, Class};
use axum::extract::Request;
use utoipa_axum::router::OpenApiRouter;

/// Calls of models' computer tools.
pub(super) struct Computer;

impl Dialect for Computer {
    /// `/v1/desks/{id}/computer/…`
    fn claim(&self, request: &mut Request) -> Option<Claim> {
        let (desk, rest) = request.uri().path().strip_prefix("/v1/desks/")?.split_once('/')?;
        let ours = !desk.is_empty() && rest.split('/').next() == Some("computer");
        let class = if request.method().is_safe() { Class::Desk } else { Class::Action };
        ours.then(|| Claim::new(class, Some(desk)))
    }

    fn described(&self) -> OpenApiRouter<App> {
        routes::router()
    }
}
pub(crate) use view::View;

use crate::dialects::native::{Ask, Native};
use axum::http::{HeaderValue, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotdesk_api::action::{Batch, Performed, PictureShape, Point, Rect, Wish};
use hotdesk_api::screen::{PictureFormat, ScreenInfo, SettledRequest};
use hotdesk_api::{Action, Problem};
use hotdesk_desk_client::headers::ENTRANCE;
use std::time::Duration;

/// How long nothing may have changed before a picture is taken: longer than a browser needs between two steps of a layout.
const QUIET_MS: u64 = 150;
/// A page that moves all the time is looked at after so long.
const LIMIT_MS: u64 = 3000;
/// A picture that nothing was done for: what is under way may end, but it is not waited for long.
const LOOK_LIMIT_MS: u64 = 1500;
/// A list of actions may take two minutes.
const LONGEST_BATCH: Duration = Duration::from_secs(150);
/// Quality of pictures that are too large without loss: text stays legible.
const JPEG_QUALITY: u8 = 80;

/// What one call of a model comes down to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deed {
    Act(Vec<Action>),
    Look,
    /// A part of the screen, larger.
    Zoom(Rect),
    Pointer,
}

/// What a model gets to see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) picture: Option<Image>,
    /// What there is to say besides.
    pub(crate) text: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// `image/png` or `image/jpeg`.
    pub(crate) kind: String,
    /// In base64.
    pub(crate) data: String,
}

/// A desk as a model drives it.
pub(crate) struct Eyes<'a> {
    pub(crate) native: &'a Native,
    pub(crate) desk: &'a str,
    pub(crate) view: View,
    /// Bytes of base64 that a picture without loss may have.
    pub(crate) most: usize,
}

/// The screen of a desk.
pub(crate) async fn screen(native: &Native, desk: &str) -> Result<ScreenInfo, Problem> {
    native.value(Ask::get(&["v1", "desks", desk, "screen"])).await
}

impl Eyes<'_> {
    /// Does it, and looks.
    pub(crate) async fn perform(&self, deed: Deed) -> Result<Seen, Problem> {
        match deed {
            Deed::Act(actions) => self.act(actions).await,
            Deed::Look => Ok(Seen { picture: Some(self.look(None).await?), text: None }),
            Deed::Zoom(region) => Ok(Seen { picture: Some(self.look(Some(region)).await?), text: None }),
            Deed::Pointer => {
                let Point { x, y } = self.view.to_picture(screen(self.native, self.desk).await?.pointer);
                Ok(Seen { picture: None, text: Some(format!("X={x},Y={y}")) })
            }
        }
    }

    async fn act(&self, actions: Vec<Action>) -> Result<Seen, Problem> {
        let batch = Batch {
            actions,
            settle: Some(SettledRequest { quiet_ms: Some(QUIET_MS), limit_ms: Some(LIMIT_MS) }),
            screenshot: Some(Wish::Shaped(PictureShape { size: self.view.scaling(), ..PictureShape::default() })),
        };
        let ask = Ask::post(&["v1", "desks", self.desk, "input"]).json(&batch).waiting(LONGEST_BATCH);
        let ask = ask.header(header::ACCEPT, HeaderValue::from_static("application/json"));
        let ask = ask.header(ENTRANCE, HeaderValue::from_static("computer"));
        let done: Performed = self.native.value(ask).await?;
        let mut notes = Vec::new();
        if done.settled == Some(false) {
            notes.push(format!("the screen still changed after {} s", LIMIT_MS / 1000));
        }
        if let Some(problem) = &done.problem {
            notes.push(format!("it was done, but there is no picture: {}; do not do it again, look", problem.detail));
        }
        let picture = match done.screenshot {
            // Never an error from here on: what was done can't be taken back by saying so.
            Some(picture) if picture.data.len() > self.most => self.take(None, true).await.ok(),
            Some(picture) => Some(Image { kind: picture.r#type, data: picture.data }),
            None => None,
        };
        Ok(Seen { picture, text: (!notes.is_empty()).then(|| notes.join("; ")) })
    }

    /// A picture of the screen or of a part of it.
    pub(crate) async fn look(&self, region: Option<Rect>) -> Result<Image, Problem> {
        let image = self.take(region, false).await?;
        if image.data.len() > self.most { self.take(region, true).await } else { Ok(image) }
    }

    async fn take(&self, region: Option<Rect>, small: bool) -> Result<Image, Problem> {
        let mut ask = Ask::get(&["v1", "desks", self.desk, "screenshot"])
            .query("wait", "settled")
            .query("quiet_ms", QUIET_MS)
            .query("limit_ms", LOOK_LIMIT_MS);
        let size = match region {
            Some(Rect { x, y, width, height }) => {
                ask = ask.query("region", format!("{x},{y},{width},{height}"));
                Some(self.view.enlarged(width, height))
            }
            None => self.view.scaling(),
        };
        if let Some(size) = size {
            ask = ask.query("size", format!("{}x{}", size.width, size.height));
        }
        let (format, kind) = if small { (PictureFormat::Jpeg, "image/jpeg") } else { (PictureFormat::Png, "image/png") };
        if format == PictureFormat::Jpeg {
            ask = ask.query("format", "jpeg").query("quality", JPEG_QUALITY);
        }
        let answer = self.native.answer(ask).await?;
        Ok(Image { kind: kind.into(), data: BASE64_STANDARD.encode(&answer.body) })
    }
}
