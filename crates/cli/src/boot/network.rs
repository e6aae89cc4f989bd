//! The machine's one way out: its first network card, with an address that was given, was asked for, or is the one that QEMU's
//! user network expects.

use super::{dhcp, say};
use nix::libc;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// What kind of network the machine is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    None,
    /// QEMU's user mode, where nobody comes in but through ports that were forwarded.
    QemuUser,
    Outside,
}

/// An address and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) address: Ipv4Addr,
    /// Bits of the network's part.
    pub(super) length: u8,
    pub(super) gateway: Option<Ipv4Addr>,
    pub(super) resolvers: Vec<Ipv4Addr>,
    /// The largest packet.
    pub(super) mtu: Option<u16>,
    /// How long it may be used.
    pub(super) time: Option<Duration>,
}

/// A card may appear a moment after its driver.
const PATIENCE: Duration = Duration::from_secs(1);
/// The gateway of QEMU's user network, unless somebody told QEMU otherwise.
const QEMU_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// A lease is asked for again after half of its time, but not more often than this.
const LEAST_PAUSE: Duration = Duration::from_secs(60);

/// Sets it up. What does not work is told; a desk without a network is a desk.
pub(super) fn set_up(asked: Option<&str>) -> Network {
    if let Err(e) = up("lo") {
        say(&format!("loopback can't be set up: {e}"));
    }
    if asked == Some("none") {
        return Network::None;
    }
    let Some(card) = card() else {
        say("there is no network card");
        return Network::None;
    };
    match configure(&card, asked) {
        Ok(lease) => {
            say(&format!("address {}/{} on {card}", lease.address, lease.length));
            if lease.gateway == Some(QEMU_GATEWAY) { Network::QemuUser } else { Network::Outside }
        }
        Err(e) => {
            say(&format!("the network can't be set up: {e}"));
            Network::Outside
        }
    }
}

fn configure(card: &str, asked: Option<&str>) -> io::Result<Lease> {
    up(card)?;
    if let Some(text) = asked {
        let lease =
            parse(text).ok_or_else(|| io::Error::other(format!("hotdesk.net={text} is not ADDRESS/LENGTH,GATEWAY,RESOLVER")))?;
        apply(card, &lease)?;
        return Ok(lease);
    }
    let lease = match dhcp::ask(card, None) {
        Ok(lease) => lease,
        Err(e) => {
            say(&format!("DHCP: {e}; the address that QEMU's user network has is taken"));
            of_qemu()
        }
    };
    apply(card, &lease)?;
    if let Some(time) = lease.time {
        let (card, lease) = (card.to_owned(), lease.clone());
        std::thread::spawn(move || keep(&card, lease, time));
    }
    Ok(lease)
}

/// Asks again in time.
fn keep(card: &str, mut lease: Lease, mut time: Duration) {
    loop {
        std::thread::sleep((time / 2).max(LEAST_PAUSE));
        match dhcp::ask(card, Some(lease.address)) {
            Ok(next) => {
                if next.address != lease.address {
                    say(&format!("address {}/{} on {card}", next.address, next.length));
                    let _ = apply(card, &next);
                }
                time = next.time.unwrap_or(time);
                lease = next;
            }
            Err(e) => {
                say(&format!("DHCP: {e}; asking again later"));
                time /= 2;
            }
        }
    }
}

fn of_qemu() -> Lease {
    Lease {
        address: Ipv4Addr::new(10, 0, 2, 15),
        length: 24,
        gateway: Some(QEMU_GATEWAY),
        resolvers: vec![Ipv4Addr::new(10, 0, 2, 3)],
        mtu: None,
        time: None,
    }
}

/// `10.0.2.15/24,10.0.2.2,10.0.2.3`; the last two may be missing.
fn parse(text: &str) -> Option<Lease> {
    let mut parts = text.split(',');
    let (address, length) = parts.next()?.split_once('/')?;
    let length: u8 = length.parse().ok().filter(|length| *length <= 32)?;
    let gateway = parts.next().filter(|text| !text.is_empty()).map(str::parse).transpose().ok()?;
    let resolvers = parts.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Lease { address: address.parse().ok()?, length, gateway, resolvers, mtu: None, time: None })
}

