//! The templates that come with the program.

/// Name and text of each.
pub(crate) const TEMPLATES: &[(&str, &str)] = &[
    ("bare", include_str!("../../../../templates/bare.toml")),
    ("base", include_str!("../../../../templates/base.toml")),
    ("code", include_str!("../../../../templates/code.toml")),
    ("desktop", include_str!("../../../../templates/desktop.toml")),
    ("office", include_str!("../../../../templates/office.toml")),
    ("openmanus", include_str!("../../../../templates/openmanus.toml")),
    ("osworld", include_str!("../../../../templates/osworld.toml")),
    ("vm", include_str!("../../../../templates/vm.toml")),
];

/// What lies beside them, by the names that they use as `source`.
const FILES: &[(&str, &[u8])] = &[
    ("office/registrymodifications.xcu", include_bytes!("../../../../templates/office/registrymodifications.xcu")),
    ("openmanus/browser", include_bytes!("../../../../templates/openmanus/browser")),
    ("osworld/registrymodifications.xcu", include_bytes!("../../../../templates/osworld/registrymodifications.xcu")),
];

/// The bytes of a file beside a shipped template.
pub(crate) fn file(source: &str) -> Option<Vec<u8>> {
    FILES.iter().find(|(name, _)| *name == source).map(|(_, bytes)| bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use crate::Template;

    fn all() -> Vec<Template> {
        let directory = tempfile::tempdir().unwrap();
        let library = crate::Library::open(directory.path()).unwrap();
        super::TEMPLATES.iter().map(|(name, _)| library.template(name).unwrap()).collect()
    }

    #[test]
    fn each_can_be_read() {
        for template in all() {
            assert!(!template.description.is_empty(), "{} describes itself", template.name);
            assert!(!template.checks.is_empty(), "{} checks itself", template.name);
            for file in &template.files {
                assert!(file.link.is_some() || !file.bytes().is_empty(), "{}: {} is not empty", template.name, file.path);
            }
        }
    }

    #[test]
    fn what_lies_beside_a_template_is_used() {
        let used: Vec<String> = all().into_iter().flat_map(|template| template.files).filter_map(|file| file.source).collect();
        for (name, _) in super::FILES {
            // A younger template's file may have taken its place, but its own template has it.
            assert!(used.iter().any(|source| source == name), "{name} is used by a template");
        }
    }

    #[test]
    fn the_distribution_has_their_packages() {
        let mut wanted: Vec<String> = all().into_iter().flat_map(|template| template.packages).collect();
        wanted.sort();
        wanted.dedup();
        let output = std::process::Command::new("apt-cache").args(["show", "--no-all-versions"]).args(&wanted).output().unwrap();
        let known = String::from_utf8_lossy(&output.stdout).into_owned();
        let known: Vec<&str> = known.lines().filter_map(|line| line.strip_prefix("Package: ")).collect();
        assert!(!known.is_empty(), "apt knows no package here; `apt-get update` must work first");
        let missing: Vec<&String> = wanted.iter().filter(|name| !known.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "the distribution does not have {missing:?}");
    }
}
