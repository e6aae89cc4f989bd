//! `hotdesk exec`: runs a program on a desk as if it ran here: its output, its input, its exit status.

use super::sh;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::live::typed;
use crate::out;
use crate::reach::{self, Reach};
use crate::text::{parse_pair, parse_span};
use crate::waiting::say;
use clap::Args;
use hotdesk_api::process::{Exit as Ended, RunProcess, StartProcess};
use hotdesk_client::{Client, Desk, Output, ProgramInput};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Args)]
#[command(after_help = "The exit status is that of the program; 124 if it took too long, 125 if it could not be run at all.\n\n\
                  Examples:\n  hotdesk exec work -- ls -la\n  hotdesk exec work -- sh -c 'echo $HOME'\n  hotdesk exec work -- tee notes.txt < notes.txt")]
pub(crate) struct ExecArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,

    /// Give it a terminal, as hotdesk sh does
    #[arg(long, short, conflicts_with_all = ["no_stdin", "json", "timeout"])]
    terminal: bool,

    /// Hand on what is typed; a pipe or a file is handed on anyway
    #[arg(long, short)]
    interactive: bool,

    /// Hand on nothing, not even from a pipe
    #[arg(long, short = 'n', conflicts_with = "interactive")]
    no_stdin: bool,

    /// Where it runs [default: the desk's home]
    #[arg(long, short, value_name = "DIR")]
    cwd: Option<String>,

    /// A variable for it; can be given several times
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = parse_pair)]
    env: Vec<(String, String)>,

    /// End it after so long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    timeout: Option<Duration>,

    /// Wait for its end and print output and status as JSON; then hotdesk itself ends with 0
    #[arg(long, conflicts_with_all = ["interactive"])]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

pub(crate) fn run(args: ExecArgs) -> Exit {
    reach::run(async move { exec(args).await.map_err(|failure| failure.with(Exit::NotRun)) })
}

async fn exec(args: ExecArgs) -> Outcome {
    let client = args.reach.client()?;
    let desk = reach::desk(&client, &args.desk).await?;
    let desk = client.desk(&desk.id);
    let env = args.env.into_iter().map(|(name, value)| (name, Some(value))).collect::<BTreeMap<_, _>>();
    if args.terminal {
        return sh::converse(&client, desk.id(), Some(args.command), env, args.cwd).await;
    }
    let timeout_ms = args.timeout.map(|time| time.as_millis() as u64).filter(|time| *time > 0);
    if args.json {
        let what = RunProcess { argv: Some(args.command), env, cwd: args.cwd, timeout_ms, ..RunProcess::default() };
        return out::json(&desk.run(&what).await?);
    }
    let input = args.interactive || (!args.no_stdin && !std::io::stdin().is_terminal());
    let what = StartProcess { argv: Some(args.command), env, cwd: args.cwd, timeout_ms, ..StartProcess::default() };
    relay(&client, &desk, &what, input).await
}

async fn relay(client: &Client, desk: &Desk, what: &StartProcess, with_input: bool) -> Outcome {
    let program = desk.exec(what).await?;
    let (id, mut input, mut output) = (program.info.id, program.input, program.output);
    let mut stdin = with_input.then(typed);
    if stdin.is_none() {
        input.close().await?;
    }
    let no_signals = |e| Failure::local(format!("signals can't be handled: {e}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupts = 0;
    loop {
        tokio::select! {
            next = output.next() => match next? {
                Some(Output::Stdout(data)) => {
                    if !written(std::io::stdout().lock(), &data) {
                        // Nobody reads on, as with `| head`; a program here would get SIGPIPE.
                        let _ = client.desk(desk.id()).end_process(id).await;
                        return Ok(Exit::Signal(nix::libc::SIGPIPE));
                    }
                }
                Some(Output::Stderr(data)) => drop(written(std::io::stderr().lock(), &data)),
                Some(Output::Lost(bytes)) => say(&format!("warning: {bytes} bytes of output were lost")),
                Some(Output::Problem(problem)) => {
                    // The program has closed its input; it may still have something to say.
                    stdin = None;
                    if problem.code != "conflict" {
                        say(&format!("warning: {}", crate::text::safe(&problem.detail)));
                    }
                }
                // What it started in the background goes on, as with ssh; the desk forgets what is over by itself.
                Some(Output::Exit(exit)) => return Ok(status(&exit)),
                None => return Err(Failure::new(Exit::Unreachable, "the desk went away before the program ended")),
            },
            piece = next_piece(&mut stdin) => hand_on(&mut input, &mut stdin, piece).await?,
            _ = interrupt.recv() => {
                interrupts += 1;
                if interrupts > 1 {
                    let _ = desk.end_process(id).await;
                    return Ok(Exit::Signal(nix::libc::SIGINT));
                }
                input.signal("INT").await?;
            }
            _ = terminate.recv() => {
                let _ = desk.end_process(id).await;
                return Ok(Exit::Signal(nix::libc::SIGTERM));
            }
        }
    }
}

async fn next_piece(stdin: &mut Option<tokio::sync::mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match stdin {
        Some(stdin) => stdin.recv().await,
        None => std::future::pending().await,
    }
}

async fn hand_on(
    input: &mut ProgramInput,
    stdin: &mut Option<tokio::sync::mpsc::Receiver<Vec<u8>>>,
    piece: Option<Vec<u8>>,
) -> Outcome<()> {
    match piece {
        Some(piece) => input.write(piece.into()).await?,
        None => {
            *stdin = None;
            input.close().await?;
        }
    }
    Ok(())
}

fn written(mut to: impl Write, data: &[u8]) -> bool {
    to.write_all(data).and_then(|()| to.flush()).is_ok()
}

/// As a shell would show it.
pub(crate) fn status(exit: &Ended) -> Exit {
    match (exit.timed_out, exit.exit_code, &exit.signal) {
        (true, ..) => Exit::Program(124),
        (_, Some(code), _) => Exit::Program(u8::try_from(code & 0xff).unwrap_or(1)),
        (_, None, Some(name)) => Exit::Signal(name.parse::<nix::sys::signal::Signal>().map_or(127, |signal| signal as i32)),
        _ => Exit::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_handed_on() {
        let ended =
            |exit_code, signal: Option<&str>, timed_out| status(&Ended { exit_code, signal: signal.map(Into::into), timed_out });
        assert_eq!(ended(Some(3), None, false).code(), 3);
        assert_eq!(ended(None, Some("SIGKILL"), false).code(), 137);
        assert_eq!(ended(None, Some("SIGKILL"), true).code(), 124);
        assert_eq!(ended(None, Some("SIGTERM"), false).code(), 143);
    }
}
