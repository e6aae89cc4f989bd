//! Programs of the machine that a desk can make use of, and how to get them.

use crate::place::{Place, find_program};
use hotdesk_api::health::Feature;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A program, what it is for, and the package that brings it.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    pub name: &'static str,
    pub purpose: &'static str,
    /// Without it there is no desk at all.
    pub needed: bool,
    /// Names of the package for apt, dnf, apk and pacman.
    packages: [&'static str; 4],
}

const fn tool(name: &'static str, purpose: &'static str, needed: bool, packages: [&'static str; 4]) -> Tool {
    Tool { name, purpose, needed, packages }
}

/// Every program that a desk can make use of.
pub const TOOLS: &[Tool] = &[
    tool("Xvfb", "the display", true, ["xvfb", "xorg-x11-server-Xvfb", "xvfb", "xorg-server-xvfb"]),
    tool(
        "Xtigervnc",
        "a display that can be resized freely",
        false,
        ["tigervnc-standalone-server", "tigervnc-server-minimal", "tigervnc", "tigervnc"],
    ),
    tool("openbox", "managing windows", false, ["openbox", "openbox", "openbox", "openbox"]),
    tool("dbus-daemon", "the session bus that programs talk over", false, ["dbus-daemon", "dbus-daemon", "dbus", "dbus"]),
    tool("at-spi-bus-launcher", "accessibility trees", false, ["at-spi2-core", "at-spi2-core", "at-spi2-core", "at-spi2-core"]),
    tool("ffmpeg", "recording films", false, ["ffmpeg", "ffmpeg-free", "ffmpeg", "ffmpeg"]),
    tool(
        "python3",
        "programs in Python beyond the part that is run natively",
        false,
        ["python3", "python3", "python3", "python"],
    ),
    tool("gsettings", "the wallpaper", false, ["libglib2.0-bin", "glib2", "glib", "glib2"]),
    tool("xdg-open", "opening files with the right program", false, ["xdg-utils", "xdg-utils", "xdg-utils", "xdg-utils"]),
    tool(
        "gnome-terminal",
        "the terminal that `/terminal` reads",
        false,
        ["gnome-terminal", "gnome-terminal", "gnome-terminal", "gnome-terminal"],
    ),
    tool("libreoffice", "office documents", false, ["libreoffice", "libreoffice", "libreoffice", "libreoffice-fresh"]),
    tool("chromium", "browsing", false, ["chromium", "chromium", "chromium", "chromium"]),
];

/// Directories of programs that are not on any PATH.
const HIDDEN: &str = "/usr/libexec:/usr/lib/at-spi2-core:/usr/libexec/at-spi2-core:/usr/lib/at-spi2:/usr/lib";

/// Other programs that serve as well.
fn alternatives(name: &str) -> Vec<&str> {
    match name {
        "Xtigervnc" => vec!["Xtigervnc", "Xvnc"],
        "openbox" => super::window_manager::known().collect(),
        "chromium" => vec!["google-chrome", "google-chrome-stable", "chromium", "chromium-browser"],
        "libreoffice" => vec!["libreoffice", "soffice"],
        _ => vec![name],
    }
}

impl Tool {
    /// Where it is, among the directories of `path` and those that are on no PATH.
    pub fn find(&self, path: &str) -> Option<PathBuf> {
        let path = format!("{path}:{HIDDEN}");
        alternatives(self.name).into_iter().map(|name| name.to_owned()).find_map(|name| find_program(&name, &path))
    }

    /// The one line that brings it.
    pub fn hint(&self) -> String {
        const MANAGERS: [(&str, &str); 4] = [
            ("apt-get", "apt-get install -y"),
            ("dnf", "dnf install -y"),
            ("apk", "apk add"),
            ("pacman", "pacman -S --noconfirm"),
        ];
        let has = |name: &str| ["/usr/bin", "/sbin", "/bin"].iter().any(|folder| Path::new(folder).join(name).exists());
        MANAGERS
            .iter()
            .zip(self.packages)
            .find(|((manager, _), _)| has(manager))
            .map(|((_, install), package)| format!("{install} {package}"))
            .unwrap_or_else(|| format!("install {} with the package manager of this system", self.packages[0]))
    }
}

/// The one line that brings a program of the table.
pub fn install_hint(name: &str) -> String {
    TOOLS.iter().find(|tool| tool.name == name).map_or_else(|| format!("install {name}"), Tool::hint)
}

/// All of them, as programs of the desk find them.
pub fn features(place: &Place) -> BTreeMap<String, Feature> {
    let path = place.env.get("PATH").map(String::as_str).unwrap_or_default();
    TOOLS
        .iter()
        .map(|tool| {
            let found = tool.find(path);
            let feature = Feature {
                present: found.is_some(),
                purpose: tool.purpose.into(),
                hint: found.is_none().then(|| tool.hint()),
                path: found.map(|path| path.to_string_lossy().into_owned()),
            };
            (tool.name.to_owned(), feature)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_one_line_with_the_package() {
        let hint = install_hint("Xvfb");
        assert!(hint.to_lowercase().contains("xvfb"), "{hint}");
        assert!(!hint.contains('\n'));
        assert_eq!(install_hint("frobnicate"), "install frobnicate");
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let ffmpeg = TOOLS.iter().find(|tool| tool.name == "ffmpeg").unwrap();
        assert_eq!(ffmpeg.find("/nowhere"), None);
    }
}
