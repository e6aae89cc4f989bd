//! Where the fleet is and what opens it.
//!
//! Taken from the first of: what the caller says, `HOTDESK_URL` and `HOTDESK_KEY`, the fleet that runs on this machine
//! (`DATA/serve.json`, `DATA/admin.key`). This machine's key is sent to this machine's fleet alone, never to a URL that
//! somebody else put into the environment.

use crate::{Error, Result};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// What the caller says about the fleet; what it leaves out is found.
#[derive(Clone, Default)]
pub struct Settings {
    /// `http://HOST:PORT`, `https://…`, `HOST:PORT` or `unix:PATH`.
    pub url: Option<String>,
    pub key: Option<String>,
    /// The data directory of a fleet on this machine.
    pub data: Option<PathBuf>,
    /// A file with the certificates (PEM) that the fleet's own may be signed by.
    pub ca: Option<PathBuf>,
}

/// A fleet that can be asked.
#[derive(Clone)]
pub struct Found {
    pub target: Target,
    pub key: Option<String>,
    pub ca: Option<PathBuf>,
}

/// Where a fleet listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Http(Url),
    Unix(PathBuf),
}

/// `DATA/serve.json`, written by `hotdesk serve` while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// For clients on this machine.
    pub url: String,
    pub pid: u32,
    pub version: String,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("url", &self.url).field("data", &self.data).finish_non_exhaustive()
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Settings {
    pub fn find(&self) -> Result<Found> {
        self.find_in(|name| std::env::var(name).ok())
    }

    /// The same with another environment; tests use it.
    pub fn find_in(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Found> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let url = self.url.clone().or_else(|| variable("HOTDESK_URL"));
        let key = self.key.clone().or_else(|| variable("HOTDESK_KEY"));
        let ca = self.ca.clone().or_else(|| variable("HOTDESK_CA").map(PathBuf::from));
        let directories = match self.data.clone().or_else(|| variable("HOTDESK_DATA").map(PathBuf::from)) {
            Some(data) => vec![data],
            None => data_directories(&variable),
        };
        if let Some(url) = url {
            let target: Target = url.parse()?;
            // A URL that names the fleet of this machine may use its key; nobody else's may.
            let key = key.or_else(|| {
                let own = directories.iter().find(|data| Serve::read(data).is_some_and(|serve| serve.is_at(&target)))?;
                read_key(own).ok()
            });
            return Ok(Found { target, key, ca });
        }
        for data in &directories {
            let Some(serve) = Serve::read(data).filter(Serve::is_alive) else { continue };
            let key = match key {
                Some(key) => key,
                None => read_key(data)?,
            };
            return Ok(Found { target: serve.url.parse()?, key: Some(key), ca });
        }
        let ended = directories.iter().find(|data| Serve::read(data).is_some());
        Err(Error::NoFleet {
            message: match ended {
                Some(data) => format!("the fleet in {} does not run any more", data.display()),
                None => "no fleet runs on this machine, and HOTDESK_URL is not set".into(),
            },
            hint: "hotdesk up starts one here; --url URL or HOTDESK_URL names another".into(),
        })
    }
}

/// Where fleets of this machine keep their data: the user's own first, then the system's.
pub fn data_directories(variable: &impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let system = PathBuf::from("/var/lib/hotdesk");
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if root {
        return vec![system];
    }
    let own = match (variable("XDG_DATA_HOME"), variable("HOME")) {
        (Some(data), _) if Path::new(&data).is_absolute() => Some(PathBuf::from(data)),
        (_, Some(home)) => Some(Path::new(&home).join(".local/share")),
        _ => None,
    };
    own.map(|own| own.join("hotdesk")).into_iter().chain([system]).collect()
}

fn read_key(data: &Path) -> Result<String> {
    let file = data.join("admin.key");
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(e) => Err(Error::NoFleet {
            message: format!("the key of this machine's fleet, {}, can't be read: {e}", file.display()),
            hint: "set HOTDESK_KEY to a key of yours; whoever runs the fleet makes one with: hotdesk key new NAME".into(),
        }),
    }
}

impl Serve {
    pub fn file(data: &Path) -> PathBuf {
        data.join("serve.json")
    }

    /// What the fleet in that directory says of itself, if it ever ran.
    pub fn read(data: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::file(data)).ok()?).ok()
    }

    /// Whether the process is there; a stale file outlives a `kill -9`.
    pub fn is_alive(&self) -> bool {
        !Path::new("/proc/self").exists() || Path::new("/proc").join(self.pid.to_string()).exists()
    }

    fn is_at(&self, target: &Target) -> bool {
        self.url.parse::<Target>().is_ok_and(|own| own == *target)
    }
}

