//! The fuzz targets of this crate; see CONTRIBUTING.md.

#[macro_use]
#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;

use std::collections::BTreeSet;
use std::path::Path;

targets! {
    dhcp, 20_000, crate::boot::dhcp::message::fuzz::run;
    xdotool, 20_000, crate::stand_in::xdotool::read::fuzz::run;
}

/// A target that is only built for libFuzzer would be forgotten until somebody fuzzes.
#[test]
fn every_fuzz_target_is_run_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = root.join(folder).read_dir().unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let programs = names("fuzz/fuzz_targets");
    let manifest = read(&root.join("fuzz/Cargo.toml"));
    let built = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""));
    assert_eq!(programs, built.map(str::to_owned).collect(), "fuzz/Cargo.toml");
    assert_eq!(programs, names("fuzz/seeds"), "seeds");
    let mut functions = names("fuzz/src");
    // What targets stand on.
    for part in ["blocks", "bounded", "desk", "room"] {
        assert!(functions.remove(part));
    }
    assert_eq!(programs, functions, "fuzz/src");
    let mut tested = BTreeSet::new();
    for name in names("crates") {
        let text = read(&root.join(format!("crates/{name}/src/fuzz.rs")));
        let list = text.split("targets! {").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default();
        tested.extend(list.lines().filter_map(|line| line.trim().split_once(',')).map(|(name, _)| name.to_owned()));
    }
    assert_eq!(programs, tested, "crates/*/src/fuzz.rs");
}
