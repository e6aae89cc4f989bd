//! `hotdesk env`: the lines that point a client at this fleet.

use crate::exit::{Exit, print};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::reach::{self, Reach};
use clap::{Args, Subcommand};
use hotdesk_client::{Client, Target};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Args)]
#[command(after_help = "Example: eval \"$(hotdesk env)\"", args_conflicts_with_subcommands = true)]
pub(crate) struct EnvArgs {
    #[command(subcommand)]
    of: Option<Of>,

    /// Print JSON instead of shell lines
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum Of {
    /// Settings for MCP clients: the fleet's tools over HTTP
    #[command(after_help = "Example: hotdesk env mcp --json > .mcp.json")]
    Mcp {
        /// Print the configuration that most clients read, in JSON, instead of shell lines
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        reach: Reach,
    },
    /// Settings for E2B's SDKs: this fleet as its cloud
    E2b {
        /// Print JSON instead of shell lines
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        reach: Reach,
    },
    /// Settings for OSWorld: a desk as its server
    Osworld {
        /// The desk, by id, name or the beginning of either
        desk: String,

        /// Print JSON instead of shell lines
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        reach: Reach,
    },
    /// Settings for Daytona's SDKs: this fleet as their server
    Daytona {
        /// Print JSON instead of shell lines
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        reach: Reach,
    },
}

pub(crate) fn run(args: EnvArgs) -> Exit {
    reach::run(async move {
        match args.of {
            None => {
                let client = args.reach.client()?;
                tell(&fleet(&client), args.json)
            }
            Some(Of::Mcp { json, reach }) => tell_mcp(&reach.client()?, json),
            Some(Of::E2b { json, reach }) => tell(&e2b(&reach.client()?)?, json),
            Some(Of::Osworld { desk, json, reach }) => {
                let client = reach.client()?;
                let desk = reach::desk(&client, &desk).await?;
                tell(&osworld(&client, &desk.id)?, json)
            }
            Some(Of::Daytona { json, reach }) => tell(&daytona(&reach.client()?)?, json),
        }
    })
}

/// In the order in which they are printed.
type Variables = Vec<(&'static str, String)>;

fn fleet(client: &Client) -> Variables {
    let mut variables = vec![("HOTDESK_URL", client.target().to_string())];
    if let Some(key) = client.key() {
        variables.push(("HOTDESK_KEY", key.to_owned()));
    }
    variables
}

/// The lines, and what goes into a client's configuration.
fn tell_mcp(client: &Client, json: bool) -> Outcome {
    let (variables, configuration) = mcp(client)?;
    if json {
        return out::json(&configuration);
    }
    let shown = serde_json::to_string_pretty(&configuration).unwrap_or_default();
    let shown: String = shown.lines().map(|line| format!("# {line}\n")).collect();
    let own = "# or, for clients that start their servers themselves, the command: hotdesk mcp\n";
    print(format!("# for the configuration of MCP clients:\n{shown}{own}").as_bytes());
    tell(&variables, false)
}

fn mcp(client: &Client) -> Outcome<(Variables, serde_json::Value)> {
    if matches!(client.target(), Target::Unix(_)) {
        return Err(Failure::usage("MCP clients can't use a Unix socket")
            .hint("let them start hotdesk mcp, or let the fleet listen on a port too: hotdesk serve --listen 127.0.0.1:7700"));
    }
    let url = client.address(&["mcp"]);
    let mut entry = serde_json::json!({ "type": "http", "url": url });
    if let Some(key) = client.key() {
        entry["headers"] = serde_json::json!({ "Authorization": format!("Bearer {key}") });
    }
    let mut variables = vec![("HOTDESK_MCP_URL", url)];
    variables.extend(fleet(client));
    Ok((variables, serde_json::json!({ "mcpServers": { "hotdesk": entry } })))
}

fn osworld(client: &Client, desk: &str) -> Outcome<Variables> {
    let Target::Http(url) = client.target() else {
        return Err(Failure::usage("OSWorld can't use a Unix socket")
            .hint("let the fleet listen on a port too: hotdesk serve --listen 127.0.0.1:7700"));
    };
    // OSWorld sends no headers of ours, so the key is a part of the path.
    let below = |path: &[&str]| match client.key() {
        Some(key) => client.address(&[&["k", key], path].concat()),
        None => client.address(path),
    };
    let mut variables = vec![
        ("OSWORLD_BASE_URL", below(&["osworld", desk])),
        // In place of the `vm_ip` of OSWorld's client, which puts a port behind it: 5000 for the desk's server.
        ("OSWORLD_VM_IP", below(&["osworld", desk]).split_once("://").map(|(_, rest)| rest.to_owned()).unwrap_or_default()),
        ("OSWORLD_HOST", url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned()),
        ("OSWORLD_PORT", url.port_or_known_default().unwrap_or(80).to_string()),
        // Chrome's debugging interface of that desk, for Playwright's connect_over_cdp.
        ("OSWORLD_CHROMIUM_URL", below(&["v1", "desks", desk, "ports", "9222"])),
        ("HOTDESK_DESK", desk.to_owned()),
    ];
    variables.extend(fleet(client));
    Ok(variables)
}

/// Both planes of E2B are one origin here. Some releases of its SDK insist on keys of E2B's own form.
fn e2b(client: &Client) -> Outcome<Variables> {
    let Target::Http(url) = client.target() else {
        return Err(Failure::usage("E2B's SDKs can't use a Unix socket")
            .hint("let the fleet listen on a port too: hotdesk serve --listen 127.0.0.1:7700"));
    };
    let url = url.as_str().trim_end_matches('/').to_owned();
    let mut variables = vec![("E2B_API_URL", url.clone()), ("E2B_SANDBOX_URL", url)];
    if let Some(key) = client.key() {
        variables.push(("E2B_API_KEY", hotdesk_gateway::e2b_key(key).unwrap_or_else(|| key.to_owned())));
    }
    Ok(variables)
}

fn daytona(client: &Client) -> Outcome<Variables> {
    let Target::Http(_) = client.target() else {
        return Err(Failure::usage("Daytona's SDKs can't use a Unix socket")
            .hint("let the fleet listen on a port too: hotdesk serve --listen 127.0.0.1:7700"));
    };
    let mut variables = vec![("DAYTONA_API_URL", client.address(&["daytona", "api"]))];
    if let Some(key) = client.key() {
        variables.push(("DAYTONA_API_KEY", key.to_owned()));
    }
    variables.push(("DAYTONA_TARGET", "us".into()));
    Ok(variables)
}

fn tell(variables: &[(&'static str, String)], json: bool) -> Outcome {
    if json {
        #[derive(Serialize)]
        #[serde(transparent)]
        struct All<'a>(BTreeMap<&'static str, &'a str>);
        return out::json(&All(variables.iter().map(|(name, value)| (*name, value.as_str())).collect()));
    }
    let lines = variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
    Ok(print(lines.collect::<String>().as_bytes()))
}

/// As a shell reads it back.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_osworld() {
        let client = Client::new("http://127.0.0.1:7700", "hd_k").unwrap();
        let variables: BTreeMap<_, _> = osworld(&client, "d-1").unwrap().into_iter().collect();
        assert_eq!(variables["OSWORLD_BASE_URL"], "http://127.0.0.1:7700/k/hd_k/osworld/d-1");
        assert_eq!((variables["OSWORLD_HOST"].as_str(), variables["OSWORLD_PORT"].as_str()), ("127.0.0.1", "7700"));
        assert_eq!(variables["OSWORLD_VM_IP"], "127.0.0.1:7700/k/hd_k/osworld/d-1");
        assert!(osworld(&Client::new("unix:/x", "hd_k").unwrap(), "d-1").is_err());
    }

    #[test]
    fn settings_of_mcp() {
        let (variables, configuration) = mcp(&Client::new("http://127.0.0.1:7700", "hd_k").unwrap()).unwrap();
        assert_eq!(variables[0], ("HOTDESK_MCP_URL", "http://127.0.0.1:7700/mcp".into()));
        let entry = &configuration["mcpServers"]["hotdesk"];
        assert_eq!(entry["url"], "http://127.0.0.1:7700/mcp");
        assert_eq!(entry["headers"]["Authorization"], "Bearer hd_k");
        assert!(mcp(&Client::new("unix:/x", "hd_k").unwrap()).is_err());
    }

    #[test]
    fn settings_of_daytona() {
        let client = Client::new("http://127.0.0.1:7700", "hd_k").unwrap();
        let variables: BTreeMap<_, _> = daytona(&client).unwrap().into_iter().collect();
        assert_eq!(variables["DAYTONA_API_URL"], "http://127.0.0.1:7700/daytona/api");
        assert_eq!(variables["DAYTONA_API_KEY"], "hd_k");
        assert!(daytona(&Client::new("unix:/x", "hd_k").unwrap()).is_err());
    }

    #[test]
    fn lines_that_a_shell_reads_back() {
        assert_eq!(quoted("http://127.0.0.1:7700"), "http://127.0.0.1:7700");
        assert_eq!(quoted("a b'c$(x)"), r"'a b'\''c$(x)'");
        assert_eq!(quoted(""), "''");
    }
}
