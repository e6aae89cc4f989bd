//! Where things are on this machine.

use std::path::{Path, PathBuf};

/// The data directory of this user's fleet.
pub(crate) fn data(said: Option<&Path>) -> PathBuf {
    match said {
        Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        None => {
            let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
            hotdesk_client::data_directories(&variable).into_iter().next().unwrap_or_else(|| "/var/lib/hotdesk".into())
        }
    }
}

/// Whether that is where it is looked for anyway.
pub(crate) fn is_default_data(data: &Path) -> bool {
    std::env::var_os("HOTDESK_DATA").is_some_and(|value| Path::new(&value) == data) || self::data(None) == data
}

/// Built templates, shared by all fleets of this machine.
pub(crate) fn images(said: Option<&Path>) -> PathBuf {
    if let Some(path) = said {
        return std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    }
    if nix::unistd::geteuid().is_root() {
        return "/var/cache/hotdesk/images".into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    cache.unwrap_or_else(|| "/var/tmp".into()).join("hotdesk/images")
}

/// How people call this program: by its name where that finds it, else as they called it now.
pub(crate) fn own_name() -> String {
    let called = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
    let own = std::env::current_exe().ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("hotdesk")).find(|file| file.is_file());
    let same = found.and_then(|file| file.canonicalize().ok()).is_some_and(|file| Some(file) == own);
    if same || !called.contains('/') { "hotdesk".into() } else { called }
}
