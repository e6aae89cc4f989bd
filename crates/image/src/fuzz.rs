//! The fuzz target for the heads of disks, bounded: built and run with every other test. `scripts/fuzz` runs it for as long as one
//! likes, guided by coverage.

#[path = "../../../fuzz/src/bounded.rs"]
mod bounded;
#[path = "../../../fuzz/src/qcow2.rs"]
mod qcow2;

#[test]
fn any_head_of_a_disk_is_read_or_refused() {
    bounded::run("qcow2", 50_000, qcow2::run);
}
