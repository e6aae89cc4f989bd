//! What a guest may reach: the outside, never this machine.
//!
//! QEMU's user-mode network needs no right, and for that reason it keeps nothing from the guest: every address of its own
//! little network leads to the host's loopback, and so does a packet to 127.0.0.1 that a guest writes by hand. So each frame
//! that the guest sends goes through here before it comes to that network (`filter-redirector`, two sockets), and what leads to this
//! machine is dropped. If this process is gone, nothing goes through.
//!
//! ```text
//!   guest ── virtio-net ──► QEMU ──(frames)──► allowed? ──► QEMU's user-mode network ──► outside
//! ```
//!
//! Connections *into* the guest come from the keeper itself (`wire`); frames for it are taken out here and never come to that network.

use super::machine::Network;
use super::wire::{self, Wire};
use crate::closed::{Cidr, PRIVATE, is_always};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// The guest's network is 10.0.2.0/24, the same for all guests: none of them sees another.
const NETWORK: [u8; 3] = [10, 0, 2];
const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// Where addresses are asked for: everybody, or QEMU itself. Anything else that is sent to that port would go on to whoever it names.
const ADDRESS_GIVERS: [Ipv4Addr; 2] = [Ipv4Addr::BROADCAST, Ipv4Addr::new(10, 0, 2, 2)];
/// The largest frame that virtio-net makes, with segmentation offload off or on.
const LARGEST_FRAME: usize = 70_000;
/// Bytes of frames that wait to be taken; what comes beyond is lost, as on any network. Far more than the windows of a busy guest's
/// connections together.
const LONGEST_QUEUE: usize = 32 << 20;
/// Addresses of this machine change; they are looked at again after so long.
const LOOK: Duration = Duration::from_secs(30);

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const TCP: u8 = 6;
const UDP: u8 = 17;
const DNS: u16 = 53;
const DHCP_CLIENT: u16 = 68;
const DHCP_SERVER: u16 = 67;

/// What a guest may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) network: Network,
    /// Private networks that are open.
    pub(crate) allowed: Vec<Cidr>,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Nowhere,
    Out,
    Keeper,
}

