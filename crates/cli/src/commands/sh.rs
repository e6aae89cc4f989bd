//! `hotdesk sh`: a terminal on a desk.

use super::exec::status;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::live::{Raw, size, typed};
use crate::reach::{self, Reach};
use crate::waiting::say;
use clap::Args;
use hotdesk_api::terminal::OpenTerminal;
use hotdesk_client::{Client, Shown};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Args)]
#[command(after_help = "Enter, then ~. leaves the terminal when nothing else does.")]
pub(crate) struct ShArgs {
    /// The desk, by id, name or the beginning of either [default: the only one that runs]
    desk: Option<String>,

    /// What to run instead of the shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: ShArgs) -> Exit {
    reach::run(async move {
        let client = args.reach.client()?;
        let desk = reach::desk_or_only(&client, args.desk.as_deref()).await?;
        let command = (!args.command.is_empty()).then_some(args.command);
        converse(&client, &desk.id, command, BTreeMap::new(), None).await
    })
}

/// Opens a terminal and hands keys and screen on until its program ends.
pub(crate) async fn converse(
    client: &Client,
    id: &str,
    argv: Option<Vec<String>>,
    mut env: BTreeMap<String, Option<String>>,
    cwd: Option<String>,
) -> Outcome {
    let desk = client.desk(id);
    for name in ["TERM", "COLORTERM", "NO_COLOR"] {
        if let Ok(value) = std::env::var(name) {
            env.entry(name.into()).or_insert(Some(value));
        }
    }
    let (cols, rows) = size().unzip();
    let terminal = desk.terminal(&OpenTerminal { argv, env, cwd, cols, rows, ..OpenTerminal::default() }).await?;
    let (number, mut keyboard, mut screen) = (terminal.info.id, terminal.keyboard, terminal.screen);
    // Without a terminal on our side (a script) keys are handed on as they come.
    let raw = if std::io::stdin().is_terminal() {
        Some(Raw::whole().map_err(|e| Failure::local(format!("the terminal can't be used: {e}")))?)
    } else {
        None
    };
    let mut keys = Some(typed());
    let mut escape = Escape::default();
    let mut resized =
        signal(SignalKind::window_change()).map_err(|e| Failure::local(format!("signals can't be handled: {e}")))?;
    let mut over = false;
    let outcome = loop {
        tokio::select! {
            next = screen.next() => match next {
                Ok(Some(Shown::Data(data))) => {
                    let mut stdout = std::io::stdout().lock();
                    if stdout.write_all(&data).and_then(|()| stdout.flush()).is_err() {
                        break Ok(Exit::Signal(nix::libc::SIGPIPE));
                    }
                }
                Ok(Some(Shown::Exit(exit))) => {
                    over = true;
                    break Ok(status(&exit));
                }
                Ok(Some(Shown::Lost(_) | Shown::Problem(_))) => {}
                Ok(None) => break Err(Failure::new(Exit::Unreachable, "the desk went away")),
                Err(error) => break Err(error.into()),
            },
            typed = next_keys(&mut keys) => match typed {
                Some(typed) => {
                    let (left, rest) = if raw.is_some() { escape.look(typed) } else { (false, typed) };
                    if let Err(error) = keyboard.write(rest.into()).await {
                        break Err(error.into());
                    }
                    if left {
                        break Ok(Exit::Success);
                    }
                }
                None => {
                    // The end of a script: what a terminal calls the end of input.
                    keys = None;
                    if let Err(error) = keyboard.write(vec![4].into()).await {
                        break Err(error.into());
                    }
                }
            },
            _ = resized.recv() => if let Some((cols, rows)) = size() {
                let _ = keyboard.resize(cols, rows).await;
            },
        }
    };
    drop(raw);
    if std::io::stdin().is_terminal() && outcome.is_ok() {
        say("");
    }
    if !over {
        // Somebody who leaves takes his programs along, as when a window is closed.
        let _ = desk.close_terminal(number).await;
    }
    outcome
}

async fn next_keys(keys: &mut Option<tokio::sync::mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

/// `~.` at the beginning of a line leaves, as with ssh; `~~` is a tilde.
#[derive(Debug)]
struct Escape {
    line_begins: bool,
    tilde: bool,
}

impl Default for Escape {
    fn default() -> Self {
        Self { line_begins: true, tilde: false }
    }
}

impl Escape {
    /// Whether to leave, and what is left to hand on.
    fn look(&mut self, typed: Vec<u8>) -> (bool, Vec<u8>) {
        let mut rest = Vec::with_capacity(typed.len());
        for key in typed {
            if std::mem::take(&mut self.tilde) {
                match key {
                    b'.' => return (true, rest),
                    b'~' => {
                        rest.push(b'~');
                        continue;
                    }
                    _ => rest.push(b'~'),
                }
            } else if key == b'~' && self.line_begins {
                self.tilde = true;
                self.line_begins = false;
                continue;
            }
            self.line_begins = matches!(key, b'\r' | b'\n');
            rest.push(key);
        }
        (false, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::Escape;

    #[test]
    fn a_way_out() {
        let look = |pieces: &[&str]| {
            let mut escape = Escape::default();
            let mut all = Vec::new();
            for piece in pieces {
                let (left, rest) = escape.look(piece.as_bytes().to_vec());
                all.extend(rest);
                if left {
                    return (true, String::from_utf8(all).unwrap());
                }
            }
            (false, String::from_utf8(all).unwrap())
        };
        assert_eq!(look(&["ls\r", "~", "."]), (true, "ls\r".into()));
        assert_eq!(look(&["~."]), (true, String::new()));
        assert_eq!(look(&["cd ~.\r"]), (false, "cd ~.\r".into()));
        assert_eq!(look(&["~~x\r~a"]), (false, "~x\r~a".into()));
        assert_eq!(look(&["~/bin\r"]), (false, "~/bin\r".into()));
    }
}
