//! Secrets of rows: environments, VNC passwords, desks' own tokens and notes are sealed with a key that is not in the store, so that
//! a copy of the database opens no desk.
//!
//! The key is a file of the data directory (or the one that the setting `secrets_key` names), made when a store is first opened. The
//! store notes which key it is. Each row is sealed with a key of its own, derived from the file's and the row's name, so that a sealed
//! text that is moved to another row does not open there.

use super::driver::Driver;
use super::{Store, body, facts, steps};
use crate::error::{Error, Result};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::TryRng as _;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

const KEY_BYTES: usize = 32;
/// How a sealed note begins. A clear one is JSON or base64, neither of which has a colon here.
const MARK: &str = "sealed:";

pub struct Seal(Prk);

impl Seal {
    fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(Salt::new(HKDF_SHA256, b"hotdesk").extract(key))
    }

    /// Which key this is, without a word about it.
    fn name(&self) -> Result<String> {
        Ok(crate::keys::hex(&self.derived("name")?[..8]))
    }

    fn derived(&self, what: &str) -> Result<[u8; KEY_BYTES]> {
        let mut bytes = [0; KEY_BYTES];
        let filled = self.0.expand(&[what.as_bytes()], HKDF_SHA256).and_then(|okm| okm.fill(&mut bytes));
        filled.map_err(|_| Error::Store("no key can be derived".into()))?;
        Ok(bytes)
    }

    /// A key for something outside of the store.
    pub(super) fn key_for(&self, purpose: &str) -> Option<[u8; KEY_BYTES]> {
        self.derived(&format!("purpose {purpose}")).ok()
    }

    fn key(&self, row: &str) -> Result<LessSafeKey> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.derived(&format!("row {row}"))?);
        key.map(LessSafeKey::new).map_err(|_| Error::Store("no key can be derived".into()))
    }

    /// The text of a row, readable with the key and under the same name alone.
    pub(super) fn close(&self, row: &str, clear: &str) -> Result<String> {
        let nonce: [u8; NONCE_LEN] = random()?;
        let mut bytes = clear.as_bytes().to_vec();
        let sealed = self.key(row)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes);
        sealed.map_err(|_| Error::Store("a secret can't be sealed".into()))?;
        Ok(BASE64_URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    pub(super) fn open(&self, row: &str, sealed: &str) -> Result<String> {
        let broken = || Error::Store(format!("the secrets of {row} can't be opened: they were changed, or are of another row"));
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(sealed).map_err(|_| broken())?;
        let (nonce, text) = bytes.split_first_chunk_mut::<NONCE_LEN>().ok_or_else(broken)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let clear = self.key(row)?.open_in_place(nonce, Aad::empty(), text).map_err(|_| broken())?;
        String::from_utf8(clear.to_vec()).map_err(|_| broken())
    }
}

/// A note as it is written.
pub(super) fn close_note(seal: Option<&Seal>, kind: &str, name: &str, body: &str) -> Result<String> {
    match seal {
        // Marks of what is deleted say nothing.
        Some(seal) if !body.is_empty() => Ok(format!("{MARK}{}", seal.close(&note_row(kind, name), body)?)),
        _ => Ok(body.to_owned()),
    }
}

/// A note that is clear, sealed.
pub(super) fn sealed_note(seal: &Seal, kind: &str, name: &str, body: &str) -> Result<Option<String>> {
    (!body.starts_with(MARK)).then(|| close_note(Some(seal), kind, name, body)).transpose()
}

/// A note as it was; one that an older version wrote is clear.
pub(super) fn open_note(seal: Option<&Seal>, kind: &str, name: &str, body: &str) -> Result<String> {
    match (seal, body.strip_prefix(MARK)) {
        (Some(seal), Some(sealed)) => seal.open(&note_row(kind, name), sealed),
        (None, Some(_)) => Err(Error::Store("the note is sealed, and the store was opened without its key".into())),
        (_, None) => Ok(body.to_owned()),
    }
}

fn note_row(kind: &str, name: &str) -> String {
    format!("note {kind} {name}")
}

