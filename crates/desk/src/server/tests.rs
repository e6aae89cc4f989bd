//! Tests of the server as a whole.

use crate::place::{Display, Place};
use std::collections::BTreeMap;
use std::path::Path;

/// A place whose home is `home`, on a display that does not exist.
pub(crate) fn place(home: &Path) -> Place {
    let env = [
        ("HOME", home.to_string_lossy().into_owned()),
        ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
    ];
    Place {
        display: Display { number: 279, cookie: None },
        home: home.to_owned(),
        runtime_dir: home.join(".run"),
        bus: String::new(),
        env: env.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<BTreeMap<_, _>>(),
    }
}
