//! The `hotdesk` binary: desktops for computer-use agents.

mod args;
mod boot;
mod commands;
mod desk;
mod exit;
mod failure;
#[cfg(test)]
mod fuzz;
mod init;
mod live;
mod memory;
mod notify;
mod out;
mod picture;
mod places;
mod reach;
mod reference;
mod sandbox;
mod stand_in;
mod text;
mod waiting;

use args::{Cli, Command};
use clap::FromArgMatches;
use commands::steps::Step;
use exit::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Under another name it stands in for that program; hundreds of times in a task, so it does nothing else before.
    if let Some(code) = stand_in::run() {
        return code;
    }
    memory::tame();
    // Started for every desk, so it does not even read the command line.
    if std::env::args_os().nth(1).is_some_and(|word| word == "sandbox") {
        return sandbox::run();
    }
    // The first process of a machine: nothing may stand between it and its work.
    if std::env::args_os().nth(1).is_some_and(|word| word == "boot") {
        return boot::run();
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == hotdesk_desk::user::HAND) {
        return desk::hand();
    }
    let command = args::without_empty_variables(args::command());
    let cli = match command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    match cli.command {
        Command::Up(args) => commands::up::run(args),
        Command::Down(args) => commands::down::run(args),
        Command::Serve(args) => commands::serve::run(*args),
        Command::Template(command) => commands::template::run(command),
        Command::Disk(command) => commands::disk::run(command),
        Command::Image(command) => commands::image::run(command),
        Command::New(args) => commands::new::run(*args),
        Command::Ls(args) => commands::ls::run(args),
        Command::Shot(args) => commands::shot::run(args),
        Command::Exec(args) => commands::exec::run(args),
        Command::Sh(args) => commands::sh::run(args),
        Command::Cp(args) => commands::cp::run(args),
        Command::Open(args) => commands::open::run(args),
        Command::Forward(args) => commands::forward::run(args),
        Command::Logs(args) => commands::logs::run(args),
        Command::Start(args) => commands::steps::run(Step::Start, args),
        Command::Stop(args) => commands::steps::run(Step::Stop, args),
        Command::Reset(args) => commands::steps::run(Step::Reset, args),
        Command::Archive(args) => commands::steps::run(Step::Archive, args),
        Command::Rm(args) => commands::steps::run(Step::Remove, args),
        Command::Extend(args) => commands::extend::run(args),
        Command::Set(args) => commands::set::run(args),
        Command::Fork(args) => commands::fork::run(*args),
        Command::Snapshot(args) => commands::snapshot::make(args),
        Command::Snapshots(args) => commands::snapshot::run(args),
        Command::Env(args) => commands::env::run(args),
        Command::Mcp(args) => commands::mcp::run(args),
        Command::Top(args) => commands::top::run(args),
        Command::Events(args) => commands::events::run(args),
        Command::Pool(command) => commands::pool::run(command),
        Command::Lease(command) => commands::lease::run(command),
        Command::Trace(command) => commands::trace::run(command),
        Command::Volume(command) => commands::volume::run(command),
        Command::Orphan(command) => commands::orphan::run(command),
        Command::Adopt(args) => commands::orphan::adopt(args),
        Command::Backup(args) => commands::backup::backup(args),
        Command::Restore(args) => commands::backup::restore(args),
        Command::Key(command) => commands::key::run(command),
        Command::Budget(command) => commands::budget::run(command),
        Command::Costs(args) => commands::costs::run(args),
        Command::Audit(args) => commands::audit::run(args),
        Command::Provider(command) => commands::provider::run(command),
        Command::Desk(args) => desk::run(*args),
        Command::Vm(args) => commands::vm::run(*args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "hotdesk", &mut text);
            exit::print(&text)
        }
        Command::Sandbox => return sandbox::run(),
        Command::Boot => return boot::run(),
        Command::CliReference => exit::print(reference::commands().as_bytes()),
        Command::SettingsReference => exit::print(reference::settings().as_bytes()),
    }
    .into()
}
