//! Templates with shifted owners, for kernels that can't shift them while mounting.
//!
//! Overlays on shifted mounts came with Linux 5.19, and not every file system can be shifted. Elsewhere a template is copied
//! once, with every owner moved into the range that all desks then share.

use super::Inner;
use super::desk::blocking;
use super::directory::{Layer, trouble};
use super::ids::Ids;
use super::tree;
use crate::{Progress, Result};
use hotdesk_image::Rootfs;
use std::path::PathBuf;

impl Inner {
    /// The lowest layer of desks of a template.
    pub(super) fn template_layer(&self, rootfs: &Rootfs) -> Layer {
        match self.shifted_path(rootfs) {
            Some(path) => Layer::Template(path),
            None => Layer::Template(rootfs.path.clone()),
        }
    }

    /// Makes the shifted copy of a template, where it is needed and missing.
    pub(super) async fn shift(&self, rootfs: &Rootfs, progress: &Progress) -> Result<()> {
        let Some(path) = self.shifted_path(rootfs).filter(|path| !path.exists()) else { return Ok(()) };
        progress.stage("copying the template with shifted owners");
        super::disk::room(&self.directory.trash())?;
        let (from, unnamed) = (rootfs.path.clone(), self.directory.trash());
        let base = Ids::shifted().uid(0);
        blocking(move || {
            let copied = tree::copy_shifted(&from, &unnamed, base);
            let named = copied.and_then(|_| match std::fs::rename(&unnamed, &path) {
                // Somebody else was faster.
                Err(_) if path.exists() => super::directory::remove_all(&unnamed),
                named => named,
            });
            named.map_err(|e| {
                let _ = super::directory::remove_all(&unnamed);
                trouble("copy", &from, &e)
            })
        })
        .await
    }

    fn shifted_path(&self, rootfs: &Rootfs) -> Option<PathBuf> {
        matches!(self.ids(""), Ids::Shifted { .. }).then(|| self.directory.shifted(&rootfs.digest))
    }
}
