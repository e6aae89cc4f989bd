//! A directory or a bucket.

use super::{Error, Key, Result, fault};
use crate::store::ArchiveRef;
use futures_util::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt as _};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// One part goes through even a slow line in this time; a connection that stands still is given up.
const REQUEST: Duration = Duration::from_secs(300);
const CONNECT: Duration = Duration::from_secs(10);

/// What we write is called so; nothing else is ever removed.
const ENDING: &str = ".tar.zst";

pub(super) struct Place {
    pub store: Box<dyn ObjectStore>,
    /// With which locations begin; ends with a slash.
    root: String,
    prefix: Key,
    pub directory: Option<PathBuf>,
    pub variables: BTreeMap<String, String>,
}

impl Place {
    pub(super) fn open(location: &str, variables: BTreeMap<String, String>) -> Result<Self> {
        if !location.contains("://") {
            let path = Path::new(location);
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|e| Error::Invalid(format!("archives can't be kept in {location}: {e}")))?;
        }
        Self::open_existing(location, variables)
    }

    pub(super) fn open_existing(location: &str, variables: BTreeMap<String, String>) -> Result<Self> {
        let bad = |why: &dyn std::fmt::Display| Error::Invalid(format!("archives can't be kept at {location}: {why}"));
        if !location.contains("://") {
            let path = Path::new(location).canonicalize().map_err(|e| bad(&e))?;
            let root = format!("{}/", path.to_str().ok_or_else(|| bad(&"its name is no UTF-8"))?.trim_end_matches('/'));
            let store = LocalFileSystem::new_with_prefix(&path).map_err(|e| bad(&e))?;
            let store = Box::new(store.with_automatic_cleanup(true).with_fsync(true));
            return Ok(Self { store, root, prefix: Key::default(), directory: Some(path), variables });
        }
        // An error says that one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (scheme, rest) = location.split_once("://").unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(bad(&"it names no bucket"));
        }
        let options = ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(CONNECT);
        let store: Box<dyn ObjectStore> = match scheme {
            "s3" | "s3a" => {
                let mut builder = AmazonS3Builder::new();
                let mut http = false;
                for (name, value) in &variables {
                    let name = name.to_ascii_lowercase();
                    if let Some(key) = name.starts_with("aws_").then(|| name.parse().ok()).flatten() {
                        builder = builder.with_config(key, value);
                        http |= name.starts_with("aws_endpoint") && value.starts_with("http://");
                    }
                }
                let options = options.with_allow_http(http);
                Box::new(builder.with_client_options(options).with_bucket_name(bucket).build().map_err(|e| bad(&e))?)
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::new();
                for (name, value) in &variables {
                    let name = name.to_ascii_lowercase();
                    if let Some(key) = name.starts_with("google_").then(|| name.parse().ok()).flatten() {
                        builder = builder.with_config(key, value);
                    }
                }
                Box::new(builder.with_client_options(options).with_bucket_name(bucket).build().map_err(|e| bad(&e))?)
            }
            other => return Err(bad(&format!("{other}:// is not known; use a directory, s3:// or gs://"))),
        };
        let prefix = Key::parse(prefix.trim_matches('/')).map_err(|e| bad(&e))?;
        let root = match prefix.as_ref() {
            "" => format!("{scheme}://{bucket}/"),
            prefix => format!("{scheme}://{bucket}/{prefix}/"),
        };
        Ok(Self { store, root, prefix, directory: None, variables })
    }

    /// A new key for a desk, and the location that is written down.
    pub(super) fn new_key(&self, desk: &str, sealed: bool) -> (Key, String) {
        let ending = if sealed { super::chunks::ENDING } else { ENDING };
        let name = format!("{}{ending}", uuid::Uuid::now_v7().simple());
        let location = format!("{}{desk}/{name}", self.root);
        (self.prefix.clone().join(desk).join(name), location)
    }

    pub(super) fn key_of(&self, location: &str) -> Option<Key> {
        let rest = Key::parse(location.strip_prefix(&self.root)?).ok()?;
        Some(self.prefix.parts().chain(rest.parts()).collect())
    }

    /// A desk's files are for its owner alone; the store would make the folder as the umask says.
    pub(super) fn make_folder(&self, desk: &str) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let made = std::fs::DirBuilder::new().mode(0o700).create(directory.join(desk));
        match made {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Error::Invalid(format!("archives can't be kept in {}: {e}", directory.display())))
            }
            _ => Ok(()),
        }
    }

    /// After an upload that came to nothing.
    pub(super) fn remove_folder(&self, desk: &str) {
        if let Some(directory) = &self.directory {
            // Not if there is something in it.
            let _ = std::fs::remove_dir(directory.join(desk));
        }
    }

    pub(super) async fn sweep(&self, keep: &[ArchiveRef], age: Duration) -> Result<usize> {
        let end = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let keep: HashSet<_> = keep.iter().filter_map(|archive| self.key_of(&archive.location)).collect();
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let old: Vec<_> = self.store.list(prefix).try_collect().await.map_err(|e| fault(&self.root, e))?;
        let mut gone = 0;
        for object in old {
            let ours = object.location.as_ref().ends_with(ENDING) && !keep.contains(&object.location);
            if ours && SystemTime::from(object.last_modified) < end {
                self.store.delete(&object.location).await.map_err(|e| fault(object.location.as_ref(), e))?;
                gone += 1;
            }
        }
        let directory = self.directory.clone();
        let swept = tokio::task::spawn_blocking(move || {
            super::through::sweep();
            directory.map_or(Ok(0), |directory| remains(&directory, end))
        });
        let swept = swept.await.map_err(std::io::Error::other).flatten();
        gone += swept.map_err(|e| super::failed(format!("{}: {e}", self.root)))?;
        Ok(gone)
    }
}

/// What the store left of uploads whose process was killed: `NAME.tar.zst#1`. It does not list them.
fn remains(directory: &Path, end: SystemTime) -> std::io::Result<usize> {
    let mut gone = 0;
    for folder in std::fs::read_dir(directory)? {
        let folder = folder?;
        if !folder.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder.path())? {
            let file = file?;
            let name = file.file_name();
            let remains = name.to_string_lossy().rsplit_once('#').is_some_and(|(name, _)| name.ends_with(ENDING));
            if remains && file.metadata()?.modified()? < end {
                std::fs::remove_file(file.path())?;
                gone += 1;
            }
        }
        // Not if there is something in it.
        let _ = std::fs::remove_dir(folder.path());
    }
    Ok(gone)
}
