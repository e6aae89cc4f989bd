//! Stopped desks in object storage: streamed, checked, and back.
//!
//! ```text
//!   save     provider.export ─► pipe ─► zstd, sealed chunks ─► SHA-256 ─► parts of 8 MiB ─► upload, a few at a time ─► made visible as a whole
//!   restore  object ─► SHA-256, length ─► seals ─► zstd ─► pipe ─► provider.import
//! ```
//!
//! Memory is constant, whatever the size of the desk. An upload becomes visible only when the provider has said that its
//! export was complete; anything else aborts it.
//!
//! Whoever can write to the bucket must not feed the provider, which unpacks as root. So every chunk is sealed with a key of the fleet and
//! checked before any of it is passed on ([`chunks`]); archives without seals, of older versions, are fetched whole and compared with the
//! hash in the record first. The last piece is passed on only after the whole was found good, and a desk that was made of a bad archive is
//! removed before anybody can use it.
//!
//! An upload whose process was killed can't be aborted by it. In a directory [`Archives::sweep`] removes what is left; a bucket wants a
//! life-cycle rule that ends incomplete multipart uploads after a day (`AbortIncompleteMultipartUpload`).

mod chunks;
mod place;
mod read;
mod through;
mod write;

use crate::error::{Error, Result};
use crate::store::ArchiveRef;
use hotdesk_provider::{DeskSpec, Provider};
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Key;
use place::Place;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;

/// Where archives are kept. Cheap to clone.
#[derive(Clone)]
pub struct Archives {
    place: Arc<Place>,
    /// What chunks are sealed with. Without it they are not.
    key: Option<[u8; 32]>,
    /// Where archives without seals are kept while they are checked.
    checks: PathBuf,
}

impl Archives {
    /// At a directory (made if it is not there), `s3://bucket/prefix` or `gs://bucket/prefix`. A bucket's settings come from the usual
    /// variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` …, `GOOGLE_SERVICE_ACCOUNT` …
    pub fn open(location: &str) -> Result<Self> {
        Self::open_with(location, std::env::vars())
    }

    /// With variables of its own.
    pub fn open_with(location: &str, variables: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let place = Place::open(location, variables.into_iter().collect())?;
        Ok(Self { place: Arc::new(place), key: None, checks: std::env::temp_dir() })
    }

    /// Seals what is written from now on, and reads what was sealed with this key. Archives without seals are checked in `checks`.
    #[must_use]
    pub fn sealed(self, key: Option<[u8; 32]>, checks: PathBuf) -> Self {
        Self { key, checks, ..self }
    }

    /// Writes what it reads, until its end; an error of the reader aborts the upload and leaves nothing behind.
    pub async fn put(&self, desk: &str, reader: impl AsyncRead + Send + Unpin + 'static) -> Result<ArchiveRef> {
        write::put(&self.place, self.key.as_ref(), desk, reader).await
    }

    /// Reads an archive. The reader ends with an error instead of an end if it was not the one that was written.
    pub async fn get(&self, archive: &ArchiveRef) -> Result<impl AsyncRead + Send + Unpin + use<>> {
        let (place, key) = self.find(archive)?;
        read::get(&place, key, archive, self.key.as_ref(), &self.checks).await
    }

    /// An archive that is gone already is no error.
    pub async fn delete(&self, archive: &ArchiveRef) -> Result<()> {
        let (place, key) = self.find(archive)?;
        match place.store.delete(&key).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            other => other.map_err(|e| fault(&archive.location, e)),
        }
    }

    /// Archives a stopped desk. The desk itself stays as it is.
    pub async fn save(&self, provider: &Arc<dyn Provider>, desk: &str) -> Result<ArchiveRef> {
        self.put(desk, through::export(provider.clone(), desk).await?).await
    }

    /// Makes a stopped desk of an archive. Of a bad archive nothing is left.
    pub async fn restore(&self, archive: &ArchiveRef, provider: &Arc<dyn Provider>, spec: &DeskSpec) -> Result<()> {
        let reader = self.get(archive).await?;
        let result = through::import(provider, spec, reader).await;
        if result.is_err()
            && let Err(error) = provider.delete(&spec.id).await
        {
            tracing::warn!(desk = spec.id, %error, "what a failed restore made could not be removed");
        }
        result
    }

    /// Removes archives and remains of uploads that nobody knows and that are older than `age`, which must be longer than an upload
    /// takes. Returns how many.
    pub async fn sweep(&self, keep: &[ArchiveRef], age: Duration) -> Result<usize> {
        self.place.sweep(keep, age).await
    }

    /// The place and the key of an archive; it may have been written when the settings named another place.
    fn find(&self, archive: &ArchiveRef) -> Result<(Arc<Place>, Key)> {
        if let Some(key) = self.place.key_of(&archive.location) {
            return Ok((self.place.clone(), key));
        }
        let gone = || Error::Invalid(format!("{} is no place of an archive", archive.location));
        let (folder, _) = archive.location.rsplit_once('/').ok_or_else(gone)?;
        let place = Place::open_existing(folder, self.place.variables.clone())?;
        let key = place.key_of(&archive.location).ok_or_else(gone)?;
        Ok((Arc::new(place), key))
    }
}

/// The name of an archive below the place where all are kept: that may move.
fn named(location: &str) -> &str {
    location.rmatch_indices('/').nth(1).map_or(location, |(at, _)| &location[at + 1..])
}

fn fault(location: &str, error: object_store::Error) -> Error {
    match error {
        object_store::Error::NotFound { .. } => {
            Error::Provider(hotdesk_provider::Error::NotFound(format!("the archive {location} is gone")))
        }
        error => Error::Provider(hotdesk_provider::Error::Unavailable {
            provider: "the archive",
            reason: format!("{location}: {error}"),
        }),
    }
}

fn failed(words: String) -> Error {
    Error::Provider(hotdesk_provider::Error::Failed(words))
}

#[cfg(test)]
mod tests;
