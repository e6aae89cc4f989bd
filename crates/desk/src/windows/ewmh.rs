//! The window manager's properties and messages (EWMH 1.5, ICCCM).

use super::Window;
use super::text::{decode_compound, decode_string};
use crate::error::{Error, Result};
use crate::x11::Client;
use hotdesk_api::action::Rect;
use hotdesk_api::window::NewArea;

use x11rb::cookie::Cookie;
use x11rb::errors::ReplyError;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConfigureWindowAux, ConnectionExt as _, EventMask, GetGeometryReply,
    GetPropertyReply, StackMode, TranslateCoordinatesReply,
};
use x11rb::rust_connection::RustConnection;

pub(super) const WINDOW_MANAGER: &str = "the window manager";

/// Longest text that is read, in units of four bytes; `wmctrl` reads as much.
const TEXT_LENGTH: u32 = 1024;
/// Windows that are listed at most.
const MOST_WINDOWS: u32 = 4096;

/// We act for the person at the screen, as pagers do, so that the window manager does not take a
/// request for a program that pushes itself forward.
const FROM_PAGER: u32 = 2;
const REMOVE: u32 = 0;
const ADD: u32 = 1;
const ICONIC: u32 = 3;
/// The place given is that of the client's area itself, wherever the frame then is.
const STATIC_GRAVITY: u32 = 10;

x11rb::atom_manager! {
    pub(super) Atoms: AtomsCookie {
        UTF8_STRING,
        COMPOUND_TEXT,
        WM_CHANGE_STATE,
        WM_STATE,
        _NET_ACTIVE_WINDOW,
        _NET_CLIENT_LIST,
        _NET_CLOSE_WINDOW,
        _NET_CURRENT_DESKTOP,
        _NET_MOVERESIZE_WINDOW,
        _NET_SUPPORTING_WM_CHECK,
        _NET_WM_DESKTOP,
        _NET_WM_NAME,
        _NET_WM_PID,
        _NET_WM_STATE,
        _NET_WM_STATE_ABOVE,
        _NET_WM_STATE_FULLSCREEN,
        _NET_WM_STATE_HIDDEN,
        _NET_WM_STATE_MAXIMIZED_HORZ,
        _NET_WM_STATE_MAXIMIZED_VERT,
    }
}

/// A connection with the atoms of the window manager's language.
pub(super) struct Ewmh {
    client: Client,
    atoms: Atoms,
}

impl AsRef<Client> for Ewmh {
    fn as_ref(&self) -> &Client {
        &self.client
    }
}

/// A window and its texts as `wmctrl` reads them: nothing where it finds nothing.
pub(super) struct Found {
    pub(super) window: Window,
    pub(super) title: Option<String>,
    /// `instance.class`
    pub(super) class: Option<String>,
    pub(super) machine: Option<String>,
}

type Asked<'a, R> = Cookie<'a, RustConnection, R>;

/// What is asked of one window; all windows are asked before the first answer is read.
struct Questions<'a> {
    id: u32,
    net_name: Asked<'a, GetPropertyReply>,
    name: Asked<'a, GetPropertyReply>,
    class: Asked<'a, GetPropertyReply>,
    machine: Asked<'a, GetPropertyReply>,
    desktop: Asked<'a, GetPropertyReply>,
    pid: Asked<'a, GetPropertyReply>,
    net_state: Asked<'a, GetPropertyReply>,
    state: Asked<'a, GetPropertyReply>,
    geometry: Asked<'a, GetGeometryReply>,
    place: Asked<'a, TranslateCoordinatesReply>,
}

impl Ewmh {
    pub(super) fn open(client: Client) -> Result<Self> {
        let atoms = Atoms::new(&client.connection)?.reply()?;
        Ok(Self { client, atoms })
    }

    /// All managed windows. One that vanishes meanwhile is left out.
    pub(super) fn windows(&self) -> Result<Vec<Found>> {
        let ids = self.client_list()?;
        let active = self.root_value(self.atoms._NET_ACTIVE_WINDOW, AtomEnum::WINDOW)?;
        let questions = ids.into_iter().map(|id| self.ask(id)).collect::<Result<Vec<_>>>()?;
        let mut windows = Vec::with_capacity(questions.len());
        for question in questions {
            windows.extend(self.answer(question, active)?);
        }
        Ok(windows)
    }

