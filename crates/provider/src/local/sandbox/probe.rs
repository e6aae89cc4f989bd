//! Tries what can only be known by trying.

use super::{Outcome, Step, mounts, spawn};
use crate::local::ids::Ids;
use linux_raw_sys::general::MOUNT_ATTR_IDMAP;
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// Whether a user namespace can be made, and whether it can shift the owners of what lies in these directories.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Probe {
    pub(crate) ids: Ids,
    pub(crate) shift: Vec<PathBuf>,
}

impl Probe {
    pub(super) fn run(&self) -> Outcome<u64> {
        let users = spawn::user_namespace(self.ids)?;
        for path in &self.shift {
            let tree = mounts::copy_of(path)?;
            mounts::change(tree.as_fd(), MOUNT_ATTR_IDMAP.into(), Some(users.as_fd()))
                .step(|| format!("shift the owners of {}", path.display()))?;
        }
        Ok(0)
    }
}
