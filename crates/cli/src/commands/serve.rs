//! `hotdesk serve`: a fleet, from start to end.
//!
//! Library, providers, store, fleet and gateway are put together here and nowhere else. Desks do not depend on this
//! process: it can be stopped, killed or replaced by a newer one while they run, and the next one adopts them.

mod announce;
mod elsewhere;
mod providers;
mod settings;

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::{init, notify, places};
use announce::Announcement;
use clap::Args;
use hotdesk_fleet::keys::Keys;
use hotdesk_fleet::{Fleet, store};
use hotdesk_gateway::{Address, Gateway, telemetry};
use hotdesk_image::Library;
use settings::{Log, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub(crate) use announce::make_directory;
pub(crate) use providers::{Kind, check};
pub(crate) use settings::default_settings;

/// A provider as the settings have it, under a fleet's name of its own, and what an hour of it costs.
pub(crate) async fn provider_alone(
    kind: Kind,
    fleet: &str,
    config: Option<&Path>,
    data: &Path,
    images: Option<&Path>,
) -> Outcome<(Arc<dyn hotdesk_provider::Provider>, Option<hotdesk_fleet::Price>)> {
    let mut settings = Settings::of_file(config, data)?;
    settings.images = places::images(images);
    let price = settings.fleet.prices.get(kind.name()).copied();
    Ok((providers::alone(kind, fleet, data, &settings).await?, price))
}

/// Google as the settings have it, in another project if one is said; and the bucket of the settings.
pub(crate) fn google_alone(
    data: &Path,
    images: &Arc<Library>,
    project: Option<String>,
) -> Outcome<(hotdesk_provider::gce::Gce, Option<String>)> {
    let mut elsewhere = Settings::of_file(None, data)?.elsewhere;
    elsewhere.gce.project = project.unwrap_or(elsewhere.gce.project);
    Ok((providers::google_alone(data, images, &elsewhere)?, elsewhere.gce.bucket))
}

/// Threads that are stuck in the kernel must not keep us when all else is over.
const LAST_MOMENT: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen: ADDRESS:PORT, :PORT for every address, or unix:PATH; can be given several times [default: 127.0.0.1:7700]
    #[arg(long, env = "HOTDESK_LISTEN", hide_env_values = true, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) listen: Vec<Address>,

    /// Where the fleet keeps its things [default: /var/lib/hotdesk, or .local/share/hotdesk in the user's home]
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// The database: postgres://USER@HOST/NAME lets several of us serve one fleet [default: SQLite in the data directory]
    #[arg(long, env = "HOTDESK_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<String>,

    /// Where desks live; can be given several times, the first is the default [default: local, and docker where it answers]
    #[arg(long = "provider", env = "HOTDESK_PROVIDERS", hide_env_values = true, value_name = "NAME", value_delimiter = ',')]
    providers: Vec<Kind>,

    /// Where built templates are, for all fleets of this machine [default: /var/cache/hotdesk/images, or .cache/hotdesk/images in the user's home]
    #[arg(long, env = "HOTDESK_IMAGES", hide_env_values = true, value_name = "DIR")]
    images: Option<PathBuf>,

    /// The settings file [default: hotdesk.toml in the data directory, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Most desks at a time [default: 100]
    #[arg(long, env = "HOTDESK_MAX_DESKS", hide_env_values = true, value_name = "NUMBER")]
    max_desks: Option<u32>,

    /// Where archives go: a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX [default: archives in the data directory]
    #[arg(long, env = "HOTDESK_ARCHIVE", hide_env_values = true, value_name = "PLACE")]
    archive: Option<String>,

    /// A certificate in PEM, with --tls-key: TCP addresses speak HTTPS
    #[arg(long, env = "HOTDESK_TLS_CERT", hide_env_values = true, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key in PEM
    #[arg(long, env = "HOTDESK_TLS_KEY", hide_env_values = true, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// The address that clients use, where a proxy stands before us
    #[arg(long, env = "HOTDESK_PUBLIC_URL", hide_env_values = true, value_name = "URL")]
    public_url: Option<String>,

    /// Programs of this machine may read /metrics without a key
    #[arg(long)]
    open_metrics: bool,

    /// The log's form, text or json, or what is logged: error, warn, info, debug, or a filter [default: text, info]
    ///
    /// Can be given twice, for both.
    #[arg(long, env = "HOTDESK_LOG", hide_env_values = true, value_name = "FORM|FILTER", value_delimiter = ';')]
    log: Vec<Log>,

    /// A session of our own, for those who start us in the background
    #[arg(long, hide = true)]
    detach: bool,
}

pub(crate) fn run(args: ServeArgs) -> Exit {
    if args.detach {
        // Fails only if we lead a group already, and then the terminal's end does not concern us either.
        let _ = nix::unistd::setsid();
    }
    init::close_foreign_descriptors_at_exec();
    init::allow_many_descriptors();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return Failure::local(format!("no threads can be started: {e}")).tell(),
    };
    let outcome = runtime.block_on(serve(args));
    runtime.shutdown_timeout(LAST_MOMENT);
    outcome.unwrap_or_else(|failure| failure.tell())
}

