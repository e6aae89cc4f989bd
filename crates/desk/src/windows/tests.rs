//! Windows on a real display, with a real window manager.

use super::*;
use crate::x11::tests::{PATIENCE, TestDisplay};
use crate::x11::{Client, next_event};
use std::time::Instant;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConnectionExt as _, CreateWindowAux, EventMask, InputFocus,
    PropMode, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

/// A window of the test's own.
struct Own {
    client: Client,
    id: u32,
}

impl Own {
    fn new(display: &TestDisplay, title: &str, class: &[u8]) -> Self {
        let client = Client::connect(&display.place.display).unwrap();
        let id = client.connection.generate_id().unwrap();
        let values = CreateWindowAux::new().event_mask(EventMask::STRUCTURE_NOTIFY | EventMask::FOCUS_CHANGE);
        let kind = WindowClass::INPUT_OUTPUT;
        client.connection.create_window(0, id, client.root, 100, 100, 300, 200, 0, kind, 0, &values).unwrap();
        let this = Self { client, id };
        this.set(AtomEnum::WM_CLASS.into(), AtomEnum::STRING.into(), class);
        this.title(title);
        let protocols = this.atom("WM_PROTOCOLS");
        let close = this.atom("WM_DELETE_WINDOW");
        this.client.connection.change_property32(PropMode::REPLACE, id, protocols, AtomEnum::ATOM, &[close]).unwrap();
        this.client.connection.map_window(id).unwrap();
        while !matches!(this.next(), Event::MapNotify(_)) {}
        this
    }

    fn title(&self, title: &str) {
        self.set(self.atom("_NET_WM_NAME"), self.atom("UTF8_STRING"), title.as_bytes());
    }

    fn set(&self, name: u32, kind: u32, value: &[u8]) {
        self.client.connection.change_property8(PropMode::REPLACE, self.id, name, kind, value).unwrap();
        self.client.connection.flush().unwrap();
    }

    fn atom(&self, name: &str) -> u32 {
        self.client.connection.intern_atom(false, name.as_bytes()).unwrap().reply().unwrap().atom
    }

    fn next(&self) -> Event {
        next_event(&self.client.connection, Instant::now() + PATIENCE).unwrap().expect("no event came")
    }

    fn next_message(&self) -> [u32; 5] {
        loop {
            if let Event::ClientMessage(message) = self.next() {
                return message.data.as_data32();
            }
        }
    }
}

