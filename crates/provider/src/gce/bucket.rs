//! The bucket that images are imported from.

use super::api::Api;
use super::config::Config;
use crate::{Error, Result};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder};
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStoreExt as _, WriteMultipart};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// One part goes through even a slow line in this time.
const REQUEST: Duration = Duration::from_secs(300);
const CONNECT: Duration = Duration::from_secs(10);
/// What goes up in one request, and how many at a time.
const PART: usize = 16 << 20;
const AT_ONCE: usize = 4;

pub(super) struct Bucket {
    store: GoogleCloudStorage,
    endpoint: String,
    name: String,
}

impl Bucket {
    pub(super) async fn open(api: &Api, config: &Config, name: &str) -> Result<Self> {
        let options = ClientOptions::new()
            .with_timeout(REQUEST)
            .with_connect_timeout(CONNECT)
            .with_allow_http(config.storage_endpoint.starts_with("http://"));
        let store = GoogleCloudStorageBuilder::new()
            .with_bucket_name(name)
            .with_base_url(&config.storage_endpoint)
            .with_client_options(options)
            .with_credentials(Arc::clone(api.credentials().await?))
            .build()
            .map_err(|e| Error::Failed(format!("the bucket {name} can't be used: {e}")))?;
        Ok(Self { store, endpoint: config.storage_endpoint.clone(), name: name.to_owned() })
    }

    /// Uploads a file, unless it is there already.
    pub(super) async fn upload(&self, file: &Path, object: &str, sent: impl Fn(u64)) -> Result<()> {
        let key = Key::from(object);
        let broken = |e: object_store::Error| Error::Failed(format!("the upload to gs://{}/{object} failed: {e}", self.name));
        let unread = |e: std::io::Error| Error::Failed(format!("{} can't be read: {e}", file.display()));
        let mut input = tokio::fs::File::open(file).await.map_err(unread)?;
        let size = input.metadata().await.map_err(unread)?.len();
        match self.store.head(&key).await {
            Ok(there) if there.size == size => return Ok(()),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(e) => return Err(broken(e)),
        }
        let upload = self.store.put_multipart(&key).await.map_err(broken)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        loop {
            let count = input.read(&mut buffer).await.map_err(unread)?;
            if count == 0 {
                break;
            }
            upload.wait_for_capacity(AT_ONCE).await.map_err(broken)?;
            upload.write(&buffer[..count]);
            done += count as u64;
            sent(done);
        }
        upload.finish().await.map(drop).map_err(broken)
    }

    pub(super) async fn remove(&self, object: &str) -> Result<()> {
        match self.store.delete(&Key::from(object)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(Error::Failed(format!("gs://{}/{object} was not removed: {e}", self.name))),
        }
    }

    /// As an import names it.
    pub(super) fn url(&self, object: &str) -> String {
        format!("{}/{}/{object}", self.endpoint.trim_end_matches('/'), self.name)
    }
}
