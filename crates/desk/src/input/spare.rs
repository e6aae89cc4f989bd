//! Keys for symbols that the layout has none for.
//!
//! Unused keycodes are given the missing symbols. Programs read the map again when they hear of the
//! change, whenever they come to it: a keycode must therefore keep its symbol until every program
//! has read all strokes that were made with it. So symbols stay where they are as long as there is
//! room, the one that was used longest ago makes place first, and before a used keycode gets another
//! symbol the focused window is asked whether it has read everything (`_NET_WM_PING`).

use super::keyboard::Keyboard;
use crate::error::{Error, Result};
use crate::x11::next_event;
use std::time::{Duration, Instant};
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{self, ConnectionExt as _, EventMask};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// With fewer unused keycodes than this, keys of players and the like are borrowed too.
const ENOUGH: usize = 6;
/// How long a program may take to say that it has read its events.
const PONG_LIMIT: Duration = Duration::from_secs(2);
/// How long programs that can't say it are given.
const BLIND_WAIT: Duration = Duration::from_millis(200);

pub(super) struct Spare {
    slots: Vec<Slot>,
    clock: u64,
    pings: u32,
    atoms: Option<Atoms>,
}

struct Slot {
    keycode: u8,
    symbol: Option<u32>,
    /// What a borrowed key was before.
    original: Vec<u32>,
    /// When it was last used, by our own clock.
    used: u64,
    /// Used since programs were last known to have read everything.
    unread: bool,
}

x11rb::atom_manager! {
    Atoms: AtomsCookie {
        WM_PROTOCOLS,
        _NET_WM_PING,
    }
}

impl Spare {
    pub(super) fn new() -> Self {
        // Window managers number their own pings from 1.
        Self { slots: Vec::new(), clock: 0, pings: 0x4000_0000 | (std::process::id() & 0xffff) << 12, atoms: None }
    }

    /// Learns from a fresh map which keycodes are free, and which of ours somebody else has taken.
    pub(super) fn refresh(&mut self, keyboard: &Keyboard) {
        self.slots.retain(|slot| match (slot.symbol, keyboard.first_symbol(slot.keycode)) {
            (Some(symbol), Some(now)) => now == symbol || now == 0,
            (Some(_), None) => true,
            (None, Some(now)) => now == 0 || !slot.original.is_empty(),
            (None, None) => true,
        });
        for slot in &mut self.slots {
            if keyboard.first_symbol(slot.keycode).unwrap_or(0) == 0 {
                slot.symbol = None;
            }
        }
        self.add(keyboard.unused().into_iter().map(|keycode| (keycode, Vec::new())));
        if self.slots.len() < ENOUGH {
            self.add(keyboard.borrowable().into_iter());
        }
    }

    fn add(&mut self, keys: impl Iterator<Item = (u8, Vec<u32>)>) {
        for (keycode, original) in keys {
            if self.slots.iter().all(|slot| slot.keycode != keycode) {
                self.slots.push(Slot { keycode, symbol: None, original, used: 0, unread: false });
            }
        }
    }

    /// How many symbols there is room for at once.
    pub(super) fn room(&self) -> usize {
        self.slots.len()
    }

    /// The symbol that this keycode was lent to.
    pub(super) fn symbol_of(&self, keycode: u8) -> Option<u32> {
        self.slots.iter().find(|slot| slot.keycode == keycode)?.symbol
    }