/// The first card that is not loopback.
fn card() -> Option<String> {
    let begun = Instant::now();
    loop {
        let mut names: Vec<String> = std::fs::read_dir("/sys/class/net")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != "lo" && std::path::Path::new(&format!("/sys/class/net/{name}/device")).exists())
            .collect();
        names.sort_unstable();
        if !names.is_empty() || begun.elapsed() > PATIENCE {
            return names.into_iter().next();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn apply(card: &str, lease: &Lease) -> io::Result<()> {
    let socket = socket()?;
    let mut request = request(card);
    request.ifr_ifru.ifru_addr = address(lease.address);
    call(&socket, libc::SIOCSIFADDR, &request)?;
    let mask = netmask(lease.length);
    request.ifr_ifru.ifru_netmask = address(mask);
    call(&socket, libc::SIOCSIFNETMASK, &request)?;
    if let Some(mtu) = lease.mtu {
        request.ifr_ifru.ifru_mtu = mtu.into();
        let _ = call(&socket, libc::SIOCSIFMTU, &request);
    }
    if let Some(gateway) = lease.gateway {
        let near = u32::from(gateway) & u32::from(mask) == u32::from(lease.address) & u32::from(mask);
        // Clouds give an address alone and a gateway beside it; the way to it must be told first.
        if !near {
            route(&socket, card, gateway, None)?;
        }
        route(&socket, card, Ipv4Addr::UNSPECIFIED, Some(gateway))?;
    }
    let resolvers: String = lease.resolvers.iter().map(|address| format!("nameserver {address}\n")).collect();
    std::fs::write("/etc/resolv.conf", resolvers)
}

/// The way to a machine, or to everywhere through a gateway.
fn route(socket: &OwnedFd, card: &str, to: Ipv4Addr, gateway: Option<Ipv4Addr>) -> io::Result<()> {
    let name = std::ffi::CString::new(card)?;
    // SAFETY: a structure of plain numbers and pointers, for which zeros are valid.
    let mut entry: libc::rtentry = unsafe { std::mem::zeroed() };
    entry.rt_dst = address(to);
    entry.rt_genmask = address(if gateway.is_some() { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::BROADCAST });
    entry.rt_gateway = address(gateway.unwrap_or(Ipv4Addr::UNSPECIFIED));
    entry.rt_flags = libc::RTF_UP | if gateway.is_some() { libc::RTF_GATEWAY } else { libc::RTF_HOST };
    entry.rt_dev = name.as_ptr().cast_mut();
    match call(socket, libc::SIOCADDRT, &entry) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn up(card: &str) -> io::Result<()> {
    let socket = socket()?;
    let mut request = request(card);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    call(&socket, libc::SIOCSIFFLAGS, &request)
}

/// Any socket will do to talk about cards.
fn socket() -> io::Result<OwnedFd> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map(OwnedFd::from)
}

fn call<T>(socket: &OwnedFd, number: libc::c_ulong, argument: &T) -> io::Result<()> {
    // SAFETY: each number is called with the structure that the kernel expects for it.
    if unsafe { libc::ioctl(socket.as_raw_fd(), number as libc::Ioctl, std::ptr::from_ref(argument)) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// A question about a card.
fn request(card: &str) -> libc::ifreq {
    // SAFETY: a structure of plain numbers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(card.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: a structure of plain numbers, for which zeros are valid.
    let mut result: libc::sockaddr = unsafe { std::mem::zeroed() };
    result.sa_family = libc::AF_INET as libc::sa_family_t;
    // Two bytes of port, then the address.
    for (to, from) in result.sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    result
}

fn netmask(length: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_command_line_are_read() {
        assert_eq!(parse("10.0.2.15/24,10.0.2.2,10.0.2.3"), Some(of_qemu()));
        let alone = parse("192.168.1.4/16").unwrap();
        assert_eq!((alone.gateway, alone.resolvers.len()), (None, 0));
        for wrong in ["", "10.0.2.15", "10.0.2.15/33", "a/24", "10.0.2.15/24,x", "10.0.2.15/24,10.0.2.2,y"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(netmask(24), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(netmask(0), Ipv4Addr::UNSPECIFIED);
        assert_eq!(netmask(32), Ipv4Addr::BROADCAST);
    }
}
