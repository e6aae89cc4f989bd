//! `hotdesk new`: makes a desk.

use super::steps::{self, finish};
use super::volume::parse_mount;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach::{self, Reach, handle};
use crate::text::{parse_mebibytes, parse_pair, parse_screen, parse_span};
use crate::waiting::{Waiting, say};
use clap::Args;
use hotdesk_api::action::Size;
use hotdesk_api::desk::{Desk, NewDesk, ResourcesRequest};
use hotdesk_api::fleet::VolumeMount;
use hotdesk_client::Create;
use std::io::IsTerminal;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Example: hotdesk new --name work --auto-stop 1h --label team=qa")]
pub(crate) struct NewArgs {
    /// The template to start from [default: base]
    #[arg(long, short, value_name = "NAME", conflicts_with = "from_snapshot")]
    template: Option<String>,

    /// The snapshot to start from, instead of a template
    #[arg(long, value_name = "SNAPSHOT")]
    from_snapshot: Option<String>,

    #[command(flatten)]
    wishes: Wishes,

    /// Do not wait until the desk runs
    #[arg(long, overrides_with = "wait")]
    no_wait: bool,

    /// Wait so long at most until the desk runs [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    wait: Option<Duration>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

/// What can be wished for in a new desk or a fork.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Wishes {
    /// A name, unique in its project
    #[arg(long, short, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// A label; can be given several times
    #[arg(long = "label", short, value_name = "NAME=VALUE", value_parser = parse_pair)]
    labels: Vec<(String, String)>,

    /// A variable for its programs; can be given several times
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse_pair)]
    env: Vec<(String, String)>,

    /// How many CPUs it may use
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<f32>,

    /// How much memory it may use, such as 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_mebibytes)]
    memory: Option<u64>,

    /// How much disk it may use, such as 5G
    #[arg(long, value_name = "SIZE", value_parser = parse_mebibytes)]
    disk: Option<u64>,

    /// A volume and where to mount it; can be given several times
    #[arg(long = "volume", value_name = "NAME:/PATH[:ro]", value_parser = parse_mount)]
    volumes: Vec<VolumeMount>,

    /// Stop it when it was idle so long, such as 15m; never keeps it
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    auto_stop: Option<Duration>,

    /// Archive it when it was stopped so long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    auto_archive: Option<Duration>,

    /// Delete it when it was stopped or archived so long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    auto_delete: Option<Duration>,

    /// Delete it after so long, whatever it does
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    ttl: Option<Duration>,

    /// Size of its screen
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_screen)]
    screen: Option<Size>,

    /// It reaches nothing outside
    #[arg(long)]
    no_network: bool,

    /// Where it lives: local, docker, … [default: the fleet's first]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,

    /// Whose desk it is; only for keys of the whole fleet
    #[arg(long, value_name = "NAME")]
    project: Option<String>,

    /// Wait so long for a free place when a limit is reached
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    queue: Option<Duration>,
}

impl Wishes {
    pub(crate) fn desk(self) -> NewDesk {
        let mut desk = NewDesk {
            name: self.name,
            provider: self.provider,
            labels: said(self.labels).map(|pairs| pairs.into_iter().collect()),
            env: said(self.env).map(|pairs| pairs.into_iter().collect()),
            screen: self.screen,
            volumes: said(self.volumes),
            network: self.no_network.then_some(false),
            project: self.project,
            queue_s: self.queue.map_or(0, |time| time.as_secs()),
            // A flag can be seen by everybody, so this one has only its variable, as with hotdesk desk.
            vnc_password: std::env::var("VNC_PASSWORD").ok().filter(|password| !password.is_empty()),
            ..NewDesk::default()
        };
        // What is not said is the template's and the fleet's.
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
        desk.policy.auto_stop_s = seconds(self.auto_stop);
        desk.policy.auto_archive_s = seconds(self.auto_archive);
        desk.policy.auto_delete_s = seconds(self.auto_delete);
        desk.policy.ttl_s = seconds(self.ttl);
        desk.resources = ResourcesRequest { cpus: self.cpus, memory_mib: self.memory, disk_mib: self.disk };
        desk
    }
}

/// A flag that can be given several times, if it was.
fn said<T>(all: Vec<T>) -> Option<Vec<T>> {
    (!all.is_empty()).then_some(all)
}

pub(crate) fn run(args: NewArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = NewDesk { template: args.template, snapshot: args.from_snapshot, ..args.wishes.desk() };
        let waiting = Waiting::new("making a desk", args.json);
        // A desk that has to queue is answered for when it has its place.
        let wait = steps::first_wait(args.no_wait).max(Duration::from_secs(if args.no_wait { 0 } else { desk.queue_s }));
        let done = client.create_with(&desk, &Create { wait, ..Create::default() }).await;
        let done = done.map_err(|error| Failure::from(error).during("the desk was not made"))?;
        let desk = match args.no_wait {
            true => done.desk,
            false => finish(&client, done, &waiting, args.wait.unwrap_or(steps::LONGEST)).await?,
        };
        drop(waiting);
        tell(&desk, args.json)
    })
}

/// The id on stdout, what to do with it on stderr.
pub(crate) fn tell(desk: &Desk, json: bool) -> Outcome {
    if json {
        return out::json(desk);
    }
    let exit = out::line(&desk.id);
    if std::io::stdout().is_terminal() {
        let name = crate::text::safe(handle(desk)).into_owned();
        say(&format!("look: hotdesk shot {name}   shell: hotdesk sh {name}   remove: hotdesk rm {name}"));
    }
    Ok(exit)
}
