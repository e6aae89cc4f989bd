//! What the engine asks of keys, money and archives.

use super::Engine;
use crate::error::{Error, Result};
use crate::store::ArchiveRef;
use hotdesk_provider::{DeskSpec, Provider};
use std::sync::Arc;

pub(crate) struct Archives;

impl Archives {
    pub(crate) async fn put(&self, _: &Arc<dyn Provider>, _: &str) -> Result<ArchiveRef> {
        Err(Error::Conflict("this fleet has no archive".into()))
    }

    pub(crate) async fn get(&self, _: &ArchiveRef, _: &Arc<dyn Provider>, _: &DeskSpec) -> Result<()> {
        Err(Error::Conflict("this fleet has no archive".into()))
    }

    pub(crate) async fn remove(&self, _: &ArchiveRef) -> Result<()> {
        Ok(())
    }
}

impl Engine {
    pub(crate) fn archives(&self) -> Result<&Archives> {
        Ok(&Archives)
    }

    pub(crate) fn can_archive(&self) -> bool {
        false
    }
}
