//! What browsers are told about answers that are no page of ours.
//!
//! What agents write is served from the gateway's own address: ports of desks, previews, files. A page among it must not be a page of the
//! dashboard's origin, or it would read what the dashboard reads. So every answer but the dashboard's files says `sandbox`:
//! the browser gives such a page an origin of its own, without cookies, storage and service workers, to which nothing of ours belongs.
//! Headers by which an answer changes what the browser does with the whole origin are dropped.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

/// Scripts and forms work; the origin is nobody's.
const SANDBOX: &str = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock";
/// About more than the one answer that they come with.
const ORIGIN_WIDE: [&str; 12] = [
    "service-worker-allowed",
    "clear-site-data",
    "strict-transport-security",
    "public-key-pins",
    "alt-svc",
    "nel",
    "report-to",
    "reporting-endpoints",
    "origin-agent-cluster",
    "accept-ch",
    "set-login",
    "access-control-allow-credentials",
];
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// Marks the dashboard's own files.
#[derive(Clone, Copy)]
pub(crate) struct OwnPage;

/// Makes an answer safe to show.
pub(crate) fn over(response: &mut Response, own_origin: bool) {
    let own_page = response.extensions().get::<OwnPage>().is_some();
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if own_page {
        return;
    }
    for name in ORIGIN_WIDE {
        headers.remove(name);
    }
    if !own_origin {
        // Beside a policy of the desk's own: both hold.
        headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    }
}

/// Whether a browser asks for the script of a service worker.
pub(crate) fn asks_for_worker(headers: &HeaderMap) -> bool {
    headers.contains_key(SERVICE_WORKER)
}
