//! Names of images and the templates that stand for them.

use super::reply::{Failure, Reply};
use hotdesk_image::Library;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which template a sandbox of an image gets: `"whitezxj/sandbox:0.1.0" = "openmanus"`. A name without a tag holds for all its
/// tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Images(pub BTreeMap<String, String>);

/// Plain systems in which people start, and the images of agents that we have a template for.
const KNOWN: [(&str, &str); 10] = [
    ("debian", "base"),
    ("ubuntu", "base"),
    ("python", "base"),
    ("node", "base"),
    ("daytonaio/sandbox", "base"),
    ("daytonaio/workspace-project", "base"),
    ("whitezxj/sandbox", "openmanus"),
    ("e2bdev/desktop", "desktop"),
    ("synacktra/osworld-docker", "osworld"),
    ("synacktra/osworld-ubuntu", "osworld"),
];

impl Default for Images {
    fn default() -> Self {
        Self(KNOWN.iter().map(|(image, template)| ((*image).into(), (*template).into())).collect())
    }
}

impl Images {
    /// The template of an image, from this table, or from what is always known, or the template of that very name.
    pub(crate) fn template(&self, library: &Library, image: &str) -> Reply<String> {
        let image = plain(image);
        let bare = without_tag(image);
        let known = |name: &str| {
            let own = self.0.get(name).cloned();
            own.or_else(|| KNOWN.iter().find(|(known, _)| *known == name).map(|(_, template)| (*template).to_owned()))
        };
        let found =
            known(image).or_else(|| known(bare)).or_else(|| library.names().contains(&bare.to_owned()).then(|| bare.to_owned()));
        let Some(template) = found else {
            return Err(Failure::bad_request(format!(
                "the image {image} is not known here, and this fleet pulls none: give it a template with `\"{image}\" = \"TEMPLATE\"` \
                 under [images] in hotdesk.toml (templates: {})",
                library.names().join(", ")
            )));
        };
        match library.template(&template) {
            Ok(_) => Ok(template),
            Err(e) => Err(Failure::bad_request(format!("the image {image} stands for the template {template} here: {e}"))),
        }
    }
}

/// A name without what everybody leaves out.
fn plain(image: &str) -> &str {
    let image = image.trim();
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    image.strip_prefix("library/").unwrap_or(image)
}

fn without_tag(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        // A port of a registry is no tag.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// What a Dockerfile asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Recipe {
    pub(crate) image: String,
    pub(crate) steps: Vec<Step>,
    /// The program that runs in its sandboxes, as a shell command. `CMD` is not: Daytona leaves it out too.
    pub(crate) entrypoint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A shell command, as root.
    Run(String),
    Env(String, String),
    /// The directory that the steps after it run in.
    Directory(String),
}

/// Reads a Dockerfile as the SDK's image builder writes it.
pub(crate) fn recipe(text: &str) -> Reply<Recipe> {
    let mut recipe = Recipe::default();
    for line in lines(text) {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let rest = rest.trim();
        match word.to_ascii_uppercase().as_str() {
            "FROM" if recipe.image.is_empty() => {
                recipe.image = rest.split_whitespace().find(|w| !w.starts_with("--")).unwrap_or_default().to_owned();
            }
            "FROM" => return Err(Failure::bad_request("an image of several stages can't be built here")),
            "RUN" => recipe.steps.push(Step::Run(shell_form(rest))),
            "WORKDIR" => recipe.steps.push(Step::Directory(unquoted(rest))),
            "ENV" => recipe.steps.extend(variables(rest).into_iter().map(|(name, value)| Step::Env(name, value))),
            "ENTRYPOINT" => recipe.entrypoint = Some(shell_form(rest)).filter(|command| !command.is_empty()),
            // Sandboxes are held up by the desk itself, and programs are started through it.
            "CMD" | "EXPOSE" | "LABEL" | "USER" | "SHELL" | "MAINTAINER" | "STOPSIGNAL" | "HEALTHCHECK" => {}
            "COPY" | "ADD" => {
                return Err(Failure::bad_request(
                    "an image with files of the client can't be built here: upload them to the sandbox",
                ));
            }
            other => return Err(Failure::bad_request(format!("the Dockerfile has a step {other}, which is not understood"))),
        }
    }
    if recipe.image.is_empty() {
        return Err(Failure::bad_request("the Dockerfile names no image: it has no FROM"));
    }
    Ok(recipe)
}

