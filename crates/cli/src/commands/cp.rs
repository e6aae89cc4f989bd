//! `hotdesk cp`: files and directories between this machine and desks, or between desks.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::reach::{self, Reach};
use crate::waiting::Waiting;
use bytes::Bytes;
use clap::Args;
use futures_util::{Stream, StreamExt};
use hotdesk_api::file::{FileInfo, FileKind, WriteFile};
use hotdesk_client::{Client, Desk, Upload};
use hotdesk_desk::files::tar;
use indicatif::ProgressBar;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

/// What is read of a file at once.
const PIECE: usize = 256 * 1024;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hotdesk cp report.pdf work:            into the desk's home\n  hotdesk cp work:/home/user/out ./out   a directory\n  hotdesk cp a:notes.txt b:notes.txt     from desk to desk\n  hotdesk cp work:log.txt -              to stdout"
)]
pub(crate) struct CpArgs {
    /// What to copy: a path, DESK:PATH, or - for stdin
    from: String,

    /// Where to: a path, DESK:PATH, or - for stdout. A directory that exists gets it inside
    to: String,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    reach: Reach,
}

/// One end of a copy, as it is written.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Here(PathBuf),
    There { desk: String, path: String },
    Pipe,
}

impl End {
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            _ if text == "-" => Self::Pipe,
            // `./a:b` and `/a:b` are files of this machine.
            Some((desk, path)) if !desk.is_empty() && !desk.contains('/') => {
                let path = if path.is_empty() { "~" } else { path };
                Self::There { desk: desk.to_owned(), path: path.to_owned() }
            }
            _ => Self::Here(text.into()),
        }
    }
}

type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// What is copied: one file, or the content of a directory as a tar archive.
struct Source {
    name: String,
    directory: bool,
    mode: Option<u32>,
    size: Option<u64>,
    pieces: Pieces,
}

pub(crate) fn run(args: CpArgs) -> Exit {
    reach::run(async move {
        let (from, to) = (End::parse(&args.from), End::parse(&args.to));
        if !matches!(from, End::There { .. }) && !matches!(to, End::There { .. }) {
            return Err(Failure::usage("neither side is on a desk").hint("write a path on a desk like DESK:/home/user/file"));
        }
        let client = args.reach.client()?;
        let source = match from {
            End::Pipe => piped(),
            End::Here(path) => read_here(&path).await?,
            End::There { desk, path } => read_there(&find(&client, &desk).await?, &path).await?,
        };
        let waiting = Waiting::bytes(&source.name, source.size, args.quiet);
        let source = Source { pieces: counted(source.pieces, waiting.counter()), ..source };
        match to {
            End::Pipe => write_pipe(source).await?,
            End::Here(path) => write_here(source, &path).await?,
            End::There { desk, path } => write_there(source, &find(&client, &desk).await?, &path).await?,
        }
        Ok(Exit::Success)
    })
}

async fn find(client: &Client, desk: &str) -> Outcome<Desk> {
    Ok(client.desk(&reach::desk(client, desk).await?.id))
}

fn counted(pieces: Pieces, counter: ProgressBar) -> Pieces {
    Box::pin(pieces.inspect(move |piece| {
        if let Ok(piece) = piece {
            counter.inc(piece.len() as u64);
        }
    }))
}

fn piped() -> Source {
    let pieces = Box::pin(ReaderStream::with_capacity(tokio::io::stdin(), PIECE));
    Source { name: String::new(), directory: false, mode: None, size: None, pieces }
}

async fn read_here(path: &Path) -> Outcome<Source> {
    let failed = |e: &dyn std::fmt::Display| Failure::new(Exit::NotFound, format!("{} can't be read: {e}", path.display()));
    let whole = path.canonicalize().map_err(|e| failed(&e))?;
    let meta = std::fs::metadata(&whole).map_err(|e| failed(&e))?;
    let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if meta.is_dir() {
        let pieces = tar::pack(whole).await.map_err(|e| failed(&e.problem().detail))?;
        return Ok(Source { name, directory: true, mode: None, size: None, pieces: Box::pin(pieces) });
    }
    let file = tokio::fs::File::open(&whole).await.map_err(|e| failed(&e))?;
    let pieces = Box::pin(ReaderStream::with_capacity(file, PIECE));
    // The size of a pipe or a device is not known.
    let size = meta.is_file().then_some(meta.len());
    Ok(Source { name, directory: false, mode: Some(meta.permissions().mode() & 0o7777), size, pieces })
}

