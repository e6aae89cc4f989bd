//! The command line.

use crate::commands::audit::AuditArgs;
use crate::commands::backup::{BackupArgs, RestoreArgs};
use crate::commands::budget::BudgetCommand;
use crate::commands::costs::CostsArgs;
use crate::commands::cp::CpArgs;
use crate::commands::disk::DiskCommand;
use crate::commands::doctor::DoctorArgs;
use crate::commands::down::DownArgs;
use crate::commands::env::EnvArgs;
use crate::commands::events::EventsArgs;
use crate::commands::exec::ExecArgs;
use crate::commands::extend::ExtendArgs;
use crate::commands::fork::ForkArgs;
use crate::commands::forward::ForwardArgs;
use crate::commands::image::ImageCommand;
use crate::commands::key::KeyCommand;
use crate::commands::lease::LeaseCommand;
use crate::commands::logs::LogsArgs;
use crate::commands::ls::LsArgs;
use crate::commands::mcp::McpArgs;
use crate::commands::new::NewArgs;
use crate::commands::open::OpenArgs;
use crate::commands::orphan::{AdoptArgs, OrphanCommand};
use crate::commands::pool::PoolCommand;
use crate::commands::provider::ProviderCommand;
use crate::commands::serve::ServeArgs;
use crate::commands::set::SetArgs;
use crate::commands::sh::ShArgs;
use crate::commands::shot::ShotArgs;
use crate::commands::snapshot::{SnapshotArgs, SnapshotsArgs};
use crate::commands::steps::StepArgs;
use crate::commands::template::TemplateCommand;
use crate::commands::top::TopArgs;
use crate::commands::trace::TraceCommand;
use crate::commands::up::UpArgs;
use crate::commands::vm::VmArgs;
use crate::commands::volume::VolumeCommand;
use clap::builder::BoolishValueParser;
use clap::{Args, CommandFactory, Parser, Subcommand};
use hotdesk_desk::config::{
    AttachTarget, BrowserSettings, DisplayChoice, ListenAddress, LogFormat, ScreenSize, Secret, Settings, VncAddress,
    WindowManagerChoice, XServerChoice,
};
use std::fmt::Write;
use std::path::PathBuf;

