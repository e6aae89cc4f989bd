//! Keys: made, hashed, scoped, rotated, revoked.
//!
//! A secret is `hd_` and 32 random bytes. It is shown once; the store has its SHA-256 alone, which is enough, because nobody
//! can guess 256 random bits. Authentication happens in memory: the table of keys is read at the start and follows the
//! store each [`FOLLOW`], so a key that another orchestrator revokes is dead here within 2 s, and one that is revoked or
//! rotated here is dead at once. A secret that is not known makes it look at the store first, so a key that another
//! orchestrator has just made works at once too.
//!
//! The first key is written to `DATA/admin.key`: see [`Keys::admin`]. What a key may do is said in [`may`], and only there.

mod admin;
mod scope;

pub use scope::{Deed, On, may};

use crate::Who;
use crate::engine::tasks::{Panics, again_after_panics};
use crate::error::{Error, Result};
use crate::store::{Store, StoredKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hotdesk_api::fleet::{Key, MadeKey, NewKey};
use jiff::Timestamp;
use rand::TryRng as _;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often the changes of other orchestrators are looked for.
pub const FOLLOW: Duration = Duration::from_secs(1);
/// Secrets that nobody knows make it look at the store, but not more often than this.
const LOOK: Duration = Duration::from_millis(100);
/// So long the keys that are known stay good while the store is away. Without it nobody can revoke a key, but another
/// orchestrator may still reach it.
pub const TRUST: Duration = Duration::from_secs(300);
/// The time of a key's last use is written at most so often.
const NOTE: Duration = Duration::from_secs(60);
/// Longest name of a key; for people.
const LONGEST_NAME: usize = 100;

const PREFIX: &str = "hd_";
const SECRET_BYTES: usize = 32;
const SECRET_LENGTH: usize = PREFIX.len() + 43;

type Hash = [u8; 32];

/// The keys of the fleet. Cheap to clone; follows the store until the last clone is dropped.
#[derive(Clone)]
pub struct Keys {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    known: RwLock<Known>,
    /// Whoever changes `known` holds it from before the store is asked until the table is changed, so that what was read
    /// earlier never overwrites what was written later. Holds the time of the last look.
    turn: Mutex<Instant>,
}

#[derive(Default)]
struct Known {
    by_hash: HashMap<Hash, Arc<Entry>>,
    by_id: HashMap<String, Arc<Entry>>,
    /// The newest change of the store that is in here.
    change: i64,
    /// When the store was last seen.
    seen: Option<Instant>,
}

struct Entry {
    key: Key,
    hash: Hash,
    expires_ms: Option<i64>,
    used_ms: AtomicI64,
    noted_ms: AtomicI64,
}

impl Keys {
    pub async fn open(store: Arc<dyn Store>) -> Result<Self> {
        let inner = Arc::new(Inner { store, known: RwLock::default(), turn: Mutex::new(Instant::now()) });
        inner.look(&mut *inner.turn.lock().await).await?;
        let weak = Arc::downgrade(&inner);
        tokio::spawn(async move {
            let panics = Panics::default();
            again_after_panics(&panics, "keys", || follow(weak.clone()), CancellationToken::new()).await;
        });
        Ok(Self { inner })
    }

    /// The key that a secret belongs to, if it is good. Touches the store only for a secret that is not known.
    pub async fn who(&self, secret: &str) -> Result<Who> {
        let unknown = || Error::Denied("this key is not known: it was mistyped, rotated or is of another fleet".into());
        if secret.len() != SECRET_LENGTH || !secret.starts_with(PREFIX) {
            return Err(unknown());
        }
        let hash = hash(secret);
        let entry = match self.inner.find(&hash)? {
            Some(entry) => entry,
            None => {
                self.inner.catch_up().await?;
                self.inner.find(&hash)?.ok_or_else(unknown)?
            }
        };
        let now = Timestamp::now().as_millisecond();
        if let Some(at) = &entry.key.revoked_at {
            return Err(Error::Denied(format!("key {} was revoked at {at}", entry.key.id)));
        }
        if entry.expires_ms.is_some_and(|end| end <= now) {
            let at = entry.key.expires_at.as_deref().unwrap_or_default();
            return Err(Error::Denied(format!("key {} expired at {at}", entry.key.id)));
        }
        entry.used_ms.fetch_max(now, Ordering::Relaxed);
        Ok(Who { key: entry.key.id.clone(), name: entry.key.name.clone(), scope: entry.key.scope.clone() })
    }

    /// Most desks at once with this key, if it has such a limit.
    pub fn max_desks(&self, id: &str) -> Option<u32> {
        self.inner.read().by_id.get(id).and_then(|entry| entry.key.max_desks)
    }

    /// All keys, revoked and expired ones too until they are pruned.
    pub async fn list(&self) -> Result<Vec<Key>> {
        let mut keys: Vec<_> = self.inner.store.keys().await?.into_iter().map(|stored| stored.key).collect();
        let known = self.inner.read();
        for key in &mut keys {
            // What is used now and not yet written down.
            let used = known.by_id.get(&key.id).map_or(0, |entry| entry.used_ms.load(Ordering::Relaxed));
            if used > key.last_used_at.as_deref().and_then(milliseconds).unwrap_or(0) {
                key.last_used_at = Some(time(used));
            }
        }
        Ok(keys)
    }

    pub async fn key(&self, id: &str) -> Result<Key> {
        let missing = || Error::NotFound { what: "key", id: id.into() };
        self.list().await?.into_iter().find(|key| key.id == id).ok_or_else(missing)
    }

    pub async fn make(&self, new: NewKey) -> Result<MadeKey> {
        if new.name.is_empty() || new.name.chars().count() > LONGEST_NAME || new.name.chars().any(char::is_control) {
            return Err(Error::Invalid(format!(
                "a key's name has 1 to {LONGEST_NAME} characters, none of them a control character"
            )));
        }
        let now = Timestamp::now().as_millisecond();
        let expires_at = match new.ttl_s {
            0 => None,
            seconds => {
                let end = i64::try_from(seconds).ok().and_then(|s| s.checked_mul(1000)).and_then(|ms| ms.checked_add(now));
                let end = end.and_then(|end| Timestamp::from_millisecond(end).ok());
                Some(end.map(|end| time(end.as_millisecond())).ok_or_else(|| Error::Invalid("ttl_s is too large".into()))?)
            }
        };
        let key = Key {
            id: format!("k-{}", random_id()?),
            name: new.name,
            scope: new.scope,
            created_at: time(now),
            expires_at,
            revoked_at: None,
            last_used_at: None,
            max_desks: new.max_desks,
        };
        let secret = random_secret()?;
        self.inner.put(StoredKey { key: key.clone(), hash: hex(&hash(&secret)) }).await?;
        Ok(MadeKey { key, secret })
    }

    /// A new secret for a key; the old one is dead when this returns.
    pub async fn rotate(&self, id: &str) -> Result<MadeKey> {
        let key = self.key(id).await?;
        let secret = random_secret()?;
        self.inner.put(StoredKey { key: key.clone(), hash: hex(&hash(&secret)) }).await?;
        Ok(MadeKey { key, secret })
    }

    /// For ever. A key that is revoked already is no error.
    pub async fn revoke(&self, id: &str) -> Result<()> {
        let missing = || Error::NotFound { what: "key", id: id.into() };
        let mut stored = self.inner.store.keys().await?.into_iter().find(|stored| stored.key.id == id).ok_or_else(missing)?;
        if stored.key.revoked_at.is_some() {
            return self.inner.catch_up().await;
        }
        stored.key.revoked_at = Some(time(Timestamp::now().as_millisecond()));
        match self.inner.put(stored).await {
            // Somebody else was faster.
            Err(Error::Conflict(_)) => self.inner.catch_up().await,
            other => other,
        }
    }

    /// Writes down the last uses that were not yet; before the end.
    pub async fn flush(&self) -> Result<()> {
        self.inner.note(Duration::ZERO).await
    }
}

/// Follows the store as long as somebody needs it.
async fn follow(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(FOLLOW).await;
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.look(&mut *inner.turn.lock().await).await {
            tracing::debug!(%error, "changes of keys could not be read");
            continue;
        }
        if let Err(error) = inner.note(NOTE).await {
            tracing::debug!(%error, "last uses of keys could not be written");
        }
    }
}

