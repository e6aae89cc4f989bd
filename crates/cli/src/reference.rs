//! The references of settings and commands, made from the command line itself.

use crate::args::{self, Cli, GROUPS};
use clap::CommandFactory;
use std::fmt::Write;

/// `docs/cli.md`.
pub(crate) fn commands() -> String {
    let mut text = String::from(
        "# Commands\n\n\
         This page is made by `hotdesk cli-reference`; a test holds it to the program. `hotdesk desk` has a page of its own: [settings.md](settings.md).\n\n\
         **Which fleet.** The flags `--url` and `--key`, else `HOTDESK_URL` and `HOTDESK_KEY`, else the fleet that runs on this machine (`serve.json` and\n\
         `admin.key` in its data directory). This machine's key is never sent to another address. `HOTDESK_CA` names a file with certificates to trust.\n\n\
         **Which desk.** An id, a name, or the beginning of either, if only one desk fits.\n\n\
         **Output.** Data goes to stdout, talk to stderr. `--json` prints what the API says, and is stable. What takes longer than a second tells what it is doing.\n\
         `NO_COLOR` is honoured. Control characters in names and texts of others are escaped before a terminal sees them.\n\n\
         | status | meaning |\n|---|---|\n\
         | 0 | done |\n\
         | 1 | it failed |\n\
         | 2 | the command line, a variable or the settings can't be used |\n\
         | 3 | something that is needed is not there |\n\
         | 4 | the address, the name or the desk is taken, or its state does not allow it |\n\
         | 5 | there is no such desk, key, template or file |\n\
         | 6 | the key is missing, wrong, or may not |\n\
         | 7 | a limit is reached, or the money is spent |\n\
         | 8 | the fleet can't be reached, or the connection broke |\n\
         | 9 | it took longer than was waited for |\n\
         | 124, 125 | `exec`: the program took too long; it could not be run at all |\n\
         | 128 + N | ended by signal N |\n",
    );
    let mut command = args::command().term_width(100);
    command.build();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n## {group}");
        for name in names.iter().filter(|name| **name != "desk") {
            if let Some(command) = command.find_subcommand_mut(name) {
                describe(&mut text, command, &format!("hotdesk {name}"));
            }
        }
    }
    text
}

fn describe(text: &mut String, command: &mut clap::Command, name: &str) {
    let mut inner: Vec<_> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    inner.retain(|inner| inner != "help");
    // A command that is nothing but its subcommands is described by them.
    if inner.is_empty() || !command.is_subcommand_required_set() {
        let help = command.render_help().to_string();
        let lines = help.lines().map(|line| format!("{}\n", line.trim_end()));
        let _ = writeln!(text, "\n### {name}\n\n```text\n{}```", lines.collect::<String>());
    }
    for one in inner {
        if let Some(command) = command.find_subcommand_mut(&one) {
            describe(text, command, &format!("{name} {one}"));
        }
    }
}

