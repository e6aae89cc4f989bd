//! Whole sessions against a small viewer, on a screen of our own.

mod display;

use super::client::{Client, Said, take};
use super::decode::Told;
use super::fake::Fake;
use super::pixel::PixelFormat;
use super::*;
use crate::input::live;
use hotdesk_api::action::{Rect, Size};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const SIZE: Size = Size { width: 200, height: 120 };

/// A desk, its view and one viewer of it.
async fn visit(view: &View, fake: &Fake, view_only: bool) -> Client<DuplexStream> {
    let (near, far) = duplex(1 << 16);
    let (view, fake) = (view.clone(), fake.clone());
    let entrance = Entrance { door: Door::Open, from: None, view_only, resize: true, word: None };
    tokio::spawn(async move { view.attend(fake, "test", far, entrance, CancellationToken::new()).await });
    Client::meet(near).await
}

fn whole(size: Size) -> Rect {
    Rect { x: 0, y: 0, width: size.width, height: size.height }
}

/// The screen with the pointer painted on it: 2 × 2 white.
fn with_pointer(fake: &Fake) -> Vec<u32> {
    let mut pixels = fake.pixels();
    let (frame, cursor) = fake.0.screen.borrow().clone();
    let width = frame.size().width as usize;
    for (x, y) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        pixels[(cursor.y as usize + y) * width + cursor.x as usize + x] = 0xff_ffff;
    }
    pixels
}

#[tokio::test]
async fn random_drawings_come_through_in_every_encoding() {
    for encoding in [0, 6, 7, 16] {
        let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
        let mut client = visit(&view, &fake, false).await;
        client.encodings(&[encoding]).await;
        client.request(false).await;
        client.update().await;
        let mut random = 12345u32;
        let mut next = |limit: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % limit
        };
        for turn in 0..25 {
            let (x, y) = (next(190), next(110));
            let rect = Rect { x: x as i32, y: y as i32, width: 1 + next(200 - x), height: 1 + next(120 - y) };
            let (a, b) = (next(1 << 24), next(40) + 1);
            match turn % 3 {
                0 => fake.draw(rect, |_, _| a),
                1 => fake.draw(rect, |x, y| if (x / b + y) % 3 == 0 { a } else { !a & 0xff_ffff }),
                _ => fake.draw(rect, |x, y| (x * 7919 + y * 104_729).wrapping_mul(a) >> 8),
            }
            client.catch_up(|| with_pointer(&fake)).await;
        }
    }
}

#[tokio::test]
async fn formats_can_change_in_the_middle() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[7]).await;
    fake.draw(whole(SIZE), |x, y| if (x + y) % 2 == 0 { 0xff_ff00 } else { 0x00_00ff });
    let r5g6b5 = PixelFormat { bits: 16, depth: 16, big_endian: true, max: [31, 63, 31], shift: [11, 5, 0] };
    for format in [r5g6b5, PixelFormat::EIGHT_BIT, PixelFormat::NATIVE] {
        client.format(format).await;
        client.request(false).await;
        client.update().await;
        assert!(client.canvas.pixels == with_pointer(&fake), "pure colours are the same in {format:?}");
    }
    // A colour map is sent where one is wanted.
    client.say(&[0, 0, 0, 0, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
    client.canvas.format = PixelFormat::EIGHT_BIT;
    assert_eq!(client.hear().await, Said::ColourMap);
    client.request(false).await;
    client.update().await;
    assert!(client.canvas.pixels == with_pointer(&fake));
}

#[tokio::test]
async fn an_unchanged_screen_sends_nothing_and_only_what_changed_is_sent() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.request(false).await;
    client.update().await;
    client.request(true).await;
    let nothing = timeout(Duration::from_millis(300), client.stream.read_u8()).await;
    assert!(nothing.is_err(), "nothing changed, nothing is said");
    let before = view.viewers().list()[0].bytes.load(std::sync::atomic::Ordering::Relaxed);
    fake.draw(Rect { x: 50, y: 50, width: 3, height: 3 }, |_, _| 0xff_0000);
    client.update().await;
    assert!(client.canvas.pixels == with_pointer(&fake));
    let sent = view.viewers().list()[0].bytes.load(std::sync::atomic::Ordering::Relaxed) - before;
    assert!(sent < 64 * 16 * 4 + 100, "{sent} bytes for nine pixels");
}

