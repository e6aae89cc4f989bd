//! The keyboard's map, and which strokes make which symbol.
//!
//! Nothing is assumed about the layout: every key is tried with every set of level-changing
//! modifiers, in the state that the keyboard is in (group, caps lock, num lock), by the rules that
//! XKB gives to programs.

use crate::error::{Error, Result};
use std::collections::HashMap;
use x11rb::protocol::xkb::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{self, ConnectionExt as _};
use x11rb::rust_connection::RustConnection;
use xkeysym::{Keysym, key};

pub(super) const CORE_KEYBOARD: u16 = 0x100;

/// The bit of caps lock.
const LOCK: u8 = 2;

/// One key and the modifiers that must be down for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stroke {
    pub(super) keycode: u8,
    pub(super) modifiers: u8,
}

/// What is pressed, locked and chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct State {
    /// Modifiers in effect, whether held, latched or locked.
    pub(super) modifiers: u8,
    pub(super) group: u8,
}

impl State {
    /// Whether capital letters are locked.
    pub(super) fn caps(self) -> bool {
        self.modifiers & LOCK != 0
    }

    pub(super) fn without_caps(self) -> Self {
        Self { modifiers: self.modifiers & !LOCK, ..self }
    }

    pub(super) fn now(reply: &xkb::GetStateReply) -> Self {
        Self { modifiers: bits(reply.mods), group: reply.group.into() }
    }

    /// Only what is locked, caps lock aside.
    pub(super) fn locked(reply: &xkb::GetStateReply) -> Self {
        Self { modifiers: bits(reply.locked_mods) & !LOCK, group: reply.group.into() }
    }
}

fn bits(modifiers: xproto::ModMask) -> u8 {
    u16::from(modifiers) as u8
}

/// How symbols are reached in one state.
type Table = HashMap<u32, Stroke>;

pub(super) struct Keyboard {
    first: u8,
    keys: Vec<Key>,
    types: Vec<Type>,
    /// Level-changing modifiers: their bit and the key that holds it down.
    shifts: Vec<(u8, u8)>,
    tables: HashMap<State, Table>,
}

struct Key {
    groups: Vec<Group>,
    out_of_range: u8,
}

struct Group {
    kind: usize,
    symbols: Vec<u32>,
}

struct Type {
    mask: u8,
    levels: Vec<(u8, u8)>,
}

/// Says that this connection speaks XKB and wants to hear about new maps.
pub(super) fn subscribe(connection: &RustConnection) -> Result<()> {
    let xkb = connection.xkb_use_extension(1, 0)?.reply()?;
    if !xkb.supported {
        return Err(Error::Unsupported {
            what: "typing".into(),
            reason: "the X server lacks the XKEYBOARD extension".into(),
            hint: "use an X server that was built with XKB".into(),
        });
    }
    let events = xkb::EventType::NEW_KEYBOARD_NOTIFY | xkb::EventType::MAP_NOTIFY;
    let parts = xkb::MapPart::KEY_TYPES | xkb::MapPart::KEY_SYMS | xkb::MapPart::MODIFIER_MAP;
    connection.xkb_select_events(CORE_KEYBOARD, xkb::EventType::from(0u8), events, parts, parts, &Default::default())?;
    Ok(())
}

/// Locks or unlocks capital letters, as the key does.
pub(super) fn set_caps(connection: &RustConnection, locked: bool) -> Result<()> {
    let (lock, none) = (xproto::ModMask::LOCK, xproto::ModMask::from(0u8));
    let locks = if locked { lock } else { none };
    connection.xkb_latch_lock_state(CORE_KEYBOARD, lock, locks, false, xkb::Group::M1, none, false, 0)?;
    Ok(())
}

impl Keyboard {
    pub(super) fn load(connection: &RustConnection) -> Result<Self> {
        let parts = xkb::MapPart::KEY_TYPES | xkb::MapPart::KEY_SYMS;
        let none = xkb::MapPart::from(0u8);
        let map =
            connection.xkb_get_map(CORE_KEYBOARD, parts, none, 0, 0, 0, 0, 0, 0, 0, 0, xkb::VMod::from(0u8), 0, 0, 0, 0, 0, 0)?;
        let modifiers = connection.get_modifier_mapping()?.reply()?;
        Ok(Self::from_replies(map.reply()?, &modifiers))
    }

