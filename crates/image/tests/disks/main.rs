//! Disks, with the real qemu-img as the judge and a real web server to fetch from. They need qemu-utils, qemu-system-common,
//! fuse3 and e2fsprogs.

mod fetch;
mod hostile;
mod server;
mod shapes;

use hotdesk_image::disk::Meter;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn meter() -> Meter {
    Meter::default()
}

/// A raw disk of `size` with runs of data: some that compress, some that don't, zeros that are written, and holes.
fn raw_disk(path: &Path, size: u64, data: u64) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    let (runs, mut state) = (data / MIB, 0x1234_5678_9abc_def0u64);
    let mut block = vec![0u8; MIB as usize];
    for run in 0..runs {
        for (index, word) in block.chunks_exact_mut(8).enumerate() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let value = match run % 4 {
                0 => index as u64 / 512,
                3 => 0,
                _ => state,
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
        file.write_all_at(&block, run * (size / runs) / 512 * 512).unwrap();
    }
    // The last byte of all.
    file.write_all_at(&[7], size - 1).unwrap();
}

fn qemu_img(args: &[&str]) -> String {
    let output = Command::new("qemu-img").args(args).output().expect("qemu-img runs: apt-get install qemu-utils");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "qemu-img {args:?}: {text}");
    text
}

/// QEMU says that both are the same for a guest.
fn same(a: &Path, a_format: &str, b: &Path, b_format: &str) {
    qemu_img(&["compare", "-f", a_format, "-F", b_format, text(a), text(b)]);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn on_disk(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn join(directory: &tempfile::TempDir, name: &str) -> PathBuf {
    directory.path().join(name)
}
