//! The packet filter of a desk: nftables rules in its own network namespace, written before its programs start.
//!
//! Routes alone are no wall: a socket that is bound to the device, or a packet whose header was written by hand, goes past
//! them. The filter sees the header that leaves. Changing it needs `CAP_NET_ADMIN` in the namespace, which no program of a
//! desk has, root of the desk included.
//!
//! ```text
//!   out by loopback                           passes
//!   not IPv4                                  dropped: the network helpers carry IPv4 alone
//!   the resolver 10.0.2.3, port 53            passes
//!   closed::ALWAYS, addresses of this machine dropped
//!   what the operator opened                  passes
//!   closed::PRIVATE                           dropped
//!   everything else                           passes
//! ```
//!
//! The rules are written as netlink messages, so that nothing has to be installed, and in one transaction: there is never
//! half a filter, also while it is replaced because this machine got another address.

use crate::closed::{ALWAYS, Cidr, PRIVATE};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::libc;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

const TABLE: &str = "hotdesk";
const CHAIN: &str = "out";
/// Of `10.0.2.0/24`, the network between a desk and its network helper; it asks the host's resolver.
const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
const DNS: u16 = 53;
/// The number of loopback in every network namespace.
const LOOPBACK: u32 = 1;

// Numbers of `linux/netfilter/nf_tables.h`.
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const INET: u8 = 1;
const HOOK_OUTPUT: u32 = 3;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const META_OUT: u32 = 5;
const META_FAMILY: u32 = 15;
const META_PROTOCOL: u32 = 16;
const IPV4: u8 = 2;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const REGISTER: u32 = 1;
const NESTED: u16 = 0x8000;

/// Puts the filter in place of whatever filter of ours is there, in the network namespace of this process.
pub(crate) fn install(own: &[IpAddr], allowed: &[Cidr]) -> io::Result<()> {
    let batch = batch(own, allowed);
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&batch.bytes, 0)?;
    // The kernel works while it is sent to: by now every answer waits.
    socket.set_non_blocking(true)?;
    let mut answers = 0;
    loop {
        let mut answer = Vec::with_capacity(16 << 10);
        match socket.recv(&mut answer, 0) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            received => received?,
        };
        answers += read_answers(&answer)?;
    }
    if answers < batch.messages {
        return Err(io::Error::other(format!("the kernel answered {answers} of {} messages", batch.messages)));
    }
    Ok(())
}

/// How many messages were done; an error if one was not.
fn read_answers(mut bytes: &[u8]) -> io::Result<usize> {
    const ERROR: u16 = 2;
    const HEADER: usize = 16;
    let mut done = 0;
    while let Some(header) = bytes.get(..HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if let Some(&[a, b, c, d]) = bytes.get(HEADER..HEADER + 4).filter(|_| kind == ERROR) {
            match i32::from_ne_bytes([a, b, c, d]) {
                0 => done += 1,
                code => return Err(io::Error::from_raw_os_error(-code)),
            }
        }
        bytes = bytes.get(length.next_multiple_of(4).max(HEADER)..).unwrap_or_default();
    }
    Ok(done)
}

/// Messages that the kernel does all of or none of.
struct Batch {
    bytes: Vec<u8>,
    /// Those that are answered.
    messages: usize,
}

fn batch(own: &[IpAddr], allowed: &[Cidr]) -> Batch {
    let mut batch = Batch { bytes: Vec::new(), messages: 0 };
    batch.border(BATCH_BEGIN);
    // A table must be there to be deleted, and is new afterwards.
    let create = libc::NLM_F_CREATE as u16;
    let table = text(1, TABLE);
    batch.message(NEW_TABLE, create, &table);
    batch.message(DELETE_TABLE, 0, &table);
    batch.message(NEW_TABLE, create, &table);
    let hook = [number(1, HOOK_OUTPUT), number(2, 0)].concat();
    let chain = [text(1, TABLE), text(3, CHAIN), nested(4, &hook), number(5, ACCEPT), text(7, "filter")].concat();
    batch.message(NEW_CHAIN, create, &chain);
    for rule in rules(own, allowed) {
        let rule = [text(1, TABLE), text(2, CHAIN), nested(4, &rule)].concat();
        batch.message(NEW_RULE, create | libc::NLM_F_APPEND as u16, &rule);
    }
    batch.border(BATCH_END);
    batch
}