    fn from_replies(map: xkb::GetMapReply, modifiers: &xproto::GetModifierMappingReply) -> Self {
        let types = map.map.types_rtrn.unwrap_or_default().iter().map(Type::from).collect();
        let keys = map.map.syms_rtrn.unwrap_or_default().into_iter().map(Key::from).collect();
        let mut keyboard = Self { first: map.first_key_sym, keys, types, shifts: Vec::new(), tables: HashMap::new() };
        keyboard.shifts = keyboard.find_shifts(modifiers);
        keyboard
    }

    /// The stroke that makes a character of text in this state.
    pub(super) fn character(&mut self, character: char, state: State) -> Option<Stroke> {
        let symbol = super::keys::character_keysym(character)?;
        self.table(state).get(&canonical(symbol)).copied()
    }

    /// The key for a keysym; with `any_group` also one of a layout that is not chosen right now,
    /// because programs look for their shortcuts in all of them.
    pub(super) fn key(&mut self, symbol: u32, state: State, any_group: bool) -> Option<Stroke> {
        let symbol = canonical(symbol);
        if let Some(stroke) = self.table(state).get(&symbol) {
            return Some(*stroke);
        }
        let groups = if any_group { 4 } else { 0 };
        (0..groups).find_map(|group| self.table(State { group, ..state }).get(&symbol).copied())
    }

    /// The modifiers that choose another level of keys.
    pub(super) fn level_modifiers(&self) -> u8 {
        self.shifts.iter().fold(0, |all, (bit, _)| all | bit)
    }

    /// The keys that hold down a set of modifiers.
    pub(super) fn holders(&self, modifiers: u8) -> impl Iterator<Item = u8> {
        self.shifts.iter().filter(move |(bit, _)| modifiers & bit != 0).map(|(_, keycode)| *keycode)
    }

    /// Keycodes that make no symbol at all.
    pub(super) fn unused(&self) -> Vec<u8> {
        let empty = |key: &Key| key.groups.iter().all(|group| group.symbols.iter().all(|symbol| *symbol == 0));
        let keycodes = (self.first..=u8::MAX).zip(&self.keys);
        // The lowest code is "reserved" in the kernel's numbering, and some programs drop it.
        keycodes.filter(|(keycode, key)| *keycode > 8 && empty(key)).map(|(keycode, _)| keycode).collect()
    }

    fn table(&mut self, state: State) -> &Table {
        if !self.tables.contains_key(&state) {
            // A program that toggles everything must not make this grow.
            if self.tables.len() >= 16 {
                self.tables.clear();
            }
            let table = self.make_table(state);
            self.tables.insert(state, table);
        }
        &self.tables[&state]
    }

