//! Where a trace comes from: a file of this machine, or a desk.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::reach::{self, Reach};
use crate::waiting::Waiting;
use clap::Args;
use hotdesk_api::desk::Desk;
use hotdesk_api::trace::{Step, TraceInfo};
use hotdesk_client::Client;
use hotdesk_desk::trace::{EXTENSION, Reader};
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

/// A trace, by where it is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Source {
    /// A file, or a desk and one of its traces [default: the desk's last]
    #[arg(value_name = "FILE|DESK[:TRACE]")]
    source: String,

    #[command(flatten)]
    pub(super) reach: Reach,
}

impl Source {
    /// The file that it names, if it names one.
    fn file(&self) -> Option<&Path> {
        let path = Path::new(&self.source);
        let named = path.extension().is_some_and(|ending| ending == EXTENSION) || self.source.contains('/');
        (named || path.is_file()).then_some(path)
    }

    /// The trace on its desk.
    pub(super) async fn on_desk(&self) -> Outcome<(Client, Desk, TraceInfo)> {
        if self.file().is_some() {
            return Err(Failure::usage("this needs a trace on a desk, not a file").hint("write DESK or DESK:TRACE"));
        }
        let (desk, trace) = match self.source.split_once(':') {
            Some((desk, trace)) => (desk, Some(trace)),
            None => (self.source.as_str(), None),
        };
        let client = self.reach.client()?;
        let desk = reach::desk(&client, desk).await?;
        let mut traces = client.desk(&desk.id).traces().await?;
        let fits = |info: &TraceInfo| trace.is_none_or(|trace| info.id.starts_with(trace) || info.name.as_deref() == Some(trace));
        traces.retain(fits);
        if traces.is_empty() {
            let what = trace.map_or("no trace yet".to_owned(), |trace| format!("no trace {trace}"));
            return Err(Failure::new(Exit::NotFound, format!("{} has {what}", reach::title(&desk)))
                .hint("hotdesk trace ls lists them, hotdesk trace start begins one"));
        }
        let info = traces.remove(0);
        Ok((client, desk, info))
    }

    /// An open trace; one on a desk is fetched first, to a folder that lives as long as it is needed.
    pub(super) async fn reader(&self) -> Outcome<(Option<TempDir>, Reader)> {
        if let Some(path) = self.file() {
            return Ok((None, open(path)?));
        }
        let (client, desk, info) = self.on_desk().await?;
        let folder = tempfile::tempdir().map_err(|e| Failure::local(format!("no folder for the trace can be made: {e}")))?;
        let path = folder.path().join("trace.hdtrace");
        fetch(&client.desk(&desk.id), &info, &path).await?;
        let reader = open(&path)?;
        Ok((Some(folder), reader))
    }

    /// All steps; pictures are not fetched.
    pub(super) async fn steps(&self) -> Outcome<Vec<Step>> {
        if let Some(path) = self.file() {
            return all(&open(path)?);
        }
        let (client, desk, info) = self.on_desk().await?;
        let desk = client.desk(&desk.id);
        let mut steps: Vec<Step> = Vec::new();
        loop {
            let more = desk.trace_steps(&info.id, steps.last().map_or(0, |step| step.number)).await?;
            if more.is_empty() {
                return Ok(steps);
            }
            steps.extend(more);
        }
    }
}

/// All steps of an open trace.
pub(super) fn all(reader: &Reader) -> Outcome<Vec<Step>> {
    reader.steps(0, usize::MAX).map_err(|e| Failure::local(e.to_string()))
}

fn open(path: &Path) -> Outcome<Reader> {
    Reader::open(path).map_err(|e| Failure::local(e.to_string()))
}

/// Fetches the file of a trace; it is there as a whole or not at all.
pub(super) async fn fetch(desk: &hotdesk_client::Desk, info: &TraceInfo, path: &Path) -> Outcome<()> {
    let failed = |e: std::io::Error| Failure::local(format!("{} can't be written: {e}", path.display()));
    let mut download = desk.trace_file(&info.id).await?;
    let waiting = Waiting::bytes(&format!("fetching {}", info.id), download.size(), false);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    while let Some(piece) = download.next().await? {
        file.write_all(&piece).map_err(failed)?;
        waiting.counter().inc(piece.len() as u64);
    }
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
}
