//! qcow2 as QEMU defines it (docs/interop/qcow2): what we read and what we write of it.

pub(super) mod header;
pub(super) mod reader;
pub(super) mod writer;

/// An entry of a table has its offset in these bits.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// Of an entry: nobody else refers to the same cluster.
const COPIED: u64 = 1 << 63;
/// Of an entry of a second table: the cluster is compressed, and the rest of the entry means something else.
const COMPRESSED: u64 = 1 << 62;
/// Of an entry of a second table: the cluster reads as zeros.
const ZERO: u64 = 1;
