//! Messages of DHCP (RFC 2131): what is asked, and what an answer tells. An answer may come from anybody on the network.

use std::net::Ipv4Addr;

pub(super) const CLIENT: u16 = 68;
pub(super) const SERVER: u16 = 67;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The fixed part of a message, before the cookie.
const HEAD: usize = 236;

pub(super) const DISCOVER: u8 = 1;
pub(super) const OFFER: u8 = 2;
pub(super) const REQUEST: u8 = 3;
pub(super) const ACKNOWLEDGED: u8 = 5;
pub(super) const REFUSED: u8 = 6;

const MASK: u8 = 1;
const ROUTER: u8 = 3;
const RESOLVERS: u8 = 6;
const MTU: u8 = 26;
const WANTED: u8 = 50;
const TIME: u8 = 51;
const KIND: u8 = 53;
const SERVER_NAME: u8 = 54;
const LIST: u8 = 55;
const END: u8 = 255;

pub(super) fn message(kind: u8, number: u32, hardware: [u8; 6], wanted: Option<Ipv4Addr>, server: Option<Ipv4Addr>) -> Vec<u8> {
    // A question, by Ethernet, with addresses of six bytes.
    let mut message = vec![1, 1, 6, 0];
    message.extend(number.to_be_bytes());
    // No time has passed; the answer shall go to everybody, for we have no address.
    message.extend([0, 0, 0x80, 0]);
    message.resize(28, 0);
    message.extend(hardware);
    message.resize(HEAD, 0);
    message.extend(COOKIE);
    message.extend([KIND, 1, kind]);
    for (option, address) in [(WANTED, wanted), (SERVER_NAME, server)] {
        if let Some(address) = address {
            message.extend([option, 4]);
            message.extend(address.octets());
        }
    }
    message.extend([LIST, 5, MASK, ROUTER, RESOLVERS, MTU, TIME, END]);
    message
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) kind: u8,
    pub(super) address: Ipv4Addr,
    mask: Option<Ipv4Addr>,
    pub(super) router: Option<Ipv4Addr>,
    pub(super) resolvers: Vec<Ipv4Addr>,
    pub(super) server: Option<Ipv4Addr>,
    pub(super) mtu: Option<u16>,
    pub(super) time: Option<u32>,
}

impl Answer {
    pub(super) fn read(message: &[u8], number: u32) -> Option<Self> {
        if message.len() < HEAD + 4
            || message[0] != 2
            || message[4..8] != number.to_be_bytes()
            || message[HEAD..HEAD + 4] != COOKIE
        {
            return None;
        }
        let mut answer = Self {
            kind: 0,
            address: Ipv4Addr::new(message[16], message[17], message[18], message[19]),
            mask: None,
            router: None,
            resolvers: Vec::new(),
            server: None,
            mtu: None,
            time: None,
        };
        let mut rest = &message[HEAD + 4..];
        while let [option, after @ ..] = rest {
            match option {
                0 => {
                    rest = after;
                    continue;
                }
                &END => break,
                _ => {}
            }
            let (length, after) = after.split_first()?;
            let value = after.get(..usize::from(*length))?;
            rest = &after[value.len()..];
            let addresses = || value.chunks_exact(4).map(|part| Ipv4Addr::new(part[0], part[1], part[2], part[3]));
            match (*option, value) {
                (KIND, [kind]) => answer.kind = *kind,
                (MASK, _) => answer.mask = addresses().next(),
                (ROUTER, _) => answer.router = addresses().next(),
                (RESOLVERS, _) => answer.resolvers = addresses().collect(),
                (SERVER_NAME, _) => answer.server = addresses().next(),
                (MTU, [high, low]) => answer.mtu = Some(u16::from_be_bytes([*high, *low])),
                (TIME, [a, b, c, d]) => answer.time = Some(u32::from_be_bytes([*a, *b, *c, *d])),
                _ => {}
            }
        }
        Some(answer)
    }

    /// How many bits of the address name the network.
    pub(super) fn prefix(&self) -> u8 {
        self.mask.map_or(24, |mask| u32::from(mask).count_ones() as u8)
    }
}

/// What an IP packet carries to our port.
pub(super) fn payload(packet: &[u8]) -> Option<&[u8]> {
    let head = usize::from(packet.first()? & 0x0f) * 4;
    let is_udp = packet.first()? >> 4 == 4 && *packet.get(9)? == 17;
    let port = packet.get(head + 2..head + 4)?;
    (is_udp && port == CLIENT.to_be_bytes()).then(|| packet.get(head + 8..))?
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../../fuzz/src/dhcp.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(options: &[u8]) -> Vec<u8> {
        let mut answer = message(DISCOVER, 7, [1, 2, 3, 4, 5, 6], None, None);
        answer[0] = 2;
        answer[16..20].copy_from_slice(&[10, 0, 2, 15]);
        answer.truncate(HEAD + 4);
        answer.extend(options);
        answer
    }

    #[test]
    fn an_offer_becomes_a_lease() {
        let message = answer(&[
            53, 1, 2, 0, 1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 2, 2, 6, 8, 10, 0, 2, 3, 8, 8, 8, 8, 26, 2, 5, 180, 51, 4, 0, 0, 1,
            0, 54, 4, 10, 0, 2, 2, 255,
        ]);
        let read = Answer::read(&message, 7).unwrap();
        assert_eq!((read.kind, read.server), (OFFER, Some(Ipv4Addr::new(10, 0, 2, 2))));
        assert_eq!((read.prefix(), read.mtu, read.resolvers.len(), read.time), (24, Some(1460), 2, Some(256)));
        assert_eq!(Answer::read(&message, 8), None);
    }

    #[test]
    fn broken_answers_are_no_answers() {
        let message = answer(&[53, 1, 2, 3, 4, 10]);
        assert_eq!(Answer::read(&message, 7), None);
        for length in 0..message.len() {
            let _ = Answer::read(&message[..length], 7);
            let _ = payload(&message[..length]);
        }
        assert_eq!(payload(&[0x45]), None);
        assert_eq!(payload(&[0xff; 60]), None);
    }
}
