//! Any frames from a guest: none of them reaches this machine, and whatever the keeper gets, its own network stands.
//!
//! An input is a list of frames: a byte that says how a frame is mended, a length, and the frame. Mended are what makes it a frame for
//! the keeper's connection (addresses, ports, numbers) and the checksums, without which no more than those would be looked at.

use super::{ADDRESS, GUEST, MAC, Wire};
use crate::closed::Cidr;
use crate::qemu::filter::{Rules, Way, way};
use crate::qemu::machine::Network;
use std::net::Ipv4Addr;

const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const FOR_KEEPER: u8 = 1;
const IP: u8 = 2;
const TCP: u8 = 4;
const NUMBERS: u8 = 8;

pub(crate) fn run(mut input: &[u8]) {
    let all: Cidr = "0.0.0.0/0".parse().unwrap();
    let rules = [
        Rules { network: Network::Outside, allowed: Vec::new() },
        Rules { network: Network::Outside, allowed: vec![all] },
        Rules { network: Network::Off, allowed: Vec::new() },
    ];
    let wire = Wire::new();
    let stream = wire.open(5000).unwrap();
    let mut keeper = Keeper::default();
    keeper.hear(&wire);
    while let [how, length, rest @ ..] = input {
        let (frame, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        input = rest;
        let frame = keeper.mended(frame, *how);
        for rules in &rules {
            match way(&frame, &[OWN], rules) {
                Way::Out => assert!(is_harmless(&frame, rules), "{frame:02x?}"),
                Way::Keeper => assert!(frame[..6] == MAC || frame[12..14] == [8, 6], "{frame:02x?}"),
                Way::Nowhere => {}
            }
        }
        if way(&frame, &[OWN], &rules[0]) == Way::Keeper {
            wire.take(frame);
            keeper.hear(&wire);
        }
    }
    // What came for the connection is at most what its buffer holds.
    let mut read = vec![0; 1 << 20];
    stream.with(|socket| while socket.recv_slice(&mut read).is_ok_and(|count| count > 0) {});
    drop(stream);
    keeper.hear(&wire);
    wire.end();
}

/// Whether a frame that goes out leads to nothing of this machine, told in another way than the filter does.
fn is_harmless(frame: &[u8], rules: &Rules) -> bool {
    if frame[12..14] == [8, 6] {
        return true;
    }
    let packet = &frame[14..];
    let (header, to) = (usize::from(packet[0] & 15) * 4, &packet[16..20]);
    let ports = packet.get(header..header + 4);
    if packet[9] == 17 && ports == Some(&[0, 68, 0, 67]) && (*to == [255; 4] || *to == [10, 0, 2, 2]) {
        return true;
    }
    let private = to[0] == 10 || to[..2] == [192, 168] || (to[0] == 172 && to[1] >> 4 == 1) || (to[0] == 100 && to[1] >> 6 == 1);
    let never = to[0] == 0 || to[0] == 127 || to[0] >= 224 || to[..2] == [169, 254] || *to == OWN.octets();
    let names = *to == [10, 0, 2, 3] && ports.is_some_and(|ports| ports[2..] == [0, 53]);
    rules.network == Network::Outside && !never && (names || !(private && rules.allowed.is_empty()) && to[..3] != [10, 0, 2])
}

/// What the keeper said last on its connection.
#[derive(Default)]
struct Keeper {
    port: u16,
    /// What it sends next, and what it waits for.
    next: u32,
    wanted: u32,
}

impl Keeper {
    /// Looks at all that is sent to the guest.
    fn hear(&mut self, wire: &Wire) {
        let (frames, _) = wire.lock().turn();
        assert!(frames.len() <= 64, "{} frames", frames.len());
        for frame in frames {
            let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
            if frame[12..14] == [8, 0] && frame[23] == 6 {
                self.port = u16::from_be_bytes([frame[34], frame[35]]);
                let (flags, data) = (frame[47], frame.len() - 34 - usize::from(frame[46] >> 4) * 4);
                // A connection's beginning and end count as a byte.
                self.next = number(38).wrapping_add(data as u32).wrapping_add(u32::from(flags & 3 != 0));
                if flags & 0x10 != 0 {
                    self.wanted = number(42);
                }
            }
        }
    }

    fn mended(&self, frame: &[u8], how: u8) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if how & FOR_KEEPER != 0 && frame.len() >= 14 {
            frame[..6].copy_from_slice(&MAC);
        }
        if how & IP == 0 || frame.len() < 34 {
            return frame;
        }
        let length = u16::try_from(frame.len() - 14).unwrap_or(u16::MAX);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[20..22].fill(0);
        frame[26..30].copy_from_slice(&GUEST.octets());
        frame[30..34].copy_from_slice(&ADDRESS.octets());
        if how & TCP != 0 && frame.len() >= 54 {
            frame[23] = 6;
            frame[34..36].copy_from_slice(&5000_u16.to_be_bytes());
            frame[36..38].copy_from_slice(&self.port.to_be_bytes());
            if how & NUMBERS != 0 {
                frame[38..42].copy_from_slice(&self.wanted.to_be_bytes());
                frame[42..46].copy_from_slice(&self.next.to_be_bytes());
            }
            let pseudo = [&frame[26..34], &[0, 6], &(length - 20).to_be_bytes()].concat();
            frame[50..52].fill(0);
            let sum = checksum(&[&pseudo[..], &frame[34..]].concat());
            frame[50..52].copy_from_slice(&sum.to_be_bytes());
        }
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let sum = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum + (sum >> 16)) as u16)
}
