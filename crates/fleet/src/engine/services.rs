//! What the engine asks of keys, money and archives.

use super::Engine;
use crate::error::{Error, Result};
use crate::store::{ArchiveRef, Record, Spend};
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

    /// Whether a project's budget allows another desk.
    pub(crate) async fn can_spend(&self, _project: &str) -> Result<()> {
        Ok(())
    }

    pub(crate) async fn most_desks_of(&self, _key: &str) -> Result<Option<u32>> {
        Ok(None)
    }

    /// Counts the money until now, in the state that the record is in.
    pub(crate) fn settle_cost(&self, _record: &mut Record, _now_ms: i64) -> Vec<Spend> {
        Vec::new()
    }

    pub(crate) fn cost_of(&self, record: &Record) -> f64 {
        #[expect(clippy::cast_precision_loss)]
        let micro = record.cost_micro as f64;
        micro / 1e6
    }
}
