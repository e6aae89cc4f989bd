//! The secret that opens a desk to the network.

use crate::error::{Error, Result};
use rand::Rng;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use subtle::ConstantTimeEq;

/// 256 bits: nobody guesses that, so wrong tries need no counting.
const TOKEN_BYTES: usize = 32;
/// Longer than any token that people make by hand; a larger file is something else.
const TOKEN_FILE_LIMIT: u64 = 4096;

/// A token. It is never shown by `Debug`, so that it can't slip into a log.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token as given by the desk's owner.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let text = text.trim();
        if text.is_empty() || text.bytes().any(|b| !b.is_ascii_graphic()) {
            return Err(Error::Invalid("a token is made of visible ASCII characters, without spaces".into()));
        }
        Ok(Self(text.to_owned()))
    }

    fn random() -> Self {
        let mut bytes = [0u8; TOKEN_BYTES];
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// The token of `file`, made and saved there, for its owner's eyes only, if there is none.
    /// True if it was made now.
    pub fn load_or_make(file: &Path) -> Result<(Self, bool)> {
        let failed =
            |what: &str, e: std::io::Error| Error::Internal(format!("can't {what} the token in {}: {e}", file.display()));
        match std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(file) {
            Ok(opened) => {
                let meta = opened.metadata().map_err(|e| failed("read", e))?;
                if meta.mode() & 0o077 != 0 {
                    return Err(Error::Internal(format!(
                        "the token in {} can be read by other users; delete the file to have a new one made",
                        file.display()
                    )));
                }
                let mut text = String::new();
                opened.take(TOKEN_FILE_LIMIT).read_to_string(&mut text).map_err(|e| failed("read", e))?;
                Ok((Self::new(text)?, false))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let token = Self::random();
                if let Some(parent) = file.parent() {
                    std::fs::create_dir_all(parent).map_err(|e| failed("save", e))?;
                }
                let mut opened = std::fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(file)
                    .map_err(|e| failed("save", e))?;
                writeln!(opened, "{}", token.0).map_err(|e| failed("save", e))?;
                Ok((token, true))
            }
            Err(e) => Err(failed("read", e)),
        }
    }

    /// Whether `given` is this token, in a time that does not depend on where they differ.
    pub fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// The secret itself, for the one who owns the desk.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_kept_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run/token");
        let (made, new) = Token::load_or_make(&file).unwrap();
        assert!(new && made.reveal().len() == 64);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let (again, new) = Token::load_or_make(&file).unwrap();
        assert!(!new && again.is(made.reveal()));
        assert!(!made.is("") && !made.is("x") && !made.is(&made.reveal()[1..]));
        assert!(!format!("{made:?}").contains(made.reveal()));

        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::load_or_make(&file).is_err(), "a token that others can read is no secret");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &file).unwrap();
        assert!(Token::load_or_make(&file).is_err(), "links are not followed");
    }
}
