//! Images in a real Docker Engine (`scripts/dockerd`), run with nothing that could be taken away: no root, no capability, no device,
//! nothing to write on but memory.

mod desk;
mod engine;
mod vm;

use std::path::{Path, PathBuf};

/// The binary of the same build as this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(Path::parent).unwrap().join("hotdesk");
    assert!(binary.is_file(), "{} is missing; `cargo build -p hotdesk` makes it", binary.display());
    binary
}
