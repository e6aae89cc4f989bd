//! The providers of a fleet on this machine.

use super::elsewhere::Elsewhere;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use hotdesk_image::Library;
use hotdesk_provider::daytona::Daytona;
use hotdesk_provider::docker::{self, Docker};
use hotdesk_provider::e2b::E2b;
use hotdesk_provider::gce::Gce;
use hotdesk_provider::kubernetes::Kubernetes;
use hotdesk_provider::local::Local;
use hotdesk_provider::qemu::{self, Qemu};
use hotdesk_provider::{Check, Context, Provider};
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;

/// A provider that this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Local,
    Docker,
    Qemu,
    Kubernetes,
    Daytona,
    E2b,
    Gce,
}

/// Settings of the provider `local`.
pub(super) type LocalConfig = hotdesk_provider::local::Config;

/// Settings of the provider `docker`.
pub(super) type DockerConfig = docker::Config;

/// Settings of the provider `qemu`.
pub(super) type QemuConfig = qemu::Config;

/// Settings of all providers.
#[derive(Clone, Copy)]
pub(super) struct Configs<'a> {
    pub(super) local: &'a LocalConfig,
    pub(super) docker: &'a DockerConfig,
    pub(super) qemu: &'a QemuConfig,
    pub(super) elsewhere: &'a Elsewhere,
}

/// Opens the providers that are wanted; without a wish `local`, and those beside it that answer.
pub(super) async fn open(
    kinds: &[Kind],
    fleet: &str,
    data: &Path,
    images: &Arc<Library>,
    configs: Configs<'_>,
) -> Outcome<Vec<Arc<dyn Provider>>> {
    let wanted: &[Kind] = if kinds.is_empty() { &[Kind::Local, Kind::Docker, Kind::Qemu] } else { kinds };
    let mut opened = Vec::new();
    for kind in wanted {
        let context = context(*kind, fleet, data, images)?;
        // A daemon that answered once is waited for when it is down: it may have desks.
        let mark = context.data.clone();
        let guess = kinds.is_empty() && *kind == Kind::Docker && !mark.exists();
        if kinds.is_empty() && *kind == Kind::Qemu && qemu::find_program().is_none() && !mark.exists() {
            continue;
        }
        match make(*kind, context, configs).await {
            Ok(provider) if guess => match provider.list().await {
                Ok(_) => {
                    std::fs::create_dir_all(&mark).map_err(|e| Failure::local(format!("{}: {e}", mark.display())))?;
                    opened.push(provider);
                }
                Err(e) => tracing::debug!(reason = %e, "docker is not used"),
            },
            Ok(provider) => opened.push(provider),
            Err(failure) if kinds.is_empty() => tracing::debug!(provider = kind.name(), ?failure, "not used"),
            Err(failure) => return Err(failure.during(format!("the provider {} can't be used", kind.name()))),
        }
    }
    match opened.is_empty() {
        true => Err(Failure::new(Exit::Missing, "desks can live nowhere on this machine").hint("hotdesk doctor tells why")),
        false => Ok(opened),
    }
}

fn context(kind: Kind, fleet: &str, data: &Path, images: &Arc<Library>) -> Outcome<Context> {
    // Desks go on with the program that they were started with, even when its file is replaced.
    let binary = std::env::current_exe().map_err(|e| Failure::local(format!("this program can't be found: {e}")))?;
    Ok(Context { fleet: fleet.into(), data: data.join(kind.name()), binary, images: Arc::clone(images) })
}

async fn make(kind: Kind, context: Context, configs: Configs<'_>) -> Outcome<Arc<dyn Provider>> {
    let Configs { local, docker, qemu, elsewhere } = configs;
    match kind {
        // Looks at the machine and tidies up, which takes a while.
        Kind::Local => {
            let local = local.clone();
            match tokio::task::spawn_blocking(move || Local::new(context, local)).await {
                Ok(Ok(local)) => Ok(Arc::new(local)),
                Ok(Err(e)) => Err(Failure::new(Exit::Missing, e.to_string())),
                Err(e) => Err(Failure::local(e.to_string())),
            }
        }
        Kind::Docker => match Docker::new(context, docker.clone()) {
            Ok(docker) => Ok(Arc::new(docker)),
            Err(e) => Err(Failure::new(Exit::Missing, e.to_string())),
        },
        Kind::Qemu => match Qemu::new(context, qemu.clone()) {
            Ok(qemu) => Ok(Arc::new(qemu)),
            Err(e) => Err(Failure::new(Exit::Missing, e.to_string())),
        },
        Kind::Kubernetes => match Kubernetes::new(context, elsewhere.kubernetes.clone()) {
            Ok(kubernetes) => Ok(Arc::new(kubernetes)),
            Err(e) => Err(Failure::usage(e.to_string())),
        },
        Kind::Daytona => match Daytona::new(context, elsewhere.daytona.clone()) {
            Ok(daytona) => Ok(Arc::new(daytona)),
            Err(e) => Err(Failure::usage(e.to_string())),
        },
        Kind::E2b => match E2b::new(context, elsewhere.e2b.clone()) {
            Ok(e2b) => Ok(Arc::new(e2b)),
            Err(e) => Err(Failure::usage(e.to_string())),
        },
        Kind::Gce => google(context, elsewhere).map(|gce| Arc::new(gce) as Arc<dyn Provider>),
    }
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Qemu => "qemu",
            Self::Kubernetes => "kubernetes",
            Self::Daytona => "daytona",
            Self::E2b => "e2b",
            Self::Gce => "gce",
        }
    }
}

/// What works here, for `hotdesk doctor`; or why there is nothing to look at.
pub(crate) async fn check(kind: Kind, data: &Path, images: &Arc<Library>) -> Result<Vec<Check>, String> {
    let context = context(kind, "doctor00", data, images).map_err(|failure| failure.text())?;
    let (local, docker, qemu, elsewhere) = Default::default();
    let configs = Configs { local: &local, docker: &docker, qemu: &qemu, elsewhere: &elsewhere };
    let provider = make(kind, context, configs).await.map_err(|failure| failure.text())?;
    Ok(provider.check().await)
}

/// One provider by itself, under a fleet's name of its own: nothing else of the account is touched.
pub(super) async fn alone(kind: Kind, fleet: &str, data: &Path, settings: &super::Settings) -> Outcome<Arc<dyn Provider>> {
    let images = Library::open(&settings.images).map_err(|e| Failure::local(e.to_string()))?;
    let context = context(kind, fleet, data, &Arc::new(images))?;
    let super::Settings { local, docker, qemu, elsewhere, .. } = settings;
    make(kind, context, Configs { local, docker, qemu, elsewhere }).await
}

fn google(context: Context, elsewhere: &Elsewhere) -> Outcome<Gce> {
    Gce::new(context, elsewhere.gce.clone())
        .map_err(|e| Failure::usage(e.to_string()).hint("docs/provider-gce.md tells what has to be set"))
}

/// Google as a fleet uses it, to publish images there.
pub(super) fn google_alone(data: &Path, images: &Arc<Library>, elsewhere: &Elsewhere) -> Outcome<Gce> {
    // Images belong to all fleets of the project, so this one has no name that matters.
    google(context(Kind::Gce, "publish0", data, images)?, elsewhere)
}
