//! `hotdesk key`: who may use the fleet.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{self, Rows};
use crate::reach::{self, Reach};
use crate::text::{ago, parse_span, span, until};
use crate::waiting::say;
use clap::{Args, Subcommand};
use hotdesk_api::fleet::{Key, MadeKey, NewKey, Scope};
use hotdesk_client::Client;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List keys; their secrets are known to nobody
    Ls(LsArgs),
    /// Make a key; its secret is shown once, on stdout
    #[command(after_help = "Example: HOTDESK_KEY=$(hotdesk key new ci --project ci)")]
    New(NewArgs),
    /// Give a key a new secret; the old one ends at once
    Rotate(OneArgs),
    /// End a key
    Revoke(OneArgs),
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
pub(crate) struct NewArgs {
    /// Whose key it is, for people
    name: String,

    /// It may do everything with the desks of this project
    #[arg(long, value_name = "NAME")]
    project: Option<String>,

    /// It may use this one desk
    #[arg(long, value_name = "DESK", conflicts_with = "project")]
    desk: Option<String>,

    /// It may do everything
    #[arg(long, conflicts_with_all = ["project", "desk"])]
    admin: bool,

    /// It ends by itself after so long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    ttl: Option<Duration>,

    /// Most desks at once
    #[arg(long, value_name = "NUMBER")]
    max_desks: Option<u32>,

    /// Print JSON instead of the secret alone
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct OneArgs {
    /// Its id or name
    #[arg(value_name = "KEY_ID")]
    id: String,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(command: KeyCommand) -> Exit {
    reach::run(async move {
        match command {
            KeyCommand::Ls(args) => list(&args).await,
            KeyCommand::New(args) => make(args).await,
            KeyCommand::Rotate(args) => {
                let client = args.reach.client()?;
                let id = find(&client, &args.id).await?.id;
                secret(&client.rotate_key(&id).await?, args.json)
            }
            KeyCommand::Revoke(args) => {
                let client = args.reach.client()?;
                let key = find(&client, &args.id).await?;
                client.revoke_key(&key.id).await?;
                if args.json { out::json(&key) } else { Ok(out::line(&key.id)) }
            }
        }
    })
}

async fn make(args: NewArgs) -> Outcome {
    let client = args.reach.client()?;
    let scope = match (args.admin, args.project, args.desk) {
        (true, ..) => Scope::Admin,
        (_, Some(project), _) => Scope::Project { project },
        (_, _, Some(desk)) => Scope::Desk { desk: reach::desk(&client, &desk).await?.id },
        _ => return Err(Failure::usage("what may it do?").hint("say --project NAME, --desk DESK or --admin")),
    };
    let new = NewKey { name: args.name, scope, ttl_s: args.ttl.map_or(0, |time| time.as_secs()), max_desks: args.max_desks };
    secret(&client.make_key(&new).await?, args.json)
}

fn secret(made: &MadeKey, json: bool) -> Outcome {
    if json {
        return out::json(made);
    }
    say(&format!("key {} ({}): this is the only time that its secret is shown", made.key.id, crate::text::safe(&made.key.name)));
    Ok(out::line(&made.secret))
}

/// By id, or by a name that only one key in use has.
async fn find(client: &Client, text: &str) -> Outcome<Key> {
    let keys = client.keys().await?;
    if let Some(key) = keys.iter().find(|key| key.id == text) {
        return Ok(key.clone());
    }
    let mut named: Vec<_> = keys.iter().filter(|key| key.name == text && key.revoked_at.is_none()).collect();
    match (named.pop(), named.is_empty()) {
        (Some(key), true) => Ok(key.clone()),
        (Some(_), false) => {
            Err(Failure::usage(format!("several keys are named {text}")).hint("use the id; hotdesk key ls lists them"))
        }
        (None, _) => Err(Failure::new(Exit::NotFound, format!("there is no key {text}")).hint("hotdesk key ls lists them")),
    }
}

async fn list(args: &LsArgs) -> Outcome {
    let keys = args.reach.client()?.keys().await?;
    if args.json {
        return out::json(&keys);
    }
    let mut rows = Rows::new(&["ID", "NAME", "MAY", ">MOST DESKS", "USED", "ENDS"]);
    for key in keys {
        let may = match key.scope {
            Scope::Admin => "everything".into(),
            Scope::Project { project } => format!("project {project}"),
            Scope::Desk { desk } => format!("desk {desk}"),
        };
        let ends = match (&key.revoked_at, key.expires_at.as_deref().and_then(until)) {
            (Some(_), _) => "revoked".into(),
            (None, Some(left)) => u64::try_from(left).map_or("over".into(), |left| format!("in {}", span(left))),
            (None, None) => "never".into(),
        };
        let used = key.last_used_at.as_deref().map_or("never".into(), |at| format!("{} ago", ago(at)));
        rows.push([key.id, key.name, may, key.max_desks.map_or("-".into(), |most| most.to_string()), used, ends]);
    }
    Ok(rows.print())
}
