//! Settings of the gateway.

use crate::listen::Address;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where the fleet is reached when nothing else is said.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7700";

/// The settings of a gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `127.0.0.1:7700`, `[::]:7700`, `:7700` (every address) or `unix:/run/hotdesk/api.sock`.
    pub listen: Vec<Address>,
    /// Certificate and key for TCP addresses; without them the gateway speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Under which clients reach the gateway, where that is not what their requests say (behind a proxy):
    /// `https://desks.example.com`.
    pub public_url: Option<String>,
    /// Names besides `localhost`, addresses and that of `public_url` by which browsers may call us on loopback.
    pub names: Vec<String>,
    /// Sites whose pages may use the API: `https://board.example`.
    pub origins: Vec<String>,
    /// Proxies that say by `X-Forwarded-For` who their client is: `["127.0.0.1", "10.0.0.0/8", "unix"]`. Limits and the audit log go by that.
    pub proxies: Vec<crate::forwarded::Proxy>,
    /// Whether programs of this machine may read `/metrics` without a key.
    pub open_metrics: bool,
    pub rates: Rates,
    /// Most connections at a time; fewer if the process may not open so many files.
    pub connections: usize,
    /// For E2B's SDKs.
    pub e2b: crate::dialects::e2b::Settings,
    /// Templates that stand for images, for clients that name those. In the settings file it is the table `[images]`.
    #[serde(skip)]
    pub images: crate::Images,
}

/// Files in PEM; read again when they change, and at SIGHUP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// How often one may ask. Beyond that the answer is 429 with `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rates {
    /// Requests to the fleet, per key.
    pub control: Rate,
    /// Requests that are passed on to desks, per key.
    pub desks: Rate,
    /// Requests without a key, per address.
    pub keyless: Rate,
    /// Requests with a wrong key that are told so, per address.
    pub failures: Rate,
}

/// So many in a second, and so many at once. Zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![Address::Tcp(std::net::SocketAddr::from(([127, 0, 0, 1], 7700)))],
            tls: None,
            public_url: None,
            names: Vec::new(),
            origins: Vec::new(),
            proxies: Vec::new(),
            open_metrics: false,
            rates: Rates::default(),
            connections: 4096,
            e2b: crate::dialects::e2b::Settings::default(),
            images: crate::Images::default(),
        }
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            // A client that waits for each answer can't reach it; a loop that went wrong does at once.
            control: Rate { per_second: 200, burst: 400 },
            // An agent asks some ten times a second; a key may drive hundreds of desks.
            desks: Rate { per_second: 5000, burst: 10_000 },
            keyless: Rate { per_second: 50, burst: 200 },
            // Keys can't be guessed; this is against a loop that goes on with a key that was revoked.
            failures: Rate { per_second: 10, burst: 100 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_address_is_the_documented_one() {
        assert_eq!(Config::default().listen, [DEFAULT_LISTEN.parse().unwrap()]);
    }

    #[test]
    fn settings_are_read_as_text_and_unknown_ones_are_refused() {
        let config: Config =
            serde_json::from_str(r#"{"listen": [":7700", "unix:/run/x"], "tls": {"cert": "/c", "key": "/k"}}"#).unwrap();
        assert_eq!(config.listen.len(), 2);
        assert!(serde_json::from_str::<Config>(r#"{"listne": []}"#).is_err());
        assert!(serde_json::from_str::<Config>(r#"{"listen": ["nowhere"]}"#).is_err());
    }
}