#[tokio::test]
async fn photographs_are_refined_when_it_is_quiet() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[7, -26]).await;
    fake.draw(whole(SIZE), |x, y| (x * 7919 + y * 104_729).wrapping_mul(2_654_435_761) >> 8);
    client.request(false).await;
    assert!(client.update().await.contains(&Told::Jpeg));
    client.catch_up(|| with_pointer(&fake)).await;
}

#[tokio::test]
async fn updates_flow_unasked_but_never_pile_up() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[7, -312, -313]).await;
    let Said::Fence { flags, payload } = client.hear().await else { panic!("a fence shows that fences are known") };
    assert_eq!(flags >> 31, 1);
    let mut answer = vec![248, 0, 0, 0, 0, 0, 0, 1, payload.len() as u8];
    answer.extend(&payload);
    client.say(&answer).await;
    assert_eq!(client.hear().await, Said::EndOfContinuousUpdates);
    client.say(&[150, 1, 0, 0, 0, 0, 0, 200, 0, 120]).await;
    let mut unanswered = Vec::new();
    for round in 0..5u32 {
        fake.draw(Rect { x: 0, y: 0, width: 40, height: 40 }, |x, y| x * y * (round + 1));
        client.update().await;
        let Said::Fence { payload, .. } = client.hear().await else { panic!("a fence after each update") };
        // Nothing more comes before the fence is answered, however much is drawn.
        for n in 0..20u32 {
            fake.draw(Rect { x: 20, y: 20, width: 60, height: 60 }, |x, y| x * y * (n + 2));
        }
        let early = timeout(Duration::from_millis(120), client.stream.read_u8()).await;
        assert!(early.is_err());
        unanswered = vec![248, 0, 0, 0, 0, 0, 0, 1, payload.len() as u8];
        unanswered.extend(&payload);
        client.say(&unanswered).await;
        client.update().await;
        let Said::Fence { payload, .. } = client.hear().await else { panic!("a fence after each update") };
        let mut answer = vec![248, 0, 0, 0, 0, 0, 0, 1, payload.len() as u8];
        answer.extend(&payload);
        client.say(&answer).await;
        assert!(client.canvas.pixels == with_pointer(&fake), "and then the newest comes at once");
    }
    // Fences of the viewer are answered too.
    client.say(&[248, 0, 0, 0, 0x80, 0, 0, 3, 2, b'h', b'i']).await;
    assert_eq!(client.hear().await, Said::Fence { flags: 3, payload: b"hi".to_vec() });
    client.say(&[150, 0, 0, 0, 0, 0, 0, 200, 0, 120]).await;
    assert_eq!(client.hear().await, Said::EndOfContinuousUpdates);
    assert!(!unanswered.is_empty());
}

#[tokio::test]
async fn the_size_changes_both_ways() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[7, -308]).await;
    client.request(false).await;
    assert_eq!(client.update().await, [Told::Size { width: 200, height: 120, reason: 0, status: 0 }]);
    client.request(true).await;
    client.update().await;
    // By the desk.
    fake.resize_to(Size { width: 300, height: 100 });
    client.request(true).await;
    assert_eq!(client.update().await, [Told::Size { width: 300, height: 100, reason: 0, status: 0 }]);
    fake.draw(Rect { x: 250, y: 0, width: 50, height: 100 }, |_, _| 0x12_3456);
    client.catch_up(|| with_pointer(&fake)).await;
    // By the viewer.
    let wish = |width: u16| {
        let mut message = vec![251, 0];
        message.extend(width.to_be_bytes());
        message.extend([0, 80, 1, 0]);
        message.extend([0; 16]);
        message
    };
    client.say(&wish(160)).await;
    client.request(true).await;
    assert_eq!(client.update().await, [Told::Size { width: 160, height: 80, reason: 1, status: 0 }]);
    client.catch_up(|| with_pointer(&fake)).await;
    client.say(&wish(5000)).await;
    client.request(true).await;
    assert_eq!(client.update().await, [Told::Size { width: 160, height: 80, reason: 1, status: 3 }]);
}

