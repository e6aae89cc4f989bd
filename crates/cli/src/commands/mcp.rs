//! `hotdesk mcp`: desks as tools for MCP clients, over stdin and stdout.
//!
//! The tools are the gateway's own, the same as at `/mcp` of a fleet; here they ask that fleet over the network.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::reach::{self, Reach};
use clap::Args;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hotdesk_api::Problem;
use hotdesk_client::{Client, Error, Target};
use hotdesk_gateway::dialects::mcp;
use hotdesk_gateway::dialects::native::{Answer, Api, Ask, LARGEST_ANSWER};
use std::sync::Arc;

#[derive(Debug, Args)]
#[command(after_help = "Example: claude mcp add hotdesk -- hotdesk mcp")]
pub(crate) struct McpArgs {
    /// The desk that is meant when the client names none, by id, name or the beginning of either [default: the only one that runs]
    #[arg(long)]
    desk: Option<String>,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: McpArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = match &args.desk {
            Some(desk) => Some(reach::desk(&client, desk).await?.id),
            None => None,
        };
        match mcp::stdio(Arc::new(Remote(client)), desk).await {
            Ok(()) => Ok(Exit::Success),
            Err(e) => Err(Failure::local(format!("the client can't be talked to: {e}"))
                .hint("this command is for MCP clients, which start it by themselves; hotdesk env mcp shows how")),
        }
    })
}

/// A fleet over the network.
struct Remote(Client);

impl Api for Remote {
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Result<Answer, Problem>> {
        async move {
            let path: Vec<&str> = ask.path.iter().map(String::as_str).collect();
            let mut call = self.0.call(ask.method, &path).within(Some(ask.limit));
            for (name, value) in &ask.query {
                call = call.query(name, value);
            }
            for (name, value) in ask.headers {
                call = call.header(name, value);
            }
            if !ask.body.is_empty() {
                call = call.body(ask.body);
            }
            let mut answer = call.send().await.map_err(told)?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await.map_err(|e| told(Error::Broken(e.to_string())))? {
                if body.len() + piece.len() > LARGEST_ANSWER {
                    return Err(told(Error::Strange(format!("it is larger than {} MiB", LARGEST_ANSWER >> 20))));
                }
                body.extend_from_slice(&piece);
            }
            Ok(Answer { status, headers, body: body.into() })
        }
        .boxed()
    }

    fn address(&self) -> Option<String> {
        match self.0.target() {
            target @ Target::Http(_) => Some(target.to_string()),
            Target::Unix(_) => None,
        }
    }
}

/// An error of the connection as a problem; one of the fleet's is one already.
fn told(error: Error) -> Problem {
    match error {
        Error::Refused(refusal) => refusal.problem,
        other => Problem {
            code: "unreachable".into(),
            status: 502,
            title: "The fleet does not answer".into(),
            detail: other.to_string(),
            hint: other.hint().map(str::to_owned),
            retry: false,
        },
    }
}
