//! What a registry asks for before it lets somebody in: the header `WWW-Authenticate`.

use std::collections::HashMap;

/// A way in that we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token is fetched from `realm`.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// The best of those that a header offers.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut words = parameters(rest);
        Some(Self::Bearer { realm: words.remove("realm")?, service: words.remove("service"), scope: words.remove("scope") })
    }
}

/// `a="b c", d=e`.
fn parameters(text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let mut rest = text.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',', '\t']).to_ascii_lowercase();
        let value;
        if let Some(quoted) = after.trim_start().strip_prefix('"') {
            let mut plain = String::new();
            let mut letters = quoted.char_indices();
            let mut end = quoted.len();
            while let Some((at, letter)) = letters.next() {
                match letter {
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    '\\' => plain.extend(letters.next().map(|(_, letter)| letter)),
                    other => plain.push(other),
                }
            }
            value = plain;
            rest = &quoted[end..];
        } else {
            let end = after.find([',', ' ']).unwrap_or(after.len());
            value = after[..end].to_owned();
            rest = &after[end..];
        }
        found.insert(name, value);
    }
    found
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../../fuzz/src/challenge.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_registries_say() {
        assert_eq!(Challenge::parse("Basic realm=\"Registry\""), Some(Challenge::Basic));
        assert_eq!(
            Challenge::parse(
                r#"Bearer realm="https://auth.example/token?x=1",service="a \"b\" c",scope="repository:a/b:pull,push""#
            ),
            Some(Challenge::Bearer {
                realm: "https://auth.example/token?x=1".into(),
                service: Some("a \"b\" c".into()),
                scope: Some("repository:a/b:pull,push".into()),
            })
        );
        assert_eq!(
            Challenge::parse("bearer service=s, realm=http://h/"),
            Some(Challenge::Bearer { realm: "http://h/".into(), service: Some("s".into()), scope: None })
        );
        for nothing in ["", "Bearer", "Negotiate", "Bearer realm", "Bearer service=\"x", "Bearer =", "Basi"] {
            assert_eq!(Challenge::parse(nothing), None, "{nothing}");
        }
    }
}
