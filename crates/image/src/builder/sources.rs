//! Where packages come from: the host's own sources of the suite, so that no mirror is named here and whatever
//! reaches the host's packages (a proxy, a mirror nearby) reaches the template's.

use crate::{Error, Result};
use std::path::Path;

const SOURCES: &str = "/etc/apt/sources.list";
const PARTS: &str = "/etc/apt/sources.list.d";

/// Writes the host's sources of a suite, as apt reads them. The file stays empty if the host has none; then
/// mmdebstrap's own default is used.
pub(super) fn write(suite: &str, to: &Path) -> Result<()> {
    let mut paths = vec![Path::new(SOURCES).to_path_buf()];
    let mut parts: Vec<_> = std::fs::read_dir(PARTS).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    parts.sort();
    paths.extend(parts);
    let mut stanzas = Vec::new();
    for path in paths {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        match path.extension().and_then(|e| e.to_str()) {
            Some("sources") => stanzas.extend(of_stanzas(&text, suite)),
            Some("list") => stanzas.extend(of_lines(&text, suite)),
            _ => {}
        }
    }
    for stanza in stanzas.iter().filter(|stanza| is_unchecked(stanza)) {
        let uri = stanza.lines().find(|line| line.to_ascii_lowercase().starts_with("uris:")).unwrap_or(stanza);
        tracing::warn!(source = uri, "this source of packages is trusted without a signature, as the machine's own apt does");
    }
    std::fs::write(to, stanzas.join("\n")).map_err(|e| Error::Failed(format!("{}: {e}", to.display())))
}

/// Whether packages from there are taken without a signature.
fn is_unchecked(stanza: &str) -> bool {
    stanza
        .lines()
        .filter_map(|line| line.split_once(':'))
        .any(|(key, value)| key.trim().eq_ignore_ascii_case("trusted") && value.trim().eq_ignore_ascii_case("yes"))
}

/// `bookworm`, `bookworm-updates`, `bookworm-security`: not `bookworm-backports`, which nobody wants by surprise.
fn belongs(name: &str, suite: &str) -> bool {
    name == suite || ["-updates", "-security", "/updates"].iter().any(|end| name.strip_suffix(end) == Some(suite))
}

/// The stanzas of a `.sources` file that name the suite, with the other suites left out.
fn of_stanzas(text: &str, suite: &str) -> Vec<String> {
    let uncommented: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut found = Vec::new();
    for stanza in uncommented.split(|line| line.trim().is_empty()) {
        let field = |name: &str| {
            stanza.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let suites: Vec<&str> =
            field("suites").unwrap_or_default().split_whitespace().filter(|name| belongs(name, suite)).collect();
        let binary = field("types").is_some_and(|types| types.split_whitespace().any(|t| t == "deb"));
        if suites.is_empty() || !binary || field("enabled").is_some_and(|e| e.eq_ignore_ascii_case("no")) {
            continue;
        }
        let mut kept = String::new();
        for line in stanza {
            match line.split_once(':').map(|(key, _)| key.to_ascii_lowercase()).as_deref() {
                Some("types") => kept.push_str("Types: deb"),
                Some("suites") => kept.push_str(&format!("Suites: {}", suites.join(" "))),
                _ => kept.push_str(line),
            }
            kept.push('\n');
        }
        found.push(kept);
    }
    found
}

/// The same of a file with one source a line, written as stanzas.
fn of_lines(text: &str, suite: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some(rest) = line.strip_prefix("deb ").map(str::trim_start) else { continue };
        let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let words: Vec<&str> = rest.split('#').next().unwrap_or_default().split_whitespace().collect();
        let [uri, name, components @ ..] = &words[..] else { continue };
        if !belongs(name, suite) {
            continue;
        }
        let mut stanza = format!("Types: deb\nURIs: {uri}\nSuites: {name}\n");
        if !components.is_empty() {
            stanza.push_str(&format!("Components: {}\n", components.join(" ")));
        }
        for (key, value) in options.split_whitespace().filter_map(|option| option.split_once('=')) {
            let key = match key {
                "arch" => "Architectures",
                "signed-by" => "Signed-By",
                "trusted" => "Trusted",
                "check-valid-until" => "Check-Valid-Until",
                _ => continue,
            };
            stanza.push_str(&format!("{key}: {}\n", value.replace(',', " ")));
        }
        found.push(stanza);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_without_a_signature_is_told() {
        let of = |text: &str| of_lines(text, "bookworm").iter().any(|stanza| is_unchecked(stanza));
        assert!(of("deb [trusted=yes] file:/a bookworm main") && !of("deb [signed-by=/k] file:/a bookworm main"));
        assert!(is_unchecked("Types: deb\nTRUSTED: Yes\n") && !is_unchecked("Trusted: no\nURIs: file:/yes\n"));
    }

    #[test]
    fn only_the_suite_is_taken() {
        let text = "Types: deb deb-src\n# a remark\nURIs: file:/a\nSuites: sid bookworm bookworm-updates bookworm-backports\nComponents: main\n\n\
                    Types: deb-src\nURIs: file:/b\nSuites: bookworm\n\nTypes: deb\nEnabled: no\nURIs: file:/c\nSuites: bookworm\n";
        assert_eq!(
            of_stanzas(text, "bookworm"),
            ["Types: deb\nURIs: file:/a\nSuites: bookworm bookworm-updates\nComponents: main\n"]
        );
        let text = "deb [arch=amd64 signed-by=/k.gpg] file:/a bookworm main contrib # why\n#deb file:/b bookworm main\n\
                    deb file:/c sid main\ndeb-src file:/d bookworm main\ndeb file:/e bookworm-security main\n";
        assert_eq!(
            of_lines(text, "bookworm"),
            [
                "Types: deb\nURIs: file:/a\nSuites: bookworm\nComponents: main contrib\nArchitectures: amd64\nSigned-By: /k.gpg\n",
                "Types: deb\nURIs: file:/e\nSuites: bookworm-security\nComponents: main\n",
            ]
        );
    }
}
