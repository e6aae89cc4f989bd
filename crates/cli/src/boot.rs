//! `hotdesk boot`: process 1 of a golden disk. It sets up the machine, runs the desk as the template's user, starts it again
//! when it dies, and puts everything away when the power button is pressed.
//!
//! ```text
//!   initrd: modules, root ─► mounts ─► network ─► token ─► desk ─► ready ─► … ─► power button, SIGTERM: off
//!           "hotdesk: kernel"          ": network"          ": session"  ": ready"   on the serial console
//! ```
//!
//! The kernel's command line may say: `hotdesk.net=ADDRESS/LENGTH,GATEWAY,RESOLVER` (or `none`; otherwise DHCP is asked),
//! `hotdesk.token=TOKEN`, `hotdesk.name=HOSTNAME`, `hotdesk.open` (no token is needed, whatever the network is).

mod clock;
mod desk;
pub(crate) mod dhcp;
mod growth;
mod metadata;
mod mounts;
mod network;
mod power;
mod token;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Written on the disk when it is made.
const SETTINGS: &str = "/etc/hotdesk/boot.toml";
/// A desk that died is started again after so long, and after longer ones if it keeps dying.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// One that lived so long did not die of its start.
const LIVED: Duration = Duration::from_secs(60);

/// What runs here, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Settings {
    user: String,
    uid: u32,
    home: PathBuf,
    /// The desk's own settings.
    config: PathBuf,
    port: u16,
    /// Whether the user may become root: then the desk keeps the right to gain rights.
    #[serde(default)]
    sudo: bool,
}

/// How the machine goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Off,
    Again,
}

pub(crate) fn run() -> ExitCode {
    if std::process::id() != 1 {
        crate::exit::complain(
            "hotdesk boot is the first process of a machine that was booted from a golden disk, and nothing else",
            Some("`hotdesk desk` runs one desk here"),
        );
        return ExitCode::from(2);
    }
    // Held back before the first child, so that none is lost.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGPWR] {
        signals.add(signal);
    }
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None);
    let end = match live(&signals) {
        Ok(end) => end,
        Err(e) => {
            say(&format!("error: {e}"));
            End::Off
        }
    };
    power::go_down(end)
}

fn live(signals: &SigSet) -> Result<End, String> {
    mounts::all()?;
    let settings = std::fs::read_to_string(SETTINGS).map_err(|e| format!("{SETTINGS}: {e}"))?;
    let mut settings: Settings = toml::from_str(&settings).map_err(|e| format!("{SETTINGS}: {e}"))?;
    let words = words(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default());
    mounts::for_user(&settings)?;
    name(words.get("hotdesk.name").map(String::as_str));
    power::listen();
    growth::grow();
    clock::keep();
    let network = network::set_up(words.get("hotdesk.net").map(String::as_str));
    say("network");
    // After the network: on some machines the settings come from there.
    if let Some(config) = desk::own_settings(settings.uid) {
        settings.config = config;
    }
    let token = token::find(&words);
    let access = desk::Access::choose(token, network, words.contains_key("hotdesk.open"));
    if let Some(hint) = access.hint() {
        say(hint);
    }
    desk::follow_readiness(&settings)?;
    keep_alive(&settings, &access, signals)
}

/// Runs the desk until the machine shall go down.
fn keep_alive(settings: &Settings, access: &desk::Access, signals: &SigSet) -> Result<End, String> {
    let mut pause = FIRST_PAUSE;
    loop {
        say("session");
        let begun = Instant::now();
        let child = desk::start(settings, access)?;
        match desk::watch(child, signals) {
            desk::Watched::Asked(end) => {
                desk::stop(child);
                return Ok(end);
            }
            desk::Watched::Died(how) => say(&format!("the desk ended ({how}) and is started again")),
        }
        pause = if begun.elapsed() > LIVED { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        std::thread::sleep(pause);
    }
}

/// The kernel's command line: `a=b`, or `a` alone.
fn words(line: &str) -> BTreeMap<String, String> {
    line.split_whitespace()
        .map(|word| word.split_once('=').map_or((word, ""), |pair| pair))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The machine's name: as asked for, or as the disk says.
fn name(asked: Option<&str>) {
    let written = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let name = asked.unwrap_or(written.trim());
    if name.is_empty() || nix::unistd::sethostname(name).is_err() {
        return;
    }
    if asked.is_some() {
        let _ = std::fs::write("/etc/hostname", format!("{name}\n"));
        let _ = std::fs::write("/etc/hosts", format!("127.0.0.1 localhost {name}\n::1 localhost\n"));
    }
}

/// One line on the console.
fn say(text: &str) {
    let mut console = std::io::stderr().lock();
    let _ = writeln!(console, "hotdesk: {text}");
    let _ = console.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_of_the_kernel_is_read() {
        let words = words("root=LABEL=hotdesk quiet hotdesk.net=none hotdesk.token=a=b\n");
        assert_eq!(words["root"], "LABEL=hotdesk");
        assert_eq!(words["hotdesk.token"], "a=b");
        assert!(words.contains_key("quiet"));
    }
}