impl std::str::FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::Settings {
            message: format!("`{}` is no URL of a fleet: {why}", text.escape_debug()),
            hint: "write it like http://127.0.0.1:7700, https://fleet.example or unix:/run/hotdesk.sock".into(),
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(Self::Unix(path.into())),
                false => Err(wrong("the path of the socket must begin with /")),
            };
        }
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut url = Url::parse(&text).map_err(|e| wrong(&e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("it begins with neither http:// nor https:// nor unix:"));
        }
        if url.cannot_be_a_base() || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it names no host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("the key does not belong into it; use HOTDESK_KEY"));
        }
        url.set_query(None);
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self::Http(url))
    }
}

impl Target {
    /// On this machine, so no proxy is asked.
    pub fn is_loopback(&self) -> bool {
        let Self::Http(url) = self else { return true };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(url.as_str().trim_end_matches('/')),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, shown) in [
            ("127.0.0.1:7700", "http://127.0.0.1:7700"),
            ("http://fleet.example/", "http://fleet.example"),
            ("https://fleet.example/desks/", "https://fleet.example/desks"),
            ("unix:/run/h.sock", "unix:/run/h.sock"),
            ("unix:///run/h.sock", "unix:/run/h.sock"),
            ("[::1]:7700", "http://[::1]:7700"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown, "{text}");
        }
        for text in ["", "ftp://x", "unix:run", "http://", "http://a:b@c", "file:///x"] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.hint().is_some(), "{text}: {error}");
        }
        assert!("localhost:1".parse::<Target>().unwrap().is_loopback());
        assert!("[::1]:1".parse::<Target>().unwrap().is_loopback());
        assert!(!"10.0.0.1:1".parse::<Target>().unwrap().is_loopback());
    }

    fn machine(url: &str, pid: u32) -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        let serve = Serve { url: url.into(), pid, version: "1".into() };
        std::fs::write(Serve::file(data.path()), serde_json::to_vec(&serve).unwrap()).unwrap();
        std::fs::write(data.path().join("admin.key"), "hd_own\n").unwrap();
        data
    }

    #[test]
    fn the_first_that_is_said_wins() {
        let data = machine("http://127.0.0.1:7700", std::process::id());
        let here = Settings { data: Some(data.path().into()), ..Settings::default() };
        let found = here.find_in(|_| None).unwrap();
        assert_eq!((found.target.to_string().as_str(), found.key.as_deref()), ("http://127.0.0.1:7700", Some("hd_own")));

        let environment = |name: &str| match name {
            "HOTDESK_URL" => Some("http://other:1".to_owned()),
            "HOTDESK_KEY" => Some("hd_other".to_owned()),
            _ => None,
        };
        let found = here.find_in(environment).unwrap();
        assert_eq!((found.target.to_string().as_str(), found.key.as_deref()), ("http://other:1", Some("hd_other")));
        let said = Settings { url: Some("said:2".into()), key: Some("hd_said".into()), ..here.clone() };
        let found = said.find_in(environment).unwrap();
        assert_eq!((found.target.to_string().as_str(), found.key.as_deref()), ("http://said:2", Some("hd_said")));
    }

    #[test]
    fn the_key_of_this_machine_stays_on_it() {
        let data = machine("http://127.0.0.1:7700", std::process::id());
        let here = Settings { data: Some(data.path().into()), ..Settings::default() };
        let at = |url: &'static str| move |name: &str| (name == "HOTDESK_URL").then(|| url.to_owned());
        assert_eq!(here.find_in(at("http://evil.example:7700")).unwrap().key, None);
        assert_eq!(here.find_in(at("127.0.0.1:7700")).unwrap().key.as_deref(), Some("hd_own"));
        assert!(!format!("{:?}", here.find_in(|_| None).unwrap()).contains("hd_own"), "keys are not shown");
    }

    #[test]
    fn a_fleet_that_is_gone_is_told() {
        // No process has the largest number that fits.
        let data = machine("http://127.0.0.1:7700", u32::MAX);
        let here = Settings { data: Some(data.path().into()), ..Settings::default() };
        let error = here.find_in(|_| None).unwrap_err();
        assert!(error.to_string().contains("does not run any more"), "{error}");
        assert!(error.hint().unwrap().contains("hotdesk up"));
        let nowhere = Settings { data: Some("/nowhere".into()), ..Settings::default() };
        assert!(nowhere.find_in(|_| None).unwrap_err().to_string().contains("no fleet runs"));
    }
}
