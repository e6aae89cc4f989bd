//! Who asks: known where a request comes in, needed where an engine acts.
//!
//! It goes along with the task of the request. Where nothing is known the asker is an agent, so what
//! forgets to pass it on is refused rather than let in.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use hotdesk_api::lease::VIEWER_HEADER;

/// Names the dialect that a request was translated from, in the desk's own words.
const ENTRANCE_HEADER: &str = "x-hotdesk-entrance";
/// Characters of the name of an entrance.
const LONGEST_ENTRANCE: usize = 24;

tokio::task_local! {
    static ASKER: Asker;
}

/// Whose request this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The word that a person took the lease with.
    pub viewer: Option<String>,
    /// Where the request came in: `v1`, `osworld`, or a dialect of the gateway.
    pub entrance: String,
}

impl Default for Asker {
    fn default() -> Self {
        Self { viewer: None, entrance: "v1".into() }
    }
}

impl Asker {
    /// The one whose request is being worked on.
    pub fn now() -> Self {
        ASKER.try_with(Clone::clone).unwrap_or_default()
    }

    fn of(request: &Request, default: &str) -> Self {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
        let is_word =
            |text: &&str| text.len() <= LONGEST_ENTRANCE && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        Self {
            viewer: header(VIEWER_HEADER).map(str::to_owned),
            entrance: header(ENTRANCE_HEADER).filter(is_word).unwrap_or(default).to_owned(),
        }
    }
}

/// Works for somebody, also in a task of its own.
pub async fn with_asker<T>(asker: Asker, work: impl Future<Output = T>) -> T {
    ASKER.scope(asker, work).await
}

/// The middleware: whatever a request leads to knows whose it is.
pub async fn asked(request: Request, next: Next) -> Response {
    let native = request.uri().path().starts_with("/v1/");
    let asker = Asker::of(&request, if native { "v1" } else { "osworld" });
    with_asker(asker, next.run(request)).await
}
