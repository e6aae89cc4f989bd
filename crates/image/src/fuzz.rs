//! The fuzz targets of this crate; see CONTRIBUTING.md.

#[macro_use]
#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;
#[path = "../../../fuzz/src/qcow2.rs"]
mod qcow2;
#[path = "../../../fuzz/src/room.rs"]
pub(crate) mod room;

targets! {
    challenge, 50_000, crate::oci::registry::challenge::fuzz::run;
    disk, 2_000, crate::disk::fuzz::run;
    oci, 2_000, crate::oci::archive::fuzz::run;
    qcow2, 50_000, qcow2::run;
    zip, 2_000, crate::disk::fetch::zip::fuzz::run;
}
