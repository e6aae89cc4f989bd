//! The colours of a piece of the screen, as long as they are few.

/// The most that Tight can count.
pub(super) const MOST_COLOURS: usize = 256;

/// Slots of the table: a power of two, and four for each colour, so that looking up is quick.
const SLOTS: usize = 1024;
const SLOT_BITS: u32 = SLOTS.trailing_zeros();

/// Not a colour: colours have 24 bits.
const EMPTY: u32 = u32::MAX;

/// Up to [`MOST_COLOURS`] colours and their numbers.
pub(super) struct Palette {
    slots: [(u32, u8); SLOTS],
    colours: Vec<u32>,
}

impl Default for Palette {
    fn default() -> Self {
        Self { slots: [(EMPTY, 0); SLOTS], colours: Vec::with_capacity(MOST_COLOURS) }
    }
}

impl Palette {
    pub(super) fn clear(&mut self) {
        if !self.colours.is_empty() {
            self.slots.fill((EMPTY, 0));
            self.colours.clear();
        }
    }

    pub(super) fn colours(&self) -> &[u32] {
        &self.colours
    }

    /// Adds a colour; false if there is no room for it.
    pub(super) fn insert(&mut self, colour: u32) -> bool {
        let slot = self.slot(colour);
        if self.slots[slot].0 == colour {
            return true;
        }
        if self.colours.len() == MOST_COLOURS {
            return false;
        }
        self.slots[slot] = (colour, self.colours.len() as u8);
        self.colours.push(colour);
        true
    }

    /// The number of a colour; 0 for one that is not there.
    pub(super) fn index(&self, colour: u32) -> u8 {
        self.slots[self.slot(colour)].1
    }

    /// Takes over the other's colours if all of them together are at most `limit`.
    pub(super) fn merge(&mut self, other: &Self, limit: usize) -> bool {
        let new = other.colours.iter().filter(|c| self.slots[self.slot(**c)].0 != **c).count();
        self.colours.len() + new <= limit.min(MOST_COLOURS) && other.colours.iter().all(|c| self.insert(*c))
    }

    /// Where a colour is or would be. There are always free slots, so this ends.
    fn slot(&self, colour: u32) -> usize {
        let mut slot = (colour.wrapping_mul(0x9e37_79b1) >> (32 - SLOT_BITS)) as usize;
        while self.slots[slot].0 != colour && self.slots[slot].0 != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_numbered_up_to_the_limit() {
        let mut palette = Palette::default();
        for n in 0..256 {
            assert!(palette.insert(n * 65_793));
            assert!(palette.insert(n * 65_793));
        }
        assert!(!palette.insert(5));
        assert_eq!(palette.colours().len(), 256);
        assert!((0..256).all(|n| u32::from(palette.index(n * 65_793)) == n));
        palette.clear();
        assert!(palette.insert(5) && palette.colours() == [5]);
    }

    #[test]
    fn merging_minds_what_both_have() {
        let of = |colours: &[u32]| {
            let mut palette = Palette::default();
            colours.iter().for_each(|c| assert!(palette.insert(*c)));
            palette
        };
        let mut a = of(&[1, 2]);
        assert!(a.merge(&of(&[2, 1]), 2));
        assert!(!a.merge(&of(&[3]), 2));
        assert_eq!(a.colours(), [1, 2]);
        assert!(a.merge(&of(&[2, 3]), 256));
        assert_eq!(a.colours(), [1, 2, 3]);
    }
}
