//! The lock file: the exact version of every package of a tree.

use crate::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Packages of a tree by name, with version and architecture. One line each, sorted, so that two can be compared by eye:
///
/// ```text
/// xvfb 2:21.1.7-3+deb12u10 amd64
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageLock(BTreeMap<String, (String, String)>);

impl PackageLock {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn version(&self, package: &str) -> Option<&str> {
        self.0.get(package).map(|(version, _)| version.as_str())
    }

    /// Name and version of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, (version, _))| (name.as_str(), version.as_str()))
    }

    /// Reads dpkg's own list (`var/lib/dpkg/status`).
    pub(crate) fn of_status(status: &str) -> Self {
        let mut packages = BTreeMap::new();
        for stanza in status.split("\n\n") {
            let field = |name: &str| {
                stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(|value| value.trim().to_owned())
            };
            if let (Some(package), Some(version), Some(architecture), Some(state)) =
                (field("Package"), field("Version"), field("Architecture"), field("Status"))
                && state == "install ok installed"
            {
                packages.insert(package, (version, architecture));
            }
        }
        Self(packages)
    }
}

impl fmt::Display for PackageLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, (version, architecture))| writeln!(f, "{name} {version} {architecture}"))
    }
}

impl FromStr for PackageLock {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut packages = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, version, architecture] = words[..] else {
                return Err(Error::Invalid(format!("lock file: `{line}` is not `PACKAGE VERSION ARCHITECTURE`")));
            };
            packages.insert(name.to_owned(), (version.to_owned(), architecture.to_owned()));
        }
        Ok(Self(packages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpkgs_list_becomes_a_lock_and_back() {
        let status = "Package: b\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2-3\nDescription: x\n Version: 9\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n\
                      Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 4\n";
        let lock = PackageLock::of_status(status);
        assert_eq!(lock.to_string(), "a 4 all\nb 1:2-3 amd64\n");
        assert_eq!(lock.to_string().parse::<PackageLock>().unwrap(), lock);
        assert_eq!(lock.version("b"), Some("1:2-3"));
        assert!("one two".parse::<PackageLock>().is_err());
    }
}