/// Lines without comments, put together where they are continued.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if line.trim_start().starts_with('#') || (!open && line.trim().is_empty()) {
            continue;
        }
        let (part, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| open) {
            Some(last) => last.push_str(part),
            None => lines.push(part.trim_start().to_owned()),
        }
        open = goes_on;
    }
    lines
}

/// `["a", "b c"]` is run without a shell; quoted, it means the same in one.
fn shell_form(text: &str) -> String {
    match serde_json::from_str::<Vec<String>>(text) {
        Ok(words) => command_of(&words),
        Err(_) => text.to_owned(),
    }
}

/// The words of a command as a shell reads them back.
pub(crate) fn command_of(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// As a shell reads it back.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn unquoted(text: &str) -> String {
    let inner = |q: char| text.strip_prefix(q).and_then(|t| t.strip_suffix(q));
    inner('"').or_else(|| inner('\'')).unwrap_or(text).to_owned()
}

/// `A=1 B="two words"`, or the old form `A one`.
fn variables(text: &str) -> Vec<(String, String)> {
    let first = text.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') {
        let (name, value) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        return vec![(name.to_owned(), value.trim().to_owned())];
    }
    let (mut found, mut word, mut quote, mut escaped) = (Vec::new(), String::new(), None, false);
    for c in text.chars().chain([' ']) {
        match (quote, c) {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            (None | Some('"'), '\\') => escaped = true,
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            (None, c) if c.is_whitespace() => {
                if let Some((name, value)) = word.split_once('=') {
                    found.push((name.to_owned(), value.to_owned()));
                }
                word.clear();
            }
            (_, c) => word.push(c),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_registries_make_no_difference() {
        assert_eq!(without_tag(plain("docker.io/library/debian:12.9")), "debian");
        assert_eq!(without_tag("host:5000/a/b"), "host:5000/a/b");
        assert_eq!(without_tag("host:5000/a/b:1@sha256:00"), "host:5000/a/b");
    }

    #[test]
    fn images_of_one_maker_are_known_alike() {
        let known = Images::default().0;
        for image in ["synacktra/osworld-docker", "synacktra/osworld-ubuntu"] {
            assert_eq!(known.get(image).map(String::as_str), Some("osworld"), "{image}");
        }
    }

    #[test]
    fn dockerfiles_are_read() {
        let text = "# made\nFROM debian:12.9\nRUN echo a \\\n  b\nENV A=1 B=\"two words\" C='x y'\nENV OLD way it was\nWORKDIR /opt/here\nRUN [\"echo\", \"it's\"]\nCMD [\"x\"]\n";
        let recipe = recipe(text).unwrap();
        assert_eq!(recipe.image, "debian:12.9");
        let env = |name: &str, value: &str| Step::Env(name.into(), value.into());
        assert_eq!(
            recipe.steps,
            [
                Step::Run("echo a   b".into()),
                env("A", "1"),
                env("B", "two words"),
                env("C", "x y"),
                env("OLD", "way it was"),
                Step::Directory("/opt/here".into()),
                Step::Run(r"'echo' 'it'\''s'".into()),
            ]
        );
        assert_eq!(recipe.entrypoint, None, "CMD is none");
        for (line, command) in
            [("[\"serve\", \"a b\"]", Some("'serve' 'a b'")), ("serve --fast", Some("serve --fast")), ("[]", None)]
        {
            let recipe = super::recipe(&format!("FROM debian\nENTRYPOINT {line}\n")).unwrap();
            assert_eq!(recipe.entrypoint.as_deref(), command, "{line}");
        }
        assert!(super::recipe("RUN x").is_err() && super::recipe("FROM a\nCOPY . .").is_err());
    }
}
