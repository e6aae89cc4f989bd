//! `hotdesk disk`: disks of virtual machines. Works on this machine's files; no fleet is needed.

use crate::exit::{Exit, print};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach;
use crate::text::{safe, size};
use crate::waiting::{Waiting, say};
use clap::{Args, Subcommand};
use hotdesk_image::disk::{self, Fetch, Format, Info, Meter};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// So often the progress is looked at.
const GLANCE: Duration = Duration::from_millis(100);

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Fetch a disk; run it again to go on after something broke
    ///
    /// Comes in parallel ranges where the server allows it. A zip, gzip or zstd file is unpacked while it comes; of a zip
    /// only the disk inside is taken.
    Fetch(FetchArgs),
    /// Tell what a disk is
    Info(InfoArgs),
    /// Make a disk as small as it gets: one qcow2 file with zstd, without zeros
    Shrink(ShrinkArgs),
    /// Cut a disk into a chain of files below a limit, which QEMU opens as they are
    Split(SplitArgs),
    /// Make one file of a split disk
    Join(JoinArgs),
    /// Tell whether two disks are the same for their guest, whatever their formats
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Where it is: http, https or file
    url: String,

    /// Where to write it [default: the name in the URL, without .zip, .gz or .zst]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The SHA-256 of the file as it is served, or `beside` to take it from URL.sha256; needed for plain http from other machines
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<String>,

    /// The file in a zip archive that has several disks
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    file: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShrinkArgs {
    /// The disk; it is not changed
    input: PathBuf,

    /// The file to write
    output: PathBuf,

    /// Leave out what the ext file systems on it do not use, too
    #[arg(long)]
    free_space: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// The disk; it is not changed
    input: PathBuf,

    /// The directory to write parts and manifest.json to
    directory: PathBuf,

    /// No part is larger than this
    #[arg(long, value_name = "SIZE", default_value = "9GiB", value_parser = parse_bytes)]
    max: u64,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The directory with manifest.json
    directory: PathBuf,

    /// The file to write
    output: PathBuf,

    /// `raw` or `qcow2` [default: as the name of the output says, else qcow2]
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    a: PathBuf,
    b: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: DiskCommand) -> Exit {
    reach::run(async move {
        match command {
            DiskCommand::Fetch(args) => fetch(args).await,
            DiskCommand::Info(args) => info(&args),
            DiskCommand::Shrink(args) => shrink(args).await,
            DiskCommand::Split(args) => split(args).await,
            DiskCommand::Join(args) => join(args).await,
            DiskCommand::Verify(args) => verify(args).await,
        }
    })
}

async fn fetch(args: FetchArgs) -> Outcome {
    let request = Fetch { url: args.url, output: args.output, sha256: args.sha256, entry: args.entry };
    let meter = Arc::new(Meter::default());
    let fetched = watched("fetch", args.json, meter.clone(), disk::fetch(request, meter)).await?;
    if args.json {
        return out::json(&fetched);
    }
    Ok(out::line(&fetched.path.display().to_string()))
}

fn info(args: &InfoArgs) -> Outcome {
    let info = disk::info(&args.file).map_err(|e| told(&e))?;
    if args.json {
        return out::json(&info);
    }
    let text: String = lines(&info).iter().flat_map(|line| [safe(line).into_owned(), "\n".to_owned()]).collect();
    Ok(print(text.as_bytes()))
}

fn lines(info: &Info) -> Vec<String> {
    let mut lines = vec![format!("format        {}", info.format.driver())];
    if let Some(virtual_size) = info.virtual_size {
        lines.push(format!("size          {} ({virtual_size} bytes)", size(virtual_size)));
    }
    lines.push(format!("on disk       {}", size(info.disk_size)));
    if let (Some(data), Some(virtual_size)) = (info.data_size, info.virtual_size) {
        lines.push(format!("data          {}", size(data)));
        lines.push(format!("holes         {}", size(virtual_size.saturating_sub(data))));
    }
    if let (Some(compression), Some(compressed)) = (info.compression, info.compressed_size) {
        lines.push(format!("compression   {} ({} of the data)", format!("{compression:?}").to_lowercase(), size(compressed)));
    }
    if info.internal_snapshots > 0 {
        lines.push(format!("snapshots     {} inside, which split and shrink do not keep", info.internal_snapshots));
    }
    for (index, file) in info.chain.iter().enumerate().filter(|_| info.chain.len() > 1) {
        let title = if index == 0 { "files" } else { "" };
        lines.push(format!("{title:<13} {} ({}, {})", file.path.display(), file.format.driver(), size(file.size)));
    }
    lines
}