impl Batch {
    fn border(&mut self, kind: u16) {
        self.put(kind, 0, 0, SUBSYSTEM, &[]);
    }

    fn message(&mut self, kind: u16, flags: u16, attributes: &[u8]) {
        self.messages += 1;
        self.put(SUBSYSTEM << 8 | kind, flags | libc::NLM_F_ACK as u16, INET, 0, attributes);
    }

    fn put(&mut self, kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) {
        let length = u32::try_from(20 + attributes.len()).unwrap_or(u32::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        // A number, by which answers could be told apart, and the sender, whom the kernel knows.
        self.bytes.extend([0; 8]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        self.bytes.extend(attributes);
    }
}

/// Each rule is a list of expressions; the first rule that fits decides.
fn rules(own: &[IpAddr], allowed: &[Cidr]) -> Vec<Vec<u8>> {
    let own = own.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(Cidr::one(*address)),
        IpAddr::V6(_) => None,
    });
    let mut rules = vec![
        [meta(META_OUT), compare(EQUAL, &LOOPBACK.to_ne_bytes()), verdict(ACCEPT)].concat(),
        [meta(META_FAMILY), compare(DIFFERENT, &[IPV4]), verdict(DROP)].concat(),
    ];
    for protocol in [libc::IPPROTO_UDP as u8, libc::IPPROTO_TCP as u8] {
        let port = [payload(TRANSPORT_HEADER, 2, 2), compare(EQUAL, &DNS.to_be_bytes())].concat();
        let protocol = [meta(META_PROTOCOL), compare(EQUAL, &[protocol])].concat();
        rules.push([goes_to(Cidr::one(RESOLVER)), protocol, port, verdict(ACCEPT)].concat());
    }
    let mut all = |networks: &mut dyn Iterator<Item = Cidr>, what: u32| {
        rules.extend(networks.map(|network| [goes_to(network), verdict(what)].concat()));
    };
    all(&mut ALWAYS.into_iter().chain(own), DROP);
    all(&mut allowed.iter().copied(), ACCEPT);
    all(&mut PRIVATE.into_iter(), DROP);
    rules
}

fn goes_to(network: Cidr) -> Vec<u8> {
    // The destination in a header of IPv4.
    let destination = payload(NETWORK_HEADER, 16, 4);
    let masked = [
        number(1, REGISTER),
        number(2, REGISTER),
        number(3, 4),
        nested(4, &attribute(1, &network.mask().to_be_bytes())),
        nested(5, &attribute(1, &[0; 4])),
    ];
    [destination, expression("bitwise", &masked.concat()), compare(EQUAL, &network.address().octets())].concat()
}

fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(1, REGISTER), number(2, key)].concat())
}

fn payload(base: u32, offset: u32, length: u32) -> Vec<u8> {
    expression("payload", &[number(1, REGISTER), number(2, base), number(3, offset), number(4, length)].concat())
}

fn compare(how: u32, value: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, REGISTER), number(2, how), nested(3, &attribute(1, value))].concat())
}

fn verdict(code: u32) -> Vec<u8> {
    const VERDICT: u32 = 0;
    expression("immediate", &[number(1, VERDICT), nested(2, &nested(2, &number(1, code)))].concat())
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, data)].concat())
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | NESTED, value)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole() {
        let batch = batch(&["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()], &["10.7.0.0/16".parse().unwrap()]);
        let (mut rest, mut count) = (&batch.bytes[..], 0);
        while !rest.is_empty() {
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            assert_eq!(length % 4, 0);
            rest = &rest[length..];
            count += 1;
        }
        assert_eq!(count, batch.messages + 2);
        // The table three times, the chain, and the rules: two, the resolver twice, and one for each network.
        assert_eq!(batch.messages, 4 + 4 + ALWAYS.len() + 1 + 1 + PRIVATE.len());
    }

    #[test]
    fn answers_are_read() {
        let answer =
            |code: i32| [&36_u32.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &[0; 10], &code.to_ne_bytes(), &[0; 16]].concat();
        assert_eq!(read_answers(&[answer(0), answer(0)].concat()).unwrap(), 2);
        assert_eq!(read_answers(&[answer(0), answer(-libc::EPERM)].concat()).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(read_answers(&[]).unwrap(), 0);
    }
}
