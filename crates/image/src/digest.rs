//! Names for content.

use crate::builder;
use crate::template::Template;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Names what goes into a build: the whole template with the bytes of its files, the suite, the architecture, and
/// versions of packages that were prescribed.
pub(crate) fn inputs(template: &Template, suite: &str, prescribed: Option<&str>) -> String {
    let mut hash = Sha256::new();
    let mut part = |name: &str, bytes: &[u8]| {
        // Length first, so that no two lists of parts read the same.
        hash.update(format!("{name} {}\n", bytes.len()));
        hash.update(bytes);
    };
    // What the builder does to every tree: a new one must not take old trees for its own.
    builder::recipe().for_each(|text| part("recipe", text.as_bytes()));
    part("architecture", std::env::consts::ARCH.as_bytes());
    part("suite", suite.as_bytes());
    // Description and ports change nothing in the tree.
    let plain = Template {
        description: String::new(),
        extends: None,
        ports: Vec::new(),
        resources: None,
        root: false,
        keep_tmp: false,
        ..template.clone()
    };
    part("template", serde_json::to_vec(&plain).unwrap_or_default().as_slice());
    for file in &template.files {
        part(&file.path, file.bytes());
    }
    part("prescribed", prescribed.unwrap_or_default().as_bytes());
    hex(&hash.finalize())
}

/// Names a tree: what went in, and the versions that came out.
pub(crate) fn tree(inputs: &str, lock: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(inputs);
    hash.update("\n");
    hash.update(lock);
    hex(&hash.finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_tree_changes_the_name() {
        let parse = |text: &str| Template::parse("t", text, None).unwrap();
        let plain = inputs(&parse("packages = ['ab']"), "s", None);
        assert_eq!(plain.len(), 64);
        assert_eq!(plain, inputs(&parse("packages = ['ab']\ndescription = 'words'\nports = [9222]"), "s", None));
        for other in [
            inputs(&parse("packages = ['ac']"), "s", None),
            inputs(&parse("packages = ['ab']"), "z", None),
            inputs(&parse("packages = ['ab']"), "s", Some("ab=1")),
            inputs(&parse("packages = ['ab']\n[env]\nA = ''"), "s", None),
            inputs(&parse("packages = ['ab']\n[[files]]\npath = '/a'\ncontent = ''"), "s", None),
        ] {
            assert_ne!(plain, other);
        }
        assert_ne!(tree(&plain, "ab 1"), tree(&plain, "ab 2"));
    }
}
