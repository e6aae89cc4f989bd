//! `hotdesk vm`: one virtual machine, from start to end; the entrypoint of VM images.
//!
//! It never ends by itself. Without a disk it says so, at `/health` and on a page, and starts the machine when the disk appears, so an image can be
//! started, checked and kept by whoever runs it before its volume is there.

mod disk;
mod sizes;

use crate::commands::serve;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::init;
use clap::Args;
use clap::builder::BoolishValueParser;
use hotdesk_provider::qemu;
use hotdesk_provider::qemu::accel::{self, Choice};
use hotdesk_provider::qemu::keeper::{Keeper, Listen, Plan};
use hotdesk_provider::qemu::machine::{Machine, Memory, Network};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Threads that are stuck in the kernel must not keep us when all else is over.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// A machine that ended is started again after so long.
const AGAIN: Duration = Duration::from_secs(5);
/// From power on to settled; an emulated desktop on a busy machine takes minutes.
const BOOT_LIMIT_S: u64 = 1800;
/// What is left for us of the container's memory.
const SPARE_MIB: u64 = 512;

#[derive(Debug, Args)]
pub(crate) struct VmArgs {
    /// The disk: a qcow2 or raw file, or a directory with the parts of one [default: /vm/System.qcow2, /System.qcow2, the parts in /vm-parts]
    ///
    /// It is never written; what the machine writes goes to the storage directory.
    #[arg(long, env = "HOTDESK_DISK", hide_env_values = true, value_name = "FILE")]
    disk: Option<PathBuf>,

    /// Where to answer for the guest's server: ADDRESS:PORT, :PORT for every address, or unix:PATH [default: 0.0.0.0:5000]
    #[arg(long, env = "HOTDESK_LISTEN", hide_env_values = true, value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<hotdesk_gateway::Address>,

    /// Other ports of the guest that are reached at the same number here
    #[arg(
        long,
        env = "HOTDESK_PORTS",
        hide_env_values = true,
        value_name = "PORT",
        value_delimiter = ',',
        default_value = "9222,8080"
    )]
    ports: Vec<u16>,

    /// The port at which a browser sees the machine's screen (noVNC)
    #[arg(long, env = "HOTDESK_SCREEN_PORT", hide_env_values = true, value_name = "PORT", default_value_t = 8006)]
    screen_port: u16,

    /// The address at which those ports are reached
    #[arg(long, env = "HOTDESK_PORTS_ADDRESS", hide_env_values = true, value_name = "ADDRESS", default_value = "0.0.0.0")]
    ports_address: std::net::IpAddr,

    /// Where the machine's own files go: what it writes, logs, sockets [default: /storage, or a directory in /tmp]
    #[arg(long, env = "HOTDESK_STORAGE", hide_env_values = true, value_name = "DIR")]
    storage: Option<PathBuf>,

    /// The guest's memory, such as 4G [default: 4G, or what the container leaves]
    #[arg(long, env = "RAM_SIZE", hide_env_values = true, value_name = "SIZE", value_parser = sizes::parse)]
    memory: Option<u64>,

    /// The guest's processors [default: 4, or as many as there are]
    #[arg(long, env = "CPU_CORES", hide_env_values = true, value_name = "NUMBER")]
    cpus: Option<u32>,

    /// How large the guest sees its disk; only ever larger than it is, such as 64G
    #[arg(long, env = "DISK_SIZE", hide_env_values = true, value_name = "SIZE", value_parser = sizes::parse)]
    disk_size: Option<u64>,

    /// Whether KVM may be used: Y (if it works) or N
    #[arg(long, env = "KVM", hide_env_values = true, value_parser = BoolishValueParser::new(), default_value = "true", action = clap::ArgAction::Set)]
    kvm: bool,

    /// Whether the guest may reach the outside (never this machine)
    #[arg(long, env = "NETWORK", hide_env_values = true, value_parser = BoolishValueParser::new(), default_value = "true", action = clap::ArgAction::Set)]
    network: bool,

    /// Private networks that the guest may reach, such as 10.1.0.0/16
    #[arg(long, env = "HOTDESK_ALLOW_PRIVATE", hide_env_values = true, value_name = "NETWORK", value_delimiter = ',')]
    allow_private: Vec<hotdesk_provider::closed::Cidr>,

    /// What requests need to get in; none: nothing, as OSWorld's own images have it
    #[arg(long, env = "HOTDESK_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,

    /// A firmware for disks that a BIOS can't start, such as /usr/share/ovmf/OVMF.fd
    #[arg(long, env = "HOTDESK_FIRMWARE", hide_env_values = true, value_name = "FILE")]
    firmware: Option<PathBuf>,

    /// The size of the guest's screen
    #[arg(long, env = "HOTDESK_SIZE", hide_env_values = true, value_name = "WIDTHxHEIGHT", default_value = "1920x1080")]
    size: hotdesk_desk::config::ScreenSize,

    /// A machine of the provider qemu, described in a file
    #[arg(long, hide = true, value_name = "FILE")]
    plan: Option<PathBuf>,
}