/// Carries frames from one socket to the other, until either ends.
///
/// What QEMU sends is read whatever becomes of what it is sent: it writes a frame to us and reads our frames in one and the same
/// thread, so two sides that each wait for the other to read would wait for ever.
pub(crate) async fn run(from: UnixStream, mut to: UnixStream, wire: &Wire, rules: &Rules) -> io::Result<()> {
    let (queue, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
    let queued = AtomicUsize::new(0);
    let read = async {
        let mut from = BufReader::with_capacity(1 << 18, from);
        let mut own = addresses();
        let mut looked = Instant::now();
        loop {
            let length = from.read_u32().await? as usize;
            if length > LARGEST_FRAME {
                return Err(io::Error::other(format!("a frame of {length} bytes")));
            }
            let mut frame = vec![0; 4 + length];
            frame[..4].copy_from_slice(&u32::try_from(length).unwrap_or_default().to_be_bytes());
            from.read_exact(&mut frame[4..]).await?;
            if looked.elapsed() > LOOK {
                (own, looked) = (addresses(), Instant::now());
            }
            match way(&frame[4..], &own, rules) {
                Way::Keeper => wire.take(frame.split_off(4)),
                Way::Out if queued.load(Ordering::Relaxed) < LONGEST_QUEUE => {
                    queued.fetch_add(frame.len(), Ordering::Relaxed);
                    // Its end is the end of both.
                    let _ = queue.send(frame);
                }
                Way::Out | Way::Nowhere => {}
            }
        }
    };
    let write = async {
        while let Some(frame) = waiting.recv().await {
            to.write_all(&frame).await?;
            queued.fetch_sub(frame.len(), Ordering::Relaxed);
        }
        Ok(())
    };
    let ((), ()) = tokio::try_join!(read, write)?;
    Ok(())
}

/// The addresses by which this machine is reached.
fn addresses() -> Vec<Ipv4Addr> {
    let all = crate::local::network::host_addresses().into_iter();
    all.filter_map(|address| if let IpAddr::V4(address) = address { Some(address) } else { None }).collect()
}

/// Where a frame of the guest goes. What can't be understood goes nowhere.
pub(super) fn way(frame: &[u8], own: &[Ipv4Addr], rules: &Rules) -> Way {
    let for_keeper = frame.get(..6).is_some_and(|to| to == wire::MAC);
    match frame.get(12..14) {
        Some(kind) if for_keeper => {
            if kind == ARP || kind == IPV4 {
                Way::Keeper
            } else {
                Way::Nowhere
            }
        }
        // Who has the keeper's address is answered by the keeper alone.
        Some(kind) if kind == ARP => match frame.get(38..42) {
            Some(target) if target == wire::ADDRESS.octets() => Way::Keeper,
            Some(_) => Way::Out,
            None => Way::Nowhere,
        },
        Some(kind) if kind == IPV4 && is_packet_allowed(&frame[14..], own, rules).unwrap_or(false) => Way::Out,
        // There is no other network than IPv4.
        _ => Way::Nowhere,
    }
}

fn is_packet_allowed(packet: &[u8], own: &[Ipv4Addr], rules: &Rules) -> Option<bool> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    if packet.first()? >> 4 != 4 || header < 20 {
        return None;
    }
    let to = Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?);
    let protocol = *packet.get(9)?;
    // More fragments, or not the first one: what it is part of can't be seen.
    let whole = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff == 0;
    let inner = packet.get(header..)?;
    let port = |at: usize| Some(u16::from_be_bytes([*inner.get(at)?, *inner.get(at + 1)?]));
    if protocol == UDP && whole && ADDRESS_GIVERS.contains(&to) && port(0)? == DHCP_CLIENT && port(2)? == DHCP_SERVER {
        return Some(true);
    }
    if rules.network == Network::Off {
        return Some(false);
    }
    if to.octets()[..3] == NETWORK {
        // Every other address of it leads to this machine.
        return Some((protocol == UDP || protocol == TCP) && whole && to == RESOLVER && port(2)? == DNS);
    }
    let among = |networks: &[Cidr]| networks.iter().any(|network| network.contains(to));
    Some(!is_always(to) && !own.contains(&to) && (!among(&PRIVATE) || among(&rules.allowed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;

    fn frame(to: [u8; 4], protocol: u8, ports: (u16, u16), flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 14 + 20 + 20];
        packet[12..14].copy_from_slice(&IPV4);
        packet[14] = 0x45;
        packet[14 + 9] = protocol;
        packet[14 + 16..14 + 20].copy_from_slice(&to);
        packet[34..36].copy_from_slice(&ports.0.to_be_bytes());
        packet[36..38].copy_from_slice(&ports.1.to_be_bytes());
        packet[34 + 13] = flags;
        packet
    }

    fn rules(allowed: &[&str]) -> Rules {
        Rules { network: Network::Outside, allowed: allowed.iter().map(|text| text.parse().unwrap()).collect() }
    }

    fn is_allowed(frame: &[u8], own: &[Ipv4Addr]) -> bool {
        way(frame, own, &rules(&[])) == Way::Out
    }

    #[tokio::test]
    async fn a_side_that_does_not_read_keeps_nobody_from_writing() {
        let (mut guest, from) = UnixStream::pair().unwrap();
        let (to, mut network) = UnixStream::pair().unwrap();
        let filter = tokio::spawn(async move { run(from, to, &Wire::new(), &rules(&[])).await });
        let mut one = frame([93, 184, 216, 34], TCP, (40000, 80), SYN);
        one.resize(1500, 7);
        let wire = [&1500_u32.to_be_bytes()[..], &one].concat();
        // More than the buffers of both sockets hold.
        let count = 4000;
        for _ in 0..count {
            tokio::time::timeout(Duration::from_secs(30), guest.write_all(&wire)).await.expect("the filter reads").unwrap();
        }
        let mut seen = vec![0; wire.len()];
        for _ in 0..count {
            tokio::time::timeout(Duration::from_secs(30), network.read_exact(&mut seen))
                .await
                .expect("the filter writes")
                .unwrap();
            assert_eq!(seen, wire);
        }
        drop(guest);
        assert!(filter.await.unwrap().is_err(), "it ends with its guest");
    }

    #[test]
    fn the_outside_and_nothing_of_this_machine() {
        let own = [Ipv4Addr::new(192, 0, 2, 2)];
        let tcp = |to, flags| is_allowed(&frame(to, TCP, (40000, 80), flags), &own);
        assert!(tcp([93, 184, 216, 34], SYN) && tcp([192, 0, 2, 3], SYN));
        for never in
            [[127, 0, 0, 1], [127, 9, 9, 9], [0, 0, 0, 0], [169, 254, 169, 254], [192, 0, 2, 2], [10, 0, 2, 2], [10, 0, 2, 77]]
        {
            assert!(!tcp(never, SYN), "{never:?}");
        }
        // Nor by what begins nothing by the book: connections into the guest have another way.
        for flags in [0, 1, ACK, SYN | ACK, 0x04, SYN | 1, SYN | 0x20, 0x29] {
            assert!(!tcp([10, 0, 2, 2], flags) && !tcp([127, 0, 0, 1], flags) && !tcp([10, 0, 2, 100], flags), "{flags:x}");
        }
    }

    #[test]
    fn networks_around_the_machine_are_opened_by_settings_alone() {
        let tcp = |to, allowed: &[&str]| way(&frame(to, TCP, (40000, 80), SYN), &[], &rules(allowed)) == Way::Out;
        for private in [[10, 1, 0, 1], [172, 17, 0, 2], [192, 168, 1, 1], [100, 64, 0, 1]] {
            assert!(!tcp(private, &[]), "{private:?}");
            assert!(tcp(private, &["0.0.0.0/0"]), "{private:?} is opened by a setting");
        }
        for never in [[169, 254, 169, 254], [168, 63, 129, 16], [100, 100, 100, 200], [127, 0, 0, 1], [10, 0, 2, 2]] {
            assert!(!tcp(never, &["0.0.0.0/0"]), "{never:?} is opened by no setting");
        }
        assert!(tcp([10, 1, 2, 3], &["10.1.0.0/16"]) && !tcp([10, 2, 2, 3], &["10.1.0.0/16"]));
    }

    #[test]
    fn the_keeper_has_its_own_frames_and_a_closed_guest_nothing_else() {
        let off = Rules { network: Network::Off, allowed: vec!["0.0.0.0/0".parse().unwrap()] };
        let mut answer = frame([10, 0, 2, 100], TCP, (5000, 40000), SYN | ACK);
        answer[..6].copy_from_slice(&wire::MAC);
        let mut question = vec![0xff; 42];
        question[12..14].copy_from_slice(&ARP);
        let other = question.clone();
        question[38..42].copy_from_slice(&[10, 0, 2, 100]);
        for rules in [&off, &rules(&[])] {
            assert_eq!(way(&answer, &[], rules), Way::Keeper);
            assert_eq!(way(&question, &[], rules), Way::Keeper);
            assert_eq!(way(&other, &[], rules), Way::Out);
            assert_eq!(way(&other[..40], &[], rules), Way::Nowhere);
            assert_eq!(way(&frame([255; 4], UDP, (68, 67), 0), &[], rules), Way::Out, "its address");
            assert_eq!(way(&frame([10, 0, 2, 2], UDP, (68, 67), 0), &[], rules), Way::Out, "its address for longer");
            for other in [[127, 0, 0, 1], [10, 0, 2, 100], [192, 168, 0, 1]] {
                assert_eq!(way(&frame(other, UDP, (68, 67), 0), &[], rules), Way::Nowhere, "{other:?}");
            }
        }
        assert_eq!(way(&frame([93, 184, 216, 34], TCP, (40000, 80), SYN), &[], &off), Way::Nowhere);
        assert_eq!(way(&frame([10, 0, 2, 3], UDP, (4000, 53), 0), &[], &off), Way::Nowhere);
        assert_eq!(way(&frame([93, 184, 216, 34], UDP, (68, 67), 0), &[], &off), Way::Nowhere, "nothing but its address");
        answer[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(way(&answer, &[], &off), Way::Nowhere, "IPv6");
    }

    #[test]
    fn names_and_addresses_are_found_and_nothing_else() {
        let udp = |to, ports| is_allowed(&frame(to, UDP, ports, 0), &[]);
        assert!(udp([10, 0, 2, 3], (4000, 53)) && udp([255, 255, 255, 255], (68, 67)) && udp([8, 8, 8, 8], (4000, 53)));
        assert!(is_allowed(&frame([10, 0, 2, 3], TCP, (4000, 53), SYN), &[]));
        assert!(!udp([10, 0, 2, 2], (4000, 69)) && !udp([10, 0, 2, 2], (4000, 53)) && !udp([224, 0, 0, 251], (5353, 5353)));
        assert!(!udp([10, 0, 2, 255], (1, 2)) && !udp([255, 255, 255, 255], (1, 2)));
        let ping = |to| is_allowed(&frame(to, 1, (0, 0), 0), &[]);
        assert!(ping([8, 8, 8, 8]) && !ping([10, 0, 2, 2]));
    }

    #[test]
    fn what_cannot_be_understood_is_dropped() {
        let good = frame([10, 0, 2, 3], TCP, (40000, 53), SYN);
        assert!(is_allowed(&good, &[]));
        for length in 0..34 + 4 {
            assert!(!is_allowed(&good[..length], &[]), "cut off after {length}");
        }
        let mut part = good.clone();
        part[14 + 6] = 0x20;
        assert!(!is_allowed(&part, &[]), "the first part of several");
        part[14 + 6] = 0;
        part[14 + 7] = 1;
        assert!(!is_allowed(&part, &[]), "a later part");
        let mut other = good.clone();
        other[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert!(!is_allowed(&other, &[]), "IPv6");
        let mut tagged = good;
        tagged[12..14].copy_from_slice(&[0x81, 0x00]);
        assert!(!is_allowed(&tagged, &[]));
    }
}
