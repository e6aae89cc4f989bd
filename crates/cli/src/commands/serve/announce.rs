//! What the fleet leaves in its data directory for others: its name, and where it is while it runs.

use crate::failure::{Failure, Outcome};
use hotdesk_client::Serve;
use hotdesk_gateway::Gateway;
use rand::RngExt;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Letters that are not taken for others.
const LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyz23456789";
const NAME_LENGTH: usize = 8;

/// The data directory holds keys and the desks' files, so it is nobody else's.
pub(crate) fn make_directory(data: &Path) -> Outcome<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(|e| {
        Failure::local(format!("the data directory {} can't be made: {e}", data.display()))
            .hint("choose another one with --data DIR")
    })
}

/// The name of the fleet among others of this machine; made once.
pub(super) fn fleet_name(data: &Path) -> Outcome<String> {
    let path = data.join("fleet-id");
    let failed = |e: &dyn std::fmt::Display| Failure::local(format!("{} can't be used: {e}", path.display()));
    if !path.exists() {
        let mut random = rand::rng();
        let name: String = (0..NAME_LENGTH).map(|_| LETTERS[random.random_range(..LETTERS.len())] as char).collect();
        // Linked into place: two that start at once agree on the first one's.
        let own = data.join(format!(".fleet-id.{}", std::process::id()));
        std::fs::write(&own, format!("{name}\n")).map_err(|e| failed(&e))?;
        let linked = std::fs::hard_link(&own, &path);
        let _ = std::fs::remove_file(&own);
        match linked {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(&e)),
            _ => {}
        }
    }
    let name = std::fs::read_to_string(&path).map_err(|e| failed(&e))?.trim().to_owned();
    let good = name.len() == NAME_LENGTH && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    match good {
        true => Ok(name),
        false => Err(failed(&format!("it should hold {NAME_LENGTH} small letters and digits"))),
    }
}

/// `serve.json`, there while the fleet is served.
pub(super) struct Announcement {
    path: PathBuf,
    serve: Serve,
}

impl Announcement {
    pub(super) fn write(data: &Path, gateway: &Gateway, socket: Option<&Path>) -> Outcome<Self> {
        let first = || gateway.addresses().next().map(ToString::to_string).unwrap_or_default();
        let url = match socket {
            Some(path) => format!("unix:{}", path.display()),
            None => gateway.url().unwrap_or_else(first),
        };
        let serve = Serve { url, pid: std::process::id(), version: env!("CARGO_PKG_VERSION").into() };
        let path = Serve::file(data);
        let part = data.join(format!(".serve.json.{}", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&part)?;
            file.write_all(&serde_json::to_vec_pretty(&serve)?)?;
            std::fs::rename(&part, &path)
        };
        write().map_err(|e| Failure::local(format!("{} can't be written: {e}", path.display())))?;
        Ok(Self { path, serve })
    }

    pub(super) fn url(&self) -> &str {
        &self.serve.url
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Not that of another one that came after us.
        let own = std::fs::read(&self.path).ok().and_then(|text| serde_json::from_slice::<Serve>(&text).ok());
        if own.is_some_and(|own| own.pid == self.serve.pid) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once() {
        let data = tempfile::tempdir().unwrap();
        let name = fleet_name(data.path()).unwrap();
        assert_eq!(name.len(), NAME_LENGTH);
        assert_eq!(fleet_name(data.path()).unwrap(), name);
        assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1);
        std::fs::write(data.path().join("fleet-id"), "../../x").unwrap();
        assert!(fleet_name(data.path()).is_err());
    }
}
