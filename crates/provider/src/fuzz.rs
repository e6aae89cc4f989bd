//! The fuzz targets of this crate; see CONTRIBUTING.md.

#[path = "../../../fuzz/src/blocks.rs"]
pub(crate) mod blocks;
#[macro_use]
#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;
#[path = "../../../fuzz/src/room.rs"]
pub(crate) mod room;

targets! {
    archive, 500, crate::local::archive::fuzz::run;
    frames, 2_000, crate::qemu::wire::fuzz::run;
    qmp, 20_000, crate::qemu::qmp::fuzz::run;
    saved, 2_000, crate::qemu::save::fuzz::run;
}