async fn read_there(desk: &Desk, path: &str) -> Outcome<Source> {
    let info = desk.stat(path, true).await?;
    let mode = u32::from_str_radix(&info.mode, 8).ok().map(|mode| mode & 0o777);
    let name = base_name(path).unwrap_or(&info.name).to_owned();
    if info.kind == FileKind::Directory {
        let pieces = Box::pin(desk.pack(path).await?.into_stream());
        return Ok(Source { name, directory: true, mode, size: None, pieces });
    }
    let file = desk.read(path).await?;
    let size = file.size();
    Ok(Source { name, directory: false, mode, size, pieces: Box::pin(file.into_stream()) })
}

/// The last part of a path, if it names something.
fn base_name(path: &str) -> Option<&str> {
    path.trim_end_matches('/').rsplit('/').next().filter(|name| !matches!(*name, "" | "." | ".." | "~"))
}

async fn write_pipe(mut source: Source) -> Outcome<()> {
    // A directory comes as a tar archive, as with docker cp.
    let mut stdout = tokio::io::stdout();
    while let Some(piece) = source.pieces.next().await {
        let piece = piece.map_err(|e| broke(&source.name, &e))?;
        stdout.write_all(&piece).await.map_err(|e| Failure::local(format!("the output can't be written: {e}")))?;
    }
    stdout.flush().await.map_err(|e| Failure::local(format!("the output can't be written: {e}")))
}

async fn write_here(mut source: Source, to: &Path) -> Outcome<()> {
    let inside = to.is_dir() && !source.name.is_empty();
    let target = if inside { to.join(&source.name) } else { to.to_owned() };
    let failed = |e: &dyn std::fmt::Display| Failure::local(format!("{} can't be written: {e}", target.display()));
    if source.directory {
        if target.exists() && !target.is_dir() {
            return Err(failed(&"it is a file, and a directory should be copied there"));
        }
        tar::unpack(target.clone(), source.pieces).await.map_err(|e| failed(&e.problem().detail))?;
        return Ok(());
    }
    // Written beside its place, so that a copy that breaks off leaves the old file as it was.
    let (folder, name) = (target.parent().unwrap_or(Path::new("")), target.file_name().unwrap_or_default());
    let part = folder.join(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
    let written = async {
        let mut file = tokio::fs::File::create(&part).await.map_err(|e| failed(&e))?;
        while let Some(piece) = source.pieces.next().await {
            let piece = piece.map_err(|e| broke(&source.name, &e))?;
            file.write_all(&piece).await.map_err(|e| failed(&e))?;
        }
        file.flush().await.map_err(|e| failed(&e))?;
        if let Some(mode) = source.mode {
            file.set_permissions(std::fs::Permissions::from_mode(mode)).await.map_err(|e| failed(&e))?;
        }
        drop(file);
        tokio::fs::rename(&part, &target).await.map_err(|e| failed(&e))
    };
    let outcome = written.await;
    if outcome.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    outcome
}

async fn write_there(source: Source, desk: &Desk, to: &str) -> Outcome<()> {
    let there = match desk.stat(to, true).await {
        Ok(info) => Some(info),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error.into()),
    };
    let is_directory = there.as_ref().is_some_and(|info: &FileInfo| info.kind == FileKind::Directory) || to.ends_with('/');
    let path = match (is_directory, source.name.as_str()) {
        (true, "") => {
            return Err(Failure::usage(format!("{to} is a directory")).hint("name the file that the input should become"));
        }
        (true, name) => format!("{}/{name}", to.trim_end_matches('/')),
        (false, _) => to.to_owned(),
    };
    let upload = Upload::stream(source.pieces, source.size);
    if source.directory {
        desk.unpack(&path, upload).await?;
        return Ok(());
    }
    let mode = source.mode.map(|mode| format!("{mode:04o}"));
    desk.write(&WriteFile { path, mode, make_parents: true }, upload).await?;
    Ok(())
}

fn broke(name: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("{name} came only in part: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends() {
        let there = |desk: &str, path: &str| End::There { desk: desk.into(), path: path.into() };
        assert_eq!(End::parse("work:/a"), there("work", "/a"));
        assert_eq!(End::parse("work:"), there("work", "~"));
        assert_eq!(End::parse("work:a:b"), there("work", "a:b"));
        assert_eq!(End::parse("./a:b"), End::Here("./a:b".into()));
        assert_eq!(End::parse("/a:b"), End::Here("/a:b".into()));
        assert_eq!(End::parse("-"), End::Pipe);
        assert_eq!(base_name("/a/b/"), Some("b"));
        assert_eq!(base_name("~"), None);
        assert_eq!(base_name("/"), None);
    }
}