#[tokio::test]
async fn a_viewer_that_knows_no_sizes_keeps_its_own() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[0]).await;
    fake.resize_to(Size { width: 100, height: 300 });
    fake.draw(Rect { x: 0, y: 0, width: 100, height: 300 }, |_, _| 0x44_5566);
    client.request(false).await;
    client.update().await;
    assert_eq!(client.canvas.pixels[50], 0x44_5566);
    assert_eq!(client.canvas.pixels[150], 0, "beside the screen it is black");
}

#[tokio::test(start_paused = true)]
async fn the_pointer_is_shown_by_whoever_knows_where_it_is() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[0, -239]).await;
    client.request(false).await;
    let told = client.update().await;
    assert!(matches!(&told[0], Told::Cursor { width: 1, height: 1, .. }), "nobody moved it yet, so it is painted: {told:?}");
    assert!(client.canvas.pixels == with_pointer(&fake));
    // The viewer moves it: it gets the shape, and the paint goes away.
    client.say(&[5, 0, 0, 20, 0, 30]).await;
    fake.move_pointer(20, 30);
    client.request(true).await;
    let told = client.update().await;
    assert!(matches!(&told[0], Told::Cursor { width: 2, height: 2, .. }), "{told:?}");
    client.catch_up(|| fake.pixels()).await;
    // Somebody else moves it: it is painted again, after a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    fake.move_pointer(90, 90);
    client.request(true).await;
    client.update().await;
    client.catch_up(|| with_pointer(&fake)).await;
    assert!(*fake.0.touched.lock().unwrap() == [live::Event::Pointer { x: 20, y: 30, buttons: 0 }]);
}

#[tokio::test]
async fn a_viewer_that_paints_the_pointer_itself_is_told_its_place() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[0, -239, -232]).await;
    client.request(false).await;
    let told = client.update().await;
    assert!(matches!(told[..2], [Told::Cursor { width: 2, .. }, Told::Pointer { x: 10, y: 10 }]), "{told:?}");
    fake.move_pointer(7, 8);
    client.request(true).await;
    assert_eq!(client.update().await, [Told::Pointer { x: 7, y: 8 }]);
    assert!(client.canvas.pixels == fake.pixels());
}

#[tokio::test]
async fn keys_and_texts_arrive_in_order() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.say(&[6, 0, 0, 0, 0, 0, 0, 2, b'h', 0xe9, 4, 1, 0, 0, 0, 0, 0, 0x76, 4, 0, 0, 0, 0, 0, 0, 0x76]).await;
    // A fence is answered after everything before it.
    client.say(&[248, 0, 0, 0, 0x80, 0, 0, 1, 0]).await;
    client.hear().await;
    assert_eq!(*fake.0.text.lock().unwrap(), "hé");
    let wanted = [live::Event::Key { keysym: 0x76, down: true }, live::Event::Key { keysym: 0x76, down: false }];
    while fake.0.touched.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*fake.0.touched.lock().unwrap(), wanted);
}

