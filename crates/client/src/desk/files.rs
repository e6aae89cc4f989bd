//! Files of a desk, streamed both ways.

use super::Desk;
use crate::error::reason;
use crate::{Error, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use hotdesk_api::file::{DeleteFile, FileInfo, FileList, ListFiles, MakeDirectory, MoveFile, Unpacked, WriteFile, Written};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use std::io;

/// A file or an archive on its way to us.
pub struct Download {
    pub(super) answer: reqwest::Response,
}

impl Download {
    /// Bytes, where the desk knows it beforehand.
    pub fn size(&self) -> Option<u64> {
        self.answer.content_length()
    }

    /// The next piece; `None` at the end. An end that came too early is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        self.answer.chunk().await.map_err(|e| Error::Broken(reason(&e)))
    }

    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        self.answer.bytes_stream().map(|piece| piece.map_err(|e| io::Error::other(reason(&e))))
    }

    pub async fn bytes(self) -> Result<Bytes> {
        self.answer.bytes().await.map_err(|e| Error::Broken(reason(&e)))
    }
}

/// A file or an archive on its way to the desk.
pub struct Upload(reqwest::Body, Option<u64>);

impl Upload {
    /// A stream; `size` in bytes if it is known.
    pub fn stream(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static, size: Option<u64>) -> Self {
        Self(reqwest::Body::wrap_stream(stream), size)
    }
}

impl<T: Into<Bytes>> From<T> for Upload {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        Self(bytes.clone().into(), Some(bytes.len() as u64))
    }
}

impl Desk {
    pub async fn stat(&self, path: &str, follow: bool) -> Result<FileInfo> {
        self.call(Method::GET, &["files", "stat"]).query("path", path).query("follow", follow).answer().await
    }

    pub async fn list(&self, what: &ListFiles) -> Result<FileList> {
        self.call(Method::GET, &["files"]).queries(what).answer().await
    }

    pub async fn read(&self, path: &str) -> Result<Download> {
        let answer = self.call(Method::GET, &["files", "content"]).query("path", path).send().await?;
        Ok(Download { answer })
    }

    /// Writes a file; it is there as a whole or not at all.
    pub async fn write(&self, what: &WriteFile, content: impl Into<Upload>) -> Result<Written> {
        self.upload(&["files", "content"], "application/octet-stream", content.into(), what).await
    }

    /// A directory as a tar archive.
    pub async fn pack(&self, path: &str) -> Result<Download> {
        let answer = self.call(Method::GET, &["files", "tar"]).query("path", path).send().await?;
        Ok(Download { answer })
    }

    /// Unpacks a tar archive into a directory.
    pub async fn unpack(&self, path: &str, archive: impl Into<Upload>) -> Result<Unpacked> {
        let path = hotdesk_api::file::FilePath { path: path.to_owned() };
        self.upload(&["files", "tar"], "application/x-tar", archive.into(), &path).await
    }

    async fn upload<T: serde::de::DeserializeOwned>(
        &self,
        path: &[&str],
        kind: &'static str,
        Upload(body, size): Upload,
        query: &impl serde::Serialize,
    ) -> Result<T> {
        let mut call = self.call(Method::PUT, path).queries(query).header(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(size) = size {
            call = call.header(CONTENT_LENGTH, HeaderValue::from(size));
        }
        call.stream(body).within(None).answer().await
    }

    pub async fn make_directory(&self, what: &MakeDirectory) -> Result<FileInfo> {
        self.call(Method::POST, &["files", "mkdir"]).json(what)?.answer().await
    }

    pub async fn move_file(&self, what: &MoveFile) -> Result<FileInfo> {
        self.call(Method::POST, &["files", "move"]).json(what)?.answer().await
    }

    pub async fn copy_file(&self, what: &MoveFile) -> Result<FileInfo> {
        self.call(Method::POST, &["files", "copy"]).json(what)?.answer().await
    }

    pub async fn delete_file(&self, what: &DeleteFile) -> Result<()> {
        self.call(Method::DELETE, &["files"]).queries(what).once().done().await
    }
}
