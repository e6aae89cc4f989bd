//! Hands at work on a real display.

use super::*;
use crate::windows::Windows;
use crate::x11::tests::{PATIENCE, TestDisplay};
use crate::x11::{Client, next_event};
use hotdesk_api::action::{Button, Easing};
use hotdesk_api::window::WaitForWindow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{self, ConnectionExt as _, EventMask};

/// A window over the whole screen that has the focus and notes what happens to it.
struct Witness {
    client: Client,
}

impl Witness {
    fn new(display: &TestDisplay) -> Self {
        let client = Client::connect(&display.place.display).unwrap();
        let connection = &client.connection;
        let window = connection.generate_id().unwrap();
        let mask = EventMask::KEY_PRESS
            | EventMask::KEY_RELEASE
            | EventMask::BUTTON_PRESS
            | EventMask::BUTTON_RELEASE
            | EventMask::POINTER_MOTION
            | EventMask::EXPOSURE;
        let values = xproto::CreateWindowAux::new().event_mask(mask).override_redirect(1);
        let class = xproto::WindowClass::INPUT_OUTPUT;
        connection.create_window(0, window, client.root, 0, 0, 1280, 800, 0, class, 0, &values).unwrap();
        connection.map_window(window).unwrap();
        let this = Self { client };
        while !matches!(this.next(), Event::Expose(_)) {}
        this.client.connection.set_input_focus(xproto::InputFocus::NONE, window, 0u32).unwrap();
        this.client.connection.get_input_focus().unwrap().reply().unwrap();
        this
    }

    fn next(&self) -> Event {
        next_event(&self.client.connection, Instant::now() + PATIENCE).unwrap().expect("no event came")
    }

    /// Everything so far, in short: `+38` a key down, `-b1` a button up, `3,4` a motion.
    fn seen(&self) -> Vec<String> {
        self.client.connection.get_input_focus().unwrap().reply().unwrap();
        let mut seen = Vec::new();
        while let Some(event) = self.client.connection.poll_for_event().unwrap() {
            match event {
                Event::KeyPress(e) => seen.push(format!("+{}", e.detail)),
                Event::KeyRelease(e) => seen.push(format!("-{}", e.detail)),
                Event::ButtonPress(e) => seen.push(format!("+b{}", e.detail)),
                Event::ButtonRelease(e) => seen.push(format!("-b{}", e.detail)),
                Event::MotionNotify(e) => seen.push(format!("{},{}", e.root_x, e.root_y)),
                _ => {}
            }
        }
        seen
    }
}

fn actions(json: &str) -> Vec<Action> {
    serde_json::from_str(json).unwrap()
}

const CTRL: u8 = 37;
const SHIFT: u8 = 50;