    fn make_table(&self, state: State) -> Table {
        let mut table = Table::new();
        let mut sets: Vec<u8> = (0..1u8 << self.shifts.len().min(3))
            .map(|set| self.shifts.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).fold(0, |all, (_, (bit, _))| all | bit))
            // A modifier that is in effect already need not be pressed.
            .filter(|set| set & state.modifiers == 0)
            .collect();
        sets.sort_by_key(|set| set.count_ones());
        for modifiers in sets {
            for (keycode, key) in (self.first..=u8::MAX).zip(&self.keys) {
                let Some(symbol) = self.symbol(key, state.modifiers | modifiers, state.group) else { continue };
                // The first one wins: the fewest modifiers, then the lowest keycode.
                table.entry(canonical(symbol)).or_insert(Stroke { keycode, modifiers });
            }
        }
        table
    }

    /// What a program sees when the key is pressed.
    fn symbol(&self, key: &Key, modifiers: u8, group: u8) -> Option<u32> {
        let group = key.groups.get(key.group_index(group)?)?;
        let kind = self.types.get(group.kind)?;
        let wanted = modifiers & kind.mask;
        let level = kind.levels.iter().find(|(mods, _)| *mods == wanted).map_or(0, |(_, level)| *level);
        let symbol = *group.symbols.get(usize::from(level))?;
        // Caps lock that no level answers to is applied by the program.
        let capitals = modifiers & LOCK != 0 && kind.mask & LOCK == 0;
        match symbol {
            0 => None,
            symbol if capitals => Some(upper(symbol)),
            symbol => Some(symbol),
        }
    }

    fn find_shifts(&self, modifiers: &xproto::GetModifierMappingReply) -> Vec<(u8, u8)> {
        let width = usize::from(modifiers.keycodes_per_modifier()).max(1);
        let mut shifts = Vec::new();
        for wanted in [&[key::Shift_L, key::Shift_R][..], &[key::ISO_Level3_Shift], &[key::ISO_Level5_Shift]] {
            let rows = modifiers.keycodes.chunks(width).enumerate();
            let mut candidates = rows.flat_map(|(row, keycodes)| keycodes.iter().map(move |keycode| (row, *keycode)));
            let found = candidates.find(|(_, keycode)| self.first_symbol(*keycode).is_some_and(|s| wanted.contains(&s)));
            if let Some((row @ 0..8, keycode)) = found {
                shifts.push((1 << row, keycode));
            }
        }
        shifts
    }

    /// Keys that only have symbols of vendors, like those of music players, and all of their symbols.
    pub(super) fn borrowable(&self) -> Vec<(u8, Vec<u32>)> {
        let vendor = |symbols: &[u32]| {
            symbols.iter().any(|symbol| *symbol != 0) && symbols.iter().all(|symbol| *symbol == 0 || *symbol >> 16 == 0x1008)
        };
        let keycodes = (self.first..=u8::MAX).zip(&self.keys);
        keycodes
            .map(|(keycode, key)| (keycode, key.groups.iter().flat_map(|group| group.symbols.clone()).collect::<Vec<_>>()))
            .filter(|(_, symbols)| vendor(symbols) && symbols.len() < 8)
            .collect()
    }

    /// What a key makes by itself.
    pub(super) fn first_symbol(&self, keycode: u8) -> Option<u32> {
        let key = self.keys.get(usize::from(keycode.checked_sub(self.first)?))?;
        key.groups.first()?.symbols.first().copied()
    }
}

impl Key {
    /// A key may have fewer groups than the keyboard; XKB says which of them then stands in.
    fn group_index(&self, group: u8) -> Option<usize> {
        let count = self.groups.len();
        let group = usize::from(group);
        match (count, self.out_of_range >> 6) {
            (0, _) => None,
            (count, _) if group < count => Some(group),
            (count, 1) => Some(count - 1),
            (count, 2) => Some(usize::from((self.out_of_range >> 4) & 3)).map(|to| if to < count { to } else { 0 }),
            (count, _) => Some(group % count),
        }
    }
}

impl From<xkb::KeySymMap> for Key {
    fn from(map: xkb::KeySymMap) -> Self {
        let width = usize::from(map.width).max(1);
        let count = usize::from(map.group_info & 0x0f);
        let symbols = map.syms.chunks(width).take(count.min(4));
        let groups = symbols.zip(map.kt_index).map(|(symbols, kind)| Group { kind: kind.into(), symbols: symbols.to_vec() });
        Self { groups: groups.collect(), out_of_range: map.group_info }
    }
}

impl From<&xkb::KeyType> for Type {
    fn from(kind: &xkb::KeyType) -> Self {
        let levels = kind.map.iter().filter(|entry| entry.active).map(|entry| (bits(entry.mods_mask), entry.level));
        Self { mask: bits(kind.mods_mask), levels: levels.collect() }
    }
}

/// One number for all keysyms that stand for the same character, so that `Cyrillic_a` and its
/// Unicode keysym are found alike. The keypad's digits and signs stay what they are.
fn canonical(symbol: u32) -> u32 {
    if (0xff00..=0xffff).contains(&symbol) {
        return symbol;
    }
    Keysym::new(symbol).key_char().and_then(super::keys::character_keysym).unwrap_or(symbol)
}

