//! A witness on the display: sees the window manager come, and the X server go.

use crate::error::Result;
use crate::place::Display;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{AtomEnum, ChangeWindowAttributesAux, ConnectionExt, EventMask, Property};
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
    let mask = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE | EventMask::SUBSTRUCTURE_NOTIFY);
    connection.change_window_attributes(root, &mask)?;
    loop {
        let window_manager = manager(&connection, root, check, supported)?;
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
