//! The fuzz targets of this crate; see CONTRIBUTING.md.

#[macro_use]
#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;

targets! {
    address, 20_000, crate::credentials::fuzz::run;
    cdp, 20_000, crate::proxy::cdp::fuzz::run;
    connect, 5_000, crate::dialects::e2b::connect::fuzz::run;
    gzip, 20_000, crate::dialects::e2b::decode::fuzz::run;
}
