//! The settings of a fleet that is served: flags and variables over the file over the defaults.
//!
//! The file is `hotdesk.toml` in the data directory. The fleet's own settings stand at its top, the others in tables:
//!
//! ```toml
//! max_desks = 50
//! providers = ["local"]
//!
//! [policy]
//! auto_stop_s = 3600
//!
//! [gateway]
//! listen = ["127.0.0.1:7700"]
//!
//! [local]
//! debuggers = true
//!
//! [docker]
//! allow_private = ["10.1.0.0/16"]
//!
//! [qemu.disks]
//! osworld-vm = "/vm/System.qcow2"
//!
//! [kubernetes]
//! namespace = "desks"
//!
//! [daytona.templates.base]
//! image = "registry.example/desks/base:1"
//!
//! [gce]
//! project = "my-project"
//!
//! [images]
//! "whitezxj/sandbox:0.1.0" = "openmanus"
//! ```

use super::ServeArgs;
use super::elsewhere::Elsewhere;
use super::providers::{DockerConfig, Kind, LocalConfig, QemuConfig};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::places;
use hotdesk_gateway::{TlsFiles, telemetry};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// All settings, put together.
pub(super) struct Settings {
    pub(super) fleet: hotdesk_fleet::Config,
    pub(super) gateway: hotdesk_gateway::Config,
    pub(super) local: LocalConfig,
    pub(super) docker: DockerConfig,
    pub(super) qemu: QemuConfig,
    pub(super) elsewhere: Elsewhere,
    pub(super) kinds: Vec<Kind>,
    pub(super) images: PathBuf,
}

impl Settings {
    /// Those of a file alone: the one that is named, or the data directory's.
    pub(super) fn of_file(config: Option<&Path>, data: &Path) -> Outcome<Self> {
        let (path, needed) = match config {
            Some(path) => (path.to_owned(), true),
            None => (data.join("hotdesk.toml"), false),
        };
        Self::from_text(&text(&path, needed)?).map_err(|e| e.during(format!("{} can't be used", path.display())))
    }

    pub(super) fn read(args: ServeArgs, data: PathBuf) -> Outcome<Self> {
        let mut settings = Self::of_file(args.config.as_deref(), &data)?;
        settings.fleet.data = data;
        if settings.fleet.archive.is_empty() {
            settings.fleet.archive = settings.fleet.data.join("archives").display().to_string();
        }
        settings.images = places::images(args.images.as_deref());
        if let Some(store) = args.store {
            settings.fleet.store = store;
        }
        if let Some(archive) = args.archive {
            settings.fleet.archive = archive;
        }
        if let Some(most) = args.max_desks {
            settings.fleet.max_desks = most;
        }
        if !args.listen.is_empty() {
            settings.gateway.listen = args.listen;
        }
        if let (Some(cert), Some(key)) = (args.tls_cert, args.tls_key) {
            settings.gateway.tls = Some(TlsFiles { cert, key });
        }
        if args.public_url.is_some() {
            settings.gateway.public_url = args.public_url;
        }
        settings.gateway.open_metrics |= args.open_metrics;
        if !args.providers.is_empty() {
            settings.kinds = args.providers;
        }
        Ok(settings)
    }

    fn from_text(text: &str) -> Outcome<Self> {
        let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| wrong("", &e))?;
        let mut take = |name: &str| table.remove(name).unwrap_or_else(|| toml::Value::Table(toml::Table::new()));
        let (gateway, local, qemu, images) = (take("gateway"), take("local"), take("qemu"), take("images"));
        let docker = take("docker");
        let elsewhere = Elsewhere::from_tables(&mut take)?;
        let kinds = table.remove("providers");
        let mut fleet: hotdesk_fleet::Config = part("", toml::Value::Table(table))?;
        elsewhere.fill_prices(&mut fleet.prices);
        Ok(Self {
            gateway: hotdesk_gateway::Config { images: part("images.", images)?, ..part("gateway.", gateway)? },
            local: part("local.", local)?,
            docker: part("docker.", docker)?,
            qemu: part("qemu.", qemu)?,
            kinds: kinds.map_or_else(|| Ok(Vec::new()), |kinds| part("providers", kinds))?,
            elsewhere,
            fleet,
            images: PathBuf::new(),
        })
    }
}

/// A settings file that says what is so anyway.
pub(crate) fn default_settings() -> String {
    fn table(value: &impl serde::Serialize) -> toml::Table {
        toml::Table::try_from(value).unwrap_or_default()
    }
    let mut all = table(&hotdesk_fleet::Config::default());
    // Where it stands is said by where the file is, and these are empty.
    for name in ["data", "store", "archive", "prices", "pools", "max_desks_per_project", "resources"] {
        all.remove(name);
    }
    all.insert("archive".into(), "DATA/archives".into());
    all.insert("gateway".into(), toml::Value::Table(table(&hotdesk_gateway::Config::default())));
    all.insert("local".into(), toml::Value::Table(table(&LocalConfig::default())));
    all.insert("docker".into(), toml::Value::Table(table(&DockerConfig::default())));
    all.insert("qemu".into(), toml::Value::Table(table(&QemuConfig::default())));
    all.insert("kubernetes".into(), toml::Value::Table(table(&hotdesk_provider::kubernetes::Config::default())));
    all.insert("daytona".into(), toml::Value::Table(table(&hotdesk_provider::daytona::Config::default())));
    all.insert("e2b".into(), toml::Value::Table(table(&hotdesk_provider::e2b::Config::default())));
    all.insert("gce".into(), toml::Value::Table(table(&hotdesk_provider::gce::Config::default())));
    all.insert("images".into(), toml::Value::Table(table(&hotdesk_gateway::Images::default())));
    toml::to_string(&all).unwrap_or_default()
}