/// Desktops for computer-use agents: runs them, drives them, serves them.
#[derive(Debug, Parser)]
#[command(name = "hotdesk", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a fleet and a first desk on this machine
    ///
    /// Does what is missing and leaves alone what is there: starts the fleet in the background, builds the template
    /// the first time, makes the first desk or wakes it, and tells where it is.
    Up(UpArgs),
    /// Stop the fleet of this machine; desks keep running
    Down(DownArgs),
    /// Serve a fleet
    ///
    /// The first start writes a key that may do everything to admin.key in the data directory. Ends cleanly on SIGTERM
    /// and SIGINT; desks keep running, and the next start finds them.
    ///
    /// Each setting is taken from the first of: its flag, its HOTDESK_ variable, the settings file, its default.
    Serve(Box<ServeArgs>),
    /// Copy the fleet's database, also while it is served
    #[command(after_help = "Example: hotdesk backup /backups/fleet-$(date +%F).db")]
    Backup(BackupArgs),
    /// Put a copy of the fleet's database back, while it is not served
    ///
    /// What the copy does not know is kept: `hotdesk orphan ls` shows it once the fleet is served again, `hotdesk adopt`
    /// makes it known.
    Restore(RestoreArgs),
    /// See what desks are made of, and build it
    #[command(subcommand)]
    Template(TemplateCommand),
    /// Fetch disks of virtual machines, and bring them into shape
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Make images that run virtual machines, and push images
    #[command(subcommand)]
    Image(ImageCommand),

    /// Make a desk
    New(Box<NewArgs>),
    /// List desks
    Ls(LsArgs),
    /// Take a picture of a desk
    Shot(ShotArgs),
    /// Run a program on a desk
    Exec(ExecArgs),
    /// Open a terminal on a desk
    Sh(ShArgs),
    /// Copy files to, from and between desks
    Cp(CpArgs),
    /// See a desk live
    Open(OpenArgs),
    /// Say who drives a desk: an agent or a person
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Record what is done on a desk, show it, do it again
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Reach ports of a desk from this machine
    Forward(ForwardArgs),
    /// Show what a desk's server printed
    Logs(LogsArgs),

    /// Start stopped or archived desks
    Start(StepArgs),
    /// Stop desks; their files stay
    Stop(StepArgs),
    /// Put desks back to what they were made from
    Reset(StepArgs),
    /// Move stopped desks to the archive
    Archive(StepArgs),
    /// Let desks live longer
    Extend(ExtendArgs),
    /// Change name, labels and policy of a desk
    Set(SetArgs),
    /// Make a desk like another one, as it is right now
    Fork(Box<ForkArgs>),
    /// Save a desk
    Snapshot(SnapshotArgs),
    /// List and remove saved desks
    Snapshots(SnapshotsArgs),
    /// Delete desks
    Rm(StepArgs),

    /// Print the lines that point a client at the fleet
    Env(EnvArgs),
    /// Offer desks as tools to an MCP client
    ///
    /// MCP clients start this command by themselves and talk to it over stdin and stdout. The same tools are at /mcp of
    /// the fleet for clients that connect by HTTP.
    Mcp(McpArgs),
    /// Show what desks use right now
    Top(TopArgs),
    /// Show what happened in the fleet
    Events(EventsArgs),
    /// Keep desks ready
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Keep files that outlive desks
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// See what has no record, and decide what becomes of it
    #[command(subcommand)]
    Orphan(OrphanCommand),
    /// Make something without a record a desk or snapshot of the fleet again
    Adopt(AdoptArgs),
    /// Say who may use the fleet
    #[command(subcommand)]
    Key(KeyCommand),
    /// Say what projects may spend
    #[command(subcommand)]
    Budget(BudgetCommand),
    /// Show money spent
    Costs(CostsArgs),
    /// Show who asked for what
    Audit(AuditArgs),
    /// Show where desks can live
    #[command(subcommand)]
    Provider(ProviderCommand),

    /// Run one desktop and serve it
    ///
    /// Starts an X server, a D-Bus session, accessibility and a window manager, keeps them alive, and offers
    /// screen, input, accessibility, windows, programs and files over HTTP: as OSWorld's server does at `/`, and
    /// natively at `/v1`. Ends cleanly on SIGTERM and SIGINT, at once when asked twice.
    ///
    /// Each setting is taken from the first of: its flag, its HOTDESK_ variable, the variables that OpenManus'
    /// images know (RESOLUTION, VNC_PASSWORD, CHROME_PERSISTENT_SESSION, …), the settings file, its default.
    Desk(Box<DeskArgs>),
    /// Run one virtual machine and serve what is inside; the entrypoint of VM images
    ///
    /// Needs no right and no device. Without a disk it says so at `/health` and starts the machine when one appears. Ends cleanly on
    /// SIGTERM and SIGINT; otherwise it stays, whatever becomes of the machine.
    Vm(Box<VmArgs>),
    /// Tell what works on this machine, and what to do about the rest
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example: hotdesk completions bash > /etc/bash_completion.d/hotdesk")]
    Completions { shell: clap_complete::Shell },
    /// Make a sandbox and start a desk in it; for the local provider alone
    #[command(hide = true)]
    Sandbox,
    /// Be the first process of a machine that was booted from a golden disk
    #[command(hide = true)]
    Boot,
    /// Print docs/settings.md
    #[command(hide = true)]
    SettingsReference,
    /// Print docs/cli.md
    #[command(hide = true)]
    CliReference,
}

