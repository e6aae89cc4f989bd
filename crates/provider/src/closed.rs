//! Addresses that desks must not reach, in one list for all providers that look at packets themselves.

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// An IPv4 network, written `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: Ipv4Addr,
    length: u8,
}

impl Cidr {
    const fn new(a: u8, b: u8, c: u8, d: u8, length: u8) -> Self {
        Self { address: Ipv4Addr::new(a, b, c, d), length }
    }

    pub(crate) const fn one(address: Ipv4Addr) -> Self {
        Self { address, length: 32 }
    }

    pub(crate) fn address(self) -> Ipv4Addr {
        self.address
    }

    pub(crate) fn length(self) -> u8 {
        self.length
    }

    pub(crate) fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0)
    }

    pub(crate) fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.address.to_bits()
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an IPv4 network; write it like `10.20.0.0/16`");
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let length = length.parse().ok().filter(|length| *length <= 32).ok_or_else(wrong)?;
        let network = Self { address, length };
        if address.to_bits() & !network.mask() != 0 {
            return Err(format!(
                "`{text}` has bits beyond its length; write `{}/{length}`",
                Ipv4Addr::from_bits(address.to_bits() & network.mask())
            ));
        }
        Ok(network)
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(network: Cidr) -> Self {
        format!("{}/{}", network.address, network.length)
    }
}

/// Closed whatever an operator opens: they lead to this machine, to a cloud's credentials, or to nobody in particular.
pub(crate) const ALWAYS: [Cidr; 8] = [
    Cidr::new(0, 0, 0, 0, 8),
    Cidr::new(127, 0, 0, 0, 8),
    // 169.254.169.254 and its kind, where clouds answer with credentials.
    Cidr::new(169, 254, 0, 0, 16),
    // The same of Oracle's cloud (192.0.0.192), Azure and Alibaba.
    Cidr::new(192, 0, 0, 0, 24),
    Cidr::new(168, 63, 129, 16, 32),
    Cidr::new(100, 100, 100, 200, 32),
    // Multicast, and what is reserved, broadcast included.
    Cidr::new(224, 0, 0, 0, 4),
    Cidr::new(240, 0, 0, 0, 4),
];

/// Private networks: closed unless an operator opens them.
pub(crate) const PRIVATE: [Cidr; 4] =
    [Cidr::new(10, 0, 0, 0, 8), Cidr::new(172, 16, 0, 0, 12), Cidr::new(192, 168, 0, 0, 16), Cidr::new(100, 64, 0, 0, 10)];

/// Whether an address is closed whatever an operator opens.
pub(crate) fn is_always(address: Ipv4Addr) -> bool {
    ALWAYS.iter().any(|network| network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_written() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.168.7.1/32"] {
            assert_eq!(String::from(text.parse::<Cidr>().unwrap()), text);
        }
        assert_eq!("192.0.2.1".parse::<Cidr>().unwrap(), Cidr::one(Ipv4Addr::new(192, 0, 2, 1)));
        for text in ["", "10", "10.0.0.0/33", "10.0.0.0/-1", "10.1.0.0/8", "::/0", "10.0.0.0/8 "] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_closed() {
        for address in
            ["127.0.0.1", "0.0.0.0", "169.254.169.254", "168.63.129.16", "100.100.100.200", "224.0.0.251", "255.255.255.255"]
        {
            assert!(is_always(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.0.1", "8.8.8.8", "198.18.0.1", "168.63.129.17"] {
            assert!(!is_always(address.parse().unwrap()), "{address}");
        }
        assert!(PRIVATE[0].overlaps("10.20.0.0/16".parse().unwrap()) && !PRIVATE[0].overlaps("11.0.0.0/8".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().overlaps(PRIVATE[3]));
    }
}