    /// Notes that a stroke with this keycode was made.
    pub(super) fn note(&mut self, keycode: u8) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.keycode == keycode && slot.symbol.is_some()) {
            self.clock += 1;
            slot.used = self.clock;
            slot.unread = true;
        }
    }

    /// Whether any keycode is in use.
    pub(super) fn in_use(&self) -> bool {
        self.slots.iter().any(|slot| slot.symbol.is_some())
    }

    /// Gives keycodes to symbols, while those of `keep` stay as they are. The map must be loaded anew.
    pub(super) fn assign(&mut self, connection: &RustConnection, root: xproto::Window, new: &[u32], keep: &[u32]) -> Result<()> {
        let mut free: Vec<usize> = (0..self.slots.len())
            .filter(|i| self.slots[*i].symbol.is_none_or(|symbol| !keep.contains(&symbol) && !new.contains(&symbol)))
            .collect();
        free.sort_by_key(|i| (self.slots[*i].symbol.is_some(), self.slots[*i].used));
        if free.len() < new.len() {
            return Err(Error::Conflict("the keyboard has no unused keycodes for characters that it lacks".into()));
        }
        free.truncate(new.len());
        if free.iter().any(|i| self.slots[*i].unread) {
            self.wait_until_read(connection, root)?;
        }
        for (index, symbol) in free.into_iter().zip(new) {
            let slot = &mut self.slots[index];
            slot.symbol = Some(*symbol);
            slot.used = self.clock;
            // Both levels the same, so that a held shift does no harm.
            connection.change_keyboard_mapping(1, slot.keycode, 2, &[*symbol, *symbol])?;
        }
        Ok(())
    }

    /// Gives all keycodes back.
    pub(super) fn restore(&mut self, connection: &RustConnection, root: xproto::Window) -> Result<()> {
        if !self.in_use() {
            return Ok(());
        }
        if self.slots.iter().any(|slot| slot.unread) {
            self.wait_until_read(connection, root)?;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.symbol.is_some()) {
            slot.symbol = None;
            let nothing = vec![0];
            let original = if slot.original.is_empty() { &nothing } else { &slot.original };
            connection.change_keyboard_mapping(1, slot.keycode, original.len() as u8, original)?;
        }
        connection.sync()?;
        Ok(())
    }

    /// Waits until the focused program has read every event that was made so far.
    fn wait_until_read(&mut self, connection: &RustConnection, root: xproto::Window) -> Result<()> {
        let atoms = match self.atoms {
            Some(atoms) => atoms,
            None => *self.atoms.insert(Atoms::new(connection)?.reply()?),
        };
        match answering_window(connection, atoms)? {
            Some(window) => {
                self.pings = self.pings.wrapping_add(1);
                ping(connection, root, window, atoms, self.pings)?;
            }
            None => std::thread::sleep(BLIND_WAIT),
        }
        for slot in &mut self.slots {
            slot.unread = false;
        }
        Ok(())
    }
}

/// The window around the focus that answers pings.
fn answering_window(connection: &RustConnection, atoms: Atoms) -> Result<Option<xproto::Window>> {
    let mut window = connection.get_input_focus()?.reply()?.focus;
    // 0 is no focus, 1 the root window. Real trees are a handful of windows deep.
    for _ in 0..16 {
        if window <= 1 {
            break;
        }
        let protocols = connection.get_property(false, window, atoms.WM_PROTOCOLS, xproto::AtomEnum::ATOM, 0, 64)?;
        let tree = connection.query_tree(window)?;
        let (Ok(protocols), Ok(tree)) = (protocols.reply(), tree.reply()) else { break };
        if protocols.value32().is_some_and(|mut atom| atom.any(|atom| atom == atoms._NET_WM_PING)) {
            return Ok(Some(window));
        }
        window = tree.parent;
    }
    Ok(None)
}

fn ping(connection: &RustConnection, root: xproto::Window, window: xproto::Window, atoms: Atoms, id: u32) -> Result<()> {
    let listen = |mask| xproto::ChangeWindowAttributesAux::new().event_mask(mask);
    connection.change_window_attributes(root, &listen(EventMask::SUBSTRUCTURE_NOTIFY))?;
    let message = xproto::ClientMessageEvent::new(32, window, atoms.WM_PROTOCOLS, [atoms._NET_WM_PING, id, window, 0, 0]);
    connection.send_event(false, window, EventMask::NO_EVENT, message)?;
    let deadline = Instant::now() + PONG_LIMIT;
    // A program that does not answer hangs; it would get the wrong symbols only if it came back later.
    while let Some(event) = next_event(connection, deadline)? {
        if let Event::ClientMessage(pong) = event
            && pong.type_ == atoms.WM_PROTOCOLS
            && pong.data.as_data32()[..2] == [atoms._NET_WM_PING, id]
        {
            break;
        }
    }
    connection.change_window_attributes(root, &listen(EventMask::NO_EVENT))?;
    Ok(())
}