fn upper(symbol: u32) -> u32 {
    let Some(character) = Keysym::new(symbol).key_char() else { return symbol };
    only(character.to_uppercase()).and_then(super::keys::character_keysym).unwrap_or(symbol)
}

fn only(mut cases: impl Iterator<Item = char>) -> Option<char> {
    match (cases.next(), cases.next()) {
        (only, None) => only,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIFT: u8 = 1;
    const MOD5: u8 = 0x80;
    const NUM: u8 = 0x10;

    /// A small keyboard: `q Q @`, `1 !`, `é 2`, a keypad 7, the modifiers and an unused key.
    fn keyboard() -> Keyboard {
        let types = vec![
            Type { mask: 0, levels: vec![] },
            Type { mask: SHIFT, levels: vec![(SHIFT, 1)] },
            Type {
                mask: SHIFT | LOCK | MOD5,
                levels: vec![(SHIFT, 1), (LOCK, 1), (MOD5, 2), (MOD5 | SHIFT, 2), (MOD5 | LOCK, 2)],
            },
            Type { mask: SHIFT | NUM, levels: vec![(SHIFT, 1), (NUM, 1)] },
        ];
        let key = |kind, symbols: &[u32]| Key { groups: vec![Group { kind, symbols: symbols.to_vec() }], out_of_range: 0 };
        let keys = vec![
            key(2, &[key::q, key::Q, key::at]),
            key(1, &[key::_1, key::exclam]),
            key(1, &[key::eacute, key::_2]),
            key(3, &[key::KP_Home, key::KP_7]),
            key(0, &[key::Shift_L]),
            key(0, &[key::ISO_Level3_Shift]),
            key(0, &[0]),
        ];
        Keyboard { first: 10, keys, types, shifts: vec![(SHIFT, 14), (MOD5, 15)], tables: HashMap::new() }
    }

    fn stroke(keycode: u8, modifiers: u8) -> Option<Stroke> {
        Some(Stroke { keycode, modifiers })
    }

    #[test]
    fn characters_are_found_on_every_level() {
        let mut keyboard = keyboard();
        let state = State::default();
        assert_eq!(keyboard.character('q', state), stroke(10, 0));
        assert_eq!(keyboard.character('Q', state), stroke(10, SHIFT));
        assert_eq!(keyboard.character('@', state), stroke(10, MOD5));
        assert_eq!(keyboard.character('!', state), stroke(11, SHIFT));
        assert_eq!(keyboard.character('x', state), None);
        // A keypad's digit is not text: what it gives depends on the program.
        assert_eq!(keyboard.character('7', state), None);
        assert_eq!(keyboard.key(key::KP_7, state, false), stroke(13, SHIFT));
        assert_eq!(keyboard.unused(), [16]);
    }

    #[test]
    fn locks_are_minded() {
        let mut keyboard = keyboard();
        let caps = State { modifiers: LOCK, group: 0 };
        assert_eq!(keyboard.character('Q', caps), stroke(10, 0));
        assert_eq!(keyboard.character('q', caps), stroke(10, SHIFT));
        assert_eq!(keyboard.character('1', caps), stroke(11, 0));
        // No level of this key answers to caps lock, so programs would make É of it.
        assert_eq!(keyboard.character('é', caps), None);
        let numbers = State { modifiers: NUM, group: 0 };
        assert_eq!(keyboard.key(key::KP_7, numbers, false), stroke(13, 0));
    }

    #[test]
    fn held_shift_is_minded() {
        let mut keyboard = keyboard();
        let shifted = State { modifiers: SHIFT, group: 0 };
        assert_eq!(keyboard.character('Q', shifted), stroke(10, 0));
        assert_eq!(keyboard.character('q', shifted), None);
    }

    #[test]
    fn missing_groups_are_stood_in_for() {
        let key = |out_of_range| Key {
            groups: vec![Group { kind: 0, symbols: vec![1] }, Group { kind: 0, symbols: vec![2] }],
            out_of_range,
        };
        assert_eq!(key(0).group_index(2), Some(0));
        assert_eq!(key(1 << 6).group_index(3), Some(1));
        assert_eq!(key(2 << 6 | 1 << 4).group_index(3), Some(1));
    }
}
