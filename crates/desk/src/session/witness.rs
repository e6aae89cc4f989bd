//! A witness on the display: sees the window manager come, and the X server go.

use crate::error::Result;
use crate::place::Display;
use crate::x11::next_event;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConnectionExt, CreateWindowAux, EventMask, Property, WindowClass,
};
use x11rb::rust_connection::RustConnection;

/// What can be seen on the display.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The X server answers.
    pub(crate) display: bool,
    /// A window manager that speaks EWMH is at work: its own window.
    pub(crate) window_manager: Option<u32>,
}

/// For so long a display that went is looked for in haste.
const HURRY: Duration = Duration::from_secs(10);
/// How long a window manager may take to answer a first request before it counts as one that never answers.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// How often that request is sent, because the first ones may be lost.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Watches the display for as long as anybody looks, on a thread of its own. When the display goes,
/// it waits for it to come back.
pub(crate) fn watch(display: Display) -> watch::Receiver<Sight> {
    let (sender, receiver) = watch::channel(Sight::default());
    let thread = std::thread::Builder::new().name("witness".into()).stack_size(256 * 1024);
    let started = thread.spawn(move || {
        let mut lost = Instant::now();
        while !sender.is_closed() {
            let _ = look(&display, &sender);
            if sender.send_replace(Sight::default()).display {
                lost = Instant::now();
            }
            // A server that starts is there at once; one that somebody else may start some day is not worth the hurry.
            std::thread::sleep(if lost.elapsed() < HURRY { Duration::from_millis(5) } else { Duration::from_millis(250) });
        }
    });
    if let Err(e) = started {
        tracing::error!(error = %e, "no thread can be started");
    }
    receiver
}

fn look(display: &Display, sight: &watch::Sender<Sight>) -> Result<()> {
    let (connection, screen) = display.connect()?;
    let root = connection.setup().roots.get(screen).map(|screen| screen.root).unwrap_or_default();
    let atom = |name: &str| -> Result<u32> { Ok(connection.intern_atom(false, name.as_bytes())?.reply()?.atom) };
    let check = atom("_NET_SUPPORTING_WM_CHECK")?;
    let supported = atom("_NET_SUPPORTED")?;
    let (request, extents) = (atom("_NET_REQUEST_FRAME_EXTENTS")?, atom("_NET_FRAME_EXTENTS")?);
    let mask = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE | EventMask::SUBSTRUCTURE_NOTIFY);
    connection.change_window_attributes(root, &mask)?;
    let mut awake = None;
    loop {
        let mut window_manager = manager(&connection, root, check, supported)?;
        if window_manager.is_some() && awake != window_manager {
            wait_for_answer(&connection, root, supported, request, extents)?;
            // What happened meanwhile was not looked at.
            window_manager = manager(&connection, root, check, supported)?;
            awake = window_manager;
        }
        sight.send_if_modified(|seen| {
            let now = Sight { display: true, window_manager };
            std::mem::replace(seen, now) != now
        });
        loop {
            let event = connection.wait_for_event()?;
            if sight.is_closed() {
                return Ok(());
            }
            let relevant = match event {
                Event::PropertyNotify(e) => e.atom == check || (e.atom == supported && e.state == Property::NEW_VALUE),
                Event::DestroyNotify(e) => Some(e.window) == window_manager,
                _ => false,
            };
            if relevant {
                break;
            }
        }
    }
}

/// Waits until the window manager answers a request, if it knows one that has an answer. It announces itself before it handles
/// requests, and what reaches it in between is lost: a window that is activated then is not activated.
fn wait_for_answer(connection: &RustConnection, root: u32, supported: u32, request: u32, extents: u32) -> Result<()> {
    let known = connection.get_property(false, root, supported, AtomEnum::ATOM, 0, 1024)?.reply()?;
    if !known.value32().is_some_and(|mut atoms| atoms.any(|atom| atom == request)) {
        return Ok(());
    }
    // Never shown, and nothing that a window manager would manage.
    let window = connection.generate_id()?;
    let values = CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE).override_redirect(1);
    connection.create_window(0, window, root, 0, 0, 1, 1, 0, WindowClass::INPUT_OUTPUT, 0, &values)?;
    let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
    let end = Instant::now() + FIRST_ANSWER;
    let mut answered = false;
    while !answered && Instant::now() < end {
        connection.send_event(false, root, mask, ClientMessageEvent::new(32, window, request, [0u32; 5]))?;
        let pause = Instant::now() + ASK_AGAIN;
        while !answered && let Some(event) = next_event(connection, pause)? {
            answered = matches!(event, Event::PropertyNotify(e) if e.window == window && e.atom == extents);
        }
    }
    connection.destroy_window(window)?;
    Ok(())
}

