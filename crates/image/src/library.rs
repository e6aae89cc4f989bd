//! The templates of one installation and what was built from them.

mod outdated;
mod store;
mod users;

use crate::builder::{self, Job};
use crate::template::{resolve, shipped};
use crate::{Error, PackageLock, Result, Template, digest};
pub use outdated::{Outdated, OutdatedKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
pub(crate) use store::Store;

/// Names the directory of the user's templates.
const TEMPLATES_VARIABLE: &str = "HOTDESK_TEMPLATES";

/// A root file system, ready to be the lower layer of desks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rootfs {
    pub template: String,
    pub path: PathBuf,
    /// Hex; names the content.
    pub digest: String,
}

/// What is written down beside a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    pub template: String,
    pub digest: String,
    /// Names what it was built from.
    pub inputs: String,
    pub suite: String,
    pub packages: usize,
    pub size_bytes: u64,
    pub seconds: u64,
}

/// Templates (shipped, and those of the user) and the root file systems built from them.
#[derive(Debug)]
pub struct Library {
    store: Store,
    /// Directories of the user's templates; the last wins.
    templates: Vec<PathBuf>,
    /// Versions of packages that were prescribed for templates, by name.
    locks: BTreeMap<String, PackageLock>,
}

impl Library {
    /// `directory` holds what is built; it is made if it does not exist. What dead builds left is removed.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self> {
        let templates = std::env::var_os(TEMPLATES_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
        Ok(Self { store: Store::open(directory.into())?, templates: templates.into_iter().collect(), locks: BTreeMap::new() })
    }

    /// Adds a directory with templates of the user (`NAME.toml`), which win over those known so far. It need not exist.
    #[must_use]
    pub fn with_templates(mut self, directory: impl Into<PathBuf>) -> Self {
        self.templates.push(directory.into());
        self
    }

    /// Prescribes the versions of all packages of a template. What is built so has a name of its own.
    #[must_use]
    pub fn with_lock(mut self, name: &str, lock: PackageLock) -> Self {
        self.locks.insert(name.to_owned(), lock);
        self
    }

    pub fn directory(&self) -> &Path {
        self.store.directory()
    }

    /// Where things are built and kept, for other kinds of results.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Names of all templates, built or not.
    pub fn names(&self) -> Vec<String> {
        let own = self.templates.iter().flat_map(std::fs::read_dir).flatten().flatten().filter_map(|entry| {
            let path = entry.path();
            (path.extension()? == "toml").then(|| path.file_stem()?.to_str().map(String::from))?
        });
        let names: BTreeSet<String> = shipped::TEMPLATES.iter().map(|(name, _)| (*name).to_owned()).chain(own).collect();
        names.into_iter().collect()
    }

