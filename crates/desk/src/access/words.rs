//! The numbers of AT-SPI and the words for them: roles, states, interfaces.

/// Role names by number, in the words of at-spi 2.44. Later releases renamed some (43 became
/// `button`); selectors in tasks use these.
const ROLES: [&str; 130] = [
    "invalid",
    "accelerator label",
    "alert",
    "animation",
    "arrow",
    "calendar",
    "canvas",
    "check box",
    "check menu item",
    "color chooser",
    "column header",
    "combo box",
    "date editor",
    "desktop icon",
    "desktop frame",
    "dial",
    "dialog",
    "directory pane",
    "drawing area",
    "file chooser",
    "filler",
    "focus traversable",
    "font chooser",
    "frame",
    "glass pane",
    "html container",
    "icon",
    "image",
    "internal frame",
    "label",
    "layered pane",
    "list",
    "list item",
    "menu",
    "menu bar",
    "menu item",
    "option pane",
    "page tab",
    "page tab list",
    "panel",
    "password text",
    "popup menu",
    "progress bar",
    "push button",
    "radio button",
    "radio menu item",
    "root pane",
    "row header",
    "scroll bar",
    "scroll pane",
    "separator",
    "slider",
    "spin button",
    "split pane",
    "status bar",
    "table",
    "table cell",
    "table column header",
    "table row header",
    "tearoff menu item",
    "terminal",
    "text",
    "toggle button",
    "tool bar",
    "tool tip",
    "tree",
    "tree table",
    "unknown",
    "viewport",
    "window",
    "extended",
    "header",
    "footer",
    "paragraph",
    "ruler",
    "application",
    "autocomplete",
    "editbar",
    "embedded",
    "entry",
    "chart",
    "caption",
    "document frame",
    "heading",
    "page",
    "section",
    "redundant object",
    "form",
    "link",
    "input method window",
    "table row",
    "tree item",
    "document spreadsheet",
    "document presentation",
    "document text",
    "document web",
    "document email",
    "comment",
    "list box",
    "grouping",
    "image map",
    "notification",
    "info bar",
    "level bar",
    "title bar",
    "block quote",
    "audio",
    "video",
    "definition",
    "article",
    "landmark",
    "log",
    "marquee",
    "math",
    "rating",
    "timer",
    "static",
    "math fraction",
    "math root",
    "subscript",
    "superscript",
    "description list",
    "description term",
    "description value",
    "footnote",
    "content deletion",
    "content insertion",
    "mark",
    "suggestion",
    "push button menu",
];

/// The role whose name only the program knows.
const EXTENDED: u32 = 70;

pub(crate) const FRAME: u32 = 23;
pub(crate) const TABLE: u32 = 55;
pub(crate) const TERMINAL: u32 = 60;
pub(crate) const DOCUMENT_SPREADSHEET: u32 = 92;

/// State names by bit.
pub(crate) const STATES: [&str; 44] = [
    "invalid",
    "active",
    "armed",
    "busy",
    "checked",
    "collapsed",
    "defunct",
    "editable",
    "enabled",
    "expandable",
    "expanded",
    "focusable",
    "focused",
    "has_tooltip",
    "horizontal",
    "iconified",
    "modal",
    "multi_line",
    "multiselectable",
    "opaque",
    "pressed",
    "resizable",
    "selectable",
    "selected",
    "sensitive",
    "showing",
    "single_line",
    "stale",
    "transient",
    "vertical",
    "visible",
    "manages_descendants",
    "indeterminate",
    "required",
    "truncated",
    "animated",
    "invalid_entry",
    "supports_autocompletion",
    "selectable_text",
    "is_default",
    "visited",
    "checkable",
    "has_popup",
    "read_only",
];

pub(crate) const ACTIVE: u64 = 1 << 1;
pub(crate) const FOCUSED: u64 = 1 << 12;
pub(crate) const SHOWING: u64 = 1 << 25;
pub(crate) const VISIBLE: u64 = 1 << 30;

/// The name of a role, `None` where only the program can tell.
pub(crate) fn role_name(role: u32) -> Option<&'static str> {
    if role == EXTENDED { None } else { ROLES.get(role as usize).copied() }
}

/// The set states' names, in the order of their bits.
pub(crate) fn state_names(states: u64) -> impl Iterator<Item = &'static str> {
    STATES.iter().enumerate().filter(move |(bit, _)| states >> bit & 1 == 1).map(|(_, name)| *name)
}

/// What an accessible can be asked, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Interfaces(u16);

impl Interfaces {
    pub(crate) const ACTION: Self = Self(1);
    pub(crate) const COMPONENT: Self = Self(1 << 1);
    pub(crate) const TEXT: Self = Self(1 << 2);
    pub(crate) const EDITABLE_TEXT: Self = Self(1 << 3);
    pub(crate) const VALUE: Self = Self(1 << 4);
    pub(crate) const IMAGE: Self = Self(1 << 5);
    pub(crate) const SELECTION: Self = Self(1 << 6);
    pub(crate) const TABLE: Self = Self(1 << 7);

    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found = 0;
        for name in names {
            found |= match name.strip_prefix("org.a11y.atspi.") {
                Some("Action") => Self::ACTION.0,
                Some("Component") => Self::COMPONENT.0,
                Some("Text") => Self::TEXT.0,
                Some("EditableText") => Self::EDITABLE_TEXT.0,
                Some("Value") => Self::VALUE.0,
                Some("Image") => Self::IMAGE.0,
                Some("Selection") => Self::SELECTION.0,
                Some("Table") => Self::TABLE.0,
                _ => 0,
            };
        }
        Self(found)
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_their_old_names() {
        assert_eq!(role_name(43), Some("push button"));
        assert_eq!(role_name(TABLE), Some("table"));
        assert_eq!(role_name(TERMINAL), Some("terminal"));
        assert_eq!(role_name(FRAME), Some("frame"));
        assert_eq!(role_name(DOCUMENT_SPREADSHEET), Some("document spreadsheet"));
        assert_eq!(role_name(EXTENDED), None);
        assert_eq!(role_name(130), None);
    }

    #[test]
    fn states_stand_at_their_bits() {
        assert_eq!(STATES.len(), 44);
        assert_eq!(
            state_names(ACTIVE | FOCUSED | SHOWING | VISIBLE).collect::<Vec<_>>(),
            ["active", "focused", "showing", "visible"]
        );
        assert_eq!(state_names(1 << 43 | 1).collect::<Vec<_>>(), ["invalid", "read_only"]);
        assert_eq!(state_names(1 << 44 | 1 << 63).count(), 0);
    }

    #[test]
    fn interfaces_are_a_set() {
        let set = Interfaces::of(["org.a11y.atspi.Accessible", "org.a11y.atspi.Text", "org.a11y.atspi.Value", "else"]);
        assert!(set.has(Interfaces::TEXT) && set.has(Interfaces::VALUE) && !set.has(Interfaces::ACTION));
    }
}
