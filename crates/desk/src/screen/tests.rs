//! The capture engine against real X servers.

use super::xvfb::{SIZE, Server, decode, rgb_of};
use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};

fn of(cursor: Cursor) -> ShotRequest {
    ShotRequest { cursor, ..Default::default() }
}

async fn draws_match(server: &Server, seed: u64) {
    let (screen, painter) = (server.screen(), server.painter());
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..80 {
        for _ in 0..random.random_range(0..4) {
            let (x, y) = (random.random_range(-20..320), random.random_range(-20..240));
            let (width, height) = (random.random_range(1..400), random.random_range(1..if round % 3 == 0 { 300 } else { 20 }));
            painter.fill(random.random::<u32>() & 0xff_ffff, x, y, width, height);
        }
        let shot = screen.shot(of(Cursor::Hidden)).await.expect("a picture");
        assert_eq!(decode(&shot.bytes), (SIZE, painter.look()), "seed {seed}, round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_picture_is_what_a_plain_look_shows() {
    draws_match(&Server::start(&[]), rand::random()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_shared_memory() {
    draws_match(&Server::start(&["-extension", "MIT-SHM"]), rand::random()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_damage() {
    let server = Server::start(&["-extension", "DAMAGE"]);
    draws_match(&server, rand::random()).await;
    let (screen, painter) = (server.screen(), server.painter());
    let first = screen.next_frame(Seen::default()).await.expect("a frame");
    painter.fill(0x123456, 0, 0, 5, 5);
    let next = screen.next_frame(first.seen).await.expect("a frame");
    assert_eq!(next.rects, vec![Rect { x: 0, y: 0, width: 64, height: 16 }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_pictures_are_never_torn() {
    let server = Server::start(&[]);
    let screen = server.screen();
    let (painter, stop) = (server.painter(), Arc::new(AtomicBool::new(false)));
    painter.fill(0, 0, 0, 320, 240);
    let drawing = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            for n in 0u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                painter.fill(n.wrapping_mul(0x9E_3779) & 0xff_ffff, 0, 0, 320, 240);
                // A small rectangle in the same colour makes partial captures happen between whole ones.
                painter.fill(n.wrapping_mul(0x9E_3779) & 0xff_ffff, 0, 100, 320, 3);
            }
        }
    });
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let screen = screen.clone();
            tokio::spawn(async move {
                for _ in 0..60 {
                    let (_, rgb) = decode(&screen.shot(of(Cursor::Hidden)).await.expect("a picture").bytes);
                    assert!(rgb.chunks(3).all(|p| p == &rgb[..3]), "two colours in one picture");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
    stop.store(true, Ordering::Relaxed);
    drawing.join().expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_tell_whether_the_picture_changed() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.fill(0x80, 0, 0, 320, 240);
    painter.point(300, 200);
    let first = screen.shot(of(Cursor::True)).await.expect("a picture");
    let again = screen.shot(of(Cursor::True)).await.expect("a picture");
    assert_eq!(first.etag, again.etag);
    assert_eq!(first.bytes.as_ptr(), again.bytes.as_ptr(), "nothing was encoded or copied again");
    // Drawing the same is no change.
    painter.fill(0x80, 10, 10, 100, 100);
    assert_eq!(screen.shot(of(Cursor::True)).await.expect("a picture").etag, first.etag);

    let hidden = screen.shot(of(Cursor::Hidden)).await.expect("a picture");
    let corner = ShotRequest { region: Some(Rect { x: 0, y: 0, width: 64, height: 64 }), ..Default::default() };
    let corner_first = screen.shot(corner.clone()).await.expect("a picture");
    painter.point(290, 190);
    assert_ne!(screen.shot(of(Cursor::True)).await.expect("a picture").etag, first.etag, "the pointer is on the picture");
    assert_eq!(screen.shot(of(Cursor::Hidden)).await.expect("a picture").etag, hidden.etag);
    let corner_again = screen.shot(corner.clone()).await.expect("a picture");
    assert_eq!((corner_again.etag, corner_again.bytes.as_ptr()), (corner_first.etag.clone(), corner_first.bytes.as_ptr()));

    painter.fill(0x90, 200, 100, 1, 1);
    assert_ne!(screen.shot(of(Cursor::Hidden)).await.expect("a picture").etag, hidden.etag);
    assert_eq!(screen.shot(corner.clone()).await.expect("a picture").etag, corner_first.etag, "the change lies elsewhere");
    painter.fill(0x90, 20, 20, 1, 1);
    assert_ne!(screen.shot(corner).await.expect("a picture").etag, corner_first.etag);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pointer_is_always_where_it_is_now() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.fill(0x224466, 0, 0, 320, 240);
    for (x, y) in [(0, 0), (100, 100), (319, 239), (17, 230)] {
        painter.point(x, y);
        for manner in [Cursor::True, Cursor::Osworld] {
            let shot = screen.shot(of(manner)).await.expect("a picture");
            let update = screen.frame().await.expect("a frame");
            assert_eq!(update.cursor.position(), Point { x: x.into(), y: y.into() });
            assert!(update.cursor.shape.width > 0, "Xvfb has a pointer");
            let mut expected = update.frame.pixels().to_vec();
            update.cursor.paint(manner, &mut expected, Point { x: 0, y: 0 }, SIZE.width);
            assert_ne!(expected, update.frame.pixels());
            assert_eq!(decode(&shot.bytes).1, rgb_of(&expected), "{manner:?} at {x}, {y}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_sizes_and_formats() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.fill(0xaa5500, 0, 0, 320, 240);
    painter.fill(0x0055aa, 50, 60, 30, 20);
    let hidden = || ShotRequest { cursor: Cursor::Hidden, ..Default::default() };
    let part = Rect { x: 40, y: 50, width: 100, height: 90 };
    let shot = screen.shot(ShotRequest { region: Some(part), ..hidden() }).await.expect("a picture");
    let (size, rgb) = decode(&shot.bytes);
    assert_eq!((size, shot.size), (Size { width: 100, height: 90 }, size));
    let whole = painter.look();
    let expected: Vec<u8> = (50..140).flat_map(|y| whole[(y * 320 + 40) * 3..(y * 320 + 140) * 3].to_vec()).collect();
    assert_eq!(rgb, expected);

    for (request, size) in [
        (ShotRequest { scale: Some(0.5), ..hidden() }, (160, 120)),
        (ShotRequest { max_width: Some(100), ..hidden() }, (100, 75)),
        (ShotRequest { max_width: Some(1000), ..hidden() }, (320, 240)),
        (ShotRequest { max_width: Some(200), scale: Some(0.25), ..hidden() }, (80, 60)),
        (ShotRequest { region: Some(part), max_width: Some(1), ..hidden() }, (1, 1)),
        (ShotRequest { size: Some(Size { width: 160, height: 200 }), ..hidden() }, (160, 200)),
        (ShotRequest { region: Some(part), size: Some(Size { width: 400, height: 300 }), ..hidden() }, (400, 300)),
        (ShotRequest { region: Some(Rect { x: 300, y: -10, width: 100, height: 20 }), ..hidden() }, (20, 10)),
    ] {
        let size = Size { width: size.0, height: size.1 };
        let png = screen.shot(request.clone()).await.expect("a picture");
        assert_eq!((decode(&png.bytes).0, png.size), (size, size));
        let webp = screen.shot(ShotRequest { format: Format::Webp, ..request.clone() }).await.expect("a picture");
        let mut decoder = image_webp::WebPDecoder::new(std::io::Cursor::new(&webp.bytes)).expect("a WebP");
        let mut rgb = vec![0; decoder.output_buffer_size().expect("small")];
        decoder.read_image(&mut rgb).expect("a whole picture");
        assert_eq!((decoder.dimensions(), rgb), ((size.width, size.height), decode(&png.bytes).1));
        let jpeg = screen.shot(ShotRequest { format: Format::Jpeg, ..request }).await.expect("a picture");
        assert_eq!(jpeg_size(&jpeg.bytes), size);
    }
    let fine = screen.shot(ShotRequest { format: Format::Jpeg, quality: Some(100), ..hidden() }).await.expect("a picture");
    let rough = screen.shot(ShotRequest { format: Format::Jpeg, quality: Some(5), ..hidden() }).await.expect("a picture");
    assert!(fine.bytes.len() > rough.bytes.len());
    for bad in [
        ShotRequest { scale: Some(0.0), ..hidden() },
        ShotRequest { scale: Some(1.5), ..hidden() },
        ShotRequest { scale: Some(f32::NAN), ..hidden() },
        ShotRequest { max_width: Some(0), ..hidden() },
        ShotRequest { size: Some(Size { width: 0, height: 5 }), ..hidden() },
        ShotRequest { size: Some(Size { width: 5, height: 5000 }), ..hidden() },
        ShotRequest { size: Some(Size { width: 5, height: 5 }), scale: Some(0.5), ..hidden() },
        ShotRequest { quality: Some(0), format: Format::Jpeg, ..hidden() },
        ShotRequest { quality: Some(101), format: Format::Jpeg, ..hidden() },
        ShotRequest { region: Some(Rect { x: 320, y: 0, width: 5, height: 5 }), ..hidden() },
        ShotRequest { region: Some(Rect { x: 0, y: 0, width: 0, height: 5 }), ..hidden() },
    ] {
        let error = screen.shot(bad.clone()).await.expect_err("refused");
        assert!(matches!(error, Error::Invalid(_)), "{bad:?}: {error}");
    }
}

/// Width and height from the frame header.
fn jpeg_size(bytes: &[u8]) -> Size {
    let at = bytes.windows(2).position(|w| w == [0xff, 0xc0]).expect("a baseline JPEG");
    let number = |at: usize| u32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    Size { width: number(at + 7), height: number(at + 5) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_an_error_until_it_is_back() {
    let mut server = Server::start(&[]);
    let (screen, reserved) = (server.screen(), server.reserved.clone());
    let before = screen.shot(of(Cursor::Hidden)).await.expect("a picture");
    let seen = screen.frame().await.expect("a frame").seen;
    let waiting = tokio::spawn({
        let screen = screen.clone();
        async move { screen.next_frame(Seen { cursor: seen.cursor, ..seen }).await.map(|_| ()) }
    });
    let mut changes = screen.changes();
    server.child.kill().expect("our child");
    server.child.wait().expect("our child");
    let error = waiting.await.expect("no panic").expect_err("the display is gone");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let error = screen.shot(of(Cursor::Hidden)).await.expect_err("the display is gone");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    drop(server);

    let server = Server::start_on(reserved, &[]);
    assert_eq!(screen.size().await.expect("it is back"), SIZE);
    let after = screen.shot(of(Cursor::Hidden)).await.expect("it is back");
    assert_eq!(decode(&after.bytes).1, server.painter().look());
    assert_eq!(decode(&before.bytes).1 == decode(&after.bytes).1, before.etag == after.etag);
    server.painter().fill(0xabcdef, 0, 0, 10, 10);
    changes.recv().await.expect("receivers live on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_is_an_error() {
    let server = Server::start(&[]);
    let screen = server.screen();
    screen.size().await.expect("it runs");
    server.signal(nix::sys::signal::Signal::SIGSTOP);
    let error = screen.shot(ShotRequest::default()).await.expect_err("it hangs");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    server.signal(nix::sys::signal::Signal::SIGCONT);
    screen.shot(ShotRequest::default()).await.expect("it runs again");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_is_an_error() {
    let mut server = Server::start(&[]);
    let screen = server.screen();
    server.child.kill().expect("our child");
    server.child.wait().expect("our child");
    for _ in 0..3 {
        let error = screen.shot(ShotRequest::default()).await.expect_err("there is none");
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        let error = screen.next_frame(Seen::default()).await.map(|_| ()).expect_err("there is none");
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        let error = screen.settled(Duration::ZERO, Duration::from_secs(5)).await.expect_err("there is none");
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_is_when_nothing_changes() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    assert!(screen.settled(Duration::from_millis(30), Duration::from_secs(60)).await.expect("an answer"));
    assert!(screen.settled(Duration::ZERO, Duration::from_secs(60)).await.expect("an answer"));
    assert!(!screen.settled(Duration::from_secs(60), Duration::from_millis(30)).await.expect("an answer"));
    let stop = Arc::new(AtomicBool::new(false));
    let drawing = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                painter.fill(n, 0, 0, 50, 50);
            }
            // From here on every pixel stays as it is, whatever is drawn.
            for _ in 0..50 {
                painter.fill(0x777777, 0, 0, 50, 50);
            }
        }
    });
    assert!(!screen.settled(Duration::from_secs(5), Duration::from_millis(300)).await.expect("an answer"));
    stop.store(true, Ordering::Relaxed);
    assert!(screen.settled(Duration::from_millis(50), Duration::from_secs(60)).await.expect("an answer"));
    drawing.join().expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_get_what_changed() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.point(200, 200);
    painter.fill(0, 0, 0, 320, 240);
    let first = screen.next_frame(Seen::default()).await.expect("a frame");
    assert_eq!(first.rects, vec![first.frame.area()]);

    let next = tokio::spawn({
        let screen = screen.clone();
        async move { screen.next_frame(first.seen).await }
    });
    // Something else may look meanwhile; the watcher must still be told.
    screen.shot(ShotRequest::default()).await.expect("a picture");
    painter.fill(0xff, 70, 20, 10, 10);
    let next = next.await.expect("no panic").expect("a frame");
    assert_eq!(next.rects, vec![Rect { x: 64, y: 16, width: 64, height: 16 }]);
    assert_eq!(next.frame.row(25)[75 * PIXEL], 0xff);
    assert!(Arc::ptr_eq(&next.cursor.shape, &first.cursor.shape));

    painter.point(10, 10);
    let moved = screen.next_frame(next.seen).await.expect("a frame");
    assert_eq!((moved.rects.len(), moved.cursor.position()), (0, Point { x: 10, y: 10 }));
    // What was missed comes all at once.
    painter.fill(0xff, 0, 0, 1, 1);
    screen.shot(ShotRequest::default()).await.expect("a picture");
    painter.fill(0xff, 319, 239, 1, 1);
    screen.shot(ShotRequest::default()).await.expect("a picture");
    assert_eq!(screen.next_frame(moved.seen).await.expect("a frame").rects.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_broadcast() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.fill(0, 0, 0, 320, 240);
    screen.shot(ShotRequest::default()).await.expect("a picture");
    let mut changes = screen.changes();
    painter.fill(0xff, 130, 0, 3, 3);
    assert_eq!(changes.recv().await.expect("a change"), Rect { x: 128, y: 0, width: 64, height: 16 });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_can_shrink_and_come_back() {
    let server = Server::start(&[]);
    let (screen, painter) = (server.screen(), server.painter());
    painter.fill(0x336699, 0, 0, 320, 240);
    let seen = screen.frame().await.expect("a frame").seen;
    let small = Size { width: 200, height: 100 };
    assert_eq!(screen.resize(small).await.expect("Xvfb can shrink"), small);
    let update = screen.next_frame(seen).await.expect("a frame");
    assert_eq!(update.rects, vec![Rect { x: 0, y: 0, width: 200, height: 100 }]);
    let shot = screen.shot(of(Cursor::Hidden)).await.expect("a picture");
    assert_eq!(decode(&shot.bytes), (small, painter.look()));
    painter.fill(0xff, 50, 50, 10, 10);
    let shot = screen.shot(of(Cursor::Hidden)).await.expect("a picture");
    assert_eq!(decode(&shot.bytes), (small, painter.look()));
    assert_eq!(screen.resize(SIZE).await.expect("as it was"), SIZE);
    let shot = screen.shot(of(Cursor::Hidden)).await.expect("a picture");
    assert_eq!(decode(&shot.bytes), (SIZE, painter.look()));

    let error = screen.resize(Size { width: 640, height: 480 }).await.expect_err("Xvfb can't grow");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    for bad in [Size { width: 0, height: 0 }, Size { width: 10, height: 200 }] {
        let error = screen.resize(bad).await.expect_err("too small");
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    assert_eq!(screen.size().await.expect("unharmed"), SIZE);
}
