//! Who may look: passwords, and how often one may guess them.
//!
//! The password of VNC is weak by design: eight characters, DES, and no encryption of what
//! follows. It keeps out the curious; slow guessing keeps it from falling at once. Across networks
//! the desk's token, or a tunnel, has to do the rest.

use des::Des;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// By the protocol: a password's further characters are ignored by everybody.
const KEY: usize = 8;

/// A wrong password is answered after this time.
pub(super) const WRONG_PASSWORD_DELAY: Duration = Duration::from_secs(1);

/// So many wrong passwords from one address are a typing mistake; more are an attack.
const MOST_FAILURES: u32 = 5;

/// How long an address has to wait then.
const LOCKED: Duration = Duration::from_secs(60);

/// Addresses that are remembered. Who fills this from many addresses pushes out the oldest.
const MOST_ADDRESSES: usize = 1024;

/// Connections that have not shown yet who they are. More are not even greeted.
const MOST_STRANGERS: usize = 64;

/// And those of one address, so that it can't keep everybody else out.
const MOST_STRANGERS_OF_ONE: usize = 16;

/// A secret that is not shown in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// No password if the text is empty.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// What a viewer who knows the password answers.
    pub fn answer(&self, challenge: &[u8; 16]) -> [u8; 16] {
        let mut key = [0; KEY];
        for (to, from) in key.iter_mut().zip(self.0.bytes()) {
            // VNC numbers the bits of a key the other way round.
            *to = from.reverse_bits();
        }
        let cipher = Des::new(&key.into());
        let mut answer = *challenge;
        for half in answer.as_chunks_mut::<8>().0 {
            let mut block = (*half).into();
            cipher.encrypt_block(&mut block);
            *half = block.into();
        }
        answer
    }

    pub fn is_answered(&self, challenge: &[u8; 16], answer: &[u8; 16]) -> bool {
        self.answer(challenge).ct_eq(answer).into()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// What a connection has to show before it may look.
#[derive(Debug, Clone)]
pub enum Door {
    /// Nothing: whoever came this far is known already, or is on this machine.
    Open,
    /// One of these.
    Locked { full: Option<Password>, view_only: Option<Password> },
    /// Nobody comes in, for this reason.
    Closed(String),
}

/// Counts wrong passwords by address.
#[derive(Debug, Default)]
pub(super) struct Guesses(Mutex<HashMap<IpAddr, (u32, Instant)>>);

impl Guesses {
    /// Whether this address may try now.
    pub(super) fn may_try(&self, from: IpAddr, now: Instant) -> bool {
        match self.lock().get(&network(from)) {
            Some((failures, last)) => *failures < MOST_FAILURES || now.duration_since(*last) >= LOCKED,
            None => true,
        }
    }

    pub(super) fn failed(&self, from: IpAddr, now: Instant) {
        let mut all = self.lock();
        if all.len() >= MOST_ADDRESSES
            && let Some(oldest) = all.iter().min_by_key(|(_, (_, last))| *last).map(|(address, _)| *address)
        {
            all.remove(&oldest);
        }
        let (failures, last) = all.entry(network(from)).or_insert((0, now));
        if now.duration_since(*last) >= LOCKED {
            *failures = 0;
        }
        *failures = failures.saturating_add(1);
        *last = now;
    }

    pub(super) fn succeeded(&self, from: IpAddr) {
        self.lock().remove(&network(from));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, (u32, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts connections that have not shown yet who they are.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<HashMap<IpAddr, usize>>);

/// One of them, until it is dropped.
pub(super) struct Stranger<'a> {
    all: &'a Strangers,
    from: IpAddr,
}

impl Strangers {
    /// None if there are too many, of this address or altogether.
    pub(super) fn enter(&self, from: IpAddr) -> Option<Stranger<'_>> {
        let from = network(from);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, here) = (all.values().sum::<usize>(), all.get(&from).copied().unwrap_or(0));
        if total >= MOST_STRANGERS || here >= MOST_STRANGERS_OF_ONE {
            return None;
        }
        all.insert(from, here + 1);
        Some(Stranger { all: self, from })
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = all.get_mut(&self.from) {
            *here -= 1;
            if *here == 0 {
                all.remove(&self.from);
            }
        }
    }
}

/// One customer of an IPv6 provider has at least 2⁶⁴ addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_that_of_other_implementations() {
        // DES of zeros under the key "password", bits reversed; the same from OpenSSL:
        // printf '\0\0\0\0\0\0\0\0' | openssl enc -des-ecb -K 0e86ceceeef64e26 -nopad
        let answer = Password::new("password").unwrap().answer(&[0; 16]);
        assert_eq!(answer[..8], answer[8..]);
        assert_eq!(answer[..8], KNOWN);
    }

    const KNOWN: [u8; 8] = [0xff, 0x97, 0x50, 0x2e, 0x94, 0x22, 0xf0, 0x89];

    #[test]
    fn only_eight_characters_count_and_empty_is_none() {
        let challenge = *b"0123456789abcdef";
        let long = Password::new("password-and-more").unwrap();
        assert!(long.is_answered(&challenge, &Password::new("password").unwrap().answer(&challenge)));
        assert!(!long.is_answered(&challenge, &Password::new("Password").unwrap().answer(&challenge)));
        assert!(Password::new("").is_none());
        assert!(!format!("{long:?}").contains("password"));
    }

    #[test]
    fn guessing_is_stopped_and_forgiven() {
        let guesses = Guesses::default();
        let from: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        let other: IpAddr = "10.0.0.1".parse().unwrap();
        let start = Instant::now();
        for _ in 0..MOST_FAILURES {
            assert!(guesses.may_try(from, start));
            guesses.failed(from, start);
        }
        assert!(!guesses.may_try(from, start) && !guesses.may_try(neighbour, start));
        assert!(guesses.may_try(other, start));
        assert!(guesses.may_try(from, start + LOCKED));
        guesses.failed(from, start + LOCKED);
        assert!(guesses.may_try(from, start + LOCKED), "counting begins anew");
        guesses.succeeded(from);
        assert!(guesses.lock().is_empty());
    }

    #[test]
    fn one_address_can_not_take_all_places_of_strangers() {
        let strangers = Strangers::default();
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut inside: Vec<_> = (0..MOST_STRANGERS_OF_ONE).map(|_| strangers.enter(address(1)).unwrap()).collect();
        assert!(strangers.enter(address(1)).is_none());
        inside.extend((0..MOST_STRANGERS - MOST_STRANGERS_OF_ONE).map(|n| strangers.enter(address(n as u8 + 2)).unwrap()));
        assert!(strangers.enter(address(200)).is_none());
        inside.clear();
        assert!(strangers.0.lock().unwrap().is_empty());
    }

    #[test]
    fn the_memory_for_addresses_is_bounded() {
        let guesses = Guesses::default();
        let start = Instant::now();
        for n in 0..3000u32 {
            guesses.failed(IpAddr::V4(n.into()), start + Duration::from_millis(n.into()));
        }
        assert_eq!(guesses.lock().len(), MOST_ADDRESSES);
    }
}
