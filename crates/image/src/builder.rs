//! Builds one tree with mmdebstrap.
//!
//! One run installs everything that the template and its ancestors name. Building a child on a copy of its parent's
//! tree would not install the parent's packages twice, but needs root and a second way to install, and the result
//! would depend on when the parent was built. What it would save was not measured.
//!
//! ```text
//!   room? ─► work directory: sources, files, hooks ─► mmdebstrap ─► (not root: unpacked from its tar) ─► lock ─► digest
//! ```

mod bootstrap;
mod finish;
mod host;
mod progress;
mod python;
mod room;
mod sources;

use crate::packages::PackageLock;
use crate::{Error, Result, Template};
use std::path::{Path, PathBuf};

pub(crate) use host::suite as host_suite;
pub use progress::share;
pub(crate) use room::{disk_size, enough_for, remove_tree};

/// What to build, and where.
pub(crate) struct Job<'a> {
    pub(crate) template: &'a Template,
    pub(crate) suite: &'a str,
    /// Names the inputs; the machine id of the tree is made from it.
    pub(crate) inputs: &'a str,
    pub(crate) prescribed: Option<&'a PackageLock>,
    /// Empty, ours alone, on the same file system as the trees.
    pub(crate) work: &'a Path,
    /// Downloaded packages, kept from build to build.
    pub(crate) debs: &'a Path,
    /// The same for packages of the Python index; and the files of those that this template wants.
    pub(crate) wheels: &'a Path,
    pub(crate) python: Vec<String>,
}

/// A tree that is complete and not yet in its place.
pub(crate) struct Tree {
    pub(crate) path: PathBuf,
    pub(crate) lock: PackageLock,
}

/// The texts that decide what becomes of a template.
pub(crate) fn recipe() -> impl Iterator<Item = &'static str> {
    [finish::BEGIN, finish::END, bootstrap::SKIPPED].into_iter().chain(bootstrap::LEFT_OUT)
}

pub(crate) async fn build(job: &mut Job<'_>, stage: &(dyn Fn(&str) + Send + Sync)) -> Result<Tree> {
    if let Some(image) = &job.template.image {
        let name = &job.template.name;
        return Err(Error::Invalid(format!(
            "template `{name}` is the finished image `{image}`; there is nothing to build, and only docker can run it"
        )));
    }
    host::tools()?;
    room::enough(job.work)?;
    stage("preparing");
    let path = job.work.join("tree");
    sources::write(job.suite, &job.work.join("sources"))?;
    job.python = python::fetch(job, stage).await?;
    let finish = finish::write(job)?;
    bootstrap::run(job, &path, &finish, stage).await?;
    finish::settle(&path);
    stage("writing the lock file");
    let status = path.join("var/lib/dpkg/status");
    let status = std::fs::read_to_string(&status).map_err(|e| Error::Failed(format!("{}: {e}", status.display())))?;
    Ok(Tree { path, lock: PackageLock::of_status(&status) })
}
