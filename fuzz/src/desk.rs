//! A desk whose display does not exist, for targets that fuzz what comes before the engines.

use axum::body::Body;
use axum::http::{Request, Response};
use hotdesk_desk::server::osworld::{self, Engines};
use hotdesk_desk::{Display, Place, access::Access, input::Input, process::Processes};
use hotdesk_desk::{recorder::Recorder, screen::Screen, windows::Windows};
use std::sync::{Arc, LazyLock};
use tower::ServiceExt;

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());
static ROUTER: LazyLock<axum::Router> = LazyLock::new(|| {
    let home = std::env::temp_dir().join(format!("hotdesk-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let place = Arc::new(Place {
        display: Display { number: u16::MAX, cookie: None },
        runtime_dir: home.clone(),
        bus: format!("unix:path={}/bus", home.display()),
        // No program can be found, so none is ever run.
        env: [("PATH", ""), ("HOME", &*home.to_string_lossy())].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        home,
    });
    osworld::routes::<Engines>().with_state(Engines {
        screen: Screen::new(place.clone()),
        input: Input::new(place.clone()),
        access: Access::new(place.clone()),
        windows: Windows::new(place.clone()),
        processes: Processes::new(place.clone()),
        recorder: Recorder::new(place.clone()),
        place,
    })
});

/// Sends one request through the routes of the OSWorld dialect.
pub(crate) fn send(path: &str, content_type: &str, body: Vec<u8>) -> Response<Body> {
    let request = Request::post(path).header("content-type", content_type).body(Body::from(body)).unwrap();
    // The engines are made where their tasks can run.
    RUNTIME.block_on(async { ROUTER.clone().oneshot(request).await }).unwrap()
}
