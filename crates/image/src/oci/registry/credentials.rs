//! Who somebody is at a registry, from where `docker login` writes it down: `config.json` in `~/.docker` or `DOCKER_CONFIG`, or one of
//! the helpers that it names.

use crate::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A helper says this instead of a name when the secret is a token.
const TOKEN_USER: &str = "<token>";

/// A name and a secret, or a token that stands for both.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Password {
        name: String,
        secret: String,
    },
    /// Exchanged for short-lived tokens.
    Token(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Password { name, .. } => write!(f, "Password {{ name: {name:?}, .. }}"),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: HashMap<String, Entry>,
    creds_store: Option<String>,
    cred_helpers: HashMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
}

impl Credentials {
    /// What is known about a registry. Nothing known is no error: many can be used by everybody.
    pub(super) fn find(host: &str) -> Result<Option<Self>> {
        let directory = std::env::var_os("DOCKER_CONFIG").filter(|value| !value.is_empty()).map(PathBuf::from);
        let directory = directory.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".docker")));
        match directory {
            Some(directory) => Self::find_in(&directory.join("config.json"), host),
            None => Ok(None),
        }
    }

    fn find_in(file: &Path, host: &str) -> Result<Option<Self>> {
        let text = match std::fs::read(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::Failed(format!("{} can't be read: {e}", file.display()))),
        };
        let config: Config = serde_json::from_slice(&text)
            .map_err(|e| Error::Invalid(format!("{} is not what docker login writes: {e}", file.display())))?;
        if let Some(helper) = config.cred_helpers.get(host).or(config.creds_store.as_ref()).filter(|name| !name.is_empty()) {
            return ask_helper(helper, host);
        }
        // Addresses are written in several ways.
        let same = |key: &str| key.trim_start_matches("https://").trim_start_matches("http://").split('/').next() == Some(host);
        let Some(entry) = config.auths.get(host).or_else(|| Some(config.auths.iter().find(|(key, _)| same(key))?.1)) else {
            return Ok(None);
        };
        if !entry.identitytoken.is_empty() {
            return Ok(Some(Self::Token(entry.identitytoken.clone())));
        }
        if !entry.username.is_empty() {
            return Ok(Some(Self::Password { name: entry.username.clone(), secret: entry.password.clone() }));
        }
        if entry.auth.is_empty() {
            return Ok(None);
        }
        let plain = STANDARD.decode(entry.auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        match plain.as_deref().and_then(|plain| plain.split_once(':')) {
            Some((name, secret)) => Ok(Some(Self::Password { name: name.into(), secret: secret.trim_end_matches('\0').into() })),
            None => Err(Error::Invalid(format!("{}: what is written about `{host}` can't be read", file.display()))),
        }
    }

    /// The header of basic authentication.
    pub(super) fn basic(&self) -> Option<String> {
        match self {
            Self::Password { name, secret } => Some(format!("Basic {}", STANDARD.encode(format!("{name}:{secret}")))),
            Self::Token(_) => None,
        }
    }
}

/// Asks a program that keeps secrets, in the way that Docker does.
fn ask_helper(name: &str, host: &str) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{name}");
    let fail = |why: String| Error::Failed(format!("{program} does not tell who we are at `{host}`: {why}"));
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(fail("that is no name of a helper".into()));
    }
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| fail(e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(host.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| fail(e.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        return if said.contains("credentials not found") { Ok(None) } else { Err(fail(said.trim().to_owned())) };
    }
    let helped: Helped = serde_json::from_slice(&output.stdout).map_err(|_| fail("its answer can't be read".into()))?;
    Ok(Some(match helped.username.as_str() {
        TOKEN_USER => Credentials::Token(helped.secret),
        _ => Credentials::Password { name: helped.username, secret: helped.secret },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_login_writes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.json");
        assert_eq!(Credentials::find_in(&file, "h:1").unwrap(), None);
        let auth = STANDARD.encode("me:pass:word");
        std::fs::write(
            &file,
            format!(
                r#"{{"auths": {{"h:1": {{"auth": "{auth}"}}, "https://old.example/v1/": {{"auth": "{auth}"}},
                   "t.example": {{"identitytoken": "long"}}, "bad.example": {{"auth": "%"}}, "none.example": {{}}}},
                   "credHelpers": {{"helped.example": "hotdesk-no-such-helper"}}}}"#
            ),
        )
        .unwrap();
        let find = |host: &str| Credentials::find_in(&file, host);
        let me = Credentials::Password { name: "me".into(), secret: "pass:word".into() };
        assert_eq!(find("h:1").unwrap(), Some(me.clone()));
        assert_eq!(find("old.example").unwrap(), Some(me.clone()));
        assert_eq!(find("t.example").unwrap(), Some(Credentials::Token("long".into())));
        assert_eq!(find("none.example").unwrap(), None);
        assert_eq!(find("other.example").unwrap(), None);
        assert!(find("bad.example").is_err());
        assert!(find("helped.example").unwrap_err().to_string().contains("docker-credential-hotdesk-no-such-helper"));
        assert!(!format!("{me:?}").contains("pass"));
    }
}
