//! The environment of the desk's programs.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// Where programs are looked for when nobody says; what systemd gives its services.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Never handed on: they lead programs to another display, away from accessibility, or to what
/// belongs to our own process alone.
const DROPPED: &[&str] = &[
    "AT_SPI_BUS_ADDRESS",
    "CLUTTER_BACKEND",
    "DBUS_STARTER_ADDRESS",
    "DBUS_STARTER_BUS_TYPE",
    "DESKTOP_STARTUP_ID",
    "GDK_BACKEND",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "MAINPID",
    "MOZ_ENABLE_WAYLAND",
    "NOTIFY_SOCKET",
    "NO_AT_BRIDGE",
    "OLDPWD",
    "QT_QPA_PLATFORM",
    "SDL_VIDEODRIVER",
    "SUDO_COMMAND",
    "SUDO_GID",
    "SUDO_UID",
    "SUDO_USER",
    "SYSTEMD_EXEC_PID",
    "VNC_PASSWORD",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "WAYLAND_DISPLAY",
    "WAYLAND_SOCKET",
    "WINDOWID",
    "XDG_ACTIVATION_TOKEN",
];

/// They describe the desktop that we were started from; a desk of our own is another one.
const DROPPED_BY_OWN_SESSION: &[&str] = &[
    "DESKTOP_SESSION",
    "GDMSESSION",
    "GNOME_DESKTOP_SESSION_ID",
    "GNOME_SETUP_DISPLAY",
    "GNOME_TERMINAL_SCREEN",
    "GNOME_TERMINAL_SERVICE",
    "KDE_FULL_SESSION",
    "KDE_SESSION_VERSION",
    "SESSION_MANAGER",
    "XDG_CURRENT_DESKTOP",
    "XDG_SEAT",
    "XDG_SEAT_PATH",
    "XDG_SESSION_CLASS",
    "XDG_SESSION_DESKTOP",
    "XDG_SESSION_ID",
    "XDG_SESSION_PATH",
    "XDG_VTNR",
];

/// What the environment is made of.
pub(crate) struct Ingredients<'a> {
    pub(crate) display: &'a str,
    pub(crate) xauthority: Option<&'a str>,
    pub(crate) home: &'a str,
    pub(crate) runtime_dir: &'a str,
    pub(crate) bus: &'a str,
    pub(crate) user: Option<&'a str>,
    /// The session is our own, not one that we attach to.
    pub(crate) own_session: bool,
    /// The user's own additions.
    pub(crate) added: &'a BTreeMap<String, String>,
}

/// The environment of programs, made of that of our own process.
pub(crate) fn environment(own: impl Iterator<Item = (String, String)>, with: &Ingredients<'_>) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = own
        .filter(|(name, _)| !name.starts_with("HOTDESK_") && !DROPPED.contains(&name.as_str()))
        .filter(|(name, _)| !(with.own_session && DROPPED_BY_OWN_SESSION.contains(&name.as_str())))
        .collect();
    let mut set = |name: &str, value: &str| drop(env.insert(name.into(), value.into()));
    set("DISPLAY", with.display);
    set("HOME", with.home);
    set("PWD", with.home);
    set("XDG_RUNTIME_DIR", with.runtime_dir);
    set("DBUS_SESSION_BUS_ADDRESS", with.bus);
    // Each toolkit has its own switch for accessibility.
    set("GTK_MODULES", "gail:atk-bridge");
    set("QT_ACCESSIBILITY", "1");
    set("QT_LINUX_ACCESSIBILITY_ALWAYS_ON", "1");
    set("GNOME_ACCESSIBILITY", "1");
    if with.own_session {
        set("XDG_SESSION_TYPE", "x11");
    }
    match with.xauthority {
        Some(path) => set("XAUTHORITY", path),
        None => drop(env.remove("XAUTHORITY")),
    }
    let mut default = |name: &str, value: &str| {
        if env.get(name).is_none_or(String::is_empty) {
            env.insert(name.into(), value.into());
        }
    };
    default("PATH", DEFAULT_PATH);
    default("LANG", "C.UTF-8");
    default("SHELL", "/bin/sh");
    if let Some(user) = with.user {
        default("USER", user);
        default("LOGNAME", user);
    }
    env.extend(with.added.clone());
    env
}

/// Variables that came or went while the desk ran, over those of its place. A copy of a desk is a whole process, so there is one set
/// of them.
static CHANGED: RwLock<BTreeMap<String, Option<String>>> = RwLock::new(BTreeMap::new());

/// Changes the environment of all programs that are started from now on; no value takes a variable away.
pub(crate) fn change_variables(variables: impl IntoIterator<Item = (String, Option<String>)>) {
    let sane = |name: &str, value: Option<&str>| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.is_some_and(|value| value.contains('\0'))
    };
    let variables = variables.into_iter().filter(|(name, value)| sane(name, value.as_deref()));
    CHANGED.write().unwrap_or_else(PoisonError::into_inner).extend(variables);
}

pub(super) fn apply_changes(env: &mut BTreeMap<String, String>) {
    for (name, value) in &*CHANGED.read().unwrap_or_else(PoisonError::into_inner) {
        match value {
            Some(value) => drop(env.insert(name.clone(), value.clone())),
            None => drop(env.remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(own: &[(&str, &str)], own_session: bool) -> BTreeMap<String, String> {
        let added = BTreeMap::from([("EXTRA".to_owned(), "1".to_owned())]);
        environment(
            own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
            &Ingredients {
                display: ":7",
                xauthority: Some("/h/.Xauthority"),
                home: "/h",
                runtime_dir: "/r",
                bus: "unix:path=/r/bus",
                user: Some("u"),
                own_session,
                added: &added,
            },
        )
    }

    #[test]
    fn nothing_leads_to_another_desktop() {
        let env = made(
            &[
                ("WAYLAND_DISPLAY", "wayland-0"),
                ("NO_AT_BRIDGE", "1"),
                ("DISPLAY", ":0"),
                ("XDG_CURRENT_DESKTOP", "GNOME"),
                ("HOTDESK_TOKEN", "secret"),
                ("VNC_PASSWORD", "secret"),
                ("NOTIFY_SOCKET", "/run/x"),
                ("ANONYMIZED_TELEMETRY", "false"),
            ],
            true,
        );
        for gone in ["WAYLAND_DISPLAY", "NO_AT_BRIDGE", "XDG_CURRENT_DESKTOP", "HOTDESK_TOKEN", "VNC_PASSWORD", "NOTIFY_SOCKET"] {
            assert!(!env.contains_key(gone), "{gone}");
        }
        assert_eq!(env["DISPLAY"], ":7");
        assert_eq!(env["ANONYMIZED_TELEMETRY"], "false");
        assert_eq!(env["EXTRA"], "1");
        assert!(!env.values().any(|value| value == "secret"));
    }

    #[test]
    fn holes_are_filled_and_the_rest_is_kept() {
        let env = made(&[("PATH", "/x"), ("LANG", ""), ("XDG_CURRENT_DESKTOP", "GNOME")], false);
        assert_eq!(env["PATH"], "/x");
        assert_eq!(env["LANG"], "C.UTF-8");
        assert_eq!(env["USER"], "u");
        assert_eq!(env["XDG_CURRENT_DESKTOP"], "GNOME", "an attached desktop is what it is");
    }
}