    pub(super) fn window(&self, id: u32) -> Result<Window> {
        let missing = || Error::NotFound(format!("no window 0x{id:08x} is managed; GET /v1/windows lists those that are"));
        if !self.client_list()?.contains(&id) {
            return Err(missing());
        }
        let active = self.root_value(self.atoms._NET_ACTIVE_WINDOW, AtomEnum::WINDOW)?;
        self.answer(self.ask(id)?, active)?.map(|found| found.window).ok_or_else(missing)
    }

    pub(super) fn activate(&self, id: u32) -> Result<()> {
        let window = self.window(id)?;
        if let Ok(desktop) = u32::try_from(window.desktop) {
            self.tell(self.client.root, self.atoms._NET_CURRENT_DESKTOP, [desktop, 0, 0, 0, 0])?;
        }
        self.tell(id, self.atoms._NET_ACTIVE_WINDOW, [FROM_PAGER, 0, 0, 0, 0])?;
        let connection = &self.client.connection;
        connection.configure_window(id, &ConfigureWindowAux::new().stack_mode(StackMode::ABOVE))?;
        connection.map_window(id)?;
        self.sync()
    }

    pub(super) fn close(&self, id: u32) -> Result<()> {
        self.window(id)?;
        self.tell(id, self.atoms._NET_CLOSE_WINDOW, [0, FROM_PAGER, 0, 0, 0])?;
        self.sync()
    }

    pub(super) fn minimize(&self, id: u32) -> Result<()> {
        self.window(id)?;
        self.tell(id, self.atoms.WM_CHANGE_STATE, [ICONIC, 0, 0, 0, 0])?;
        self.sync()
    }

    pub(super) fn maximize(&self, id: u32) -> Result<()> {
        self.show(&self.window(id)?)?;
        self.set_maximized(id, ADD)?;
        self.sync()
    }

    pub(super) fn fullscreen(&self, id: u32) -> Result<()> {
        self.show(&self.window(id)?)?;
        self.tell(id, self.atoms._NET_WM_STATE, [ADD, self.atoms._NET_WM_STATE_FULLSCREEN, 0, FROM_PAGER, 0])?;
        self.sync()
    }

    pub(super) fn restore(&self, id: u32) -> Result<()> {
        let window = self.window(id)?;
        self.show(&window)?;
        self.unmaximize(&window)?;
        self.sync()
    }

    pub(super) fn place(&self, id: u32, area: NewArea) -> Result<()> {
        let window = self.window(id)?;
        self.unmaximize(&window)?;
        let parts = [area.x.is_some(), area.y.is_some(), area.width.is_some(), area.height.is_some()];
        let flags = parts
            .iter()
            .enumerate()
            .fold(STATIC_GRAVITY | FROM_PAGER << 12, |flags, (bit, given)| flags | u32::from(*given) << (8 + bit));
        let data = [
            flags,
            area.x.unwrap_or_default() as u32,
            area.y.unwrap_or_default() as u32,
            area.width.unwrap_or_default(),
            area.height.unwrap_or_default(),
        ];
        self.tell(id, self.atoms._NET_MOVERESIZE_WINDOW, data)?;
        self.sync()
    }

