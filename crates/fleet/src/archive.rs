//! Stopped desks in object storage: streamed, checksummed, and back.
//!
//! ```text
//!   save     provider.export ─► pipe ─► zstd ─► SHA-256 ─► parts of 8 MiB ─► upload, a few at a time ─► made visible as a whole
//!   restore  object ─► SHA-256, length ─► zstd ─► pipe ─► provider.import
//! ```
//!
//! Memory is constant, whatever the size of the desk. An upload becomes visible only when the provider has said that its
//! export was complete; anything else aborts it. What comes back is compared with the length and the hash in the record:
//! the last piece of an archive is passed on only after the whole was found good, and a desk that was made of a bad one is removed
//! before anybody can use it.
//!
//! An upload whose process was killed can't be aborted by it. In a directory [`Archives::sweep`] removes what is left; a bucket wants a
//! life-cycle rule that ends incomplete multipart uploads after a day (`AbortIncompleteMultipartUpload`).

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
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;

/// Where archives are kept. Cheap to clone.
#[derive(Clone)]
pub struct Archives {
    place: Arc<Place>,
}

impl Archives {
    /// At a directory (made if it is not there), `s3://bucket/prefix` or `gs://bucket/prefix`. A bucket's settings come from the usual
    /// variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` …, `GOOGLE_SERVICE_ACCOUNT` …
    pub fn open(location: &str) -> Result<Self> {
        Self::open_with(location, std::env::vars())
    }

    /// With variables of its own.
    pub fn open_with(location: &str, variables: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        Ok(Self { place: Arc::new(Place::open(location, variables.into_iter().collect())?) })
    }

    /// Writes what it reads, until its end; an error of the reader aborts the upload and leaves nothing behind.
    pub async fn put(&self, desk: &str, reader: impl AsyncRead + Send + Unpin + 'static) -> Result<ArchiveRef> {
        write::put(&self.place, desk, reader).await
    }

    /// Reads an archive. The reader ends with an error instead of an end if it was not the one that was written.
    pub async fn get(&self, archive: &ArchiveRef) -> Result<impl AsyncRead + Send + Unpin + use<>> {
        let (place, key) = self.find(archive)?;
        read::get(&place, key, archive).await
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
