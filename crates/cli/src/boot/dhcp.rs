//! Asks the network for an address (DHCP, RFC 2131): discover, offer, request, acknowledgement; nothing more.
//!
//! Questions go out from an ordinary socket that is bound to the card. Answers are read from the card itself, because some servers
//! send them to the address that the machine does not have yet.

pub(crate) mod message;

use super::network::Lease;
use message::{ACKNOWLEDGED, Answer, CLIENT, DISCOVER, OFFER, REFUSED, REQUEST, SERVER, message, payload};
use nix::libc;
use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long each question waits for its answer; QEMU answers at once, clouds within some ten milliseconds.
const PATIENCE: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

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
            return Ok(answer.into());
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

impl From<Answer> for Lease {
    fn from(answer: Answer) -> Self {
        Self {
            address: answer.address,
            length: answer.prefix(),
            gateway: answer.router,
            resolvers: answer.resolvers,
            mtu: answer.mtu,
            // The greatest number means for ever.
            time: answer.time.filter(|time| *time != u32::MAX).map(|time| Duration::from_secs(time.into())),
        }
    }
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