/// `docs/settings.md`.
pub(crate) fn settings() -> String {
    let mut text = String::from(
        "# Settings of `hotdesk desk`\n\n\
         This page is made by `hotdesk settings-reference`; a test holds it to the program.\n\n\
         Each setting is taken from the first of: its flag, its `HOTDESK_` variable, the variables that OpenManus' images\n\
         know, the settings file (`--config FILE`), its default. A variable that is set to nothing counts as not set.\n\n\
         | flag | variable | in the file | meaning |\n|---|---|---|---|\n",
    );
    let command = Cli::command();
    let desk = command.find_subcommand("desk").into_iter().flat_map(|desk| desk.get_arguments());
    for arg in desk {
        let Some(long) = arg.get_long() else { continue };
        let values = arg.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
        let flag = match long {
            "open" | "no-wm" => format!("--{long}"),
            _ => format!("--{long} {values}"),
        };
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let key = match long {
            "config" | "log" | "no-wm" => String::new(),
            "name" | "origin" => format!("`{long}s`"),
            _ => format!("`{}`", long.replace('-', "_")),
        };
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let _ = writeln!(text, "| `{flag}` | {variable} | {key} | {help} |");
    }
    text.push_str(
        "\n## Only in the file\n\n\
         | setting | meaning |\n|---|---|\n\
         | `vnc_password` | the password of VNC; `VNC_PASSWORD` is the better place |\n\
         | `browser.persistent` | keep a browser open from the start, with a profile that stays |\n\
         | `browser.debugging_port` | the port of its debugging interface (9222) |\n\
         | `browser.debugging_host` | the address of its debugging interface (127.0.0.1) |\n\
         | `browser.telemetry` | let it report usage to its maker (false) |\n\
         | `env.NAME` | a variable for the environment of programs |\n\
         \n## Variables of OpenManus' images\n\n\
         | variable | sets |\n|---|---|\n\
         | `RESOLUTION` | `size`, as `1920x1080` or `1920x1080x24` |\n\
         | `RESOLUTION_WIDTH`, `RESOLUTION_HEIGHT` | `size`, where `RESOLUTION` is not set |\n\
         | `VNC_PASSWORD` | `vnc_password` |\n\
         | `CHROME_PERSISTENT_SESSION` | `browser.persistent` |\n\
         | `CHROME_DEBUGGING_PORT` | `browser.debugging_port` |\n\
         | `CHROME_DEBUGGING_HOST` | `browser.debugging_host` |\n\
         | `ANONYMIZED_TELEMETRY` | `browser.telemetry`; handed on to programs as well |\n\
         \n## A settings file\n\n\
         ```toml\n\
         listen = [\"127.0.0.1:5000\", \"unix:/run/desk.sock\"]\n\
         display = \"auto\"\n\
         size = \"1280x800\"\n\
         start = [\"gedit\"]\n\
         \n\
         [env]\n\
         LANG = \"de_DE.UTF-8\"\n\
         ```\n\
         \n## Exit status\n\n\
         | status | meaning |\n|---|---|\n\
         | 0 | the desk was asked to stop and did |\n\
         | 1 | something went wrong |\n\
         | 2 | the command line, a variable or the settings file can't be used |\n\
         | 3 | something that is needed is not installed |\n\
         | 4 | the address or the display is taken |\n\
         | 128 + N | asked to stop twice, by signal N the second time |\n",
    );
    let _ = write!(
        text,
        "\n# Settings of `hotdesk serve`\n\n\
         Each setting is taken from the first of: its flag, its `HOTDESK_` variable (both in [cli.md](cli.md)), the settings file, its default. The file is\n\
         `hotdesk.toml` in the data directory, or the one that `--config` names. This is all that can stand in it, with the defaults. What takes a time is in\n\
         seconds, and 0 means never:\n\n\
         ```toml\n{}```\n\n\
         Besides: `providers = [\"local\"]`, the places where desks live, the first is the default; `store = \"postgres://USER@HOST/NAME\"`;\n\
         `[gateway.tls]` with `cert` and `key`; `gateway.public_url`; `secrets_key`, the file with the key of the store's secrets\n\
         (`DATA/secrets.key`); `[resources]` with `cpus`, `memory_mib` and `disk_mib`, and `[screen]` with `width` and `height`, each of which is the\n\
         template's where it is not set; and as many of these as are needed:\n\n\
         ```toml\n\
         [max_desks_per_project]\n\
         ci = 10\n\n\
         [prices.local]                  # per hour: of one CPU, one GiB of memory, one GiB of disk\n\
         cpu_hour = 0.02\n\
         memory_gib_hour = 0.005\n\
         disk_gib_hour = 0.0001\n\n\
         [[pools]]\n\
         template = \"base\"\n\
         min = 2\n\
         max = 10\n\
         ```\n",
        crate::commands::serve::default_settings()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_GOLDEN=1 cargo test -p hotdesk reference` writes them anew.
    #[test]
    fn the_pages_are_fresh() {
        for (name, text) in [("settings.md", settings()), ("cli.md", commands())] {
            let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&file, &text).expect("docs can be written");
            }
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(kept == text, "docs/{name} is stale: UPDATE_GOLDEN=1 cargo test -p hotdesk reference");
        }
    }
}
