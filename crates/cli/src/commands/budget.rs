//! `hotdesk budget`: what projects may spend.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use crate::text::money;
use clap::{Args, Subcommand};
use hotdesk_api::fleet::Budget;

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// List budgets
    Ls(LsArgs),
    /// Set what a project may spend; its desks are stopped when it is spent
    #[command(after_help = "Example: hotdesk budget set ci --per-day 5 --webhook https://hooks.example/budget")]
    Set(SetArgs),
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
    /// The project
    project: String,

    /// The most for a day
    #[arg(long, value_name = "MONEY")]
    per_day: Option<f64>,

    /// The most for all time
    #[arg(long, value_name = "MONEY")]
    total: Option<f64>,

    /// Share of the budget, 0 to 1, at which there is an alert
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    alert_at: f64,

    /// Where the alert is sent
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,

    /// No limit any more
    #[arg(long, conflicts_with_all = ["per_day", "total"])]
    none: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(command: BudgetCommand) -> Exit {
    reach::run(async move {
        match command {
            BudgetCommand::Ls(args) => list(&args).await,
            BudgetCommand::Set(args) => set(args).await,
        }
    })
}

async fn set(args: SetArgs) -> Outcome {
    if args.per_day.is_none() && args.total.is_none() && !args.none {
        return Err(Failure::usage("how much may it spend?").hint("say --per-day MONEY, --total MONEY or --none"));
    }
    let budget = Budget {
        project: args.project,
        per_day: args.per_day,
        total: args.total,
        alert_at: args.alert_at,
        webhook: args.webhook,
    };
    args.reach.client()?.set_budget(&budget).await?;
    Ok(out::line(&budget.project))
}

async fn list(args: &LsArgs) -> Outcome {
    let client = args.reach.client()?;
    let budgets = client.budgets().await?;
    if args.json {
        return out::json(&budgets);
    }
    let costs = client.costs().await?;
    let mut rows = Rows::new(&["PROJECT", ">PER DAY", ">IN ALL", ">SPENT", "ALERT AT", "?WEBHOOK"]);
    for budget in budgets {
        let most = |limit: Option<f64>| limit.map_or("no limit".into(), money);
        let spent = costs.by_project.get(&budget.project).copied().unwrap_or_default();
        rows.push([
            budget.project,
            most(budget.per_day),
            most(budget.total),
            format!("{} {}", money(spent), costs.currency),
            format!("{:.0} %", budget.alert_at * 100.0),
            budget.webhook.unwrap_or_default(),
        ]);
    }
    Ok(rows.print())
}
