//! `hotdesk up`: all of it on this machine, from nothing to a live desk.

use super::down::{running, stop};
use super::steps::{self, finish};
use crate::exit::{Exit, print};
use crate::failure::{Failure, Outcome};
use crate::text::{safe, size};
use crate::waiting::{Waiting, say};
use crate::{out, places, reach};
use clap::Args;
use hotdesk_api::desk::{Desk, NewDesk, State};
use hotdesk_client::{Client, Create, Serve, Settings};
use hotdesk_gateway::Address;
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Opening a fleet takes a moment; one that has to adopt many desks on a busy machine takes longer.
const OPENING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Lines of the log that tell why it did not start.
const LAST_WORDS: usize = 12;

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The template of the first desk [default: base]
    #[arg(long, short, value_name = "NAME")]
    template: Option<String>,

    /// The name of the first desk
    #[arg(long, short, value_name = "NAME", default_value = "first")]
    name: String,

    /// Only the fleet, without a desk
    #[arg(long, conflicts_with_all = ["template"])]
    no_desk: bool,

    /// Start the fleet again if it runs, as after an upgrade; desks keep running
    #[arg(long)]
    restart: bool,

    /// Where the fleet listens, if it does not run yet [default: 127.0.0.1:7700]
    #[arg(long, env = "HOTDESK_LISTEN", hide_env_values = true, value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<Address>,

    /// The data directory of the fleet
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: UpArgs) -> Exit {
    reach::run(async move { up(args).await })
}

async fn up(args: UpArgs) -> Outcome {
    let data = places::data(args.data.as_deref());
    if args.restart
        && let Some(serve) = running(&data)
    {
        stop(&serve).await?;
    }
    let began = match running(&data) {
        Some(_) => false,
        None => {
            start(&data, &args).await?;
            true
        }
    };
    let client = client(&data)?;
    client.ready().await.map_err(|error| Failure::from(error).during("the fleet runs but is not ready"))?;
    if args.no_desk {
        return tell(&client, &data, None, began, args.json);
    }
    let desk = match existing(&client, &args.name).await? {
        Some(desk) => wake(&client, desk, args.json).await?,
        None => {
            let template = args.template.as_deref();
            build(&client, template, args.json).await?;
            make(&client, &args.name, template, args.json).await?
        }
    };
    tell(&client, &data, Some(&desk), began, args.json)
}

/// This machine's fleet alone, whatever the environment says.
fn client(data: &Path) -> Outcome<Client> {
    let settings = Settings { data: Some(data.to_owned()), ..Settings::default() };
    Ok(Client::connect(&settings.find_in(|_| None)?)?)
}

/// Starts `hotdesk serve` in the background and waits until it is ready.
async fn start(data: &Path, args: &UpArgs) -> Outcome<()> {
    super::serve::make_directory(data)?;
    let log = data.join("serve.log");
    let failed = |e: &dyn std::fmt::Display| Failure::local(format!("the fleet can't be started: {e}"));
    let file = File::options().create(true).append(true).open(&log).map_err(|e| failed(&e))?;
    let begin_of_log = file.metadata().map_or(0, |meta| meta.len());
    let own = std::env::current_exe().map_err(|e| failed(&e))?;
    let mut command = Command::new(own);
    command.args(["serve", "--detach", "--data"]).arg(data);
    for address in &args.listen {
        command.arg("--listen").arg(address.to_string());
    }
    // Said with flags; the rest of the environment (templates, telemetry) is handed on.
    command.env_remove("HOTDESK_LISTEN").env_remove("HOTDESK_DATA").current_dir("/");
    let streams = (file.try_clone().map_err(|e| failed(&e))?, file);
    let child = command.stdin(Stdio::null()).stdout(streams.0).stderr(streams.1).spawn().map_err(|e| failed(&e))?;
    let waiting = Waiting::new("starting the fleet", args.json);
    let outcome = until_ready(data, child).await;
    drop(waiting);
    outcome.map_err(|failure| explained(failure, &log, begin_of_log))
}

/// With the reason that the fleet itself told, or else the end of its log.
fn explained(failure: Failure, log: &Path, from: u64) -> Failure {
    let words = last_words(log, from);
    let told = |what: &str| words.iter().rev().find_map(|line| line.strip_prefix(what)).map(str::to_owned);
    let hint = told("hint: ").unwrap_or_else(|| format!("the whole log is in {}", log.display()));
    let causes: Vec<_> = words.iter().filter_map(|line| line.strip_prefix("  caused by: ")).collect();
    match told("error: ") {
        Some(error) => causes.iter().fold(failure.because(&error), |failure, cause| failure.because(cause)).hint(hint),
        None => {
            words.iter().for_each(|line| say(&format!("  {}", safe(line))));
            failure.hint(hint)
        }
    }
}

