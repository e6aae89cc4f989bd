//! The fuzz targets of this crate; see CONTRIBUTING.md.

#[macro_use]
#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;

targets! {
    lines, 20_000, crate::lines::fuzz::run;
}