    /// Whether the keyboard belongs to a window or one inside of it.
    pub(super) fn has_focus(&self, id: u32) -> Result<bool> {
        let mut focus = self.client.connection.get_input_focus()?.reply()?.focus;
        // Real trees are a handful of windows deep; 0 and 1 mean nobody and whoever is below the pointer.
        for _ in 0..16 {
            if focus == id {
                return Ok(true);
            }
            match self.client.connection.query_tree(focus)?.reply() {
                Ok(tree) if focus > 1 && tree.parent != 0 => focus = tree.parent,
                Err(ReplyError::ConnectionError(e)) => return Err(e.into()),
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    pub(super) fn listen_to_root(&self) -> Result<()> {
        let mask = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
        self.client.connection.change_window_attributes(self.client.root, &mask)?;
        Ok(())
    }

    pub(super) fn listen_to_windows(&self) -> Result<()> {
        let mask = ChangeWindowAttributesAux::new()
            .event_mask(EventMask::PROPERTY_CHANGE | EventMask::STRUCTURE_NOTIFY | EventMask::FOCUS_CHANGE);
        for id in self.client_list()? {
            self.client.connection.change_window_attributes(id, &mask)?;
        }
        Ok(())
    }

    // Details.

    fn show(&self, window: &Window) -> Result<()> {
        if window.minimized {
            self.client.connection.map_window(window.id)?;
            self.tell(window.id, self.atoms._NET_ACTIVE_WINDOW, [FROM_PAGER, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    fn unmaximize(&self, window: &Window) -> Result<()> {
        let atoms = &self.atoms;
        if window.fullscreen {
            self.tell(window.id, atoms._NET_WM_STATE, [REMOVE, atoms._NET_WM_STATE_FULLSCREEN, 0, FROM_PAGER, 0])?;
        }
        self.set_maximized(window.id, REMOVE)
    }

    fn set_maximized(&self, id: u32, how: u32) -> Result<()> {
        let (horizontally, vertically) = (self.atoms._NET_WM_STATE_MAXIMIZED_HORZ, self.atoms._NET_WM_STATE_MAXIMIZED_VERT);
        self.tell(id, self.atoms._NET_WM_STATE, [how, horizontally, vertically, FROM_PAGER, 0])
    }

    /// A message to the window manager about a window.
    fn tell(&self, window: u32, what: u32, data: [u32; 5]) -> Result<()> {
        let message = ClientMessageEvent::new(32, window, what, data);
        let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
        self.client.connection.send_event(false, self.client.root, mask, message)?;
        Ok(())
    }

    /// Until the X server has everything. A window that vanished meanwhile is no error.
    fn sync(&self) -> Result<()> {
        self.client.connection.get_input_focus()?.reply()?;
        Ok(())
    }

    fn client_list(&self) -> Result<Vec<u32>> {
        self.check_manager()?;
        let list =
            self.property(self.client.root, self.atoms._NET_CLIENT_LIST, AtomEnum::WINDOW.into(), MOST_WINDOWS)?.reply()?;
        // One that has just started may not have made its list yet.
        Ok(list.value32().map(Iterator::collect).unwrap_or_default())
    }

    /// A window manager says that it lives by a window that names itself. When it dies its
    /// properties stay on the root window, but this window goes.
    fn check_manager(&self) -> Result<()> {
        let check = self.atoms._NET_SUPPORTING_WM_CHECK;
        let Some(window) = self.root_value(check, AtomEnum::WINDOW)? else {
            return Err(no_manager("none runs on this display"));
        };
        match self.property(window, check, AtomEnum::WINDOW.into(), 1)?.reply() {
            Ok(own) if own.value32().and_then(|mut value| value.next()) == Some(window) => Ok(()),
            Err(ReplyError::ConnectionError(e)) => Err(e.into()),
            _ => Err(no_manager("it has ended")),
        }
    }

    fn root_value(&self, name: u32, kind: AtomEnum) -> Result<Option<u32>> {
        let reply = self.property(self.client.root, name, kind.into(), 1)?.reply()?;
        Ok(reply.value32().and_then(|mut value| value.next()))
    }

    fn property(&self, window: u32, name: u32, kind: u32, length: u32) -> Result<Asked<'_, GetPropertyReply>> {
        Ok(self.client.connection.get_property(false, window, name, kind, 0, length)?)
    }

    fn ask(&self, id: u32) -> Result<Questions<'_>> {
        let atoms = &self.atoms;
        let cardinal = |name| self.property(id, name, AtomEnum::CARDINAL.into(), 1);
        let string = |name: AtomEnum| self.property(id, name.into(), AtomEnum::STRING.into(), TEXT_LENGTH);
        Ok(Questions {
            id,
            net_name: self.property(id, atoms._NET_WM_NAME, atoms.UTF8_STRING, TEXT_LENGTH)?,
            name: self.property(id, AtomEnum::WM_NAME.into(), AtomEnum::ANY.into(), TEXT_LENGTH)?,
            class: string(AtomEnum::WM_CLASS)?,
            machine: string(AtomEnum::WM_CLIENT_MACHINE)?,
            desktop: cardinal(atoms._NET_WM_DESKTOP)?,
            pid: cardinal(atoms._NET_WM_PID)?,
            net_state: self.property(id, atoms._NET_WM_STATE, AtomEnum::ATOM.into(), 64)?,
            state: self.property(id, atoms.WM_STATE, atoms.WM_STATE, 1)?,
            geometry: self.client.connection.get_geometry(id)?,
            place: self.client.connection.translate_coordinates(id, self.client.root, 0, 0)?,
        })
    }

    /// Nothing if the window is gone.
    fn answer(&self, asked: Questions<'_>, active: Option<u32>) -> Result<Option<Found>> {
        let id = asked.id;
        let answers = (|| {
            Ok((
                asked.net_name.reply()?,
                asked.name.reply()?,
                asked.class.reply()?,
                asked.machine.reply()?,
                asked.desktop.reply()?,
                asked.pid.reply()?,
                asked.net_state.reply()?,
                asked.state.reply()?,
                asked.geometry.reply()?,
                asked.place.reply()?,
            ))
        })();
        let (net_name, name, class, machine, desktop, pid, net_state, state, geometry, place) = match answers {
            Ok(answers) => answers,
            Err(ReplyError::X11Error(_)) => return Ok(None),
            Err(ReplyError::ConnectionError(e)) => return Err(e.into()),
        };
        let atoms = &self.atoms;
        let first = |property: &GetPropertyReply| property.value32().and_then(|mut value| value.next());
        let states: Vec<u32> = net_state.value32().map(Iterator::collect).unwrap_or_default();
        let has = |state: u32| states.contains(&state);

        let net_title =
            (net_name.type_ == atoms.UTF8_STRING).then(|| String::from_utf8_lossy(until_nul(&net_name.value)).into_owned());
        let is_string = |property: &GetPropertyReply| property.type_ == u32::from(AtomEnum::STRING);
        let locale_text = |property: &GetPropertyReply| {
            is_string(property).then(|| std::str::from_utf8(until_nul(&property.value)).map(str::to_owned).ok()).flatten()
        };
        let title = net_title.clone().unwrap_or_else(|| match name.type_ {
            kind if kind == atoms.COMPOUND_TEXT => decode_compound(until_nul(&name.value)),
            kind if kind == atoms.UTF8_STRING => String::from_utf8_lossy(until_nul(&name.value)).into_owned(),
            _ => decode_string(until_nul(&name.value)),
        });
        let mut classes = class.value.split(|byte| *byte == 0).map(decode_string);
        let (instance, class_name) = (classes.next().unwrap_or_default(), classes.next().unwrap_or_default());
        let machine_name = is_string(&machine).then(|| decode_string(until_nul(&machine.value)));

        let window = Window {
            id,
            desktop: first(&desktop).map_or(0, |desktop| desktop as i32),
            machine: machine_name.clone().unwrap_or_default(),
            title,
            pid: first(&pid),
            area: Rect {
                x: place.dst_x.into(),
                y: place.dst_y.into(),
                width: geometry.width.into(),
                height: geometry.height.into(),
            },
            active: active == Some(id),
            minimized: has(atoms._NET_WM_STATE_HIDDEN) || first(&state) == Some(ICONIC),
            maximized: has(atoms._NET_WM_STATE_MAXIMIZED_HORZ) && has(atoms._NET_WM_STATE_MAXIMIZED_VERT),
            fullscreen: has(atoms._NET_WM_STATE_FULLSCREEN),
            above: has(atoms._NET_WM_STATE_ABOVE),
            instance,
            class: class_name,
        };
        let class = is_string(&class).then(|| format!("{}.{}", window.instance, window.class));
        let title = net_title.or_else(|| locale_text(&name));
        Ok(Some(Found { window, title, class, machine: machine_name }))
    }
}

/// Programs that read properties as C strings see no further.
fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn no_manager(reason: &str) -> Error {
    Error::Unavailable { part: WINDOW_MANAGER, reason: reason.into() }
}
