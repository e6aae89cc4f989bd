//! What was built and is of no use any more: a template's tree from before the template changed, a disk with an older `hotdesk`.

use super::Library;
use crate::builder::disk_size;
use crate::{Disk, Result, Rootfs};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// A tree or a disk that nobody would be given any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outdated {
    pub kind: OutdatedKind,
    pub template: String,
    pub digest: String,
    pub size_bytes: u64,
    /// How many desks, snapshots or machines still build on it.
    pub users: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutdatedKind {
    Tree,
    Disk,
}

impl Library {
    /// What was built of templates as they are no longer. Templates that this library does not know may be another fleet's own, so
    /// what was built of them counts only if `unknown` is wished.
    pub fn outdated(&self, unknown: bool) -> Result<Vec<Outdated>> {
        let names = self.names();
        let current: BTreeMap<_, _> =
            names.iter().filter_map(|name| Some((name.as_str(), self.rootfs(name).ok()?.digest))).collect();
        let counts = |template: &str| unknown || names.iter().any(|name| name == template);
        let is_current = |template: &str, tree: &str| current.get(template).is_some_and(|digest| digest == tree);
        let mut found = Vec::new();
        for tree in self.trees() {
            // Templates with the same content share a tree.
            let shared = current.values().any(|digest| *digest == tree.digest);
            if counts(&tree.template) && !shared {
                found.push((OutdatedKind::Tree, tree.template, tree.digest, tree.size_bytes));
            }
        }
        let disks = self.disks();
        for disk in &disks {
            let info = &disk.info;
            let replaced = disks.iter().any(|other| is_same_kind(disk, other) && made(other) > made(disk));
            if counts(&info.template) && (replaced || !is_current(&info.template, &info.rootfs)) {
                found.push((OutdatedKind::Disk, info.template.clone(), info.digest.clone(), disk_size(&disk.directory)));
            }
        }
        found.sort();
        let count = |(kind, template, digest, size_bytes): (OutdatedKind, String, String, u64)| {
            let users = self.store.users_of(&digest)?.len();
            Ok(Outdated { kind, template, digest, size_bytes, users })
        };
        found.into_iter().map(count).collect()
    }

    /// Removes something outdated, unless somebody uses it by now.
    pub fn remove_outdated(&self, outdated: &Outdated) -> Result<()> {
        let Outdated { kind, template, digest, .. } = outdated;
        match kind {
            OutdatedKind::Tree => {
                self.refuse_used(&format!("an older tree of the template {template}"), digest)?;
                let Some(path) = self.store.tree(digest).filter(|path| path.is_dir()) else { return Ok(()) };
                self.store.remove(&Rootfs { template: template.clone(), path, digest: digest.clone() })
            }
            OutdatedKind::Disk => {
                self.refuse_used(&format!("an older disk of the template {template}"), digest)?;
                self.disks().iter().filter(|disk| disk.info.digest == *digest).try_for_each(|disk| self.remove_disk(disk))
            }
        }
    }
}

fn is_same_kind(one: &Disk, other: &Disk) -> bool {
    let kind = |disk: &Disk| (disk.info.template.clone(), disk.info.format, disk.info.size_bytes);
    kind(one) == kind(other)
}

fn made(disk: &Disk) -> SystemTime {
    let description = std::fs::metadata(disk.directory.join("disk.json"));
    description.and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Built;

    /// A tree with nothing in it, as a build would have left it.
    fn tree(library: &Library, template: &str, digest: &str, inputs: &str) {
        let made = tempfile::tempdir_in(library.directory().join("work")).unwrap().keep();
        let built = Built {
            template: template.into(),
            digest: digest.into(),
            inputs: inputs.into(),
            suite: "bookworm".into(),
            packages: 0,
            size_bytes: 10,
            seconds: 0,
        };
        library.store.complete(&made, "", &built).unwrap();
    }

    fn digests(library: &Library, unknown: bool) -> Vec<(String, usize)> {
        library.outdated(unknown).unwrap().into_iter().map(|one| (one.digest[..2].to_owned(), one.users)).collect()
    }

    #[test]
    fn trees_of_changed_templates_go_unless_somebody_needs_them() {
        let (images, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(own.path().join("mine.toml"), "suite = \"bookworm\"\npackages = [\"hello\"]\n").unwrap();
        let library = Library::open(images.path()).unwrap().with_templates(own.path());
        let digest = |word: &str| word.repeat(32);
        tree(&library, "mine", &digest("a0"), &library.plan("mine").unwrap().inputs);
        tree(&library, "mine", &digest("b0"), "before");
        tree(&library, "mine", &digest("c0"), "long before");
        tree(&library, "another's", &digest("d0"), "whatever");
        assert_eq!(digests(&library, false), [("b0".into(), 0), ("c0".into(), 0)]);
        assert_eq!(digests(&library, true), [("d0".into(), 0), ("b0".into(), 0), ("c0".into(), 0)]);

        let fleet = tempfile::tempdir().unwrap();
        std::fs::write(fleet.path().join("snapshot.json"), format!("{{\"tree\": \"{}\"}}", digest("c0"))).unwrap();
        library.add_user(fleet.path()).unwrap();
        let outdated = library.outdated(false).unwrap();
        assert_eq!(digests(&library, false), [("b0".into(), 0), ("c0".into(), 1)]);
        library.remove_outdated(&outdated[0]).unwrap();
        let refusal = library.remove_outdated(&outdated[1]).unwrap_err().to_string();
        assert!(refusal.contains("in use: one is built on it") && refusal.contains("snapshot.json"), "{refusal}");
        drop(fleet);
        library.remove_outdated(&outdated[1]).unwrap();
        assert!(library.outdated(false).unwrap().is_empty());
        assert_eq!(library.rootfs("mine").unwrap().digest, digest("a0"), "what is current stays");
    }
}