/// Gives an open store its key, and seals what an older version left clear.
pub(super) async fn attach<D: Driver>(store: &D, file: &Path) -> Result<()> {
    let known = store.fact(facts::SEAL).await?;
    let seal = match (read(file)?, &known) {
        (Some(seal), _) => seal,
        (None, None) => make(file)?,
        (None, Some(known)) => {
            return Err(Error::Store(format!(
                "the secrets in the store are sealed with the key {known}, and {} is not there; put it back from its backup, or name it with the setting secrets_key",
                file.display()
            )));
        }
    };
    // The first of several orchestrators says which one it is.
    let name = seal.name()?;
    store.put_fact(facts::SEAL, &name, false).await?;
    let known = store.fact(facts::SEAL).await?.unwrap_or_default();
    if known != name {
        return Err(Error::Store(format!(
            "the secrets in the store are sealed with the key {known}, and {} is the key {name}; put the right one back from its backup, or name it with the setting secrets_key",
            file.display()
        )));
    }
    store.set_seal(seal);
    let format = store.fact(facts::FORMAT).await?.and_then(|text| text.parse::<i64>().ok()).unwrap_or_default();
    if format < body::FORMAT {
        steps::seal_clear_rows(store).await?;
        // From now on versions that do not know of seals are refused.
        store.put_fact(facts::FORMAT, &body::FORMAT.to_string(), true).await?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Option<Seal>> {
    let failed = |why: String| Error::Store(format!("the key of the store's secrets in {} can't be read: {why}", file.display()));
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e.to_string())),
    };
    let mode = std::fs::metadata(file).map_err(|e| failed(e.to_string()))?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(failed(format!("all users of the machine may (mode {:o}); close it with chmod 600", mode & 0o777)));
    }
    let key = BASE64_URL_SAFE_NO_PAD.decode(text.trim()).ok().and_then(|key| <[u8; KEY_BYTES]>::try_from(key).ok());
    key.map(|key| Some(Seal::new(&key))).ok_or_else(|| failed("it is no key; put it back from its backup".into()))
}

fn make(file: &Path) -> Result<Seal> {
    let failed = |e: std::io::Error| Error::Store(format!("the key {} can't be made: {e}", file.display()));
    let text = BASE64_URL_SAFE_NO_PAD.encode(random::<KEY_BYTES>()?);
    // Whole or not at all, and never over one that another orchestrator has just made.
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let _ = std::fs::remove_file(&new);
    let linked = (|| {
        let mut target = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        target.write_all(format!("{text}\n").as_bytes())?;
        target.sync_all()?;
        match std::fs::hard_link(&new, file) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        file.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
    })();
    let _ = std::fs::remove_file(&new);
    linked.map_err(failed)?;
    tracing::info!(file = %file.display(), "made the key of the store's secrets; keep a copy of it apart from those of the store");
    read(file)?.ok_or_else(|| failed(ErrorKind::NotFound.into()))
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(|e| Error::Store(format!("the system gives no random bytes: {e}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_in_its_own_row_with_its_own_key() {
        let seal = Seal::new(&[7; KEY_BYTES]);
        let sealed = seal.close("desk d-1", "précieux").unwrap();
        assert!(!sealed.contains("pr"), "{sealed}");
        assert_eq!(seal.open("desk d-1", &sealed).unwrap(), "précieux");
        assert_ne!(seal.close("desk d-1", "précieux").unwrap(), sealed, "equal secrets look alike");
        assert!(seal.open("desk d-2", &sealed).is_err());
        assert!(Seal::new(&[8; KEY_BYTES]).open("desk d-1", &sealed).is_err());
        assert!(seal.open("desk d-1", &sealed[..sealed.len() - 2]).is_err());
        for odd in ["", "AA", "no base64!"] {
            assert!(seal.open("desk d-1", odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn the_key_is_made_once_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secrets.key");
        assert!(read(&file).unwrap().is_none());
        let name = make(&file).unwrap().name().unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(make(&file).unwrap().name().unwrap(), name, "another one's key was overwritten");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&file).err().unwrap().to_string().contains("chmod 600"));
        std::fs::write(&file, "odd").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&file).err().unwrap().to_string().contains("no key"));
    }
}