pub(crate) fn run(args: VmArgs) -> Exit {
    init::close_foreign_descriptors_at_exec();
    init::allow_many_descriptors();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
    // A machine of the provider is shut in before there are threads.
    let plan = match args.plan.as_deref().map(take_plan).transpose() {
        Ok(plan) => plan,
        Err(failure) => return failure.tell(),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return Failure::local(format!("no threads can be started: {e}")).tell(),
    };
    let outcome = runtime.block_on(async {
        let stop = serve::stop_signals()?;
        match &plan {
            Some(plan) => planned(plan, &args.listen, stop).await,
            None => forever(&args, stop).await,
        }
    });
    runtime.shutdown_timeout(LAST_MOMENT);
    outcome.unwrap_or_else(|failure| failure.tell())
}

/// Reads a plan, tells that it is being followed, and gives up what rights are not needed for it.
fn take_plan(path: &Path) -> Outcome<Plan> {
    let text = std::fs::read(path).map_err(|e| Failure::local(format!("{}: {e}", path.display())))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|e| Failure::local(format!("{}: {e}", path.display())))?;
    // From here on whoever looks knows that we are there, and may have the lock that came with us as our input.
    plan.announce().map_err(|e| Failure::local(e.to_string()))?;
    let nothing = std::fs::File::open("/dev/null").map_err(|e| Failure::local(format!("/dev/null: {e}")))?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|e| Failure::local(format!("the lock can't be given back: {e}")))?;
    plan.confine().map_err(|e| Failure::local(e.to_string()))?;
    Ok(plan)
}

/// A machine of the provider: ends when it ends.
async fn planned(plan: &Plan, listen: &[hotdesk_gateway::Address], stop: CancellationToken) -> Outcome {
    let keeper = Keeper::new(plan.secret.clone());
    for address in listen {
        let at = at(address);
        keeper.listen(&at).await.map_err(|e| Failure::new(Exit::Taken, format!("can't listen on {at:?}: {e}")))?;
    }
    match keeper.run(plan, stop.cancelled_owned()).await {
        Ok(how) => {
            tracing::info!(how, "the machine has ended");
            Ok(Exit::Success)
        }
        Err(e) => Err(Failure::local(e.to_string())),
    }
}

