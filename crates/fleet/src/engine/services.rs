//! Archives, as the engine uses them.

use super::Engine;
use crate::archive::Archives;
use crate::error::Result;
use std::time::Duration;

/// What nobody knows is removed from the archive when it is older; no upload takes that long.
const SWEEP_AGE: Duration = Duration::from_secs(48 * 3600);

impl Engine {
    /// Where stopped desks go. Opened when it is first needed: most fleets never do.
    pub(crate) fn archives(&self) -> Result<&Archives> {
        if let Some(archives) = self.archives.get() {
            return Ok(archives);
        }
        let location = match self.config.archive.as_str() {
            "" => self.config.data.join("archives").display().to_string(),
            location => location.into(),
        };
        let archives = Archives::open(&location)?.sealed(self.store.key_for("archives"), self.config.data.clone());
        Ok(self.archives.get_or_init(|| archives))
    }

    /// Removes what uploads that were killed left behind.
    pub(crate) async fn sweep_archives(&self) -> Result<()> {
        let mut keep = Vec::new();
        self.view.for_each(|_, r| keep.extend(r.archive.clone()));
        // A fleet that never archived anything has no place to sweep.
        if keep.is_empty() && self.archives.get().is_none() {
            return Ok(());
        }
        let removed = self.archives()?.sweep(&keep, SWEEP_AGE).await?;
        if removed > 0 {
            tracing::info!(removed, "remains of archives were removed");
        }
        Ok(())
    }
}