impl Inner {
    fn find(&self, wanted: &Hash) -> Result<Option<Arc<Entry>>> {
        let known = self.read();
        if known.seen.is_none_or(|seen| seen.elapsed() > TRUST) {
            let minutes = TRUST.as_secs() / 60;
            return Err(Error::Store(format!("keys can't be checked: the database was not reachable for {minutes} minutes")));
        }
        // The table is asked for a hash, from whose place in it nobody learns anything about a secret; the last word is constant in time.
        Ok(known.by_hash.get(wanted).filter(|entry| bool::from(entry.hash.ct_eq(wanted))).cloned())
    }

    /// Sees everything that was committed before this call. Callers that come together share one look.
    async fn catch_up(&self) -> Result<()> {
        let asked = Instant::now();
        let mut last = self.turn.lock().await;
        if *last > asked {
            return Ok(());
        }
        tokio::time::sleep_until(*last + LOOK).await;
        self.look(&mut last).await
    }

    async fn look(&self, last: &mut Instant) -> Result<()> {
        let begun = Instant::now();
        *last = begun;
        let after = self.read().change;
        let (change, keys) = self.store.key_changes(after).await?;
        let mut known = self.write();
        known.change = change;
        known.seen = Some(begun);
        for stored in keys {
            known.add(stored)?;
        }
        Ok(())
    }

