//! How a command reaches its fleet and finds the desks that it is about.

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::text::{meant, safe};
use clap::Args;
use hotdesk_api::desk::{Desk, State};
use hotdesk_client::{Client, Filter, Settings};
use std::path::PathBuf;
use std::pin::Pin;

/// Which fleet; what is left out is found.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Fleet")]
pub(crate) struct Reach {
    /// The fleet's address [default: that of the fleet that runs on this machine]
    #[arg(long, env = "HOTDESK_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// A key of the fleet [default: this machine's own]
    ///
    /// A flag can be seen by every user of the machine; HOTDESK_KEY can't.
    #[arg(long, env = "HOTDESK_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// The data directory of the fleet on this machine
    #[arg(long, env = "HOTDESK_DATA", hide_env_values = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

impl Reach {
    pub(crate) fn settings(&self) -> Settings {
        Settings { url: self.url.clone(), key: self.key.clone(), data: self.data.clone(), ca: None }
    }

    pub(crate) fn client(&self) -> Outcome<Client> {
        Ok(Client::connect(&self.settings().find()?)?)
    }
}

/// Runs a command that talks to a fleet.
pub(crate) fn run(work: impl Future<Output = Outcome>) -> Exit {
    // Boxed, so that the runtime is compiled once and not for every command.
    run_boxed(Box::pin(work))
}

fn run_boxed(work: Pin<Box<dyn Future<Output = Outcome> + '_>>) -> Exit {
    // One thread: a client waits most of the time, and a second one costs more than it gives.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return Failure::local(format!("no runtime can be started: {e}")).tell(),
    };
    let outcome = runtime.block_on(work);
    // A thread that reads from a terminal would keep us for ever.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|failure| failure.tell())
}

/// A desk by its id, its name, or the beginning of either.
pub(crate) async fn desk(client: &Client, text: &str) -> Outcome<Desk> {
    if text.is_empty() {
        return Err(Failure::usage("the name of a desk can't be empty").hint("hotdesk ls lists them"));
    }
    match client.desk(text).get().await {
        Err(error) if error.is_not_found() => among(client.desks(&Filter::default()).await?, text),
        other => Ok(other?),
    }
}

/// The desk, or the only one that runs.
pub(crate) async fn desk_or_only(client: &Client, text: Option<&str>) -> Outcome<Desk> {
    if let Some(text) = text {
        return desk(client, text).await;
    }
    let mut desks = client.desks(&Filter::default()).await?;
    desks.retain(|desk| desk.state == State::Running);
    match desks.len() {
        1 => Ok(desks.remove(0)),
        0 => Err(Failure::new(Exit::NotFound, "no desk runs").hint("hotdesk new makes one")),
        _ => Err(Failure::usage(format!("which desk? {} run: {}", desks.len(), names(&desks))).hint("name one of them")),
    }
}

fn among(desks: Vec<Desk>, text: &str) -> Outcome<Desk> {
    let fits = |desk: &Desk| {
        let name = desk.name.as_deref().unwrap_or_default();
        desk.id.starts_with(text) || desk.id.strip_prefix("d-").is_some_and(|id| id.starts_with(text)) || name.starts_with(text)
    };
    let (mut fitting, others): (Vec<_>, Vec<_>) = desks.into_iter().partition(fits);
    match fitting.len() {
        1 => Ok(fitting.remove(0)),
        0 => {
            let failure = Failure::new(Exit::NotFound, format!("there is no desk {text}"));
            let known = others.iter().flat_map(|desk| [Some(desk.id.as_str()), desk.name.as_deref()]).flatten();
            Err(match meant(text, known) {
                Some(near) => failure.hint(format!("did you mean {near}?")),
                None if others.is_empty() => failure.hint("there are none yet; hotdesk new makes one"),
                None => failure.hint("hotdesk ls lists them"),
            })
        }
        count => Err(Failure::usage(format!("{text} can mean {count} desks: {}", names(&fitting))).hint("write more of it")),
    }
}

fn names(desks: &[Desk]) -> String {
    /// More than these are not read anyway.
    const SHOWN: usize = 6;
    let mut list = desks.iter().take(SHOWN).map(title).collect::<Vec<_>>().join(", ");
    if desks.len() > SHOWN {
        list.push_str(", …");
    }
    list
}

/// What people call it.
pub(crate) fn title(desk: &Desk) -> String {
    match &desk.name {
        Some(name) => format!("{} ({})", safe(name), desk.id),
        None => desk.id.clone(),
    }
}

/// What a command line would call it.
pub(crate) fn handle(desk: &Desk) -> &str {
    desk.name.as_deref().unwrap_or(&desk.id)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example(id: &str, name: Option<&str>) -> Desk {
        serde_json::from_value(serde_json::json!({
            "id": id, "name": name, "project": "default", "template": "base", "snapshot": null, "provider": "local",
            "state": "running", "reason": "", "labels": {}, "env": [], "resources": {}, "policy": {},
            "screen": {"width": 1, "height": 1}, "created_at": "", "changed_at": "", "expires_at": null, "idle_s": null,
            "busy": null, "cost": 0.0, "stage": null
        }))
        .unwrap()
    }

    fn desks() -> Vec<Desk> {
        vec![example("d-abcabcabcabc", Some("alice")), example("d-abdabdabdabd", Some("bob")), example("d-zzzzzzzzzzzz", None)]
    }

    #[test]
    fn a_beginning_is_enough_if_it_is_the_only_one() {
        assert_eq!(among(desks(), "d-abc").unwrap().id, "d-abcabcabcabc");
        assert_eq!(among(desks(), "abd").unwrap().id, "d-abdabdabdabd");
        assert_eq!(among(desks(), "bo").unwrap().id, "d-abdabdabdabd");
        assert_eq!(among(desks(), "d-ab").unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_near_miss_is_told() {
        let failure = format!("{:?}", among(desks(), "alcie").unwrap_err());
        assert!(failure.contains("did you mean alice?"), "{failure}");
        assert!(format!("{:?}", among(vec![], "x").unwrap_err()).contains("hotdesk new"));
    }
}