#[derive(Debug, Args)]
pub(crate) struct DeskArgs {
    /// Where to listen: ADDRESS:PORT, a port alone for loopback, or unix:PATH [default: 127.0.0.1:5000]
    ///
    /// Can be given several times. On addresses other than loopback every request needs a token, unless
    /// `--open` is said.
    #[arg(long, env = "HOTDESK_LISTEN", value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<ListenAddress>,

    /// The display to make: `:N`, or `auto` for a free one [default: :99, or the next free one]
    #[arg(long, env = "HOTDESK_DISPLAY", value_name = "DISPLAY")]
    display: Option<DisplayChoice>,

    /// Size of the screen in pixels [default: 1920x1080]
    #[arg(long, env = "HOTDESK_SIZE", value_name = "WIDTHxHEIGHT")]
    size: Option<ScreenSize>,

    /// Use a display that exists, such as `:0`, instead of making one
    ///
    /// Nothing of its session is started or healed.
    #[arg(long, env = "HOTDESK_ATTACH", value_name = "DISPLAY", conflicts_with = "display")]
    attach: Option<AttachTarget>,

    /// Let everybody who reaches the server use the desk, without a token
    #[arg(long, env = "HOTDESK_OPEN", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new(), value_name = "BOOL", hide_possible_values = true)]
    open: Option<bool>,

    /// Also serve the screen over VNC, on ADDRESS:PORT or a port of loopback
    ///
    /// The password is taken from VNC_PASSWORD. On addresses other than loopback there must be one, unless
    /// `--open` is said.
    #[arg(long, env = "HOTDESK_VNC", value_name = "ADDRESS")]
    vnc: Option<VncAddress>,

    /// A settings file in TOML
    #[arg(long, env = "HOTDESK_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// What requests must carry as `Authorization: Bearer TOKEN`
    ///
    /// A flag can be seen by every user of the machine; HOTDESK_TOKEN or `--token-file` can't.
    #[arg(long, env = "HOTDESK_TOKEN", hide_env_values = true, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<Secret>,

    /// A file that holds the token
    #[arg(long, env = "HOTDESK_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// A name besides `localhost` that clients on loopback may use for the desk; can be given several times
    #[arg(long = "name", env = "HOTDESK_NAMES", value_name = "HOST", value_delimiter = ',')]
    names: Vec<String>,

    /// A site whose pages may use the desk on loopback, such as `https://board.example`; can be given several times
    #[arg(long = "origin", env = "HOTDESK_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    origins: Vec<String>,

    /// The X server: `auto`, `Xvfb`, or `Xtigervnc`, which can be resized freely [default: auto]
    #[arg(long, env = "HOTDESK_X_SERVER", value_name = "SERVER")]
    x_server: Option<XServerChoice>,

    /// The window manager: a command, `auto` or `none` [default: auto, which is openbox where it is installed]
    #[arg(long, env = "HOTDESK_WM", value_name = "COMMAND")]
    wm: Option<WindowManagerChoice>,

    /// Start no window manager
    #[arg(long, conflicts_with = "wm")]
    no_wm: bool,

    /// Home and working directory of programs [default: that of the user]
    #[arg(long, env = "HOTDESK_HOME", value_name = "DIRECTORY")]
    home: Option<PathBuf>,

    /// A shell command to start with the session; can be given several times
    ///
    /// It is started again when it crashes, not when it is closed.
    #[arg(long, env = "HOTDESK_START", value_name = "COMMAND", value_delimiter = '\n')]
    start: Vec<String>,

    /// A shell command to run with each start
    ///
    /// Its output and exit code are those of command 1 of the shell `entrypoint`. Its end is not the desk's.
    #[arg(long, env = "HOTDESK_ENTRYPOINT", value_name = "COMMAND")]
    entrypoint: Option<String>,

    /// How the log is written to stderr: `text` or `json` [default: text]
    #[arg(long, env = "HOTDESK_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    /// What is logged: `error`, `warn`, `info`, `debug`, or a filter such as `hotdesk_desk=debug`
    #[arg(long, env = "HOTDESK_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
}

