//! `hotdesk image publish`: a template's golden disk as an image at Google.

use super::super::serve;
use super::super::template::{Building, Place, library, told};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::places;
use crate::waiting::say;
use clap::Args;
use hotdesk_image::{DiskFormat, DiskWish};
use hotdesk_provider::gce::Publish;
use hotdesk_provider::{Error, Progress};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// The template
    template: String,

    /// The golden disk, if it is made already: what `hotdesk template build --as gce` wrote
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// How large the disk is for the machine that it is in [default: 8GiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::text::parse_mebibytes, conflicts_with = "file")]
    size: Option<u64>,

    /// The project at Google
    #[arg(long)]
    project: Option<String>,

    /// The bucket that the upload goes through
    #[arg(long)]
    bucket: Option<String>,

    /// So many versions are kept, this one included
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    keep: u16,

    /// Leave the upload in the bucket
    #[arg(long)]
    keep_upload: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,

    /// The data directory of the fleet, which has the settings
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub(super) async fn run(args: PublishArgs) -> Outcome {
    let data = places::data(args.data.as_deref());
    let library = Arc::new(library(&args.place, args.data.as_deref())?);
    // Settings that can't work are told before a disk is built for minutes.
    let (google, bucket) = serve::google_alone(&data, &library, args.project)?;
    let bucket = args.bucket.or(bucket);
    let bucket = bucket.ok_or_else(|| Failure::usage("no bucket is named").hint("say --bucket, or set bucket in [gce]"))?;
    let file = match args.file {
        Some(file) => file,
        None => {
            let binary = std::env::current_exe().map_err(|e| Failure::local(format!("this program can't be found: {e}")))?;
            let wish = DiskWish { format: DiskFormat::Gce, size: args.size.map(|mebibytes| mebibytes << 20), binary };
            let bar = Building::named(&format!("building the disk of {}", args.template), args.json);
            let disk = library.disk(&args.template, &wish, |stage| bar.stage(stage)).await;
            disk.map_err(|e| told(&e).during("the disk was not made"))?.path()
        }
    };
    let bar = Building::named(&format!("publishing {}", args.template), args.json);
    let (progress, mut stages) = Progress::new();
    let wish = Publish {
        template: &args.template,
        file: &file,
        bucket: &bucket,
        keep: usize::from(args.keep),
        keep_upload: args.keep_upload,
    };
    let work = google.publish(&wish, &progress);
    tokio::pin!(work);
    let published = loop {
        tokio::select! {
            done = &mut work => break done.map_err(|e| failure(&e))?,
            Ok(()) = stages.changed() => bar.stage(&stages.borrow_and_update()),
        }
    };
    drop(bar);
    if args.json {
        return out::json(&published);
    }
    for name in &published.pruned {
        say(&format!("removed {name}"));
    }
    if published.old {
        say("it was there already");
    }
    Ok(out::line(&published.image))
}

fn failure(error: &Error) -> Failure {
    let exit = match error {
        Error::Full(_) => Exit::Limit,
        Error::NotFound(_) => Exit::NotFound,
        Error::Unavailable { .. } => Exit::Missing,
        _ => Exit::Failure,
    };
    Failure::new(exit, error.to_string().replace('`', "")).during("the image was not published")
}
