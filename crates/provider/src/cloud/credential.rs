//! Keys to a vendor's API, from the usual places.

use crate::{Error, Result};
use secrecy::SecretString;
use std::path::Path;

/// A key is a line; whatever is longer is the wrong file.
const LONGEST: u64 = 16 << 10;

/// The key in a variable, or else in a file. Neither is an error that says where it belongs.
pub fn credential(provider: &'static str, variable: &str, file: Option<&Path>) -> Result<SecretString> {
    let unusable = |reason: String| Error::Unavailable { provider, reason };
    let text = match std::env::var(variable) {
        Ok(text) if !text.trim().is_empty() => text,
        _ => match file {
            Some(file) => {
                let told = |e: std::io::Error| unusable(format!("the key file {} can't be read: {e}", file.display()));
                if std::fs::metadata(file).map_err(told)?.len() > LONGEST {
                    return Err(unusable(format!("the key file {} is too long for a key", file.display())));
                }
                std::fs::read_to_string(file).map_err(told)?
            }
            None => return Err(unusable(format!("there is no key; set {variable}, or key_file in its settings"))),
        },
    };
    let key = text.trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable(format!("what is given as its key is none; look at {variable} and at key_file")));
    }
    Ok(SecretString::from(key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    #[test]
    fn a_key_comes_from_a_file_and_is_shown_to_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "dtn_abc\n").unwrap();
        let key = credential("daytona", "HOTDESK_TEST_NO_SUCH_VARIABLE", Some(&file)).unwrap();
        assert_eq!(key.expose_secret(), "dtn_abc");
        assert!(!format!("{key:?}").contains("dtn"));
        for bad in ["", "two words", "ümlaut"] {
            std::fs::write(&file, bad).unwrap();
            let told = credential("daytona", "HOTDESK_TEST_NO_SUCH_VARIABLE", Some(&file)).unwrap_err().to_string();
            assert!(bad.is_empty() || !told.contains(bad), "{told}");
        }
        let none = credential("daytona", "HOTDESK_TEST_NO_SUCH_VARIABLE", None).unwrap_err().to_string();
        assert!(none.contains("HOTDESK_TEST_NO_SUCH_VARIABLE"), "{none}");
    }
}
