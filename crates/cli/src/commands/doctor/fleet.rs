//! What a fleet needs: places where desks can live, and what they are made of.

use super::{Check, DoctorArgs, Section};
use crate::commands::serve::{self, Kind};
use crate::places;
use hotdesk_image::Library;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Room for a template and a few desks.
const SMALLEST_DISK: u64 = 4 << 30;

pub(super) async fn examine(args: &DoctorArgs) -> Section {
    let (data, images) = (places::data(args.data.as_deref()), places::images(args.images.as_deref()));
    let mut checks = vec![room(&data), builder(), templates(&images), database()];
    let mut usable = false;
    for kind in [Kind::Local, Kind::Docker, Kind::Qemu] {
        let (works, found) = provider(kind, &data).await;
        usable |= works;
        checks.extend(found);
    }
    Section { ok: usable && checks.iter().all(|check| check.ok || !check.needed), checks }
}

/// The file system that the data directory is on, or will be.
fn room(data: &Path) -> Check {
    let mut at = data;
    while !at.exists() {
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    let writable = rustix::fs::access(at, rustix::fs::Access::WRITE_OK).is_ok();
    let free = rustix::fs::statvfs(at).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize)).unwrap_or(0);
    let ok = writable && free >= SMALLEST_DISK;
    let found = match writable {
        true => format!("{}, {} free", data.display(), crate::text::size(free)),
        false => format!("{} can't be written", at.display()),
    };
    Check {
        name: "data directory".into(),
        purpose: "desks, keys and the database".into(),
        needed: !writable,
        ok,
        found: Some(found),
        fix: (!ok).then(|| "hotdesk serve --data DIR (a directory on a disk with more than 4 GiB free)".to_owned()),
    }
}

fn builder() -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("mmdebstrap")).find(|file| file.is_file());
    Check {
        name: "mmdebstrap".into(),
        purpose: "builds templates".into(),
        needed: false,
        ok: found.is_some(),
        fix: found.is_none().then(|| "apt-get install -y mmdebstrap".to_owned()),
        found: found.map(|path| path.display().to_string()),
    }
}

fn templates(images: &Path) -> Check {
    // Opening makes the directory, and looking should change nothing.
    let library = if images.is_dir() { Library::open(images).ok() } else { None };
    let built: Vec<String> =
        library.iter().flat_map(|library| library.names().into_iter().filter(|name| library.rootfs(name).is_ok())).collect();
    Check {
        name: "templates".into(),
        purpose: "what desks are made of".into(),
        needed: false,
        ok: !built.is_empty(),
        found: Some(match built.is_empty() {
            true => format!("none is built in {}", images.display()),
            false => format!("{} in {}", built.join(", "), images.display()),
        }),
        fix: built.is_empty().then(|| "hotdesk template build base (hotdesk up does it by itself)".to_owned()),
    }
}

/// Nothing is missing without it.
fn database() -> Check {
    let named = std::env::var("HOTDESK_STORE").is_ok_and(|store| store.starts_with("postgres"));
    Check {
        name: "database".into(),
        purpose: "what the fleet remembers".into(),
        needed: false,
        ok: true,
        found: Some(match named {
            true => "PostgreSQL, as HOTDESK_STORE says".into(),
            false => {
                "SQLite in the data directory, for one orchestrator; several need PostgreSQL: hotdesk serve --store URL".into()
            }
        }),
        fix: None,
    }
}

/// Whether desks can live there, and what was found.
async fn provider(kind: Kind, data: &Path) -> (bool, Vec<Check>) {
    let name = kind.name();
    let found = match scratch(data) {
        Ok(folder) => match Library::open(folder.path().join("images")) {
            Ok(library) => serve::check(kind, folder.path(), &Arc::new(library)).await,
            Err(e) => Err(e.to_string()),
        },
        Err(e) => Err(e.to_string()),
    };
    let check = |what: &str, needed: bool, ok: bool, found: String, fix: Option<String>| Check {
        name: if what.is_empty() { name.to_owned() } else { format!("{name}: {what}") },
        purpose: String::new(),
        needed,
        ok,
        found: Some(found),
        fix,
    };
    match found {
        Err(why) => {
            let fix = match kind {
                Kind::Local => "hotdesk serve --data DIR (a directory that can be written)",
                Kind::Docker => "apt-get install -y docker.io && systemctl start docker (only if desks should be containers)",
                Kind::Daytona | Kind::E2b => "hotdesk provider check NAME tells more",
                Kind::Kubernetes => "set kubeconfig and context in the table [kubernetes] of hotdesk.toml",
                Kind::Qemu => "apt-get install -y qemu-system-x86 qemu-utils (only if desks should be virtual machines)",
                Kind::Gce => "set project in [gce]; see docs/provider-gce.md (only if desks should be at Google)",
            };
            (false, vec![check("", false, false, why, Some(fix.to_owned()))])
        }
        Ok(found) => {
            // The first one is what everything else stands on.
            let works = found.first().is_none_or(|first| first.good);
            let needed = |place: usize| place == 0 && kind == Kind::Local;
            let lines = found.into_iter().enumerate();
            (works, lines.map(|(place, line)| check(&line.what, needed(place), line.good, line.detail, line.fix)).collect())
        }
    }
}

/// A place on the disk that a fleet would use, for a moment.
fn scratch(data: &Path) -> std::io::Result<tempfile::TempDir> {
    let folder: PathBuf = if data.is_dir() { data.into() } else { std::env::temp_dir() };
    let prefix = tempfile::Builder::new().prefix(".doctor-").tempdir_in(folder);
    prefix.or_else(|_| tempfile::Builder::new().prefix("hotdesk-doctor-").tempdir())
}
