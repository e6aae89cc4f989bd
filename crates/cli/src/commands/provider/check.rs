//! `hotdesk provider check`: one desk's whole life at a provider, told step by step, and an end that leaves nothing behind.

use crate::commands::serve::{self, Kind};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::{out, places};
use clap::Args;
use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use hotdesk_provider::cloud::fresh_token;
use hotdesk_provider::{DeskSpec, Door, Error, Placed, Progress, Provider, SnapshotRef};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A vendor may have to fetch an image first.
const STEP: Duration = Duration::from_secs(2 * 3600);
/// What was made is removed within this, or it is told that it was not.
const CLEAN_UP: Duration = Duration::from_secs(300);
const MIB_PER_GIB: f64 = 1024.0;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The provider, such as `daytona`
    #[arg(value_name = "NAME")]
    name: Kind,

    /// The template of the desk that is made
    #[arg(long, value_name = "NAME", default_value = "base")]
    template: String,

    /// A settings file in TOML [default: hotdesk.toml in the data directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The data directory
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Where built templates are
    #[arg(long, env = "HOTDESK_IMAGES", hide_env_values = true, value_name = "DIR")]
    images: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// One step, as it is told.
#[derive(Debug, serde::Serialize)]
struct Line {
    step: String,
    good: bool,
    detail: String,
    seconds: f64,
}

pub(super) async fn run(args: CheckArgs) -> Outcome {
    let interrupted = serve::stop_signals()?;
    let data = places::data(args.data.as_deref());
    // Its own name, so that no fleet's desks are near.
    let fleet = format!("chk{}", &fresh_token()[..5]);
    let (provider, price) =
        serve::provider_alone(args.name, &fleet, args.config.as_deref(), &data, args.images.as_deref()).await?;
    let resources = Resources::default();
    if let Some(price) = price {
        let hourly = f64::from(resources.cpus) * price.cpu_hour
            + resources.memory_mib as f64 / MIB_PER_GIB * price.memory_gib_hour
            + resources.disk_mib as f64 / MIB_PER_GIB * price.disk_gib_hour;
        say(&format!("a desk like the one that is made costs about {hourly:.3} an hour there"));
    }
    let spec = DeskSpec {
        id: format!("d-check{}", &fresh_token()[..7]),
        template: args.template,
        snapshot: None,
        resources,
        screen: Size { width: 1280, height: 800 },
        env: Default::default(),
        labels: Default::default(),
        network: true,
        vnc_password: None,
        secret: format!("hd_{}{}", fresh_token(), fresh_token()).replace('-', ""),
        volumes: Vec::new(),
    };
    let mut trial = Trial { provider, spec, lines: Vec::new() };
    let ended = tokio::select! {
        ended = trial.steps() => Some(ended),
        () = interrupted.cancelled() => None,
    };
    if ended.is_none() {
        say("interrupted; removing what was made");
    }
    let clean = trial.clean_up().await;
    let lines = std::mem::take(&mut trial.lines);
    if args.json {
        out::json(&lines)?;
    }
    let bad = lines.iter().filter(|line| !line.good).count();
    match (ended, clean) {
        (_, false) => Err(Failure::local(format!("something may be left at {}", args.name.name()))
            .hint(format!("look there for what carries the name {fleet}, and remove it by hand"))),
        (None, true) => Ok(Exit::Signal(2)),
        (Some(_), true) if bad > 0 => Err(Failure::local(format!("{bad} of {} steps failed", lines.len()))),
        (Some(_), true) => {
            say(&format!("{} steps, all good; nothing is left behind", lines.len()));
            Ok(Exit::Success)
        }
    }
}

struct Trial {
    provider: Arc<dyn Provider>,
    spec: DeskSpec,
    lines: Vec<Line>,
}