    /// Adds a template of the user's, or replaces it. It is checked first.
    pub fn add(&self, name: &str, text: &str) -> Result<()> {
        Template::parse(name, text, None)?;
        let missing = || Error::Invalid("there is no directory for templates of one's own here".into());
        let directory = self.templates.last().ok_or_else(missing)?;
        let path = directory.join(format!("{name}.toml"));
        let failed = |e: std::io::Error| Error::Failed(format!("{} can't be written: {e}", path.display()));
        std::fs::create_dir_all(directory).map_err(failed)?;
        // Whole or not at all.
        let part = directory.join(format!(".{name}.{}", std::process::id()));
        std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &path)).map_err(failed)
    }

    /// What the last build of a template printed.
    pub fn log(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.store.directory().join("logs").join(format!("{name}.log"))).ok()
    }

    /// A template with all that it extends folded in.
    pub fn template(&self, name: &str) -> Result<Template> {
        let chain = resolve::chain(name, &|name| self.read(name))?;
        resolve::fold(chain).ok_or_else(|| self.unknown(name))
    }

    /// What was built of a template. Cheap: one file is read.
    pub fn rootfs(&self, name: &str) -> Result<Rootfs> {
        let plan = self.plan(name)?;
        self.store.find(name, &plan.inputs).ok_or_else(|| Error::NotBuilt { name: name.into() })
    }

    /// What is known about what was built of a template.
    pub fn built(&self, name: &str) -> Result<Built> {
        self.store.built(&self.rootfs(name)?)
    }

    /// The exact versions of the packages of what was built of a template.
    pub fn lock(&self, name: &str) -> Result<PackageLock> {
        self.store.lock_file(&self.rootfs(name)?)
    }

    /// Builds it if it is not built yet; `stage` is told what goes on (see [`crate::share`] for a bar).
    /// Two builds of one template, in one process or in two, are done one after the other; the second finds the first's.
    /// Dropping the future ends the build and leaves nothing.
    pub async fn build(&self, name: &str, stage: impl Fn(&str) + Send + Sync) -> Result<Rootfs> {
        let plan = self.plan(name)?;
        if let Some(rootfs) = self.store.find(name, &plan.inputs) {
            return Ok(rootfs);
        }
        let place = self.store.begin(&plan.inputs, &stage).await?;
        if let Some(rootfs) = self.store.find(name, &plan.inputs) {
            return Ok(rootfs);
        }
        let begun = std::time::Instant::now();
        let (debs, wheels) = (self.store.debs(), self.store.directory().join("wheels"));
        let mut job = Job {
            template: &plan.template,
            suite: &plan.suite,
            inputs: &plan.inputs,
            prescribed: plan.prescribed.as_ref(),
            work: place.path(),
            debs: &debs,
            wheels: &wheels,
            python: Vec::new(),
        };
        let outcome = builder::build(&mut job, &stage).await;
        place.keep_log(name);
        let tree = outcome?;
        stage("putting it into place");
        let lock = tree.lock.to_string();
        let built = Built {
            template: name.into(),
            digest: digest::tree(&plan.inputs, &lock),
            inputs: plan.inputs,
            suite: plan.suite,
            packages: tree.lock.len(),
            size_bytes: builder::disk_size(&tree.path),
            seconds: begun.elapsed().as_secs(),
        };
        self.store.complete(&tree.path, &lock, &built)
    }

    /// Says that desks, snapshots or machines that are written down in this directory may build on what was built.
    pub fn add_user(&self, directory: &Path) -> Result<()> {
        self.store.add_user(directory)
    }

    /// What is built on a template as it was built last, its disks included: where desks, snapshots and machines are written down.
    pub fn users(&self, name: &str) -> Result<Vec<PathBuf>> {
        let mut users = match self.rootfs(name) {
            Err(Error::NotBuilt { .. }) => Vec::new(),
            found => self.store.users_of(&found?.digest)?,
        };
        for disk in self.disks().into_iter().filter(|disk| disk.info.template == name) {
            users.extend(self.store.users_of(&disk.info.digest)?);
        }
        Ok(users)
    }

    /// Refuses while something is built on this tree or disk.
    pub(crate) fn refuse_used(&self, what: &str, digest: &str) -> Result<()> {
        let users = self.store.users_of(digest)?;
        if users.is_empty() { Ok(()) } else { Err(Error::InUse { what: what.into(), users }) }
    }

    /// Removes what was built of a template, its disks too, unless somebody uses it.
    pub fn remove(&self, name: &str) -> Result<()> {
        let rootfs = match self.rootfs(name) {
            Err(Error::NotBuilt { .. }) => return self.remove_disks(name),
            found => found?,
        };
        self.refuse_used(&format!("the template {name}"), &rootfs.digest)?;
        self.remove_disks(name)?;
        self.store.remove(&rootfs)
    }

    /// All trees, also those whose template has changed since: see [`Library::outdated`].
    pub fn trees(&self) -> Vec<Built> {
        self.store.trees()
    }

    /// Bytes that a built template takes.
    pub fn size(&self, name: &str) -> Result<u64> {
        Ok(self.built(name)?.size_bytes)
    }

    fn plan(&self, name: &str) -> Result<Plan> {
        let template = self.template(name)?;
        let suite = match &template.suite {
            Some(suite) => suite.clone(),
            None => builder::host_suite()?,
        };
        let prescribed = self.prescribed(name)?;
        let text = prescribed.as_ref().map(ToString::to_string);
        let inputs = digest::inputs(&template, &suite, text.as_deref());
        Ok(Plan { template, suite, prescribed, inputs })
    }

    /// Versions that a build must use: those that were told, or the lock file beside the user's template (`NAME.lock`).
    fn prescribed(&self, name: &str) -> Result<Option<PackageLock>> {
        if let Some(lock) = self.locks.get(name) {
            return Ok(Some(lock.clone()));
        }
        let Some(path) = self.templates.iter().rev().map(|d| d.join(format!("{name}.lock"))).find(|path| path.is_file()) else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(&path).map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?;
        text.parse().map(Some)
    }

    /// One template as its file says.
    fn read(&self, name: &str) -> Result<Template> {
        for directory in self.templates.iter().rev() {
            let path = directory.join(format!("{name}.toml"));
            let Ok(data) = path.metadata() else { continue };
            if data.len() > crate::template::LARGEST_FILE {
                return Err(Error::Invalid(format!("{} is too large for a template", path.display())));
            }
            let text = std::fs::read_to_string(&path).map_err(|e| Error::Failed(format!("{}: {e}", path.display())))?;
            return Template::parse(name, &text, Some(directory));
        }
        match shipped::TEMPLATES.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Template::parse(name, text, None),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> Error {
        Error::Unknown { name: name.into(), known: self.names().join(", ") }
    }
}

/// What a build would do.
struct Plan {
    template: Template,
    suite: String,
    prescribed: Option<PackageLock>,
    inputs: String,
}
