//! `hotdesk template`: what desks are made of.
//!
//! Without `--url` these work on this machine's own templates, whether a fleet runs or not.

pub(crate) mod oci;

use crate::exit::{Exit, print};
use crate::failure::{Failure, Outcome};
use crate::out::{self, Rows};
use crate::reach::Reach;
use crate::text::size;
use crate::waiting::Waiting;
use crate::{places, reach};
use clap::{Args, Subcommand};
use hotdesk_api::calls::TemplateInfo;
use hotdesk_client::Client;
use hotdesk_image::{DiskFormat, DiskWish, Library};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// List templates
    Ls(LsArgs),
    /// Show what a template is made of
    Show(ShowArgs),
    /// Build templates, so that desks can start from them
    Build(BuildArgs),
    /// Push a template to a registry, as an OCI image
    Push(oci::PushArgs),
    /// Remove what was built of a template
    Rm(RmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Where built templates are
    #[arg(long, env = "HOTDESK_IMAGES", hide_env_values = true, value_name = "DIR")]
    images: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The template
    name: String,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,

    /// The data directory of the fleet, which may hold templates too
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The templates
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    disk: DiskArgs,

    #[command(flatten)]
    oci: oci::PackArgs,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
struct DiskArgs {
    /// What to make of it: a root file system for desks on this machine, an OCI image for containers, a disk that boots by
    /// itself, or that disk as Google's clouds import it
    #[arg(long = "as", value_name = "KIND", default_value = "rootfs")]
    kind: Kind,

    /// The file of the disk; kernel, initrd and a description come beside it [default: among the built templates]. Of an
    /// OCI image: NAME.tar for docker load, a directory for an OCI layout, `-` for a pipe
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How large the disk is for the machine that it is in; it takes only what is used [default: 8GiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::text::parse_mebibytes)]
    size: Option<u64>,

    /// The format of the disk: `qcow2` or `raw`
    #[arg(long, value_name = "FORMAT", default_value = "qcow2")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Rootfs,
    Oci,
    Disk,
    Gce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Qcow2,
    Raw,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The template
    name: String,

    #[command(flatten)]
    place: Place,

    /// The data directory of the fleet, which may hold templates too
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub(crate) fn run(command: TemplateCommand) -> Exit {
    reach::run(async move {
        match command {
            TemplateCommand::Ls(args) => list(args).await,
            TemplateCommand::Show(args) => show(&args),
            TemplateCommand::Build(args) => build(args).await,
            TemplateCommand::Push(args) => oci::push(args).await,
            TemplateCommand::Rm(args) => {
                let library = library(&args.place, args.data.as_deref())?;
                library.template(&args.name).map_err(|e| told(&e))?;
                library.remove_disks(&args.name).map_err(|e| told(&e))?;
                library.remove(&args.name).map_err(|e| told(&e))?;
                Ok(out::line(&args.name))
            }
        }
    })
}

pub(crate) fn library(place: &Place, data: Option<&std::path::Path>) -> Outcome<Library> {
    let library = Library::open(places::images(place.images.as_deref())).map_err(|e| told(&e))?;
    Ok(library.with_templates(places::data(data).join("templates")))
}

pub(crate) fn told(error: &hotdesk_image::Error) -> Failure {
    use hotdesk_image::Error;
    let exit = match error {
        Error::Unknown { .. } => Exit::NotFound,
        Error::Invalid(_) => Exit::Usage,
        Error::Full(_) => Exit::Limit,
        Error::NotBuilt { .. } => Exit::Missing,
        _ => Exit::Failure,
    };
    Failure::new(exit, error.to_string().replace('`', ""))
}

async fn list(args: LsArgs) -> Outcome {
    let templates = match args.reach.url {
        Some(_) => args.reach.client()?.templates().await?,
        None => {
            let library = library(&args.place, args.reach.data.as_deref())?;
            library.names().iter().map(|name| describe(&library, name)).collect()
        }
    };
    if args.json {
        return out::json(&templates);
    }
    let mut rows = Rows::new(&["NAME", "BUILT", ">SIZE", "DIGEST", "?DESCRIPTION"]);
    for template in templates {
        rows.push([
            template.name,
            if template.built { "yes" } else { "no" }.into(),
            template.size_bytes.map_or("-".into(), size),
            template.digest.map_or("-".into(), |digest| digest.chars().take(12).collect()),
            template.description,
        ]);
    }
    Ok(rows.print())
}

fn describe(library: &Library, name: &str) -> TemplateInfo {
    let built = library.built(name).ok();
    TemplateInfo {
        name: name.to_owned(),
        description: library.template(name).map(|template| template.description).unwrap_or_default(),
        built: built.is_some(),
        size_bytes: built.as_ref().map(|built| built.size_bytes),
        digest: built.map(|built| built.digest),
    }
}

fn show(args: &ShowArgs) -> Outcome {
    let library = library(&args.place, args.data.as_deref())?;
    let template = library.template(&args.name).map_err(|e| told(&e))?;
    let info = describe(&library, &args.name);
    if args.json {
        return out::json(&json!({"template": template, "built": library.built(&args.name).ok()}));
    }
    let text = toml::to_string_pretty(&template).map_err(|e| Failure::local(format!("the template can't be shown: {e}")))?;
    let state = match (&info.digest, info.size_bytes) {
        (Some(digest), Some(bytes)) => format!("# built: {digest}, {}\n", size(bytes)),
        _ => format!("# not built yet: hotdesk template build {}\n", args.name),
    };
    Ok(print(crate::text::safe_lines(&(state + &text)).as_bytes()))
}

async fn build(args: BuildArgs) -> Outcome {
    if args.disk.kind == Kind::Oci {
        return oci::build(args).await;
    }
    if args.oci.is_said() {
        return Err(Failure::usage("--layer-max and --compression are for OCI images").hint("add --as oci"));
    }
    if args.disk.kind != Kind::Rootfs {
        return build_disk(args).await;
    }
    if args.disk.output.is_some() || args.disk.size.is_some() {
        return Err(Failure::usage("--output and --size are for disks").hint("add --as disk"));
    }
    if args.reach.url.is_some() {
        let client = args.reach.client()?;
        for name in &args.names {
            build_by(&client, name, args.json).await?;
        }
        let built: Vec<_> = client.templates().await?.into_iter().filter(|one| args.names.contains(&one.name)).collect();
        return tell(&built, args.json);
    }
    let library = library(&args.place, args.reach.data.as_deref())?;
    for name in &args.names {
        let bar = Building::new(name, args.json);
        library.build(name, |stage| bar.stage(stage)).await.map_err(|e| told(&e).during(format!("{name} was not built")))?;
    }
    tell(&args.names.iter().map(|name| describe(&library, name)).collect::<Vec<_>>(), args.json)
}

/// A disk that boots by itself. Nobody else's machine can do that: the disk would lie there.
async fn build_disk(args: BuildArgs) -> Outcome {
    if args.reach.url.is_some() {
        return Err(Failure::usage("disks are made on this machine; leave --url out"));
    }
    if args.disk.output.is_some() && args.names.len() > 1 {
        return Err(Failure::usage("--output names one file, but there are several templates"));
    }
    let library = library(&args.place, args.reach.data.as_deref())?;
    let format = match (args.disk.kind, args.disk.format) {
        (Kind::Gce, _) => DiskFormat::Gce,
        (_, Format::Raw) => DiskFormat::Raw,
        (_, Format::Qcow2) => DiskFormat::Qcow2,
    };
    let binary = std::env::current_exe().map_err(|e| Failure::local(format!("this program can't be found: {e}")))?;
    let wish = DiskWish { format, size: args.disk.size.map(|mebibytes| mebibytes << 20), binary };
    let mut made = Vec::new();
    for name in &args.names {
        let bar = Building::new(name, args.json);
        let failed = |e| told(&e).during(format!("the disk of {name} was not made"));
        let disk = library.disk(name, &wish, |stage| bar.stage(stage)).await.map_err(failed)?;
        let (path, info) = match &args.disk.output {
            None => (disk.path(), disk.info.clone()),
            Some(file) => {
                bar.stage("copying it");
                (file.clone(), disk.copy_to(file).map_err(failed)?)
            }
        };
        drop(bar);
        if !args.json {
            out::line(&path.display().to_string());
        }
        made.push(json!({"path": path, "disk": info}));
    }
    if args.json { out::json(&made) } else { Ok(Exit::Success) }
}

fn tell(built: &[TemplateInfo], json: bool) -> Outcome {
    if json {
        return out::json(&built);
    }
    for template in built {
        out::line(&format!("{}  {}", template.name, template.digest.as_deref().unwrap_or("-")));
    }
    Ok(Exit::Success)
}

/// Lets a fleet build a template, and shows the stages that it tells.
pub(crate) async fn build_by(client: &Client, name: &str, quiet: bool) -> Outcome<()> {
    let bar = Building::new(name, quiet);
    let mut events = client.follow(None, None);
    // Listened to before it begins; without its stages it is only less talkative.
    let _ = events.open().await;
    let begins = format!("{name}: ");
    let stages = async {
        while let Ok(event) = events.next().await {
            if let (true, Some(stage)) = (event.kind == "template", event.reason.strip_prefix(&begins)) {
                bar.stage(stage);
            }
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        built = client.build_template(name) => built.map_err(|error| Failure::from(error).during(format!("{name} was not built"))),
        () = stages => Ok(()),
    }
}

/// The progress of a build: its stage, and a bar while the stage can be counted.
pub(crate) struct Building(Waiting);

impl Building {
    fn new(name: &str, quiet: bool) -> Self {
        Self::named(&format!("building {name}"), quiet)
    }

    /// The same for something else.
    pub(crate) fn named(what: &str, quiet: bool) -> Self {
        Self(Waiting::steps(what, quiet))
    }

    pub(crate) fn stage(&self, stage: &str) {
        self.0.share(hotdesk_image::share(stage));
        self.0.stage(stage);
    }
}
