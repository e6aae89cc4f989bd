//! `hotdesk volume`: files that outlive desks.

use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use crate::text::ago;
use clap::{Args, Subcommand};
use hotdesk_api::fleet::{NewVolume, VolumeMount};

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List volumes
    Ls(LsArgs),
    /// Make an empty volume
    #[command(after_help = "Example: hotdesk volume new models && hotdesk new --volume models:/models:ro")]
    New(NewArgs),
    /// Delete volumes and everything in them
    Rm(RmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// Its name, unique in its project
    name: String,

    /// The bucket that holds its files: s3://BUCKET/PREFIX or gs://BUCKET/PREFIX [default: a directory of the fleet]
    #[arg(long, value_name = "URL")]
    source: Option<String>,

    /// Only one desk at a time may have it
    #[arg(long)]
    exclusive: bool,

    /// Whose volume it is; only for keys of the whole fleet
    #[arg(long, value_name = "NAME")]
    project: Option<String>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The volumes, by name or id
    #[arg(value_name = "VOLUME", required = true)]
    volumes: Vec<String>,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(command: VolumeCommand) -> Exit {
    reach::run(async move {
        match command {
            VolumeCommand::Ls(args) => list(args).await,
            VolumeCommand::New(args) => new(args).await,
            VolumeCommand::Rm(args) => remove(args).await,
        }
    })
}

async fn list(args: LsArgs) -> Outcome {
    let volumes = args.reach.client()?.volumes().await?;
    if args.json {
        return out::json(&volumes);
    }
    let mut rows = Rows::new(&["NAME", "ID", "PROJECT", "AGE", "USE", "?DESKS"]);
    for volume in volumes {
        let how = if volume.exclusive { "one desk" } else { "shared" };
        rows.push([volume.name, volume.id, volume.project, ago(&volume.created_at), how.to_owned(), volume.desks.join(", ")]);
    }
    Ok(rows.print())
}

async fn new(args: NewArgs) -> Outcome {
    let new = NewVolume { name: args.name, project: args.project, source: args.source, exclusive: args.exclusive };
    let volume = args.reach.client()?.create_volume(&new).await?;
    if args.json {
        return out::json(&volume);
    }
    Ok(out::line(&volume.id))
}

async fn remove(args: RmArgs) -> Outcome {
    let client = args.reach.client()?;
    for volume in &args.volumes {
        client.delete_volume(volume).await?;
        out::line(volume);
    }
    Ok(Exit::Success)
}

/// `NAME:/where` or `NAME:/where:ro`.
pub(crate) fn parse_mount(text: &str) -> Result<VolumeMount, String> {
    let wrong = || "write it like NAME:/vm or NAME:/vm:ro".to_owned();
    let (volume, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (at, read_only) = match rest.rsplit_once(':') {
        Some((at, "ro")) => (at, true),
        Some((at, "rw")) => (at, false),
        _ => (rest, false),
    };
    if volume.is_empty() || !at.starts_with('/') {
        return Err(wrong());
    }
    Ok(VolumeMount { volume: volume.to_owned(), at: at.to_owned(), read_only, subpath: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read() {
        let mount = |text| parse_mount(text).map(|mount| (mount.volume, mount.at, mount.read_only));
        assert_eq!(mount("data:/vm"), Ok(("data".into(), "/vm".into(), false)));
        assert_eq!(mount("data:/vm:ro"), Ok(("data".into(), "/vm".into(), true)));
        assert_eq!(mount("data:/a:b:rw"), Ok(("data".into(), "/a:b".into(), false)));
        assert!(mount("data").is_err() && mount(":/vm").is_err() && mount("data:vm").is_err());
    }
}
