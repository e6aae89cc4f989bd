//! Between a provider, which writes and reads files, and the archive, which streams: a named pipe.

use super::read::Checked;
use super::{Error, Result, failed};
use hotdesk_provider::{DeskSpec, Provider};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncRead;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

/// How the folders of pipes begin.
const NAME: &str = "hotdesk-pipe-";
/// No transfer takes longer.
const OLD: Duration = Duration::from_secs(48 * 3600);

/// A stopped desk's files as the provider writes them. Ends with the provider's error if it fails.
pub(super) async fn export(provider: Arc<dyn Provider>, desk: &str) -> Result<Checked<pipe::Receiver>> {
    let pipe = Pipe::make()?;
    let receiver = pipe::OpenOptions::new().open_receiver(&pipe.path).map_err(|e| broken(&e))?;
    // Our own end keeps the pipe open until the provider has come, and gone.
    let open = pipe::OpenOptions::new().open_sender(&pipe.path).map_err(|e| broken(&e))?;
    let desk = desk.to_owned();
    let verdict = tokio::spawn(async move {
        let result = provider.export(&desk, &pipe.path).await;
        drop(open);
        result.map_err(io::Error::other)
    });
    Ok(Checked::new(receiver, verdict))
}

/// Feeds a provider that makes a stopped desk. Good only if both sides came to a good end.
pub(super) async fn import(
    provider: &Arc<dyn Provider>,
    spec: &DeskSpec,
    mut reader: impl AsyncRead + Send + Unpin,
) -> Result<()> {
    let pipe = Pipe::make()?;
    let (opened, open) = oneshot::channel();
    let feed = async {
        let mut sender = pipe.reader_came().await.map_err(|e| broken(&e))?;
        let _ = opened.send(());
        let mut result = tokio::io::copy(&mut reader, &mut sender).await;
        if result.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
            // Many readers stop at the mark that ends a tar. Whether the archive is good is only known at its own end.
            result = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await;
        }
        result.map(drop).map_err(|e| failed(e.to_string()))
    };
    let import = async {
        let result = provider.import(spec, &pipe.path).await.map_err(Error::Provider);
        // A provider that never opened it leaves the other side waiting.
        let _reader = pipe.release();
        let _ = open.await;
        result
    };
    let (fed, imported) = tokio::join!(feed, import);
    match (fed, imported) {
        // A bad archive makes the provider give up: the cause counts.
        (Err(fed), _) => Err(fed),
        (Ok(()), imported) => imported,
    }
}

/// Removes the pipes of processes that were killed.
pub(super) fn sweep() {
    let end = SystemTime::now().checked_sub(OLD).unwrap_or(SystemTime::UNIX_EPOCH);
    let uid = rustix::process::geteuid().as_raw();
    for folder in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let ours = folder.file_name().to_string_lossy().starts_with(NAME);
        let old = |about: std::fs::Metadata| about.uid() == uid && about.modified().is_ok_and(|at| at < end);
        if ours && folder.metadata().is_ok_and(old) {
            // A pipe that is left costs nothing; the next sweep finds it again.
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }
}

fn broken(error: &io::Error) -> Error {
    failed(format!("no pipe to the provider: {error}"))
}

/// A named pipe in a folder that nobody else can enter; removed with it.
struct Pipe {
    folder: PathBuf,
    path: PathBuf,
}

impl Pipe {
    fn make() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("{NAME}{}", uuid::Uuid::new_v4().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|e| broken(&e))?;
        let pipe = Self { path: folder.join("desk.tar"), folder };
        mknodat(CWD, &pipe.path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).map_err(|e| broken(&e.into()))?;
        Ok(pipe)
    }

    /// Our end for writing, as soon as somebody reads.
    async fn reader_came(&self) -> io::Result<pipe::Sender> {
        let path = self.path.clone();
        let file = tokio::task::spawn_blocking(move || File::options().write(true).open(path)).await??;
        pipe::Sender::from_file(file)
    }

    /// Lets go whoever waits for a reader.
    fn release(&self) -> rustix::io::Result<OwnedFd> {
        open(&self.path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        drop(self.release());
        // In the temporary directory it would be removed sooner or later.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
