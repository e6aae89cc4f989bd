//! Asking the owner of a selection for its content.

use super::offer::{self, Atoms};
use super::{Content, LARGEST, OWNER_LIMIT, Selection, WHOLE_LIMIT};
use crate::error::{Error, Result};
use crate::place::Display;
use crate::x11::{Client, next_event};
use hotdesk_api::clipboard::ClipboardTypes;
use std::time::Instant;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ConnectionExt as _, CreateWindowAux, EventMask, GetPropertyReply, Property, Window, WindowClass,
};

/// Targets that are named at most; programs offer a few dozen.
const MOST_TARGETS: u32 = 1024;

/// A connection with a window that contents are handed to.
pub(super) struct Reader {
    client: Client,
    atoms: Atoms,
    window: Window,
}

impl Reader {
    pub(super) fn open(display: &Display) -> Result<Self> {
        let client = Client::connect(display)?;
        let atoms = Atoms::new(&client.connection)?.reply()?;
        let window = client.connection.generate_id()?;
        let values = CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE);
        client.connection.create_window(0, window, client.root, -1, -1, 1, 1, 0, WindowClass::INPUT_OUTPUT, 0, &values)?;
        Ok(Self { client, atoms, window })
    }

    pub(super) fn types(&self, selection: Selection) -> Result<ClipboardTypes> {
        if !self.has_owner(selection)? {
            return Ok(ClipboardTypes { filled: false, types: Vec::new() });
        }
        Ok(ClipboardTypes { filled: true, types: self.targets(selection)?.into_iter().map(|(_, name)| name).collect() })
    }

    pub(super) fn content(&self, selection: Selection, kind: Option<&str>) -> Result<Content> {
        if !self.has_owner(selection)? {
            return Err(Error::NotFound("the clipboard is empty".into()));
        }
        match kind {
            Some(kind) if !offer::is_text(kind) => {
                let bytes = self.convert(selection, self.atom(kind)?)?;
                bytes
                    .map(|bytes| Content { kind: kind.into(), bytes: bytes.into() })
                    .ok_or_else(|| self.not_offered(selection, kind))
            }
            _ => self.text(selection),
        }
    }

    fn text(&self, selection: Selection) -> Result<Content> {
        let targets = self.targets(selection)?;
        let offered = |name: &&&str| targets.is_empty() || targets.iter().any(|(_, target)| target == *name);
        for name in offer::TEXT_TARGETS.iter().filter(offered) {
            if let Some(bytes) = self.convert(selection, self.atom(name)?)? {
                let bytes = if *name == "STRING" { offer::from_latin1(&bytes) } else { bytes };
                // Whatever the owner says, we promise UTF-8.
                let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
                return Ok(Content { kind: offer::TEXT.into(), bytes: text.into() });
            }
        }
        Err(self.not_offered(selection, "text"))
    }

    fn not_offered(&self, selection: Selection, kind: &str) -> Error {
        let names: Vec<String> = self.targets(selection).unwrap_or_default().into_iter().take(20).map(|(_, name)| name).collect();
        let offered = if names.is_empty() { "nothing".into() } else { names.join(", ") };
        Error::NotFound(format!("the clipboard can't be read as {kind}; it offers {offered}"))
    }

    /// The types that the owner offers. One that does not say gets none.
    fn targets(&self, selection: Selection) -> Result<Vec<(Atom, String)>> {
        let Some(bytes) = self.convert(selection, self.atoms.TARGETS)? else { return Ok(Vec::new()) };
        let atoms = bytes.as_chunks::<4>().0.iter().map(|chunk| u32::from_ne_bytes(*chunk)).take(MOST_TARGETS as usize);
        let asked: Vec<_> = atoms.map(|atom| Ok((atom, self.client.connection.get_atom_name(atom)?))).collect::<Result<_>>()?;
        let mut targets = Vec::with_capacity(asked.len());
        for (atom, name) in asked {
            // A number that is no atom is the owner's mistake.
            if let Ok(name) = name.reply() {
                let name = String::from_utf8_lossy(&name.name).into_owned();
                if !offer::META_TARGETS.contains(&name.as_str()) {
                    targets.push((atom, name));
                }
            }
        }
        Ok(targets)
    }

    fn has_owner(&self, selection: Selection) -> Result<bool> {
        let atom = offer::selection_atom(&self.atoms, selection);
        Ok(self.client.connection.get_selection_owner(atom)?.reply()?.owner != x11rb::NONE)
    }

    fn atom(&self, name: &str) -> Result<Atom> {
        Ok(self.client.connection.intern_atom(false, name.as_bytes())?.reply()?.atom)
    }

    /// The content as one target; nothing if the owner refuses.
    fn convert(&self, selection: Selection, target: Atom) -> Result<Option<Vec<u8>>> {
        let connection = &self.client.connection;
        let whole = Instant::now() + WHOLE_LIMIT;
        let (selection, property) = (offer::selection_atom(&self.atoms, selection), self.atoms.HOTDESK_SELECTION);
        connection.delete_property(self.window, property)?;
        connection.convert_selection(self.window, selection, target, property, x11rb::CURRENT_TIME)?;
        loop {
            match self.next(whole)? {
                Event::SelectionNotify(notice) if notice.selection == selection && notice.target == target => {
                    if notice.property == x11rb::NONE {
                        return Ok(None);
                    }
                    break;
                }
                _ => {}
            }
        }
        // Deleting an INCR property is the sign that we are ready for the first part.
        let first = self.take_property()?;
        if first.type_ != self.atoms.INCR {
            return Ok(Some(first.value));
        }
        let mut bytes = Vec::new();
        loop {
            match self.next(whole)? {
                Event::PropertyNotify(notice) if notice.atom == property && notice.state == Property::NEW_VALUE => {
                    let part = self.take_property()?;
                    if part.value.is_empty() {
                        return Ok(Some(bytes));
                    }
                    if bytes.len() + part.value.len() > LARGEST {
                        return Err(too_large());
                    }
                    bytes.extend_from_slice(&part.value);
                }
                _ => {}
            }
        }
    }

    fn take_property(&self) -> Result<GetPropertyReply> {
        let property = self.atoms.HOTDESK_SELECTION;
        let words = (LARGEST / 4) as u32;
        let reply = self.client.connection.get_property(true, self.window, property, AtomEnum::ANY, 0, words)?.reply()?;
        if reply.bytes_after > 0 { Err(too_large()) } else { Ok(reply) }
    }

    fn next(&self, whole: Instant) -> Result<Event> {
        let deadline = whole.min(Instant::now() + OWNER_LIMIT);
        match next_event(&self.client.connection, deadline)? {
            Some(event) => Ok(event),
            None => Err(Error::Timeout { what: "the answer of the program that owns the clipboard".into(), limit: OWNER_LIMIT }),
        }
    }
}

fn too_large() -> Error {
    Error::TooLarge { what: "the content of the clipboard".into(), limit: LARGEST as u64 }
}
