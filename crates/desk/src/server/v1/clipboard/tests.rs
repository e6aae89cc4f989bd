//! The routes, over HTTP and against a real display.

use super::*;
use crate::x11::tests::TestDisplay;
use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt;

async fn send(clipboard: &Clipboard, method: &str, path: &str, kind: Option<&str>, body: &[u8]) -> (u16, String, Vec<u8>) {
    let (router, _) = router_of::<Clipboard>().with_state(clipboard.clone()).split_for_parts();
    let mut request = Request::builder().method(method).uri(path);
    if let Some(kind) = kind {
        request = request.header("content-type", kind);
    }
    let (parts, body) = router.oneshot(request.body(Body::from(body.to_vec())).unwrap()).await.unwrap().into_parts();
    let body = axum::body::to_bytes(body, 128 << 20).await.unwrap().to_vec();
    let kind = parts.headers.get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
    (parts.status.as_u16(), kind, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_go_up_and_down_as_they_are() {
    let display = TestDisplay::bare();
    let clipboard = Clipboard::new(display.place.clone());
    let here = "/v1/clipboard";
    assert_eq!(send(&clipboard, "GET", here, None, b"").await.0, 404);
    assert_eq!(send(&clipboard, "PUT", here, None, "Grüße".as_bytes()).await.0, 204);
    assert_eq!(send(&clipboard, "GET", here, None, b"").await, (200, TEXT.into(), "Grüße".into()));
    assert_eq!(send(&clipboard, "GET", "/v1/clipboard?selection=primary", None, b"").await.0, 404);

    assert_eq!(send(&clipboard, "PUT", here, Some("application/x-www-form-urlencoded"), b"by curl").await.0, 204);
    assert_eq!(send(&clipboard, "GET", here, None, b"").await.2, b"by curl");

    // Larger than what axum takes by itself.
    let picture = vec![0x5a; 3 << 20];
    assert_eq!(send(&clipboard, "PUT", here, Some("image/png"), &picture).await.0, 204);
    let (status, kind, body) = send(&clipboard, "GET", "/v1/clipboard?type=image/png", None, b"").await;
    assert_eq!((status, kind.as_str(), body == picture), (200, "image/png", true));
    let (status, _, types) = send(&clipboard, "GET", "/v1/clipboard/types", None, b"").await;
    assert_eq!((status, types), (200, br#"{"filled":true,"types":["image/png"]}"#.to_vec()));

    assert_eq!(send(&clipboard, "DELETE", here, None, b"").await.0, 204);
    assert_eq!(send(&clipboard, "GET", "/v1/clipboard?type=image/png", None, b"").await.0, 404);

    for (method, path, kind, body) in [
        ("PUT", here, Some("text/plain"), &b"\xff"[..]),
        ("PUT", "/v1/clipboard?type=TARGETS", None, b"x"),
        ("PUT", "/v1/clipboard?type=", None, b"x"),
        ("GET", "/v1/clipboard?type=a%00b", None, b""),
        ("GET", "/v1/clipboard?selection=secondary", None, b""),
        ("GET", "/v1/clipboard?sort=x", None, b""),
        ("DELETE", "/v1/clipboard?type=image/png", None, b""),
    ] {
        assert_eq!(send(&clipboard, method, path, kind, body).await.0, 400, "{method} {path}");
    }
}