#[tokio::test(flavor = "multi_thread")]
async fn events_are_those_that_were_asked_for() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let witness = Witness::new(&display);
    let at = Some(Point { x: 100, y: 200 });
    for (list, expected) in [
        (vec![Action::Click { at, button: Button::Left, times: 1, hold: vec![] }], "100,200 +b1 -b1".to_owned()),
        (vec![Action::Click { at: None, button: Button::Right, times: 2, hold: vec![] }], "+b3 -b3 +b3 -b3".to_owned()),
        (
            vec![Action::Click { at: None, button: Button::Back, times: 1, hold: vec!["ctrl".into(), "shift".into()] }],
            format!("+{CTRL} +{SHIFT} +b8 -b8 -{SHIFT} -{CTRL}"),
        ),
        (actions(r#"[{"do":"scroll","dy":2},{"do":"scroll","dx":-1,"dy":-1}]"#), "+b5 -b5 +b5 -b5 +b4 -b4 +b6 -b6".into()),
        (actions(r#"[{"do":"key","keys":["a"],"times":2}]"#), "+38 -38 +38 -38".into()),
        (actions(r#"[{"do":"key","keys":["A"]}]"#), format!("+{SHIFT} +38 -38 -{SHIFT}")),
        (actions(r#"[{"do":"key","keys":["ctrl+A"]}]"#), format!("+{CTRL} +38 -38 -{CTRL}")),
        (actions(r#"[{"do":"key","keys":["ctrl","shift","A"]}]"#), format!("+{CTRL} +{SHIFT} +38 -38 -{SHIFT} -{CTRL}")),
        (actions(r#"[{"do":"key","keys":["ctrl","plus"]}]"#), format!("+{CTRL} +{SHIFT} +21 -21 -{SHIFT} -{CTRL}")),
        (
            actions(r#"[{"do":"key_down","keys":["shift"]},{"do":"key","keys":["shift","a"]},{"do":"key_up","keys":["shift"]}]"#),
            format!("+{SHIFT} +38 -38 -{SHIFT}"),
        ),
        (
            actions(r#"[{"do":"key_down","keys":["A","B"]},{"do":"key_up","keys":["A"]},{"do":"key_up","keys":["B"]}]"#),
            format!("+{SHIFT} +38 +56 -38 -56 -{SHIFT}"),
        ),
        (
            actions(r#"[{"do":"type","text":"aA\tB"}]"#),
            format!("+38 -38 +{SHIFT} +38 -38 -{SHIFT} +23 -23 +{SHIFT} +56 -56 -{SHIFT}"),
        ),
        (actions(r#"[{"do":"button_down","at":{"x":5,"y":6}},{"do":"button_up"}]"#), "5,6 +b1 -b1".into()),
        (actions(r#"[{"do":"type","text":""},{"do":"scroll"},{"do":"click","times":0},{"do":"wait","ms":1}]"#), "".into()),
    ] {
        input.perform(list.clone()).await.unwrap();
        assert_eq!(witness.seen().join(" "), expected, "{list:?}");
    }
    assert_eq!(input.pointer().await.unwrap(), Point { x: 5, y: 6 });
}

#[tokio::test(flavor = "multi_thread")]
async fn movements_and_drags_take_their_way_and_time() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let witness = Witness::new(&display);
    let start = Instant::now();
    let list = vec![
        Action::Move { to: Point { x: 10, y: 10 }, ms: 0, easing: Easing::Linear },
        Action::Move { to: Point { x: 410, y: 10 }, ms: 80, easing: Easing::InOut },
    ];
    let receipts = input.run(list).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(80));
    assert!(receipts[1].ms >= 80.0 && receipts.iter().all(|receipt| receipt.done));
    let seen = witness.seen();
    assert!(seen.len() >= 10 && seen.last().unwrap() == "410,10", "{seen:?}");

    let list = actions(r#"[{"do":"drag","path":[{"x":10,"y":20},{"x":300,"y":20},{"x":300,"y":400}],"ms":50,"hold":["shift"]}]"#);
    input.perform(list).await.unwrap();
    let seen = witness.seen();
    assert_eq!(seen[..3], [format!("+{SHIFT}"), "10,20".into(), "+b1".into()]);
    assert_eq!(seen[seen.len() - 3..], ["300,400".into(), "-b1".into(), format!("-{SHIFT}")]);
    assert!(seen.contains(&"300,20".to_owned()) && seen.len() >= 16, "{seen:?}");

    // From where the pointer is.
    input.perform(actions(r#"[{"do":"drag","path":[{"x":310,"y":400}],"ms":0}]"#)).await.unwrap();
    let seen = witness.seen();
    assert!(seen.contains(&"+b1".to_owned()) && seen[seen.len() - 2..] == ["310,400", "-b1"], "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_list_does_nothing() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let witness = Witness::new(&display);
    for list in [
        r#"[{"do":"click"},{"do":"key","keys":["nonsense"]}]"#,
        r#"[{"do":"click"},{"do":"move","to":{"x":1280,"y":0}}]"#,
        r#"[{"do":"click"},{"do":"wait","ms":120001}]"#,
    ] {
        let error = input.perform(actions(list)).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    assert!(witness.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_lists_never_mix() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let witness = Witness::new(&display);
    let list = |character: &str| actions(&format!(r#"[{{"do":"type","text":"{}","interval_ms":1}}]"#, character.repeat(40)));
    let (a, b) = tokio::join!(input.perform(list("a")), input.perform(list("b")));
    a.unwrap();
    b.unwrap();
    let mut presses: Vec<String> = witness.seen().into_iter().filter(|event| event.starts_with('+')).collect();
    assert_eq!(presses.len(), 80);
    presses.dedup();
    assert_eq!(presses, ["+38", "+56"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn releasing_stops_lists_and_leaves_nothing_down() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let witness = Witness::new(&display);
    let running = tokio::spawn({
        let input = input.clone();
        let list = actions(
            r#"[{"do":"key_down","keys":["alt"]},{"do":"button_down","button":"forward"},
                {"do":"drag","path":[{"x":1,"y":1},{"x":500,"y":500}],"ms":60000,"hold":["ctrl"]}]"#,
        );
        async move { input.perform(list).await }
    });
    while !matches!(witness.next(), Event::ButtonPress(e) if e.detail == 1) {}
    // The second list must be in the queue before everything is stopped.
    let mut waiting = Box::pin(input.perform(actions(r#"[{"do":"click"}]"#)));
    let queued = std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await;
    assert!(queued);
    input.release_all().await.unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Conflict(why) if why.starts_with("2 of 3")), "{error}");
    assert!(matches!(waiting.await, Err(Error::Conflict(_))));
    let client = Client::connect(&display.place.display).unwrap();
    assert_eq!(client.connection.query_keymap().unwrap().reply().unwrap().keys, [0; 32]);
    let releases: Vec<_> = witness.seen().into_iter().filter(|event| event.starts_with('-')).collect();
    assert_eq!(releases, ["-b1".into(), format!("-{CTRL}"), "-64".into(), "-b9".into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_display_is_told_and_a_new_one_is_used() {
    let mut display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let click = || actions(r#"[{"do":"click"}]"#);
    input.perform(click()).await.unwrap();
    drop(input.hands().unwrap());
    let witness = Witness::new(&display);
    let running = tokio::spawn({
        let input = input.clone();
        async move { input.perform(actions(r#"[{"do":"click"},{"do":"wait","ms":3000},{"do":"click"}]"#)).await }
    });
    while !matches!(witness.next(), Event::ButtonRelease(_)) {}
    drop(witness);
    display.kill();
    // One click was made, so the client must not think that it can send the list again.
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Conflict(_)), "{error}");
    assert!(!error.problem().retry);
    assert!(matches!(input.perform(click()).await, Err(Error::Unavailable { .. })));
    assert!(matches!(input.pointer().await, Err(Error::Unavailable { .. })));
    assert!(input.hands().is_err());
    display.restart();
    input.perform(click()).await.unwrap();
    input.pointer().await.unwrap();
    input.hands().unwrap().sync().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_display_is_given_up_for_good() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let witness = Witness::new(&display);
    let click = || actions(r#"[{"do":"click"}]"#);
    input.perform(click()).await.unwrap();
    assert_eq!(witness.seen(), ["+b1", "-b1"]);
    let running = tokio::spawn({
        let input = input.clone();
        async move { input.perform(actions(r#"[{"do":"click"},{"do":"wait","ms":500},{"do":"click"}]"#)).await }
    });
    while !matches!(witness.next(), Event::ButtonRelease(_)) {}
    display.signal(nix::sys::signal::Signal::SIGSTOP);
    let (waiting, pointer) = tokio::join!(input.perform(click()), input.pointer());
    assert!(matches!(running.await.unwrap(), Err(Error::Conflict(_))));
    assert!(matches!(waiting, Err(Error::Unavailable { .. })), "{waiting:?}");
    assert!(matches!(pointer, Err(Error::Unavailable { .. })));
    display.signal(nix::sys::signal::Signal::SIGCONT);
    // The list that had begun may end, but the click that was refused never comes.
    input.perform(actions(r#"[{"do":"key","keys":["a"]}]"#)).await.unwrap();
    let seen = witness.seen();
    assert!(
        seen.iter().filter(|event| *event == "+b1").count() <= 1 && seen.ends_with(&["+38".into(), "-38".into()]),
        "{seen:?}"
    );
}

/// Types a text into a program of GTK and tells what it read.
async fn typed_into_zenity(display: &TestDisplay, list: Vec<Action>) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let title = format!("entry {}.", NUMBER.fetch_add(1, Ordering::Relaxed));
    let entry = display.start("zenity", &["--entry", "--title", &title]);
    let windows = Windows::new(display.place.clone());
    let wanted = WaitForWindow { title: Some(title), ..WaitForWindow::default() };
    let window = windows.wait(wanted, PATIENCE).await.unwrap().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !windows.has_focus(window.id).await.unwrap() {
        assert!(Instant::now() < deadline, "zenity does not get the keyboard");
        let _ = windows.change(window.id, hotdesk_api::window::WindowChange::Activate).await;
    }
    let input = Input::new(display.place.clone());
    input.perform(list).await.unwrap();
    input.perform(actions(r#"[{"do":"key","keys":["Return"]}]"#)).await.unwrap();
    let output = tokio::time::timeout(PATIENCE, entry.wait_with_output()).await.expect("zenity got no Return").unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
}

fn types(text: &str) -> Vec<Action> {
    vec![Action::Type { text: text.into(), interval_ms: 0, secret: false }]
}

/// More characters than there are unused keycodes, so that these must be used again.
fn many_characters() -> String {
    ('一'..).take(120).chain(['é', 'Ж', 'ж', '\u{1f600}', 'ß', '€']).chain("mixed with ASCII".chars()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lent_keycodes_are_given_back() {
    let display = TestDisplay::bare();
    let witness = Witness::new(&display);
    let map = || witness.client.connection.get_keyboard_mapping(8, 248).unwrap().reply().unwrap().keysyms;
    let before = map();
    let input = Input::new(display.place.clone());
    input.perform(types("日本")).await.unwrap();
    let lent = map();
    assert!(lent.contains(&0x0100_65e5) && lent.contains(&0x0100_672c));
    // Again needs nothing new.
    input.perform(types("本日")).await.unwrap();
    assert_eq!(map(), lent);
    drop(input);
    assert_eq!(map(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_text_reaches_a_program() {
    let display = TestDisplay::managed();
    for text in [
        "Hello, World! <>|\\~^`'\"@#$%&*()_+-={}[]:;?/ 0123456789",
        "Grüße — naïve façade, ñandú, Ångström",
        "日本語 中文 한국어",
        "👍🏽 🎉 👩‍💻",
        "e\u{301} a\u{308}",
        "Привет, мир",
        &many_characters(),
    ] {
        assert_eq!(typed_into_zenity(&display, types(text)).await, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_right_on_other_layouts_and_with_locks() {
    let display = TestDisplay::managed();
    let text = "aZ yY <>|@€ é É ß 123 ?/ ~^ Жж";
    for (layout, press) in
        [("de", None), ("fr", None), ("us,ru", Some("ISO_Next_Group")), ("us", Some("capslock")), ("fr", Some("capslock"))]
    {
        display.output("setxkbmap", &["-layout", layout]).await;
        let key = |name: &str| Action::Key { keys: vec![name.to_owned()], times: 1 };
        let mut list: Vec<Action> = press.map(key).into_iter().collect();
        list.extend(types(text));
        list.extend(press.map(key));
        assert_eq!(typed_into_zenity(&display, list).await, text, "{layout} {press:?}");
    }
}
