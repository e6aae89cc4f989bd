//! A disk in the form in which Google's clouds import it: a file named `disk.raw`, of whole gibibytes, sparse, in a tar
//! of GNU's older kind, compressed with gzip.

use super::tool;
use crate::Result;
use std::path::Path;

/// The size must be a multiple of this.
pub(super) const SIZE_STEP: u64 = 1 << 30;

pub(super) async fn pack(made: &Path, raw: &Path) -> Result<()> {
    let mut command = tool::command("tar");
    // Holes are found by reading, so that the result does not depend on how the file lies on this machine's disk.
    command.args(["--format=oldgnu", "--sparse", "--hole-detection=raw", "--owner=0", "--group=0", "--numeric-owner"]);
    command.args(["--mode=0644", &format!("--mtime=@{}", super::EPOCH), "--use-compress-program=gzip -n -6"]);
    command.arg("-cf").arg(made.join("disk.tar.gz")).arg("-C").arg(made);
    command.arg(raw.file_name().unwrap_or_default());
    tool::run(&mut command, "packing the disk").await.map(drop)
}
