//! The first key, in `DATA/admin.key`.

use super::{Keys, PREFIX, SECRET_LENGTH, hash, hex, random_id, random_secret, time};
use crate::error::{Error, Result};
use crate::store::StoredKey;
use hotdesk_api::fleet::{Key, Scope};
use jiff::Timestamp;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

impl Keys {
    /// Sees to it that `DATA/admin.key` holds the secret of a good key of the whole fleet; returns the file's path.
    ///
    /// - There is no file: a key is made and written to it. A key that was made for this file before is revoked, so
    ///   whoever lost the file removes what is left of it and starts again.
    /// - The file's key is good: nothing is done.
    /// - The store does not know the file's key (the database is new, or an operator wrote the file): it is taken as it is.
    ///   Whoever can write there can do anything to this fleet anyway.
    /// - The file's key was revoked, or has too narrow a scope: a new one takes its place.
    ///
    /// The file is written before the store, so a start that is killed between the two is finished by the next one.
    pub async fn admin(&self, data: &Path) -> Result<PathBuf> {
        let path = data.join("admin.key");
        let told = |e: io::Error| Error::Store(format!("{} can't be read or written: {e}", path.display()));
        let secret = match std::fs::read_to_string(&path) {
            Ok(text) => {
                close(&path).map_err(told)?;
                let secret = text.trim().to_owned();
                check(&secret, &path)?;
                if self.known(&secret).await? {
                    match self.who(&secret).await {
                        Ok(who) if who.scope == Scope::Admin => return Ok(path),
                        Err(Error::Store(why)) => return Err(Error::Store(why)),
                        _ => {
                            let secret = random_secret()?;
                            replace(&path, &secret).map_err(told)?;
                            secret
                        }
                    }
                } else {
                    secret
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let secret = random_secret()?;
                match write_new(&path, &secret).map_err(told)? {
                    None => secret,
                    Some(other) => check(&other, &path).map(|()| other)?,
                }
            }
            Err(e) => return Err(told(e)),
        };
        self.install(&secret, &path).await?;
        Ok(path)
    }

    /// Whether the store has a key of that secret, good or not.
    async fn known(&self, secret: &str) -> Result<bool> {
        self.inner.catch_up().await?;
        Ok(self.inner.find(&hash(secret))?.is_some())
    }

    /// Makes the secret that of a key of the whole fleet, and ends those that had its place.
    async fn install(&self, secret: &str, path: &Path) -> Result<()> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let place = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Orchestrators that share a database have a file each, and must not revoke each other's key.
        let name = format!("{}:{}", host.trim(), place.display());
        let key = Key {
            id: format!("k-{}", random_id()?),
            name: name.clone(),
            scope: Scope::Admin,
            created_at: time(Timestamp::now().as_millisecond()),
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            max_desks: None,
        };
        let id = key.id.clone();
        match self.inner.put(StoredKey { key, hash: hex(&hash(secret)) }).await {
            // Another start in the same directory was faster and has taken it.
            Err(Error::Conflict(_)) => return self.inner.catch_up().await,
            other => other?,
        }
        for old in self.list().await? {
            if old.name == name && old.id != id && old.scope == Scope::Admin && old.revoked_at.is_none() {
                self.revoke(&old.id).await?;
            }
        }
        tracing::info!(path = %path.display(), key = id, "the admin key is in this file");
        Ok(())
    }
}

fn check(secret: &str, path: &Path) -> Result<()> {
    let good = secret.len() == SECRET_LENGTH
        && secret.strip_prefix(PREFIX).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
    if good {
        return Ok(());
    }
    let path = path.display();
    Err(Error::Invalid(format!(
        "{path} holds no key ({PREFIX} and 43 characters); remove it, and the next start writes a new one"
    )))
}

/// Takes it from everybody but its owner.
fn close(path: &Path) -> io::Result<()> {
    let mode = path.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777), "others could read the admin key; rotate it");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Makes the file; if another process was faster, says what that one wrote.
fn write_new(path: &Path, secret: &str) -> io::Result<Option<String>> {
    let temporary = write_beside(path, secret)?;
    let linked = std::fs::hard_link(&temporary, path);
    std::fs::remove_file(&temporary)?;
    match linked {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Some(std::fs::read_to_string(path)?.trim().to_owned())),
        Err(e) => Err(e),
        Ok(()) => sync_parent(path).map(|()| None),
    }
}

fn replace(path: &Path, secret: &str) -> io::Result<()> {
    std::fs::rename(write_beside(path, secret)?, path)?;
    sync_parent(path)
}

/// A whole file of another name, on the disk.
fn write_beside(path: &Path, secret: &str) -> io::Result<PathBuf> {
    let temporary = path.with_extension(format!("key.{}", &hex(&hash(secret))[..12]));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{secret}")?;
    file.sync_all()?;
    Ok(temporary)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => std::fs::File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}
