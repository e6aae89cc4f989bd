//! Credentials on their way to git, and out of what it says.

use crate::error::{Error, Result};
use hotdesk_api::git::{GitCredentials, KeepCredentials};
use std::collections::BTreeSet;

const USER: &str = "HOTDESK_GIT_USER";
const PASSWORD: &str = "HOTDESK_GIT_PASSWORD";
/// What git runs to be told them.
const ASK_ENVIRONMENT: &str = r#"!f() { printf 'username=%s\npassword=%s\n' "$HOTDESK_GIT_USER" "$HOTDESK_GIT_PASSWORD"; }; f"#;

/// Credentials for some servers; the default has none.
#[derive(Default)]
pub(super) struct Login {
    credentials: Option<GitCredentials>,
    /// `https://host:port`
    servers: BTreeSet<String>,
}

impl Login {
    /// For the servers of these addresses and for no others: a server that sends git elsewhere does not get them told there.
    pub(super) fn new<'a>(credentials: Option<GitCredentials>, urls: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let credentials = credentials.filter(|given| *given != GitCredentials::default());
        if let Some(given) = &credentials {
            one_line("credentials", [&given.username, &given.password])?;
        }
        Ok(Self { credentials, servers: urls.into_iter().filter_map(server).collect() })
    }

    /// Git's options by which it asks for them.
    pub(super) fn options(&self) -> Vec<String> {
        if self.credentials.is_none() {
            return Vec::new();
        }
        // The first one takes back what the settings say.
        let helpers = self.servers.iter().map(|server| format!("credential.{server}.helper={ASK_ENVIRONMENT}"));
        std::iter::once("credential.helper=".to_owned()).chain(helpers).flat_map(|option| ["-c".to_owned(), option]).collect()
    }

    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let given = |given: &GitCredentials| [(USER, &given.username), (PASSWORD, &given.password)].map(owned);
        self.credentials.iter().flat_map(given).collect()
    }

    pub(super) fn is_secret(variable: &str) -> bool {
        variable == PASSWORD
    }
}

fn owned((name, value): (&str, &String)) -> (String, String) {
    (name.to_owned(), value.clone())
}

/// Whom an address names, if it is one that git asks credentials for.
fn server(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let sane = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b));
    let http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    (http && sane && !host.is_empty()).then(|| format!("{}://{}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase()))
}

/// What `git credential approve` reads.
pub(super) fn description(wanted: &KeepCredentials) -> Result<Vec<u8>> {
    let KeepCredentials { credentials: GitCredentials { username, password }, host, protocol } = wanted;
    one_line("credentials", [username, password, host, protocol])?;
    if [username, password, host, protocol].iter().any(|text| text.is_empty()) {
        return Err(Error::Invalid("`username`, `password`, `host` and `protocol` are all needed".into()));
    }
    Ok(format!("protocol={protocol}\nhost={host}\nusername={username}\npassword={password}\n\n").into_bytes())
}

/// Git reads a value per line.
fn one_line<'a>(what: &str, texts: impl IntoIterator<Item = &'a String>) -> Result<()> {
    match texts.into_iter().any(|text| text.contains(['\n', '\r', '\0'])) {
        true => Err(Error::Invalid(format!("`{what}`: none of them has more than one line"))),
        false => Ok(()),
    }
}

/// `https://user:password@host/` is shown as `https://user@host/`.
pub(super) fn without_password(url: &str) -> String {
    match password(url) {
        Some(password) => url.replacen(&format!(":{password}@"), "@", 1),
        None => url.to_owned(),
    }
}

fn password(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    authority.rsplit_once('@')?.0.split_once(':').map(|(_, password)| password)
}

/// What git said, without the passwords that it was given.
pub(super) fn redacted(said: &str, words: &[&str], secrets: &[&str]) -> String {
    let of_urls = words.iter().filter_map(|word| password(word));
    let all = secrets.iter().copied().chain(of_urls).filter(|secret| !secret.is_empty());
    all.fold(said.to_owned(), |said, secret| said.replace(secret, "***"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("https://me:secret@host/a@b"), "https://me@host/a@b");
        assert_eq!(without_password("https://me:a:b@c@host/"), "https://me@host/");
        for url in ["https://host/a:b@c", "git@host:a/b", "https://me@host/", "/a/b"] {
            assert_eq!(without_password(url), url);
        }
        assert_eq!(redacted("no p1 for p2", &["push", "https://me:p2@host/"], &["p1", ""]), "no *** for ***");
    }

    #[test]
    fn only_servers_that_are_named_are_told() {
        for (url, named) in [
            ("https://Host.example/a/b", Some("https://host.example")),
            ("http://me:p@host:8080/x", Some("http://host:8080")),
            ("https://[::1]:1/x", Some("https://[::1]:1")),
            ("https://host", Some("https://host")),
            ("https://evil'host/x", None),
            ("https:///x", None),
            ("git@host:a/b", None),
            ("ssh://git@host/x", None),
            ("/srv/repository", None),
        ] {
            assert_eq!(server(url).as_deref(), named, "{url}");
        }
        let given = || Some(GitCredentials { username: "me".into(), password: "secret".into() });
        let login = Login::new(given(), ["https://host/x", "/srv/x"]).unwrap();
        let options = login.options();
        assert_eq!(options[..2], ["-c", "credential.helper="]);
        assert!(options[3].starts_with("credential.https://host.helper=!") && options.len() == 4, "{options:?}");
        assert!(!options.concat().contains("secret"));
        assert_eq!(login.variables()[1], ("HOTDESK_GIT_PASSWORD".into(), "secret".into()));
        assert!(Login::new(Some(GitCredentials::default()), ["https://host/"]).unwrap().options().is_empty());
        let two = GitCredentials { username: "me\nhost=evil".into(), password: "x".into() };
        assert!(Login::new(Some(two), []).is_err());
        assert!(!format!("{:?}", given().unwrap()).contains("secret"));
    }
}
