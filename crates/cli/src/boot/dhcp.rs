//! Asks the network for an address (DHCP, RFC 2131): discover, offer, request, acknowledgement; nothing more.
//!
//! Questions go out from an ordinary socket that is bound to the card. Answers are read from the card itself, because some servers
//! send them to the address that the machine does not have yet.

use super::network::Lease;
use nix::libc;
use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const CLIENT: u16 = 68;
const SERVER: u16 = 67;
/// How long each question waits for its answer; QEMU answers at once, clouds within some ten milliseconds.
const PATIENCE: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The fixed part of a message, before the cookie.
const HEAD: usize = 236;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACKNOWLEDGED: u8 = 5;
const REFUSED: u8 = 6;

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

/// An address for this card: the one that it has, if it has one.
pub(super) fn ask(card: &str, had: Option<Ipv4Addr>) -> io::Result<Lease> {
    let hardware = hardware_address(card)?;
    let number = rand::random::<u32>();
    let line = Line::open(card)?;
    for patience in PATIENCE {
        let offer = match had {
            Some(address) => Some((address, None)),
            None => {
                line.send(&message(DISCOVER, number, hardware, None, None))?;
                line.answer(number, patience, OFFER)?.map(|answer| (answer.address, answer.server))
            }
        };
        let Some((address, server)) = offer else { continue };
        line.send(&message(REQUEST, number, hardware, Some(address), server))?;
        if let Some(answer) = line.answer(number, patience, ACKNOWLEDGED)? {
            return Ok(answer.lease());
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "nobody gives an address"))
}

/// The card's two sockets.
struct Line {
    out: UdpSocket,
    incoming: OwnedFd,
}

impl Line {
    fn open(card: &str) -> io::Result<Self> {
        let out = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, CLIENT))?;
        out.set_broadcast(true)?;
        bind_to_card(&out, card)?;
        Ok(Self { out, incoming: packets(card)? })
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        self.out.send_to(message, (Ipv4Addr::BROADCAST, SERVER)).map(drop)
    }

    /// The answer of a kind to a question, if it comes in time.
    fn answer(&self, number: u32, patience: Duration, kind: u8) -> io::Result<Option<Answer>> {
        let end = Instant::now() + patience;
        let mut buffer = [0; 2048];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let length = match receive(&self.incoming, &mut buffer, left) {
                Ok(length) => length,
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
                Err(e) => return Err(e),
            };
            let answer = payload(&buffer[..length]).and_then(|message| Answer::read(message, number));
            match answer {
                Some(answer) if answer.kind == kind => return Ok(Some(answer)),
                Some(answer) if answer.kind == REFUSED => return Ok(None),
                _ => {}
            }
        }
    }
}

fn message(kind: u8, number: u32, hardware: [u8; 6], wanted: Option<Ipv4Addr>, server: Option<Ipv4Addr>) -> Vec<u8> {
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
struct Answer {
    kind: u8,
    address: Ipv4Addr,
    mask: Option<Ipv4Addr>,
    router: Option<Ipv4Addr>,
    resolvers: Vec<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    mtu: Option<u16>,
    time: Option<u32>,
}

impl Answer {
    fn read(message: &[u8], number: u32) -> Option<Self> {
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

    fn lease(self) -> Lease {
        Lease {
            address: self.address,
            length: self.mask.map_or(24, |mask| u32::from(mask).count_ones() as u8),
            gateway: self.router,
            resolvers: self.resolvers,
            mtu: self.mtu,
            // The greatest number means for ever.
            time: self.time.filter(|time| *time != u32::MAX).map(|time| Duration::from_secs(time.into())),
        }
    }
}

/// What an IP packet carries to our port.
fn payload(packet: &[u8]) -> Option<&[u8]> {
    let head = usize::from(packet.first()? & 0x0f) * 4;
    let is_udp = packet.first()? >> 4 == 4 && *packet.get(9)? == 17;
    let port = packet.get(head + 2..head + 4)?;
    (is_udp && port == CLIENT.to_be_bytes()).then(|| packet.get(head + 8..))?
}

fn hardware_address(card: &str) -> io::Result<[u8; 6]> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{card}/address"))?;
    let bytes: Vec<u8> = text.trim().split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    bytes.try_into().map_err(|_| io::Error::other(format!("{card} has no hardware address")))
}

fn bind_to_card(socket: &UdpSocket, card: &str) -> io::Result<()> {
    // SAFETY: the name outlives the call, and its length is told.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            card.as_ptr().cast(),
            card.len() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A socket that gets every IP packet of a card.
fn packets(card: &str) -> io::Result<OwnedFd> {
    let kind = (libc::ETH_P_IP as u16).to_be();
    // SAFETY: a plain system call; what it returns is ours alone.
    let socket = unsafe {
        let number = libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, kind.into());
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(number)
    };
    let index = std::fs::read_to_string(format!("/sys/class/net/{card}/ifindex"))?;
    // SAFETY: a structure of plain numbers, for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = kind;
    address.sll_ifindex = index.trim().parse().map_err(io::Error::other)?;
    // SAFETY: the address outlives the call, and its length is told.
    let done =
        unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t) };
    if done == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8], patience: Duration) -> io::Result<usize> {
    let time = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        // Zero would mean for ever.
        tv_usec: libc::suseconds_t::from(patience.subsec_micros()).max(1),
    };
    // SAFETY: both arguments outlive the calls, and their lengths are told.
    let length = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const time).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        );
        libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
    };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

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
        let lease = read.lease();
        assert_eq!((lease.length, lease.mtu, lease.resolvers.len()), (24, Some(1460), 2));
        assert_eq!(lease.time, Some(Duration::from_secs(256)));
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