#[tokio::test]
async fn the_clipboard_goes_both_ways() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    // An old viewer gets the text.
    let mut old = visit(&view, &fake, false).await;
    old.say(&[248, 0, 0, 0, 0x80, 0, 0, 1, 0]).await;
    old.hear().await;
    *fake.0.text.lock().unwrap() = "käse".into();
    fake.0.clipboard.send_modify(|n| *n += 1);
    assert_eq!(old.hear().await, Said::CutText(b"\0\0\0\x04k\xe4se".to_vec()));
    // A new one is told that there is some, asks and gets it whole.
    let mut new = visit(&view, &fake, false).await;
    new.encodings(&[7, 0xc0a1_e5ceu32 as i32]).await;
    let Said::CutText(capabilities) = new.hear().await else { panic!() };
    assert_eq!(capabilities[4..], [0x1f, 0, 0, 1, 0, 0, 0, 0]);
    *fake.0.text.lock().unwrap() = "日本".into();
    fake.0.clipboard.send_modify(|n| *n += 1);
    assert_eq!(new.hear().await, Said::CutText(b"\xff\xff\xff\xfc\x08\0\0\x01".to_vec()));
    new.say(&[6, 0, 0, 0, 0xff, 0xff, 0xff, 0xfc, 0x02, 0, 0, 1]).await;
    let Said::CutText(provided) = new.hear().await else { panic!() };
    let flags = u32::from_be_bytes(provided[4..8].try_into().unwrap());
    assert_eq!(cut_text::provided(flags, &provided[8..]).as_deref(), Some("日本"));
    // And gives its own when it is asked for it.
    new.say(&[6, 0, 0, 0, 0xff, 0xff, 0xff, 0xfc, 0x08, 0, 0, 1]).await;
    assert_eq!(new.hear().await, Said::CutText(b"\xff\xff\xff\xfc\x02\0\0\x01".to_vec()));
    let mut theirs = cut_text::provide("von dort ✓").unwrap();
    theirs[0] = 6;
    new.say(&theirs).await;
    new.say(&[248, 0, 0, 0, 0x80, 0, 0, 1, 0]).await;
    while !matches!(new.hear().await, Said::Fence { .. }) {}
    assert_eq!(*fake.0.text.lock().unwrap(), "von dort ✓");
}

#[tokio::test]
async fn who_only_looks_touches_nothing() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, true).await;
    client.encodings(&[0, -308, 0xc0a1_e5ceu32 as i32]).await;
    client.say(&[6, 0, 0, 0, 0, 0, 0, 1, b'x', 4, 1, 0, 0, 0, 0, 0, 0x76, 5, 1, 0, 9, 0, 9, 251, 0, 0, 99, 0, 99, 0, 0]).await;
    client.request(false).await;
    assert_eq!(client.update().await, [Told::Size { width: 200, height: 120, reason: 1, status: 1 }]);
    assert!(fake.0.touched.lock().unwrap().is_empty());
    assert!(fake.0.text.lock().unwrap().is_empty());
    assert!(fake.0.asked_size.lock().unwrap().is_none());
    assert!(view.viewers().list()[0].view_only);
}

#[tokio::test]
async fn nonsense_ends_only_the_one_who_says_it() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut good = visit(&view, &fake, false).await;
    let mut bad = visit(&view, &fake, false).await;
    assert_eq!(view.viewers().count(), 2);
    bad.say(&[6, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]).await;
    assert_eq!(bad.stream.read(&mut [0; 16]).await.unwrap(), 0);
    view.viewers().watch().wait_for(|n| *n == 1).await.unwrap();
    good.request(false).await;
    good.update().await;
}

#[tokio::test]
async fn viewers_survive_a_display_that_is_healed() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.request(false).await;
    client.update().await;
    *fake.0.down.lock().unwrap() = true;
    fake.draw(Rect { x: 0, y: 0, width: 9, height: 9 }, |_, _| 0x99_0000);
    client.request(true).await;
    assert!(timeout(Duration::from_millis(100), client.stream.read_u8()).await.is_err());
    *fake.0.down.lock().unwrap() = false;
    client.update().await;
    assert!(client.canvas.pixels == with_pointer(&fake));
}

