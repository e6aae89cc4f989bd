//! Clients behind proxies. A proxy that the settings name is believed who its client is (`X-Forwarded-For`), so that limits, the audit log
//! and `open_metrics` go by the client and not by the proxy. Everybody else is who he is, whatever he writes.

use crate::listen::Peer;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

const FORWARDED_FOR: &str = "x-forwarded-for";
/// How a proxy is named that comes by a Unix socket.
const UNIX: &str = "unix";
/// Longer chains are nobody's.
const MOST_HOPS: usize = 32;

/// Who is believed: an address, a network (`10.0.0.0/8`, `fd00::/8`), or whoever comes by a Unix socket (`unix`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Proxy {
    Unix,
    Network { address: IpAddr, length: u8 },
}

impl Proxy {
    fn is(self, peer: Option<IpAddr>) -> bool {
        match (self, peer) {
            (Self::Unix, None) => true,
            (Self::Network { address: IpAddr::V4(network), length }, Some(IpAddr::V4(peer))) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                network.to_bits() & mask == peer.to_bits() & mask
            }
            (Self::Network { address: IpAddr::V6(network), length }, Some(IpAddr::V6(peer))) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                network.to_bits() & mask == peer.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl TryFrom<String> for Proxy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == UNIX {
            return Ok(Self::Unix);
        }
        let wrong = || format!("`{text}` is no proxy; write its address, its network (`10.0.0.0/8`), or `{UNIX}`");
        let (address, length) = text.split_once('/').map_or((text.as_str(), None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(longest), |length| length.parse().map_err(|_| wrong()))?;
        if length <= longest { Ok(Self::Network { address, length }) } else { Err(wrong()) }
    }
}

impl From<Proxy> for String {
    fn from(proxy: Proxy) -> Self {
        match proxy {
            Proxy::Unix => UNIX.into(),
            Proxy::Network { address, length } => format!("{address}/{length}"),
        }
    }
}

/// Who asks: the last address in the chain of proxies that is not one of ours.
pub(crate) fn client(proxies: &[Proxy], peer: Peer, headers: &HeaderMap) -> Peer {
    let believed = |address: Option<IpAddr>| proxies.iter().any(|proxy| proxy.is(address));
    let mut found = peer.address.map(|address| address.ip().to_canonical());
    if !believed(found) {
        return peer;
    }
    let lines = headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok());
    let hops: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    for hop in hops.into_iter().rev().take(MOST_HOPS) {
        // What is no address is nobody's word: the proxy that passed it on counts.
        let Some(address) = address(hop) else { break };
        found = Some(address);
        if !believed(found) {
            break;
        }
    }
    Peer { address: found.map(|ip| SocketAddr::new(ip, 0)), ..peer }
}

/// `1.2.3.4`, `1.2.3.4:5`, `2001:db8::1` or `[2001:db8::1]:5`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    ip.map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_is_believed() {
        let proxies: Vec<Proxy> =
            ["127.0.0.1", "10.0.0.0/8", "fd00::/8", "unix"].map(|text| text.to_owned().try_into().unwrap()).into();
        for (peer, lines, client) in [
            ("192.0.2.1", vec!["6.6.6.6"], "192.0.2.1"),
            ("127.0.0.1", vec![], "127.0.0.1"),
            ("127.0.0.1", vec!["192.0.2.7"], "192.0.2.7"),
            ("127.0.0.1", vec!["6.6.6.6, 192.0.2.7"], "192.0.2.7"),
            ("127.0.0.1", vec!["6.6.6.6", "192.0.2.7, 10.1.2.3"], "192.0.2.7"),
            ("10.9.9.9", vec!["192.0.2.7:1234"], "192.0.2.7"),
            ("fd00::1", vec!["[2001:db8::1]:80"], "2001:db8::1"),
            ("::ffff:10.0.0.1", vec!["::ffff:192.0.2.7"], "192.0.2.7"),
            ("127.0.0.1", vec!["192.0.2.7, unknown"], "127.0.0.1"),
            ("127.0.0.1", vec!["10.0.0.1"], "10.0.0.1"),
            ("unix", vec!["192.0.2.7"], "192.0.2.7"),
            ("unix", vec![], "unix"),
        ] {
            let address = peer.parse().ok().map(|ip| SocketAddr::new(ip, 1));
            let mut headers = HeaderMap::new();
            for line in &lines {
                headers.append(FORWARDED_FOR, line.parse().unwrap());
            }
            let peer = Peer { address, machine: false, tls: false };
            assert_eq!(super::client(&proxies, peer, &headers).to_string(), client, "{peer} {lines:?}");
            assert_eq!(super::client(&[], peer, &headers), peer, "nobody is believed by default");
        }
    }

    #[test]
    fn proxies_are_read_and_written() {
        for text in ["unix", "10.0.0.0/8", "fd00::/8", "192.0.2.1/32"] {
            assert_eq!(String::from(Proxy::try_from(text.to_owned()).unwrap()), text);
        }
        for text in ["", "10.0.0.0/33", "proxy.example", "::1/129", "10.0.0.0/-1"] {
            assert!(Proxy::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