/// The fleet's settings, for commands that look at its data directory by themselves.
pub(crate) fn fleet_config(config: Option<&Path>, data: &Path) -> Outcome<hotdesk_fleet::Config> {
    let mut fleet = Settings::of_file(config, data)?.fleet;
    fleet.data = data.to_owned();
    if let Some(store) = std::env::var("HOTDESK_STORE").ok().filter(|store| !store.is_empty()) {
        fleet.store = store;
    }
    Ok(fleet)
}

async fn serve(args: ServeArgs) -> Outcome {
    // Before anything else, so that a signal that comes while we start is not lost.
    let stop = stop_signals()?;
    let data = places::data(args.data.as_deref());
    announce::make_directory(&data)?;
    let (format, filter) = settings::log(&args.log);
    let settings = Settings::read(args, data)?;
    let telemetry = telemetry::init(format, &filter).map_err(settings::refused)?;
    let outcome = run_fleet(settings, stop).await;
    telemetry.close().await;
    outcome
}

async fn run_fleet(settings: Settings, stop: CancellationToken) -> Outcome {
    let Settings { fleet: config, mut gateway, local, docker, qemu, elsewhere, kinds, images } = settings;
    let data = config.data.clone();
    let name = announce::fleet_name(&data)?;
    let library = Library::open(&images)
        .map_err(|e| Failure::local(e.to_string()).during(format!("the templates in {} can't be used", images.display())))?;
    let library = Arc::new(library.with_templates(data.join("templates")));
    let configs = providers::Configs { local: &local, docker: &docker, qemu: &qemu, elsewhere: &elsewhere };
    let providers = providers::open(&kinds, &name, &data, &library, configs).await?;
    let store = store::open(&config).await.map_err(|e| failure(&e, &data))?;
    one_fleet(store.as_ref(), &name, &data).await?;
    let key = Keys::open(store.clone()).await.map_err(|e| failure(&e, &data))?;
    let key = key.admin(&data).await.map_err(|e| failure(&e, &data))?;
    // Clients of this machine need no certificate: they come by a socket that only its owner can open.
    let socket = gateway.tls.is_some().then(|| data.join("api.sock"));
    gateway.listen.extend(socket.clone().map(Address::Unix));
    let fleet = Fleet::open(config, store, providers).await.map_err(|e| failure(&e, &data))?;
    let gateway = match Gateway::bind(gateway, fleet.clone(), library).await {
        Ok(gateway) => gateway,
        Err(e) => {
            fleet.close().await;
            return Err(settings::refused(e));
        }
    };
    let announcement = Announcement::write(&data, &gateway, socket.as_deref())?;
    tracing::info!(url = announcement.url(), data = %data.display(), key = %key.display(), fleet = name, "the fleet is served");
    notify::send(&format!("READY=1\nSTATUS=The fleet is served at {}", announcement.url()));
    gateway.run(stop).await;
    notify::send("STOPPING=1");
    drop(announcement);
    fleet.close().await;
    Ok(Exit::Success)
}

/// Orchestrators that share a database share the fleet's name too: by it they find each other's desks, and whatever does
/// not carry it is not touched. Their data directory holds it.
async fn one_fleet(store: &dyn store::Store, name: &str, data: &Path) -> Outcome<()> {
    let owner = store.identity(name).await.map_err(|e| failure(&e, data))?;
    if owner == name {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the database belongs to the fleet {owner}, and the data directory {} to the fleet {name}",
        data.display()
    ))
    .hint("orchestrators of one fleet share its data directory, or at least the file fleet-id in it"))
}

/// Told at the first SIGTERM or SIGINT; a second one ends us at once, which desks survive.
pub(crate) fn stop_signals() -> Outcome<CancellationToken> {
    let failed = |e: std::io::Error| Failure::local(format!("signals can't be handled: {e}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        loop {
            let number = tokio::select! {
                _ = terminate.recv() => nix::libc::SIGTERM,
                _ = interrupt.recv() => nix::libc::SIGINT,
            };
            if told.is_cancelled() {
                std::process::exit(Exit::Signal(number).code().into());
            }
            tracing::info!("asked to stop");
            told.cancel();
        }
    });
    Ok(stop)
}

fn failure(error: &hotdesk_fleet::Error, data: &Path) -> Failure {
    use hotdesk_fleet::Error;
    let failure = Failure::new(
        match error {
            Error::Conflict(_) => Exit::Taken,
            Error::Invalid(_) => Exit::Usage,
            _ => Exit::Failure,
        },
        error.to_string(),
    );
    match error {
        Error::Conflict(_) => failure.hint("hotdesk ls uses the one that runs, hotdesk down stops it"),
        _ => failure.during(format!("the fleet in {} can't be opened", data.display())),
    }
}