#[tokio::test]
async fn too_many_viewers_are_sent_away_and_the_lonely_one_sends_others_away() {
    let options = Options { most_viewers: 1, exclusive: true, ..Options::default() };
    let (view, fake) = (View::new(options), Fake::new(SIZE));
    let mut first = visit(&view, &fake, false).await;
    // Shared: no room.
    let (mut near, far) = duplex(4096);
    let entrance = Entrance { door: Door::Open, from: None, view_only: false, resize: false, word: None };
    let attend = |far, entrance| view.attend(fake.clone(), "test", far, entrance, CancellationToken::new());
    let second = async {
        near.write_all(b"RFB 003.008\n\x01\x01").await.unwrap();
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest.len(), 12 + 2 + 4);
    };
    tokio::join!(attend(far, entrance.clone()), second);
    // Not shared: the first has to go.
    let (mut near, far) = duplex(4096);
    let third = async {
        near.write_all(b"RFB 003.008\n\x01\x00").await.unwrap();
        let mut hello = [0; 12 + 2 + 4 + 24 + 4];
        near.read_exact(&mut hello).await.unwrap();
        assert_eq!(first.stream.read(&mut [0; 16]).await.unwrap(), 0);
        drop(near);
    };
    tokio::join!(attend(far, entrance), third);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_is_dropped() {
    let (view, fake) = (View::new(Options::default()), Fake::new(Size { width: 1000, height: 1000 }));
    let mut client = visit(&view, &fake, false).await;
    client.request(false).await;
    // Four megabytes do not fit into the pipe.
    view.viewers().watch().wait_for(|n| *n == 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_does_not_answer_is_dropped() {
    let (view, fake) = (View::new(Options::default()), Fake::new(SIZE));
    let mut client = visit(&view, &fake, false).await;
    client.encodings(&[0, -312]).await;
    view.viewers().watch().wait_for(|n| *n == 0).await.unwrap();
}

#[tokio::test]
async fn over_tcp_with_a_password_and_an_end() {
    let options = Options { password: Password::new("secret"), ..Options::default() };
    let (view, fake) = (View::new(options), Fake::new(SIZE));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn({
        let (view, shutdown) = (view.clone(), shutdown.clone());
        async move { accept(listener, view, fake, "test", shutdown).await }
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    take::<12>(&mut stream).await;
    stream.write_all(b"RFB 003.008\n\x02").await.unwrap();
    assert_eq!(take::<2>(&mut stream).await, [1, 2]);
    let challenge = take::<16>(&mut stream).await;
    stream.write_all(&Password::new("secret").unwrap().answer(&challenge)).await.unwrap();
    assert_eq!(take::<4>(&mut stream).await, [0; 4]);
    stream.write_all(&[1]).await.unwrap();
    assert_eq!(take::<4>(&mut stream).await, [0, 200, 0, 120]);
    assert_eq!(view.viewers().list()[0].from, stream.local_addr().unwrap().to_string());
    shutdown.cancel();
    server.await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(view.viewers().count(), 0);
}

#[test]
fn doors_are_open_only_where_nobody_else_can_come_in() {
    let here: IpAddr = "127.0.0.1".parse().unwrap();
    let there: IpAddr = "10.1.2.3".parse().unwrap();
    let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
    let view = View::new(Options::default());
    assert!(matches!(view.door(here), Door::Open) && matches!(view.door(mapped), Door::Open));
    assert!(matches!(view.door(there), Door::Closed(_)));
    let view = View::new(Options { open: true, ..Options::default() });
    assert!(matches!(view.door(there), Door::Open));
    let view = View::new(Options { open: true, password: Password::new("x"), ..Options::default() });
    assert!(matches!(view.door(here), Door::Locked { .. }) && matches!(view.door(there), Door::Locked { .. }));
}
