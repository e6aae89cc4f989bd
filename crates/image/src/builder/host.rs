//! What the host is and has.

use crate::{Error, Result};
use std::path::Path;

/// Programs that a build starts, and the package that has each.
const TOOLS: [(&str, &str); 3] = [("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux"), ("tar", "tar")];

/// The code name of the host's release.
pub(crate) fn suite() -> Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    field(&text, "VERSION_CODENAME").ok_or_else(|| {
        Error::Invalid("the host's release has no code name in /etc/os-release; say `suite = \"…\"` in the template".into())
    })
}

fn field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
}

/// Whether everything that a build starts is installed.
pub(super) fn tools() -> Result<()> {
    let missing: Vec<&str> = TOOLS.iter().filter(|(tool, _)| !on_path(tool)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    Err(Error::Failed(format!("building a template needs {list}, which is not installed; `apt-get install {list}` installs it")))
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([Path::new("/usr/sbin").into()]).any(|directory| directory.join(tool).is_file())
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    #[test]
    fn release_files_are_read() {
        let text = "NAME=\"X\"\nVERSION_CODENAME=bookworm\nUBUNTU_CODENAME=\"jammy\"\n";
        assert_eq!(super::field(text, "VERSION_CODENAME").as_deref(), Some("bookworm"));
        assert_eq!(super::field(text, "UBUNTU_CODENAME").as_deref(), Some("jammy"));
        assert_eq!(super::field("VERSION_CODENAME=", "VERSION_CODENAME"), None);
    }
}