impl Trial {
    /// Ends early where the next step would make no sense.
    async fn steps(&mut self) -> Option<()> {
        for check in self.provider.check().await {
            let detail = check.fix.map_or(check.detail.clone(), |fix| format!("{}; {fix}", check.detail));
            self.tell(check.what, check.good, detail, Duration::ZERO);
        }
        if self.lines.first().is_some_and(|first| !first.good) {
            return None;
        }
        let (provider, spec) = (Arc::clone(&self.provider), self.spec.clone());
        let can = provider.capabilities().await;
        self.step(&format!("prepare the template {}", spec.template), async |progress| {
            provider.prepare(&spec.template, progress).await.map(|()| "it can be used".into())
        })
        .await?;
        let made = self.make("make a desk", async |progress| provider.create(&spec, progress).await).await?;
        self.step("find it in the list", async |_| listed(&provider, &spec.id, Some(true)).await).await?;
        self.make("make it again, which must find the same", async |progress| {
            let again = provider.create(&spec, progress).await?;
            if again.handle == made.handle { Ok(again) } else { Err(Error::Failed("there are two now".into())) }
        })
        .await?;
        self.step("ask what it uses", async |_| match provider.usage(&spec.id).await {
            Ok(usage) => Ok(format!("{:.1} s of CPU, {} MiB of memory", usage.cpu_s, usage.memory_bytes >> 20)),
            Err(e) => Ok(format!("not told: {e}")),
        })
        .await?;
        self.step("stop it", async |_| {
            provider.stop(&spec.id).await?;
            listed(&provider, &spec.id, Some(false)).await
        })
        .await?;
        self.make("start it again", async |progress| provider.start(&spec, progress).await).await?;
        if can.snapshot {
            let snapshot = format!("s-check{}", &fresh_token()[..7]);
            let saved = self
                .step("save it", async |_| {
                    provider.snapshot(&spec.id, &snapshot, false).await.map(|size| format!("{} MiB", size >> 20))
                })
                .await;
            if saved.is_some() {
                let from = SnapshotRef { id: snapshot.clone(), memory: false };
                let copy = DeskSpec { snapshot: Some(from), ..spec.clone() };
                self.make("go back to what was saved", async |progress| provider.reset(&copy, progress).await).await;
                self.step("remove what was saved", async |_| {
                    provider.delete_snapshot(&snapshot).await?;
                    match provider.snapshots().await?.contains(&snapshot) {
                        true => Err(Error::Failed("it is in the list still".into())),
                        false => Ok("it is gone".into()),
                    }
                })
                .await;
            }
        }
        self.make("reset it", async |progress| provider.reset(&spec, progress).await).await?;
        self.step("read what it printed", async |_| match provider.logs(&spec.id, 5).await {
            Ok(text) => Ok(format!("{} lines", text.lines().count())),
            Err(e) => Ok(format!("not told: {e}")),
        })
        .await
    }

    /// A step that ends with a desk whose server must answer.
    async fn make(&mut self, what: &str, work: impl AsyncFnOnce(&Progress) -> Result<Placed, Error>) -> Option<Placed> {
        let secret = self.spec.secret.clone();
        let mut placed = None;
        self.step(what, async |progress| {
            let made = work(progress).await?;
            let door = Door { address: made.address.clone(), secret };
            let opens = door.opens().await;
            placed = Some(made);
            match opens {
                Some(true) => Ok("it is ready and takes its token".into()),
                Some(false) => Err(Error::Failed("it does not take its token".into())),
                None => Err(Error::Failed("it does not answer".into())),
            }
        })
        .await?;
        placed
    }

    async fn step(&mut self, what: &str, work: impl AsyncFnOnce(&Progress) -> Result<String, Error>) -> Option<()> {
        let begun = Instant::now();
        let (progress, mut stages) = Progress::new();
        let told = async {
            while stages.changed().await.is_ok() {
                let stage = stages.borrow_and_update().clone();
                if !stage.is_empty() {
                    say(&format!("    {stage}"));
                }
            }
            std::future::pending::<()>().await;
        };
        let result = tokio::select! {
            result = tokio::time::timeout(STEP, work(&progress)) => result,
            () = told => return None,
        };
        let result = result.unwrap_or_else(|_| Err(Error::NotReady(format!("it took longer than {} s", STEP.as_secs()))));
        let good = result.is_ok();
        self.tell(what.to_owned(), good, result.unwrap_or_else(|e| e.to_string()), begun.elapsed());
        good.then_some(())
    }

    fn tell(&mut self, step: String, good: bool, detail: String, took: Duration) {
        let mark = if good { "ok    " } else { "failed" };
        let time = if took.is_zero() { String::new() } else { format!(" ({:.1} s)", took.as_secs_f64()) };
        say(&format!("{mark}  {step}: {detail}{time}"));
        self.lines.push(Line { step, good, detail, seconds: took.as_secs_f64() });
    }

    /// Whether nothing is left.
    async fn clean_up(&mut self) -> bool {
        let provider = Arc::clone(&self.provider);
        let begun = Instant::now();
        let remove = async {
            for found in provider.list().await? {
                provider.delete(&found.id).await?;
            }
            provider.delete(&self.spec.id).await?;
            for snapshot in provider.snapshots().await? {
                provider.delete_snapshot(&snapshot).await?;
            }
            match provider.list().await?.len() {
                0 => Ok("nothing is left".to_owned()),
                left => Err(Error::Failed(format!("{left} are left"))),
            }
        };
        let result = tokio::time::timeout(CLEAN_UP, remove).await;
        let result = result.unwrap_or_else(|_| Err(Error::Failed(format!("it took longer than {} s", CLEAN_UP.as_secs()))));
        let good = result.is_ok();
        self.tell("remove it".into(), good, result.unwrap_or_else(|e| e.to_string()), begun.elapsed());
        good
    }
}

async fn listed(provider: &Arc<dyn Provider>, id: &str, running: Option<bool>) -> Result<String, Error> {
    let found = provider.list().await?.into_iter().find(|found| found.id == id);
    match (found.map(|found| found.running), running) {
        (Some(is), Some(wanted)) if is == wanted => Ok(if is { "it is there, running" } else { "it is there, stopped" }.into()),
        (Some(_), _) => Err(Error::Failed("it is in the list, but in another state".into())),
        (None, _) => Err(Error::Failed("it is not in the list".into())),
    }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", crate::text::safe(text));
}
