//! Copies and archives of what a desk wrote.

use super::{Outcome, Trouble};
use crate::local::cgroup::Group;
use crate::local::disk::Disk;
use crate::local::ids::Ids;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Save {
    pub(crate) stage: PathBuf,
    pub(crate) desk: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) ids: Ids,
    /// Of a desk that runs.
    pub(crate) loop_device: Option<u32>,
    pub(crate) group: Option<Group>,
    pub(crate) to: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Export {
    pub(crate) stage: PathBuf,
    pub(crate) desk: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) ids: Ids,
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) to: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Import {
    pub(crate) stage: PathBuf,
    pub(crate) desk: PathBuf,
    pub(crate) disk: Disk,
    pub(crate) ids: Ids,
    pub(crate) from: PathBuf,
}

impl Save {
    pub(crate) fn run(&self) -> Outcome<u64> {
        Err(Trouble::new("not yet"))
    }
}
impl Export {
    pub(super) fn run(&self) -> Outcome<u64> {
        Err(Trouble::new("not yet"))
    }
}
impl Import {
    pub(super) fn run(&self) -> Outcome<u64> {
        Err(Trouble::new("not yet"))
    }
}
