//! The `hotdesk` binary: desktops for computer-use agents.

mod args;
mod desk;
mod doctor;
mod exit;
mod init;
mod memory;
mod notify;
mod reference;
mod sandbox;

use args::{Cli, Command};
use clap::{CommandFactory, FromArgMatches};
use exit::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    memory::tame();
    let command = args::without_empty_variables(Cli::command());
    let cli = match command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    match cli.command {
        Command::Desk(args) => desk::run(*args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "hotdesk", &mut text);
            exit::print(&text)
        }
        Command::Sandbox => return sandbox::run(),
        Command::SettingsReference => exit::print(reference::settings().as_bytes()),
    }
    .into()
}