    /// Writes a key and knows it from then on.
    async fn put(&self, stored: StoredKey) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.store.put_key(&stored).await?;
        self.write().add(stored)
    }

    /// Writes the last uses that are newer than the written ones by more than `gap`.
    async fn note(&self, gap: Duration) -> Result<()> {
        let gap = i64::try_from(gap.as_millis()).unwrap_or(i64::MAX);
        let mut used = Vec::new();
        for entry in self.read().by_id.values() {
            let at = entry.used_ms.load(Ordering::Relaxed);
            if at > entry.noted_ms.load(Ordering::Relaxed).saturating_add(gap) {
                used.push((entry.key.id.clone(), at));
            }
        }
        if used.is_empty() {
            return Ok(());
        }
        self.store.touch_keys(&used).await?;
        let known = self.read();
        for (id, at) in used {
            if let Some(entry) = known.by_id.get(&id) {
                entry.noted_ms.fetch_max(at, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn add(&mut self, stored: StoredKey) -> Result<()> {
        let hash = unhex(&stored.hash)
            .ok_or_else(|| Error::Store(format!("the hash of key {} is none; was it changed by hand?", stored.key.id)))?;
        let before = self.by_id.get(&stored.key.id);
        let noted = stored.key.last_used_at.as_deref().and_then(milliseconds).unwrap_or(0);
        let used = before.map_or(0, |entry| entry.used_ms.load(Ordering::Relaxed));
        if let Some(before) = before {
            self.by_hash.remove(&before.hash);
        }
        let entry = Arc::new(Entry {
            hash,
            expires_ms: stored.key.expires_at.as_deref().map(|at| milliseconds(at).unwrap_or(0)),
            used_ms: AtomicI64::new(used.max(noted)),
            noted_ms: AtomicI64::new(noted),
            key: stored.key,
        });
        self.by_hash.insert(hash, entry.clone());
        self.by_id.insert(entry.key.id.clone(), entry);
        Ok(())
    }
}

/// `hd_` and 43 characters.
fn random_secret() -> Result<String> {
    Ok(format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?)))
}

/// 12 characters of base32: 60 bits.
fn random_id() -> Result<String> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    Ok(random::<12>()?.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(|e| Error::Store(format!("the system gives no random bytes: {e}")))?;
    Ok(bytes)
}

fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Hash> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| String::from("unknown"), |at| format!("{at:.3}"))
}

fn milliseconds(at: &str) -> Option<i64> {
    at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests;
