//! What a viewer can do and wants, from the numbers of its `SetEncodings`.

/// The encodings of pixels that we speak, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Encoding {
    #[default]
    Raw = 0,
    Hextile = 5,
    Zlib = 6,
    Tight = 7,
    Zrle = 16,
}

/// Numbers of pseudo-encodings: rectangles that tell something else than pixels.
pub(super) mod pseudo {
    pub(crate) const QUALITY: std::ops::RangeInclusive<i32> = -32..=-23;
    pub(crate) const COMPRESSION: std::ops::RangeInclusive<i32> = -256..=-247;
    pub(crate) const DESKTOP_SIZE: i32 = -223;
    pub(crate) const POINTER_POSITION: i32 = -232;
    pub(crate) const CURSOR: i32 = -239;
    pub(crate) const EXTENDED_DESKTOP_SIZE: i32 = -308;
    pub(crate) const FENCE: i32 = -312;
    pub(crate) const CONTINUOUS_UPDATES: i32 = -313;
    pub(crate) const CURSOR_WITH_ALPHA: i32 = -314;
    pub(crate) const EXTENDED_MOUSE_BUTTONS: i32 = -316;
    pub(crate) const EXTENDED_CLIPBOARD: i32 = 0xc0a1_e5ce_u32 as i32;
    pub(crate) const VMWARE_CURSOR: i32 = 0x574d_5664;
}

/// How a viewer can be told what the pointer looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CursorWish {
    /// Pixels and a mask of one bit.
    Plain,
    /// With alpha, colours multiplied with it.
    WithAlpha,
    /// With alpha, colours not multiplied with it.
    Vmware,
}

/// All of it. The default is a viewer that has not said anything yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub encoding: Encoding,
    /// 0 to 9. Without it nothing lossy may be sent.
    pub quality: Option<u8>,
    /// 0 to 9.
    pub compression: u8,
    pub cursor: Option<CursorWish>,
    pub pointer_position: bool,
    pub desktop_size: bool,
    pub extended_desktop_size: bool,
    pub fence: bool,
    pub continuous_updates: bool,
    pub extended_clipboard: bool,
    pub extended_mouse_buttons: bool,
}

/// Compression where the viewer says nothing: a core is dearer than a byte on most ways to a desk.
const COMPRESSION: u8 = 1;

impl Wishes {
    /// Reads the list; what comes first in it is liked best.
    pub(super) fn new(numbers: &[i32]) -> Self {
        let mut wishes = Self { compression: COMPRESSION, ..Self::default() };
        let mut encoding = None;
        for &number in numbers {
            let known = match number {
                0 => Some(Encoding::Raw),
                5 => Some(Encoding::Hextile),
                6 => Some(Encoding::Zlib),
                7 => Some(Encoding::Tight),
                16 => Some(Encoding::Zrle),
                _ => None,
            };
            encoding = encoding.or(known);
            match number {
                n if pseudo::QUALITY.contains(&n) => wishes.quality = Some((n - pseudo::QUALITY.start()) as u8),
                n if pseudo::COMPRESSION.contains(&n) => wishes.compression = (n - pseudo::COMPRESSION.start()) as u8,
                pseudo::DESKTOP_SIZE => wishes.desktop_size = true,
                pseudo::EXTENDED_DESKTOP_SIZE => wishes.extended_desktop_size = true,
                pseudo::POINTER_POSITION => wishes.pointer_position = true,
                // Alpha beats a mask, whatever the order.
                pseudo::CURSOR_WITH_ALPHA => wishes.cursor = Some(CursorWish::WithAlpha),
                pseudo::VMWARE_CURSOR if wishes.cursor != Some(CursorWish::WithAlpha) => wishes.cursor = Some(CursorWish::Vmware),
                pseudo::CURSOR => wishes.cursor = wishes.cursor.or(Some(CursorWish::Plain)),
                pseudo::FENCE => wishes.fence = true,
                pseudo::CONTINUOUS_UPDATES => wishes.continuous_updates = true,
                pseudo::EXTENDED_CLIPBOARD => wishes.extended_clipboard = true,
                pseudo::EXTENDED_MOUSE_BUTTONS => wishes.extended_mouse_buttons = true,
                _ => {}
            }
        }
        wishes.encoding = encoding.unwrap_or_default();
        wishes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_encoding_that_we_know_is_taken() {
        assert_eq!(Wishes::new(&[]).encoding, Encoding::Raw);
        assert_eq!(Wishes::new(&[1, 99, 16, 7, 0]).encoding, Encoding::Zrle);
        assert_eq!(Wishes::new(&[0, 7]).encoding, Encoding::Raw);
    }

    #[test]
    fn hints_and_abilities_are_found() {
        let novnc =
            [1, 7, -260, 5, 2, 0, -26, -254, -223, -224, -258, -308, -309, -312, -313, -307, -1063131698, 0x574d5664, -239];
        let wishes = Wishes::new(&novnc);
        assert_eq!(
            wishes,
            Wishes {
                encoding: Encoding::Tight,
                quality: Some(6),
                compression: 2,
                cursor: Some(CursorWish::Vmware),
                pointer_position: false,
                desktop_size: true,
                extended_desktop_size: true,
                fence: true,
                continuous_updates: true,
                extended_clipboard: true,
                extended_mouse_buttons: false,
            }
        );
        assert_eq!(Wishes::new(&[-239, -314, 0x574d5664]).cursor, Some(CursorWish::WithAlpha));
        assert_eq!(Wishes::new(&[-239]).cursor, Some(CursorWish::Plain));
        assert_eq!(Wishes::new(&[7]).quality, None);
    }
}