async fn until_ready(data: &Path, mut child: Child) -> Outcome<()> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| Failure::local(e.to_string()))? {
            let exit = match status.code() {
                Some(4) => Exit::Taken,
                Some(3) => Exit::Missing,
                Some(2) => Exit::Usage,
                _ => Exit::Failure,
            };
            return Err(Failure::new(exit, "the fleet did not start"));
        }
        let announced = Serve::read(data).is_some_and(|serve| serve.pid == child.id());
        if announced && client(data)?.ready().await.is_ok() {
            return Ok(());
        }
        if begin.elapsed() > OPENING {
            return Err(Failure::new(Exit::Late, format!("the fleet was not ready after {} s", OPENING.as_secs())));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn last_words(log: &Path, from: u64) -> Vec<String> {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(text.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default()).into_owned();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_WORDS)..].iter().map(|line| (*line).to_owned()).collect()
}

async fn existing(client: &Client, name: &str) -> Outcome<Option<Desk>> {
    match client.desk(name).get().await {
        Ok(desk) => Ok(Some(desk)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A desk of an earlier time, running again.
async fn wake(client: &Client, desk: Desk, json: bool) -> Outcome<Desk> {
    let waiting = Waiting::new(&format!("waking the desk {}", reach::title(&desk)), json);
    let done = match desk.state {
        State::Stopped | State::Archived => client.desk(&desk.id).start_within(Duration::from_secs(1)).await?,
        _ => hotdesk_client::Done { over: false, desk },
    };
    finish(client, done, &waiting, steps::LONGEST).await
}

/// Builds the template where it is not built yet, which takes minutes the first time.
async fn build(client: &Client, template: Option<&str>, json: bool) -> Outcome<()> {
    let name = template.unwrap_or("base");
    let known = client.templates().await?;
    match known.iter().find(|template| template.name == name) {
        Some(template) if template.built => return Ok(()),
        Some(_) => {}
        // The fleet knows best what is wrong with it.
        None => return Ok(()),
    }
    // Other providers bring their own.
    if !client.fleet().await?.providers.iter().any(|provider| provider.name == "local" && provider.ready) {
        return Ok(());
    }
    if !json {
        say(&format!("the template {} is built, once on this machine; this takes a few minutes", safe(name)));
    }
    super::template::build_by(client, name, json).await
}

async fn make(client: &Client, name: &str, template: Option<&str>, json: bool) -> Outcome<Desk> {
    let desk = NewDesk { name: Some(name.to_owned()), template: template.map(str::to_owned), ..NewDesk::default() };
    let waiting = Waiting::new("making a desk", json);
    let done = client.create_with(&desk, &Create { wait: Duration::from_secs(1), ..Create::default() }).await;
    let done = done.map_err(|error| Failure::from(error).during("the desk was not made"))?;
    finish(client, done, &waiting, steps::LONGEST).await
}

fn tell(client: &Client, data: &Path, desk: Option<&Desk>, began: bool, json: bool) -> Outcome {
    let url = client.target().to_string();
    if json {
        return out::json(&json!({"url": url, "data": data, "log": data.join("serve.log"), "started": began, "desk": desk}));
    }
    let hotdesk = places::own_name();
    let mut text = String::new();
    match desk {
        Some(desk) => {
            let name = safe(reach::handle(desk)).into_owned();
            let memory = size(desk.resources.memory_mib << 20);
            text += &format!("The desk {name} is live ({}, template {}, {memory} at most).\n\n", desk.id, safe(&desk.template));
            text += &format!("  fleet  {url}\n");
            text += &format!("  see    {hotdesk} open {name}     (the dashboard, signed in)\n");
            text += &format!("  look   {hotdesk} shot {name}\n");
            text += &format!("  shell  {hotdesk} sh {name}\n");
        }
        None => {
            text += &format!("The fleet is up.\n\n  fleet  {url}\n  desk   {hotdesk} new\n");
        }
    }
    if !places::is_default_data(data) {
        text += &format!(
            "\nFirst, because the data directory is not the usual one:\n\n  eval \"$({hotdesk} env --data {})\"\n",
            data.display()
        );
    }
    Ok(print(text.as_bytes()))
}
