//! `hotdesk lease`: who drives a desk, an agent or a person.

use crate::exit::Exit;
use crate::failure::Outcome;
use crate::out;
use crate::reach::{self, Reach};
use crate::text::safe;
use clap::{Args, Subcommand};
use hotdesk_api::lease::{Driver, Lease, TakeLease};

#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// Show who drives
    Show(ShowArgs),
    /// Take over: what agents do is refused, what they look at is not
    #[command(after_help = "Whoever looks at the desk first drives it: the dashboard, hotdesk open, or any VNC viewer.")]
    Take(TakeArgs),
    /// Give the desk back to its agent
    Give(ShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct TakeArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// What the agent is told about who drives
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    name: Option<String>,

    /// Seconds without input after which the agent drives again, from 5 to 3600 [default: 60]
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,

    /// Take it from another person, too
    #[arg(long)]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(command: LeaseCommand) -> Exit {
    reach::run(async move {
        match command {
            LeaseCommand::Show(args) => {
                let client = args.reach.client()?;
                let desk = reach::desk(&client, &args.desk).await?;
                tell(&client.desk(&desk.id).lease().await?, args.json)
            }
            LeaseCommand::Take(args) => {
                let client = args.reach.client()?;
                let desk = reach::desk(&client, &args.desk).await?;
                let how = TakeLease { name: args.name, viewer: None, idle_s: args.idle, force: args.force };
                tell(&client.desk(&desk.id).take_lease(&how).await?, args.json)
            }
            LeaseCommand::Give(args) => {
                let client = args.reach.client()?;
                let desk = reach::desk(&client, &args.desk).await?;
                tell(&client.desk(&desk.id).give_lease().await?, args.json)
            }
        }
    })
}

fn tell(lease: &Lease, json: bool) -> Outcome {
    if json {
        return out::json(lease);
    }
    Ok(out::line(&words(lease)))
}

fn words(lease: &Lease) -> String {
    match lease.driver {
        Driver::Agent => "the agent drives".to_owned(),
        Driver::Person => {
            let who = lease.name.as_deref().map_or("a person".into(), safe);
            let free = if lease.viewer.is_none() { ", who is yet to come" } else { "" };
            format!("{who} drives{free}; the agent drives again after {} s without input", lease.returns_in_s.unwrap_or(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_drives_is_said_in_a_sentence() {
        let mut lease =
            Lease { driver: Driver::Agent, name: None, viewer: None, since: String::new(), idle_limit_s: 60, returns_in_s: None };
        assert_eq!(words(&lease), "the agent drives");
        lease = Lease { driver: Driver::Person, name: Some("Ada".into()), returns_in_s: Some(7), ..lease };
        assert_eq!(words(&lease), "Ada drives, who is yet to come; the agent drives again after 7 s without input");
        lease.viewer = Some("x".into());
        assert_eq!(words(&lease), "Ada drives; the agent drives again after 7 s without input");
    }
}