impl DeskArgs {
    /// The layer of flags and of HOTDESK_ variables.
    pub(crate) fn settings(self) -> Settings {
        fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
            (!list.is_empty()).then_some(list)
        }
        Settings {
            listen: some(self.listen),
            open: self.open,
            token: self.token,
            token_file: self.token_file,
            names: some(self.names),
            origins: some(self.origins),
            display: self.display,
            attach: self.attach,
            size: self.size,
            vnc: self.vnc,
            vnc_password: None,
            x_server: self.x_server,
            wm: if self.no_wm { Some(WindowManagerChoice::None) } else { self.wm },
            home: self.home,
            start: some(self.start),
            entrypoint: self.entrypoint,
            browser: BrowserSettings::default(),
            env: Default::default(),
            log_format: self.log_format,
        }
    }
}

/// All commands, by what people want to do.
pub(crate) const GROUPS: [(&str, &[&str]); 4] = [
    (
        "This machine",
        &["up", "down", "serve", "backup", "restore", "template", "image", "disk", "desk", "vm", "doctor", "completions"],
    ),
    ("Desks", &["new", "ls", "shot", "exec", "sh", "cp", "open", "lease", "trace", "forward", "logs", "rm"]),
    ("Their life", &["start", "stop", "reset", "fork", "snapshot", "snapshots", "archive", "extend", "set"]),
    (
        "The fleet",
        &["env", "mcp", "top", "events", "pool", "volume", "orphan", "adopt", "key", "budget", "costs", "audit", "provider"],
    ),
];

/// The command line with its overview.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let overview = overview(&command);
    command.help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}").after_help(overview)
}

fn overview(command: &clap::Command) -> clap::builder::StyledStr {
    let style = command.get_styles().get_header();
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{style}{group}:{style:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let literal = command.get_styles().get_literal();
            let _ = writeln!(text, "  {literal}{name:11}{literal:#}  {}", about.cloned().unwrap_or_default());
        }
        text.push('\n');
    }
    text.push_str("hotdesk help COMMAND tells more.");
    text.into()
}

/// A variable that is set to nothing counts as not set: container tools hand on variables that way.
pub(crate) fn without_empty_variables(command: clap::Command) -> clap::Command {
    let forget = |arg: clap::Arg| {
        let empty = arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
        if empty { arg.env(None) } else { arg }
    };
    command.mut_subcommands(|subcommand| without_empty_variables(subcommand.mut_args(forget)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_one_place_in_the_overview() {
        let command = Cli::command();
        let mut known: Vec<_> = command.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name).collect();
        let mut shown: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        known.sort_unstable();
        shown.sort_unstable();
        assert_eq!(known, shown);
    }

    fn desk(words: &[&str]) -> Result<Settings, clap::Error> {
        let words = ["hotdesk", "desk"].iter().chain(words);
        match Cli::try_parse_from(words)?.command {
            Command::Desk(args) => Ok(args.settings()),
            _ => unreachable!(),
        }
    }

    #[test]
    fn the_words_of_the_interface() {
        let settings =
            desk(&["--listen", "0.0.0.0:5000", "--display", ":99", "--size", "1920x1080", "--open", "--vnc", "127.0.0.1:5900"])
                .unwrap();
        assert_eq!(settings.open, Some(true));
        assert_eq!(settings.display, Some(DisplayChoice::Number(99)));
        assert_eq!(desk(&["--attach", ":0"]).unwrap().attach, Some(AttachTarget(0)));
        assert_eq!(desk(&["--open=false"]).unwrap().open, Some(false));
        assert_eq!(desk(&["--no-wm"]).unwrap().wm, Some(WindowManagerChoice::None));
        assert_eq!(desk(&["--start", "a, b", "--start", "c"]).unwrap().start.unwrap(), ["a, b", "c"]);
        assert!(desk(&["--attach", ":0", "--display", ":1"]).is_err());
        assert!(desk(&["--size", "big"]).unwrap_err().to_string().contains("1920x1080"));
    }
}
