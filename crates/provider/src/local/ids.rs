//! Who the users of a desk are on the host.
//!
//! A desk has its own user namespace: its 65,536 users are others on the host, who own nothing there. Every desk has a
//! range of its own, so that what the kernel counts per user (inotify instances, above all: 128 by default, and each desk
//! has two D-Bus daemons that take one) is counted per desk. Ranges are chosen by a hash from the range that systemd
//! sets aside for containers; two desks that meet in one range share those counts and nothing else.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Users of one desk.
pub(crate) const COUNT: u32 = 65_536;
/// The user that runs the desk's programs, inside.
pub(crate) const USER: u32 = 1000;
/// The first and the number of the ranges: 524,288 to 1,879,048,191 are set aside for containers.
const FIRST: u32 = 524_288;
const RANGES: u32 = 28_664;
/// The one range of all desks on kernels that can't shift owners while mounting, where files lie shifted on the disk.
const SHARED: u32 = FIRST;

/// How users inside are users outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ids {
    /// All of them, from `base` on. Files lie on the disk with their natural owners and are shifted by the mount.
    Mapped { base: u32 },
    /// All of them, and files lie on the disk with shifted owners.
    Shifted { base: u32 },
    /// The only one that an ordinary user may map: itself.
    Single { uid: u32, gid: u32 },
}

impl Ids {
    pub(crate) fn mapped(fleet: &str, desk: &str) -> Self {
        let hash = Sha256::digest(format!("{fleet}/{desk}"));
        let number = hash.iter().take(4).fold(0u32, |number, byte| (number << 8) | u32::from(*byte));
        // The first one is the shared one.
        Self::Mapped { base: FIRST + (1 + number % (RANGES - 1)) * COUNT }
    }

    pub(crate) fn shifted() -> Self {
        Self::Shifted { base: SHARED }
    }

    /// The host's number of a user of the desk.
    pub(crate) fn uid(self, inside: u32) -> u32 {
        match self {
            Self::Mapped { base } | Self::Shifted { base } => base + inside,
            Self::Single { uid, .. } => uid,
        }
    }

    pub(crate) fn gid(self, inside: u32) -> u32 {
        match self {
            Self::Mapped { base } | Self::Shifted { base } => base + inside,
            Self::Single { gid, .. } => gid,
        }
    }

    /// The owner that a file of the desk's user `inside` has on the disk.
    pub(crate) fn on_disk(self, inside: u32) -> u32 {
        match self {
            Self::Mapped { .. } => inside,
            Self::Shifted { base } => base + inside,
            Self::Single { uid, .. } => uid,
        }
    }

    pub(crate) fn is_rootless(self) -> bool {
        matches!(self, Self::Single { .. })
    }

    pub(crate) fn uid_map(self) -> String {
        match self {
            Self::Mapped { base } | Self::Shifted { base } => format!("0 {base} {COUNT}\n"),
            Self::Single { uid, .. } => format!("{USER} {uid} 1\n"),
        }
    }

    pub(crate) fn gid_map(self) -> String {
        match self {
            Self::Mapped { .. } | Self::Shifted { .. } => self.uid_map(),
            Self::Single { gid, .. } => format!("{USER} {gid} 1\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_where_containers_belong() {
        for number in 0..10_000 {
            let ids = Ids::mapped("fleet", &format!("d-{number}"));
            let Ids::Mapped { base } = ids else { panic!() };
            assert!(base > SHARED && base + COUNT - 1 <= 1_879_048_191 && base % COUNT == 0, "{base}");
            assert_eq!((ids.uid(0), ids.uid(USER), ids.on_disk(7)), (base, base + USER, 7));
        }
        assert_eq!(Ids::mapped("f", "d"), Ids::mapped("f", "d"));
        assert_ne!(Ids::mapped("f", "d"), Ids::mapped("g", "d"));
    }

    #[test]
    fn an_ordinary_user_maps_itself() {
        let ids = Ids::Single { uid: 501, gid: 20 };
        assert_eq!((ids.uid_map(), ids.gid_map()), ("1000 501 1\n".into(), "1000 20 1\n".into()));
    }
}