pub(super) fn part<T: DeserializeOwned>(name: &str, value: toml::Value) -> Outcome<T> {
    value.try_into().map_err(|e: toml::de::Error| wrong(name, &e))
}

fn wrong(part: &str, error: &toml::de::Error) -> Failure {
    let at = if part.is_empty() { String::new() } else { format!("{}: ", part.trim_end_matches('.')) };
    Failure::usage(format!("{at}{}", error.to_string().trim_end())).hint("docs/settings.md lists what can be set")
}

fn text(path: &Path, needed: bool) -> Outcome<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !needed => Ok(String::new()),
        Err(e) => Err(Failure::usage(format!("the settings file {} can't be read: {e}", path.display()))),
    }
}

/// What `--log` says: the form of the log, or what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Log {
    Text,
    Json,
    Filter(String),
}

impl FromStr for Log {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "text" => Self::Text,
            "json" => Self::Json,
            filter => Self::Filter(filter.to_owned()),
        })
    }
}

/// The form of the log and its filter.
pub(super) fn log(said: &[Log]) -> (telemetry::Format, String) {
    let json = said.iter().rev().find_map(|log| match log {
        Log::Json => Some(true),
        Log::Text => Some(false),
        Log::Filter(_) => None,
    });
    let filter = said.iter().rev().find_map(|log| if let Log::Filter(filter) = log { Some(filter.clone()) } else { None });
    let format = if json == Some(true) { telemetry::Format::Json } else { telemetry::Format::Text };
    (format, filter.unwrap_or_else(|| telemetry::DEFAULT_FILTER.to_owned()))
}

/// What the gateway can't use.
pub(super) fn refused(error: hotdesk_gateway::Error) -> Failure {
    use hotdesk_gateway::Error;
    match error {
        Error::Listen { address, reason, hint } => {
            Failure::new(Exit::Taken, format!("can't listen on {address}: {reason}")).hint(hint.to_owned())
        }
        Error::Settings(why) => Failure::usage(why.replace('`', "")),
        other => Failure::usage(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_all_parts() {
        let text = "max_desks = 7\nproviders = ['docker', 'local']\n[policy]\nauto_stop_s = 60\n[gateway]\nlisten = [':1']\nopen_metrics = true\n[local]\n[qemu]\naccel = 'tcg'\n[qemu.disks]\nos = '/vm/a'\n";
        let settings = Settings::from_text(text).unwrap();
        assert_eq!((settings.fleet.max_desks, settings.fleet.policy.auto_stop_s), (7, 60));
        assert_eq!(settings.kinds, [Kind::Docker, Kind::Local]);
        assert_eq!(settings.qemu.disks["os"], Path::new("/vm/a"));
        assert!(settings.gateway.open_metrics && settings.gateway.listen.len() == 1);
        assert_eq!(Settings::from_text("").unwrap().fleet.max_desks, 100);
    }

    #[test]
    fn places_elsewhere_have_their_tables_and_prices() {
        let text = "providers = ['daytona']\n[daytona.templates.base]\nimage = 'r/base:1'\n[e2b]\ntimeout_s = 60\n[prices.e2b]\ncpu_hour = 1\n";
        let settings = Settings::from_text(text).unwrap();
        assert_eq!(settings.elsewhere.daytona.templates["base"].image, "r/base:1");
        assert_eq!((settings.elsewhere.e2b.timeout_s, settings.kinds), (60, vec![Kind::Daytona]));
        assert!(settings.fleet.prices["daytona"].cpu_hour > 0.0, "a vendor's price is known without a word");
        assert_eq!(settings.fleet.prices["e2b"].memory_gib_hour, 0.0, "what is said is taken as it is");
    }

    #[test]
    fn the_example_of_the_docs_can_be_used() {
        assert!(Settings::from_text(&default_settings()).is_ok());
    }

    #[test]
    fn what_is_misspelt_is_told() {
        for text in ["max_dseks = 7", "[gateway]\nlisten = ['nowhere']", "[locla]\n", "providers = ['moon']", "x = "] {
            let failure = Settings::from_text(text).err().map(|failure| failure.exit);
            assert_eq!(failure, Some(Exit::Usage), "{text}");
        }
    }

    #[test]
    fn form_and_filter_of_the_log() {
        let said = |words: &[&str]| log(&words.iter().map(|word| word.parse().unwrap()).collect::<Vec<_>>());
        assert_eq!(said(&[]), (telemetry::Format::Text, "info".into()));
        assert_eq!(said(&["json"]), (telemetry::Format::Json, "info".into()));
        assert_eq!(said(&["json", "debug"]), (telemetry::Format::Json, "debug".into()));
        assert_eq!(said(&["a=debug,warn", "json", "text"]), (telemetry::Format::Text, "a=debug,warn".into()));
    }
}
