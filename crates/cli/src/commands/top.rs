//! `hotdesk top`: what the desks use right now.

use super::ls::idle;
use super::steps::word;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::live::Live;
use crate::out::{self, Rows};
use crate::reach::{self, Reach, handle};
use crate::text::{parse_span, size};
use clap::Args;
use futures_util::{StreamExt, stream};
use hotdesk_api::calls::DeskUsage;
use hotdesk_api::desk::{Desk, State};
use hotdesk_client::{Client, Filter};
use serde::Serialize;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Desks that are asked at once.
const AT_ONCE: usize = 16;
/// Between the two looks that a figure for the CPU needs.
const GLANCE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Time between two looks
    #[arg(long, short, value_name = "TIME", default_value = "2s", value_parser = parse_span)]
    every: Duration,

    /// Show it once and end; the default without a terminal
    #[arg(long)]
    once: bool,

    /// Print JSON instead of text, once
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

/// One desk at one moment.
#[derive(Debug, Serialize)]
struct Look {
    id: String,
    name: Option<String>,
    state: State,
    /// Of one CPU; none if it is not known.
    cpu_percent: Option<f64>,
    #[serde(flatten)]
    usage: DeskUsage,
    busy: Option<String>,
    idle_s: Option<u64>,
    #[serde(skip)]
    desk: Desk,
}

/// Remembers the last look, so that CPU time becomes a share.
#[derive(Default)]
struct Looker {
    last: HashMap<String, (Instant, f64)>,
}

pub(crate) fn run(args: TopArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let mut looker = Looker::default();
        let live = if args.once || args.json { None } else { Live::begin().ok() };
        let Some(mut live) = live else {
            looker.look(&client).await?;
            tokio::time::sleep(GLANCE).await;
            let looks = looker.look(&client).await?;
            return if args.json { out::json(&looks) } else { Ok(table(&looks).print()) };
        };
        let mut pause = GLANCE;
        loop {
            let looks = looker.look(&client).await?;
            live.show(&format!("{}\n\n{}", head(&client, &looks).await?, table(&looks).text()));
            if live.pause(pause).await {
                return Ok(Exit::Success);
            }
            pause = args.every;
        }
    })
}

impl Looker {
    async fn look(&mut self, client: &Client) -> Outcome<Vec<Look>> {
        let desks = client.desks(&Filter::default()).await?;
        let asked = desks.into_iter().map(|desk| async move {
            let usage = match desk.state {
                State::Running => client.desk(&desk.id).usage().await.ok(),
                _ => None,
            };
            (desk, usage, Instant::now())
        });
        let mut looks = Vec::new();
        for (desk, usage, at) in stream::iter(asked).buffered(AT_ONCE).collect::<Vec<_>>().await {
            let before = usage.and_then(|usage| self.last.insert(desk.id.clone(), (at, usage.cpu_s)));
            let cpu_percent = before.zip(usage).map(|((then, cpu), usage)| {
                let share = (usage.cpu_s - cpu) / at.duration_since(then).as_secs_f64().max(0.001) * 100.0;
                (share.max(0.0) * 10.0).round() / 10.0
            });
            looks.push(Look {
                id: desk.id.clone(),
                name: desk.name.clone(),
                state: desk.state,
                cpu_percent,
                usage: usage.unwrap_or_default(),
                busy: desk.busy.clone(),
                idle_s: desk.idle_s,
                desk,
            });
        }
        let weight = |look: &Look| (look.cpu_percent.unwrap_or(-1.0), look.usage.memory_bytes as f64);
        looks.sort_by(|a, b| {
            let ((cpu_a, memory_a), (cpu_b, memory_b)) = (weight(a), weight(b));
            cpu_b.total_cmp(&cpu_a).then(memory_b.total_cmp(&memory_a))
        });
        Ok(looks)
    }
}

async fn head(client: &Client, looks: &[Look]) -> Outcome<String> {
    let fleet = client.fleet().await?;
    let running = looks.iter().filter(|look| look.state == State::Running).count();
    let memory: u64 = looks.iter().map(|look| look.usage.memory_bytes).sum();
    let cpu: f64 = looks.iter().filter_map(|look| look.cpu_percent).fold(0.0, |sum, cpu| sum + cpu);
    Ok(format!(
        "{running} of {} desks run (most {}), CPU {cpu:.0} % of {:.0} CPUs, memory {} of {}    q ends",
        looks.len(),
        fleet.max_desks,
        fleet.cpus,
        size(memory),
        size(fleet.memory_mib << 20),
    ))
}

fn table(looks: &[Look]) -> Rows {
    let mut rows = Rows::new(&["DESK", "STATE", ">CPU", ">MEMORY", ">DISK", ">PROGRAMS", "IDLE"]);
    for look in looks {
        let running = look.state == State::Running;
        let shown = |text: String| if running { text } else { "-".into() };
        rows.push([
            handle(&look.desk).to_owned(),
            word(look.state).to_owned(),
            look.cpu_percent.map_or("-".into(), |cpu| format!("{cpu:.1} %")),
            shown(size(look.usage.memory_bytes)),
            shown(size(look.usage.disk_bytes)),
            shown(look.usage.processes.to_string()),
            idle(&look.desk),
        ]);
    }
    rows
}