/// A machine of a container: stays, whatever becomes of it.
async fn forever(args: &VmArgs, stop: CancellationToken) -> Outcome {
    let keeper = Keeper::new(args.token.clone());
    let default = [hotdesk_gateway::Address::Tcp(SocketAddr::from(([0, 0, 0, 0], 5000)))];
    let listen = if args.listen.is_empty() { &default[..] } else { &args.listen[..] };
    for address in listen {
        let at = at(address);
        let taken = keeper.listen(&at).await.map_err(|e| Failure::new(Exit::Taken, format!("can't listen on {at:?}: {e}")))?;
        tracing::info!(address = ?taken, "answering");
    }
    let screen = (args.screen_port, Listen::Screen(SocketAddr::new(args.ports_address, args.screen_port)));
    let ports = args.ports.iter().map(|port| (*port, Listen::Port(SocketAddr::new(args.ports_address, *port), *port)));
    for (port, at) in ports.chain([screen]) {
        // A port that somebody else has is no reason not to run.
        if let Err(e) = keeper.listen(&at).await {
            tracing::warn!(port, error = %e, "a port of the guest is not reached here");
        }
    }
    while !stop.is_cancelled() {
        let machine = async {
            let disk = disk::wait(args.disk.as_deref(), &keeper).await;
            once(args, &keeper, &disk, stop.clone()).await
        };
        let ended = tokio::select! {
            ended = machine => ended,
            // Between two machines there is nothing to end.
            () = stop.cancelled(), if !keeper.has_machine() => break,
        };
        match ended {
            Ok(how) => tracing::info!(how, "the machine has ended"),
            Err(failure) => {
                tracing::error!(reason = failure.text(), "the machine can't run");
                keeper.note("failed", format!("{}; it is tried again", failure.text()));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(Exit::Success)
}

/// One run of the machine on a disk that is there.
async fn once(args: &VmArgs, keeper: &Keeper, disk: &Path, stop: CancellationToken) -> Outcome<String> {
    let failed = |e: hotdesk_provider::Error| Failure::local(e.to_string());
    keeper.note("preparing", format!("the disk {} is there", disk.display()));
    let program =
        qemu::find_program().ok_or_else(|| Failure::new(Exit::Missing, "qemu-system-x86_64 is missing").hint(qemu::INSTALL))?;
    let storage = disk::storage(args.storage.as_deref())?;
    let opened = qemu::open_disk(disk).map_err(failed)?;
    let choice = if args.kvm { Choice::Auto } else { Choice::Tcg };
    let accel = accel::choose(choice, &program, &storage.join("accel.json")).await.map_err(failed)?;
    tracing::info!(accel = accel.accel.name(), why = accel.why, "the machine");
    keeper.note("preparing", accel.why.clone());
    let bytes = opened.base.bytes.max(args.disk_size.unwrap_or(0));
    // What this machine writes is built on the disk, which must stay if it is a template's.
    if let Ok(images) = crate::places::images(None).canonicalize()
        && opened.base.path.starts_with(&images)
    {
        let said = hotdesk_image::Library::open(images).and_then(|library| library.add_user(&storage));
        if let Err(e) = said {
            tracing::warn!(error = %e, "`hotdesk template prune` will not know that this machine needs the disk");
        }
    }
    let own = opened.over(&storage, bytes).map_err(failed)?;
    let machine = Machine {
        program,
        accel: accel.accel,
        cpus: args.cpus.unwrap_or(4).clamp(1, sizes::cpus()),
        memory_mib: args
            .memory
            .map_or_else(|| (sizes::memory_mib().saturating_sub(SPARE_MIB)).clamp(256, 4096), |bytes| bytes >> 20),
        screen: args.size.0,
        direct: opened.direct,
        firmware: args.firmware.clone(),
    };
    let plan = Plan {
        name: "hotdesk-vm".into(),
        folder: storage.join("run"),
        machine,
        disk: own,
        memory: Memory::Own,
        allow_private: args.allow_private.clone(),
        network: if args.network { Network::Outside } else { Network::Off },
        secret: args.token.clone(),
        settings: String::new(),
        limit_s: BOOT_LIMIT_S,
        resumed: None,
        save: None,
        limits: None,
        running: None,
        jail: None,
    };
    keeper.run(&plan, stop.cancelled_owned()).await.map_err(failed)
}

fn at(address: &hotdesk_gateway::Address) -> Listen {
    match address {
        hotdesk_gateway::Address::Unix(path) => Listen::Unix(path.clone()),
        hotdesk_gateway::Address::Tcp(address) => Listen::Tcp(*address),
    }
}