async fn appears(windows: &Windows, own: &Own) -> Window {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match windows.get(own.id).await {
            Ok(window) => return window,
            Err(e) => assert!(Instant::now() < deadline, "{e}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_are_listed_as_wmctrl_lists_them() {
    let display = TestDisplay::managed();
    let windows = Windows::new(display.place.clone());
    assert_eq!(windows.listing().await.unwrap(), "");
    let first = Own::new(&display, "Älpha – Notes 日本", b"hdalpha\0Hdalpha\0");
    first.set(AtomEnum::WM_CLIENT_MACHINE.into(), AtomEnum::STRING.into(), b"a-rather-long-host");
    let second = Own::new(&display, "Beta", b"beta\0Beta\0");
    second.set(AtomEnum::WM_CLIENT_MACHINE.into(), AtomEnum::STRING.into(), b"short");
    let third = Own::new(&display, "", b"bare");
    let fourth = Own::new(&display, "x", b"old\0Old\0");
    fourth.client.connection.delete_property(fourth.id, fourth.atom("_NET_WM_NAME")).unwrap();
    fourth.set(AtomEnum::WM_NAME.into(), AtomEnum::STRING.into(), b"caf\xe9");
    let sticky = Own::new(&display, "everywhere", b"s\0S\0");
    sticky.set(AtomEnum::WM_NAME.into(), AtomEnum::STRING.into(), b"not this");
    for own in [&first, &second, &third, &fourth, &sticky] {
        appears(&windows, own).await;
    }
    let message = ClientMessageEvent::new(32, sticky.id, sticky.atom("_NET_WM_DESKTOP"), [u32::MAX, 2, 0, 0, 0]);
    let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
    sticky.client.connection.send_event(false, sticky.client.root, mask, message).unwrap();
    sticky.client.connection.flush().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while windows.get(sticky.id).await.unwrap().desktop != -1 {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(windows.listing().await.unwrap(), display.output("wmctrl", &["-l"]).await);
    let old = windows.get(fourth.id).await.unwrap();
    assert_eq!((old.title.as_str(), old.instance.as_str(), old.class.as_str()), ("café", "old", "Old"));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_find_the_first_window_that_fits() {
    let display = TestDisplay::managed();
    let windows = Windows::new(display.place.clone());
    let alpha = Own::new(&display, "Alpha Conformance - Notes", b"hdalpha\0Hdalpha\0");
    appears(&windows, &alpha).await;
    let beta = Own::new(&display, "Beta Conformance - Notes", b"hdbeta\0Hdbeta\0");
    appears(&windows, &beta).await;
    let find = async |name: &str, strict, by_class| {
        windows.find(name, Match { strict, by_class }).await.unwrap().map(|window| window.id)
    };
    assert_eq!(find("PHA CONFORMANCE - NO", false, false).await, Some(alpha.id));
    assert_eq!(find("conformance", false, false).await, Some(alpha.id));
    assert_eq!(find("Beta Conformance - Notes", true, false).await, Some(beta.id));
    assert_eq!(find("beta conformance - notes", true, false).await, None);
    assert_eq!(find("HDBETA", false, true).await, Some(beta.id));
    assert_eq!(find("hdalpha.Hdalpha", true, true).await, Some(alpha.id));
    assert_eq!(find("hdalpha", true, true).await, None);
    assert_eq!(find("hdalpha", false, false).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_are_changed() {
    let display = TestDisplay::managed();
    let windows = Windows::new(display.place.clone());
    let own = Own::new(&display, "one", b"one\0One\0");
    appears(&windows, &own).await;
    let other = Own::new(&display, "two", b"two\0Two\0");
    appears(&windows, &other).await;
    // The machine may be busy: the window manager obeys, but perhaps not within our short wait.
    let changed = async |change: WindowChange, done: fn(&Window) -> bool| {
        let mut window = windows.change(own.id, change).await.unwrap().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !done(&window) {
            assert!(Instant::now() < deadline, "{change:?}: {window:?}");
            window = windows.get(own.id).await.unwrap();
        }
        window
    };
    changed(WindowChange::Activate, |w| w.active).await;
    changed(WindowChange::Maximize, |w| w.maximized && w.area.width > 1200).await;
    changed(WindowChange::Minimize, |w| w.minimized && !w.active).await;
    let back = changed(WindowChange::Restore, |w| !w.minimized && !w.maximized).await;
    assert_eq!((back.area.width, back.area.height), (300, 200));
    changed(WindowChange::Fullscreen, |w| w.fullscreen && w.area == Rect { x: 0, y: 0, width: 1280, height: 800 }).await;

    let area = NewArea { x: Some(200), y: Some(150), width: Some(400), height: Some(250) };
    let wanted = Rect { x: 200, y: 150, width: 400, height: 250 };
    let mut window = windows.place(own.id, area).await.unwrap().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while window.area != wanted {
        assert!(Instant::now() < deadline, "{window:?}");
        window = windows.get(own.id).await.unwrap();
    }
    assert!(matches!(windows.place(own.id, NewArea { width: Some(0), ..area }).await, Err(Error::Invalid(_))));
    assert!(matches!(windows.place(own.id, NewArea { x: Some(i32::MIN), ..area }).await, Err(Error::Invalid(_))));

    windows.close(own.id).await.unwrap();
    assert_eq!(own.next_message()[0], own.atom("WM_DELETE_WINDOW"));
    own.client.connection.destroy_window(own.id).unwrap();
    own.client.connection.flush().unwrap();
    let gone = WaitForWindow { class: Some("one.One".into()), strict: true, gone: true, ..WaitForWindow::default() };
    assert_eq!(windows.wait(gone, PATIENCE).await.unwrap(), None);
    for id in [own.id, 0, 1, u32::MAX] {
        assert!(matches!(windows.get(id).await, Err(Error::NotFound(_))));
        assert!(matches!(windows.activate(id).await, Err(Error::NotFound(_))));
        assert!(matches!(windows.change(id, WindowChange::Close).await, Err(Error::NotFound(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_the_window_is_there() {
    let display = TestDisplay::managed();
    let windows = Windows::new(display.place.clone());
    let waiting = tokio::spawn({
        let windows = windows.clone();
        let wanted = WaitForWindow { title: Some("FINAL".into()), class: Some("editor".into()), ..WaitForWindow::default() };
        async move { windows.wait(wanted, PATIENCE).await }
    });
    let _decoy = Own::new(&display, "final", b"other\0Other\0");
    let own = Own::new(&display, "loading", b"editor\0Editor\0");
    appears(&windows, &own).await;
    own.title("the final title");
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().id, own.id);
    let never = WaitForWindow { title: Some("never".into()), ..WaitForWindow::default() };
    let error = windows.wait(never, Duration::from_millis(30)).await.unwrap_err();
    assert!(matches!(&error, Error::Timeout { what, .. } if what.contains("never")), "{error}");
    assert!(matches!(windows.wait(WaitForWindow::default(), PATIENCE).await, Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_window_manager_errors_are_clear() {
    let mut display = TestDisplay::bare();
    let windows = Windows::new(display.place.clone());
    let is_down = |result: Result<Vec<Window>>, word: &str| match result {
        Err(error @ Error::Unavailable { .. }) => assert!(error.to_string().contains(word), "{error}"),
        other => panic!("{other:?}"),
    };
    is_down(windows.list().await, "window manager");
    display.kill();
    is_down(windows.list().await, "display");
    display.restart();
    is_down(windows.list().await, "window manager");
}

/// The least that counts as a window manager. It lets the first wish for the keyboard drop.
fn manage_badly(display: &TestDisplay, window: &Own) -> std::thread::JoinHandle<(u32, Client)> {
    let client = Client::connect(&display.place.display).unwrap();
    let (id, check, active) = (window.id, window.atom("_NET_SUPPORTING_WM_CHECK"), window.atom("_NET_ACTIVE_WINDOW"));
    let own = client.connection.generate_id().unwrap();
    let values = CreateWindowAux::new();
    client.connection.create_window(0, own, client.root, 0, 0, 1, 1, 0, WindowClass::INPUT_OUTPUT, 0, &values).unwrap();
    let redirect = ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_REDIRECT);
    client.connection.change_window_attributes(client.root, &redirect).unwrap();
    let tell = move |client: &Client, on: u32, name: u32, value: u32| {
        client.connection.change_property32(PropMode::REPLACE, on, name, AtomEnum::WINDOW, &[value]).unwrap();
    };
    tell(&client, own, check, own);
    tell(&client, client.root, window.atom("_NET_CLIENT_LIST"), id);
    tell(&client, client.root, check, own);
    client.connection.sync().unwrap();
    std::thread::spawn(move || {
        let mut wishes = 0;
        while let Some(event) = next_event(&client.connection, Instant::now() + PATIENCE).unwrap() {
            if !matches!(event, Event::ClientMessage(message) if message.type_ == active) {
                continue;
            }
            wishes += 1;
            if wishes == 2 {
                client.connection.set_input_focus(InputFocus::POINTER_ROOT, id, x11rb::CURRENT_TIME).unwrap();
                tell(&client, client.root, active, id);
                client.connection.sync().unwrap();
                break;
            }
        }
        // It lives as long as its connection.
        (wishes, client)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_for_the_keyboard_that_is_dropped_is_told_again() {
    let display = TestDisplay::bare();
    let windows = Windows::new(display.place.clone());
    let own = Own::new(&display, "patient", b"patient\0Patient\0");
    let manager = manage_badly(&display, &own);
    windows.activate(own.id).await.unwrap();
    let (wishes, _alive) = manager.join().unwrap();
    assert!(windows.has_focus(own.id).await.unwrap());
    assert_eq!(wishes, 2);
}
