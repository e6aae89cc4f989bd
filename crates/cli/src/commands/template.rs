//! `hotdesk template`: what desks are made of.
//!
//! Without `--url` these work on this machine's own templates, whether a fleet runs or not; only `check` needs one.

mod check;
mod disk;
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
use hotdesk_image::{Library, OutdatedKind};
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
    /// Try a template out: make a desk of it and run its checks there
    Check(check::CheckArgs),
    /// Push a template to a registry, as an OCI image
    Push(oci::PushArgs),
    /// Remove what was built of a template, unless desks, snapshots or machines need it
    Rm(RmArgs),
    /// Remove what was built of templates before they changed, unless desks, snapshots or machines need it
    Prune(PruneArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Where built templates are
    #[arg(long, env = "HOTDESK_IMAGES", hide_env_values = true, value_name = "DIR")]
    images: Option<PathBuf>,
}

/// Where the templates of this machine are, for commands that ask no fleet.
#[derive(Debug, Args)]
pub(crate) struct Own {
    #[command(flatten)]
    place: Place,

    /// The data directory of the fleet, which may hold templates too
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Own {
    pub(crate) fn library(&self) -> Outcome<Library> {
        library(&self.place, self.data.as_deref())
    }
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
    own: Own,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The templates
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// Use exactly the versions of packages that this file lists
    #[arg(long, value_name = "FILE")]
    locked: Option<PathBuf>,

    /// Write the version of each package that was used to this file
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,

    #[command(flatten)]
    disk: disk::DiskArgs,

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
pub(crate) struct RmArgs {
    /// The template
    name: String,

    #[command(flatten)]
    own: Own,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,

    /// Also what was built of templates that this fleet does not know: they may be another fleet's own
    #[arg(long)]
    unknown: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    own: Own,
}

pub(crate) fn run(command: TemplateCommand) -> Exit {
    reach::run(async move {
        match command {
            TemplateCommand::Ls(args) => list(args).await,
            TemplateCommand::Show(args) => show(&args),
            TemplateCommand::Build(args) => build(args).await,
            TemplateCommand::Check(args) => check::run(args).await,
            TemplateCommand::Push(args) => oci::push(args).await,
            TemplateCommand::Rm(args) => {
                let library = args.own.library()?;
                library.template(&args.name).map_err(|e| told(&e))?;
                library.remove(&args.name).map_err(|e| told(&e))?;
                Ok(out::line(&args.name))
            }
            TemplateCommand::Prune(args) => prune(&args),
        }
    })
}

pub(crate) fn library(place: &Place, data: Option<&std::path::Path>) -> Outcome<Library> {
    let library = Library::open(places::images(place.images.as_deref())).map_err(|e| told(&e))?;
    Ok(library.with_templates(places::data(data).join("templates")))
}

/// The library for a build, which may have been told the versions of packages.
fn library_for(args: &BuildArgs) -> Outcome<Library> {
    let library = library(&args.place, args.reach.data.as_deref())?;
    if (args.locked.is_some() || args.lock.is_some()) && args.names.len() > 1 {
        return Err(Failure::usage("--locked and --lock name the file of one template, but there are several"));
    }
    let (Some(file), Some(name)) = (&args.locked, args.names.first()) else { return Ok(library) };
    let text = std::fs::read_to_string(file).map_err(|e| Failure::usage(format!("{}: {e}", file.display())))?;
    let lock = text.parse().map_err(|e| told(&e).during(format!("{} can't be used", file.display())))?;
    Ok(library.with_lock(name, lock))
}

fn write_lock(library: &Library, args: &BuildArgs) -> Outcome<()> {
    let (Some(file), Some(name)) = (&args.lock, args.names.first()) else { return Ok(()) };
    let lock = library.lock(name).map_err(|e| told(&e))?;
    std::fs::write(file, lock.to_string()).map_err(|e| Failure::local(format!("{}: {e}", file.display())))
}

pub(crate) fn told(error: &hotdesk_image::Error) -> Failure {
    use hotdesk_image::Error;
    let exit = match error {
        Error::Unknown { .. } => Exit::NotFound,
        Error::Invalid(_) => Exit::Usage,
        Error::Full(_) => Exit::Limit,
        Error::NotBuilt { .. } => Exit::Missing,
        Error::InUse { .. } => Exit::Taken,
        _ => Exit::Failure,
    };
    let failure = Failure::new(exit, error.to_string().replace('`', ""));
    match error {
        Error::InUse { .. } => failure.hint("delete the desks, snapshots and machines first that are built on it"),
        _ => failure,
    }
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
    let library = args.own.library()?;
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
    let users = match library.users(&args.name).map_or(0, |users| users.len()) {
        0 => String::new(),
        users => format!("# desks, snapshots and machines built on it: {users}\n"),
    };
    let disks = library.disks().into_iter().filter(|disk| disk.info.template == args.name);
    let disks: String =
        disks.map(|disk| format!("# disk: {}, {}\n", disk.path().display(), size(disk.info.size_bytes))).collect();
    Ok(print(crate::text::safe_lines(&(state + &users + &disks + &text)).as_bytes()))
}

fn prune(args: &PruneArgs) -> Outcome {
    let library = args.own.library()?;
    let outdated = library.outdated(args.unknown).map_err(|e| told(&e))?;
    let unused: Vec<_> = outdated.iter().filter(|one| one.users == 0).collect();
    if !args.dry_run {
        for one in &unused {
            library.remove_outdated(one).map_err(|e| told(&e))?;
        }
    }
    let freed: u64 = unused.iter().map(|one| one.size_bytes).sum();
    if args.json {
        return out::json(&json!({"outdated": outdated, "removed": !args.dry_run, "freed_bytes": freed}));
    }
    let mut rows = Rows::new(&["TEMPLATE", "KIND", ">SIZE", "DIGEST", "?STAYS"]);
    for one in &outdated {
        rows.push([
            one.template.clone(),
            if one.kind == OutdatedKind::Tree { "tree" } else { "disk" }.into(),
            size(one.size_bytes),
            one.digest.chars().take(12).collect(),
            match one.users {
                0 => String::new(),
                1 => "one is built on it".into(),
                users => format!("{users} are built on it"),
            },
        ]);
    }
    let table = if outdated.is_empty() { String::new() } else { rows.text() };
    let word = if args.dry_run { "would free" } else { "freed" };
    Ok(print(format!("{table}{word} {}\n", size(freed)).as_bytes()))
}

async fn build(args: BuildArgs) -> Outcome {
    if args.disk.is_oci() {
        return oci::build(args).await;
    }
    if args.oci.is_said() {
        return Err(Failure::usage("--layer-max and --compression are for OCI images").hint("add --as oci"));
    }
    if args.disk.wanted()? {
        return disk::build(args).await;
    }
    if args.reach.url.is_some() {
        if args.locked.is_some() || args.lock.is_some() {
            return Err(Failure::usage("--locked and --lock work on this machine's own templates; leave --url out"));
        }
        let client = args.reach.client()?;
        for name in &args.names {
            build_by(&client, name, args.json).await?;
        }
        let built: Vec<_> = client.templates().await?.into_iter().filter(|one| args.names.contains(&one.name)).collect();
        return tell(&built, args.json);
    }
    let library = library_for(&args)?;
    for name in &args.names {
        let bar = Building::new(name, args.json);
        library.build(name, |stage| bar.stage(stage)).await.map_err(|e| told(&e).during(format!("{name} was not built")))?;
    }
    write_lock(&library, &args)?;
    tell(&args.names.iter().map(|name| describe(&library, name)).collect::<Vec<_>>(), args.json)
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
