//! A page that was built anew is embedded anew.

fn main() {
    println!("cargo:rerun-if-changed=../../dashboard/dist");
}
