//! Whether real Python would run other code than we think: files in the working directory that
//! hide a module, or an environment that changes the interpreter.

use crate::place::Place;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Everything that our subset's imports lead to and that is looked for in the working directory
/// first. (Modules inside the interpreter, or loaded before it looks there, can't be hidden.)
const MODULES: &[&str] = &[
    "PIL",
    "Xlib",
    "array",
    "base64",
    "binascii",
    "bisect",
    "bz2",
    "collections",
    "contextlib",
    "copyreg",
    "ctypes",
    "datetime",
    "enum",
    "fcntl",
    "fnmatch",
    "functools",
    "itertools",
    "json",
    "keyword",
    "linecache",
    "locale",
    "lzma",
    "math",
    "mouseinfo",
    "operator",
    "pathlib",
    "platform",
    "pyautogui",
    "pymsgbox",
    "pyperclip",
    "pyscreeze",
    "pytweening",
    "random",
    "re",
    "reprlib",
    "select",
    "selectors",
    "shlex",
    "shutil",
    "signal",
    "socket",
    "string",
    "struct",
    "subprocess",
    "tempfile",
    "textwrap",
    "threading",
    "tkinter",
    "token",
    "tokenize",
    "traceback",
    "types",
    "typing",
    "warnings",
    "weakref",
    "webbrowser",
    "zlib",
];
/// Variables of Python's that change nothing that can be seen.
const HARMLESS: &[&str] = &["PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED"];
/// The age from which on a directory's time tells of every later change.
const SETTLED: Duration = Duration::from_secs(2);
/// Directories whose answers are kept.
const MOST_KEPT: usize = 16;

type Kept = HashMap<PathBuf, (SystemTime, bool)>;
static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

/// Whether programs that start in the desk's home must go to the real interpreter.
pub fn shadowed(place: &Place) -> bool {
    shadowed_in(place, &place.home)
}

/// The same for programs whose modules are looked for in `directory` first.
pub fn shadowed_in(place: &Place, directory: &Path) -> bool {
    has_settings(place) || has_other_encoding(place) || has_modules(directory)
}

fn has_settings(place: &Place) -> bool {
    place.env.keys().any(|name| name.starts_with("PYTHON") && !HARMLESS.contains(&name.as_str()))
}

/// Output is UTF-8 in every locale that says so, and in those that say nothing.
fn has_other_encoding(place: &Place) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.iter().filter_map(|name| place.env.get(*name)).find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let lower = locale.to_ascii_lowercase();
        !matches!(locale.as_str(), "C" | "POSIX") && !lower.contains(".utf-8") && !lower.contains(".utf8")
    })
}

/// A directory's time changes when a name appears in it, so its answer can be kept.
fn has_modules(directory: &Path) -> bool {
    let Some(time) = std::fs::metadata(directory).and_then(|metadata| metadata.modified()).ok() else { return false };
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((then, answer)) = kept.get(directory)
        && *then == time
        && !answer
    {
        return false;
    }
    // Any directory with such a name counts: that it is no package is rare enough.
    let hides = |name: &str| {
        let module = name.split('.').next().unwrap_or(name);
        let is_module = !name.contains('.') || name.ends_with(".py") || name.ends_with(".pyc") || name.ends_with(".so");
        is_module && MODULES.contains(&module)
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let answer = entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(hides));
    if kept.len() >= MOST_KEPT {
        kept.clear();
    }
    // Times are coarse: what changed just now may change again without one.
    if time.elapsed().is_ok_and(|age| age > SETTLED) {
        kept.insert(directory.to_owned(), (time, answer));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Display;

    fn place(home: &Path, env: &[(&str, &str)]) -> Place {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let display = Display { number: 0, cookie: None };
        Place { display, home: home.to_owned(), runtime_dir: home.to_owned(), bus: String::new(), env }
    }

    #[test]
    fn a_module_in_the_home_hides_the_real_one() {
        let home = tempfile::tempdir().unwrap();
        let place = place(home.path(), &[("LANG", "en_US.UTF-8")]);
        std::fs::write(home.path().join("setup.py"), "").unwrap();
        std::fs::write(home.path().join("random.txt"), "").unwrap();
        assert!(!shadowed(&place));
        std::fs::write(home.path().join("platform.py"), "").unwrap();
        assert!(shadowed(&place));
        std::fs::remove_file(home.path().join("platform.py")).unwrap();
        assert!(!shadowed(&place));
        std::fs::create_dir(home.path().join("pyautogui")).unwrap();
        assert!(shadowed(&place));
    }

    #[test]
    fn an_environment_that_changes_python() {
        let home = tempfile::tempdir().unwrap();
        assert!(shadowed(&place(home.path(), &[("PYTHONPATH", "/tmp")])));
        assert!(shadowed(&place(home.path(), &[("LANG", "de_DE.ISO-8859-1")])));
        assert!(!shadowed(&place(home.path(), &[("PYTHONUNBUFFERED", "1"), ("LC_ALL", "C")])));
        assert!(!shadowed(&place(home.path(), &[("LC_ALL", ""), ("LANG", "C.UTF-8")])));
    }
}