async fn shrink(args: ShrinkArgs) -> Outcome {
    let json = args.json;
    let shrunk = job("shrink", json, move |meter| disk::shrink(&args.input, &args.output, args.free_space, meter)).await?;
    if json {
        return out::json(&shrunk);
    }
    for note in &shrunk.notes {
        say(&format!("note: {}", safe(note)));
    }
    Ok(out::line(&format!("{} became {}", size(shrunk.before), size(shrunk.after))))
}

async fn split(args: SplitArgs) -> Outcome {
    let json = args.json;
    let directory = args.directory.clone();
    let manifest = job("split", json, move |meter| disk::split(&args.input, &args.directory, args.max, meter)).await?;
    if json {
        return out::json(&manifest);
    }
    let mut rows = out::Rows::new(&["PART", ">SIZE", "SHA-256"]);
    for part in &manifest.parts {
        rows.push([part.file.clone(), size(part.size), part.sha256.clone()]);
    }
    let exit = rows.print();
    say(&format!("QEMU opens {} (qcow2); the parts must stay together", manifest.open_path(&directory).display()));
    Ok(exit)
}

async fn join(args: JoinArgs) -> Outcome {
    let format = args.format.or_else(|| Format::of_name(&args.output)).unwrap_or(Format::Qcow2);
    let output = args.output.clone();
    job("join", false, move |meter| disk::join(&args.directory, &args.output, format, meter)).await?;
    Ok(out::line(&output.display().to_string()))
}

async fn verify(args: VerifyArgs) -> Outcome {
    let json = args.json;
    let (a, b) = (open_of(&args.a)?, open_of(&args.b)?);
    let difference = job("verify", json, move |meter| disk::verify(&a, &b, meter)).await?;
    if json {
        out::json(&json!({ "same": difference.is_none(), "difference": difference }))?;
        return Ok(if difference.is_none() { Exit::Success } else { Exit::Failure });
    }
    match difference {
        None => Ok(out::line("the disks are the same")),
        Some(difference) => Err(Failure::local(format!("the disks are not the same: {difference}"))),
    }
}

/// A directory with a split disk stands for the disk.
fn open_of(path: &Path) -> Outcome<PathBuf> {
    match path.is_dir() {
        true => Ok(disk::Manifest::read(path).map_err(|e| told(&e))?.open_path(path)),
        false => Ok(path.to_owned()),
    }
}

/// Runs something long on a thread of its own.
async fn job<T: Send + 'static>(
    what: &str,
    quiet: bool,
    work: impl FnOnce(&Meter) -> hotdesk_image::Result<T> + Send + 'static,
) -> Outcome<T> {
    let meter = Arc::new(Meter::default());
    let own = meter.clone();
    let work = async move {
        let work = tokio::task::spawn_blocking(move || work(&own)).await;
        work.unwrap_or_else(|e| Err(hotdesk_image::Error::Failed(format!("it broke down: {e}"))))
    };
    watched(what, quiet, meter, work).await
}

/// Shows how far it is. A signal makes it end in good order.
async fn watched<T>(
    what: &str,
    quiet: bool,
    meter: Arc<Meter>,
    work: impl Future<Output = hotdesk_image::Result<T>>,
) -> Outcome<T> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |e: std::io::Error| Failure::local(format!("signals can't be heard: {e}"));
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?);
    let bar = Waiting::steps(what, quiet);
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result.map_err(|e| told(&e)),
            _ = interrupt.recv() => meter.stop(),
            _ = terminate.recv() => meter.stop(),
            () = tokio::time::sleep(GLANCE) => {
                let (done, all) = meter.progress();
                let stage = meter.stage();
                bar.share((all > 0).then(|| done as f32 / all as f32));
                let far = if all > 0 { format!("{stage}, {} of {}", size(done), size(all)) } else { stage };
                bar.stage(&far);
            }
        }
    }
}

fn told(error: &hotdesk_image::Error) -> Failure {
    use hotdesk_image::Error;
    match error {
        Error::Full(_) => Failure::new(Exit::Limit, error.to_string()),
        Error::Invalid(_) => Failure::usage(error.to_string()),
        Error::Failed(why) if why.contains("is not installed") => Failure::new(Exit::Missing, why.clone()),
        _ => Failure::local(error.to_string()),
    }
}

/// `9GiB`, `500M`, `4096`: bytes. Units are powers of 1024.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "write it like 9GiB, 500MiB or a number of bytes".to_owned();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Ok((number * f64::from(2).powi(shift)) as u64)
}

fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "raw" => Ok(Format::Raw),
        "qcow2" => Ok(Format::Qcow2),
        _ => Err("raw and qcow2 are written".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_parts() {
        assert_eq!(parse_bytes("9GiB"), Ok(9 << 30));
        assert_eq!(parse_bytes("1.5M"), Ok(3 << 19));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert!(parse_bytes("9GB").is_err() && parse_bytes("x").is_err() && parse_bytes("-1").is_err());
    }
}