/// The window of the window manager. One that died leaves the property behind, but not the window.
fn manager(connection: &RustConnection, root: u32, check: u32, supported: u32) -> Result<Option<u32>> {
    let window = |of: u32| -> Result<Option<u32>> {
        match connection.get_property(false, of, check, AtomEnum::WINDOW, 0, 1)?.reply() {
            Ok(reply) => Ok(reply.value32().and_then(|mut values| values.next())),
            Err(x11rb::errors::ReplyError::X11Error(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    };
    let Some(claimed) = window(root)? else { return Ok(None) };
    if window(claimed)? != Some(claimed) {
        return Ok(None);
    }
    // Written last, when it is ready to manage windows.
    let list = connection.get_property(false, root, supported, AtomEnum::ATOM, 0, 1)?.reply()?;
    Ok((list.value_len > 0).then_some(claimed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x11::Client;
    use crate::x11::tests::{PATIENCE, TestDisplay};
    use x11rb::protocol::xproto::PropMode;
    use x11rb::wrapper::ConnectionExt as _;

    /// A window manager that announces itself, and does nothing else by itself. Its window.
    fn announce(client: &Client, knows: &[&str]) -> u32 {
        let Client { connection, root } = client;
        let atom = |name: &str| connection.intern_atom(false, name.as_bytes()).unwrap().reply().unwrap().atom;
        let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
        connection.change_window_attributes(*root, &ChangeWindowAttributesAux::new().event_mask(mask)).unwrap();
        let window = connection.generate_id().unwrap();
        let values = CreateWindowAux::new().override_redirect(1);
        connection.create_window(0, window, *root, 0, 0, 1, 1, 0, WindowClass::INPUT_OUTPUT, 0, &values).unwrap();
        for of in [window, *root] {
            let check = atom("_NET_SUPPORTING_WM_CHECK");
            connection.change_property32(PropMode::REPLACE, of, check, AtomEnum::WINDOW, &[window]).unwrap();
        }
        let known: Vec<u32> = knows.iter().map(|name| atom(name)).collect();
        connection.change_property32(PropMode::REPLACE, *root, atom("_NET_SUPPORTED"), AtomEnum::ATOM, &known).unwrap();
        connection.flush().unwrap();
        window
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_window_manager_is_there_when_it_answers() {
        let display = TestDisplay::bare();
        let mut sight = watch(display.place.display.clone());
        let manager = Client::connect(&display.place.display).unwrap();
        let window = announce(&manager, &["_NET_WM_STATE", "_NET_REQUEST_FRAME_EXTENTS"]);
        let request = || loop {
            let event = next_event(&manager.connection, Instant::now() + PATIENCE).unwrap().expect("it is asked");
            if let Event::ClientMessage(message) = event {
                break message.window;
            }
        };
        // The first request is lost, as while it starts.
        request();
        let asking = request();
        assert_eq!(sight.borrow().window_manager, None, "it does not handle requests yet");
        let extents = manager.connection.intern_atom(false, b"_NET_FRAME_EXTENTS").unwrap().reply().unwrap().atom;
        manager.connection.change_property32(PropMode::REPLACE, asking, extents, AtomEnum::CARDINAL, &[0; 4]).unwrap();
        manager.connection.flush().unwrap();
        let seen = tokio::time::timeout(PATIENCE, sight.wait_for(|sight| sight.window_manager.is_some())).await;
        assert_eq!(seen.unwrap().unwrap().window_manager, Some(window));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_knows_no_such_request_is_there_when_it_says_so() {
        let display = TestDisplay::bare();
        let mut sight = watch(display.place.display.clone());
        let manager = Client::connect(&display.place.display).unwrap();
        let window = announce(&manager, &["_NET_WM_STATE"]);
        let seen = tokio::time::timeout(PATIENCE, sight.wait_for(|sight| sight.window_manager.is_some())).await;
        assert_eq!(seen.unwrap().unwrap().window_manager, Some(window));
    }
}
