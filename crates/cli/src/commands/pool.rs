//! `hotdesk pool`: desks that are kept ready.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use crate::text::{parse_mebibytes, parse_span};
use clap::{Args, Subcommand};
use hotdesk_api::desk::ResourcesRequest;
use hotdesk_api::fleet::{Pool, PoolSpec};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List pools
    Ls(LsArgs),
    /// Keep desks of a template ready
    #[command(after_help = "Example: hotdesk pool set base 2 --max 10")]
    Set(SetArgs),
    /// Keep none ready any more
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
pub(crate) struct SetArgs {
    /// The template
    template: String,

    /// At least so many are kept ready
    min: u32,

    /// Never more than so many, however many are asked for [default: MIN]
    #[arg(long, value_name = "NUMBER")]
    max: Option<u32>,

    /// Where they live [default: the fleet's first provider]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,

    /// How many CPUs each may use
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<f32>,

    /// How much memory each may use
    #[arg(long, value_name = "SIZE", value_parser = parse_mebibytes)]
    memory: Option<u64>,

    /// How much disk each may use
    #[arg(long, value_name = "SIZE", value_parser = parse_mebibytes)]
    disk: Option<u64>,

    /// Most money per hour that they may cost, for providers that bill
    #[arg(long, value_name = "MONEY")]
    max_hourly: Option<f64>,

    /// Keep one fewer when nobody asked for so long, down to MIN
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_span)]
    cool_down: Duration,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The template
    template: String,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(command: PoolCommand) -> Exit {
    reach::run(async move {
        match command {
            PoolCommand::Ls(args) => {
                let pools = args.reach.client()?.pools().await?;
                if args.json { out::json(&pools) } else { Ok(table(&pools).print()) }
            }
            PoolCommand::Set(args) => set(args).await,
            PoolCommand::Rm(args) => {
                args.reach.client()?.remove_pool(&args.template).await?;
                Ok(out::line(&args.template))
            }
        }
    })
}

async fn set(args: SetArgs) -> Outcome {
    let max = args.max.unwrap_or(args.min);
    if max < args.min {
        return Err(Failure::usage(format!("--max {max} is below the {} that are always kept", args.min)));
    }
    let resources = ResourcesRequest { cpus: args.cpus, memory_mib: args.memory, disk_mib: args.disk };
    let spec = PoolSpec {
        template: args.template,
        provider: args.provider,
        min: args.min,
        max,
        resources,
        max_hourly: args.max_hourly,
        cool_down_s: args.cool_down.as_secs(),
    };
    let pool = args.reach.client()?.set_pool(&spec).await?;
    if args.json { out::json(&pool) } else { Ok(table(&[pool]).print()) }
}

fn table(pools: &[Pool]) -> Rows {
    let mut rows = Rows::new(&["TEMPLATE", "?PROVIDER", ">MIN", ">MAX", ">WANTED", ">READY", ">FILLING", ">CLAIMS", ">MISSES"]);
    for pool in pools {
        let numbers = [pool.spec.min, pool.spec.max, pool.target, pool.ready, pool.filling].map(|number| number.to_string());
        let row = [pool.spec.template.clone(), pool.spec.provider.clone().unwrap_or_default()];
        rows.push(row.into_iter().chain(numbers).chain([pool.claims.to_string(), pool.misses.to_string()]));
    }
    rows
}
