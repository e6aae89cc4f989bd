//! A template: what a desk is made of, declared in one TOML file.
//!
//! ```toml
//! description = "A desk with a painting program"
//! extends = "base"
//! packages = ["gimp"]
//! start = ["gimp"]
//!
//! [[files]]
//! path = "/home/user/Desktop/read me.txt"
//! content = "Paint a cat."
//! owner = "user"
//! ```
//!
//! `docs/templates.md` describes every key. This module reads and checks one file; [`resolve`] folds a chain of
//! `extends` into one template.

mod check;
pub(crate) mod resolve;
pub(crate) mod shipped;

use crate::{Error, Result};
use hotdesk_api::desk::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A template file is written by hand; a larger one is not a template.
pub(crate) const LARGEST_FILE: u64 = 1 << 20;
/// Files put into a tree travel through memory and are part of the digest.
const LARGEST_SOURCE: u64 = 64 << 20;

/// A template. As read from its file, or with its ancestors folded in ([`crate::Library::template`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The name of its file without `.toml`; may be said in the file too, and must then be the same.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// The template that this one adds to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// The release of the distribution, by its code name. None: the host's own, because the `hotdesk` binary that
    /// desks run is linked against the host's C library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// A container image that is used as it is, instead of anything built here. Only for providers that run containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default)]
    pub packages: Vec<String>,
    /// Installed where the distribution has them, left out elsewhere.
    #[serde(default)]
    pub optional_packages: Vec<String>,
    /// Packages of the Python index, as `name==version`. Each is installed alone: what it needs is listed too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<String>,
    #[serde(default)]
    pub files: Vec<File>,
    /// Shell commands that run once, as root of the tree, after its packages and files are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// The environment of every program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub user: User,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<Screen>,
    /// The name of the display, such as `:0`. None: the desk's own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// A port of the desk's loopback on which the screen is served over VNC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnc: Option<u16>,
    /// Kinds of files and addresses (`text/plain`, `x-scheme-handler/http`) and the desktop entry that opens each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub open_with: BTreeMap<String, String>,
    /// Ports of the desk's loopback on which its programs serve something, for people and for image labels.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// Shell commands that start with the session, in order: a panel, a wallpaper, programs.
    #[serde(default)]
    pub start: Vec<String>,
    /// What a desk of this template needs to be comfortable; a request's own wish wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Programs may become root of the desk (`sudo`). Without it nothing in a desk can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub root: bool,
    /// What is in `/tmp` outlives a stop of the desk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_tmp: bool,
    /// What must succeed in the built tree; a build whose checks fail is no build.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// A file of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Where, inside the tree.
    pub path: String,
    /// Its text; or else `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// A file beside the template, by a path relative to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where it leads, if it is a symlink; instead of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Octal.
    #[serde(default = "default_mode")]
    pub mode: String,
    #[serde(default)]
    pub owner: Owner,
    /// The bytes of `source`, once read.
    #[serde(skip)]
    pub(crate) bytes: Option<Vec<u8>>,
}

fn default_mode() -> String {
    "0644".into()
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    #[default]
    Root,
    /// The template's user, whatever its name.
    User,
}

/// The user that the desk and its programs run as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct User {
    pub name: String,
    /// Also the number of its group.
    pub uid: u32,
    /// Known to everybody who can read the template; for programs that insist on one. None: nobody can log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Whether the user may become root with that password, where the desk's machine is its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
}

impl Default for User {
    fn default() -> Self {
        Self { name: "user".into(), uid: 1000, password: None, sudo: false }
    }
}

impl User {
    pub fn home(&self) -> String {
        format!("/home/{}", self.name)
    }
}

/// The size of the screen, as `1920x1080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Screen {
    pub width: u32,
    pub height: u32,
}

impl TryFrom<String> for Screen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
        match parsed {
            Some((width @ 64..=16384, height @ 64..=16384)) => Ok(Self { width, height }),
            _ => Err(format!("`{text}` is not a screen; write WIDTHxHEIGHT, such as 1920x1080, with sides from 64 to 16384")),
        }
    }
}

impl From<Screen> for String {
    fn from(screen: Screen) -> Self {
        format!("{}x{}", screen.width, screen.height)
    }
}

/// A shell command that must succeed in the built tree, as the template's user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What it shows, for the message when it does not.
    pub what: String,
    pub run: String,
}

impl Template {
    /// Reads the text of a template file. `directory` is where its `source` files are; shipped templates have none.
    pub fn parse(name: &str, text: &str, directory: Option<&Path>) -> Result<Self> {
        let invalid = |reason: String| Error::Invalid(format!("template `{name}`: {reason}"));
        check::name(name).map_err(invalid)?;
        let mut template: Self = toml::from_str(text).map_err(|e| invalid(e.to_string().trim_end().to_owned()))?;
        if template.name.is_empty() {
            template.name = name.into();
        }
        check::template(&template, name).map_err(invalid)?;
        for file in &mut template.files {
            if let Some(source) = &file.source {
                file.bytes = Some(read_source(directory, source).map_err(invalid)?);
            }
        }
        Ok(template)
    }
}

impl File {
    pub fn bytes(&self) -> &[u8] {
        match (&self.bytes, &self.content) {
            (Some(bytes), _) => bytes,
            (None, Some(text)) => text.as_bytes(),
            (None, None) => &[],
        }
    }

    pub(crate) fn mode_bits(&self) -> u32 {
        u32::from_str_radix(&self.mode, 8).unwrap_or(0o644)
    }
}

/// The bytes of a file beside the template; never one above it.
fn read_source(directory: Option<&Path>, source: &str) -> Result<Vec<u8>, String> {
    let Some(directory) = directory else {
        return shipped::file(source).ok_or_else(|| format!("file source `{source}`: no such file is shipped"));
    };
    let fail = |e: std::io::Error| format!("file source `{source}`: {e}");
    let directory = directory.canonicalize().map_err(fail)?;
    let path: PathBuf = directory.join(source).canonicalize().map_err(fail)?;
    if !path.starts_with(&directory) {
        return Err(format!("file source `{source}` lies outside of the template's directory"));
    }
    let size = path.metadata().map_err(fail)?.len();
    if size > LARGEST_SOURCE {
        return Err(format!("file source `{source}` has {size} bytes; at most {LARGEST_SOURCE} can be put in by a template"));
    }
    std::fs::read(&path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match Template::parse("t", text, None) {
            Err(Error::Invalid(reason)) => reason,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn everything_has_a_default() {
        let template = Template::parse("t", "", None).unwrap();
        assert_eq!(template.name, "t");
        assert_eq!(template.user.home(), "/home/user");
        assert_eq!(template.user.uid, 1000);
    }

    #[test]
    fn mistakes_are_told_in_sentences() {
        for (text, part) in [
            ("packges = []", "unknown field `packges`"),
            ("name = 'other'", "its file is named `t`"),
            ("screen = '10x10'", "not a screen"),
            ("packages = ['a b']", "`a b` is not the name of a package"),
            ("packages = ['-o=x']", "not the name of a package"),
            ("[[files]]\npath = 'etc/x'\ncontent = ''", "must be absolute"),
            ("[[files]]\npath = '/etc/../x'\ncontent = ''", "`..`"),
            ("[[files]]\npath = '/etc/x'", "`content` or `source`"),
            ("[[files]]\npath = '/x'\ncontent = ''\nmode = '9'", "octal"),
            ("[[files]]\npath = '/x'\nsource = 'y'", "no such file is shipped"),
            ("image = 'a/b:c'\npackages = ['x']", "`image`"),
            ("[user]\nuid = 0", "uid"),
            ("[user]\nname = 'A:b'", "name of a user"),
            ("suite = 'book worm'", "suite"),
            ("extends = 't'", "extends itself"),
            ("[env]\n'A B' = ''", "variable"),
            ("ports = [0]", "port"),
            ("python = ['pyautogui']", "name==version"),
            ("python = ['--index-url=x==1']", "name==version"),
            ("display = '0'", "display"),
            ("vnc = 0", "port"),
            ("[open_with]\n'text' = 'x.desktop'", "kind of file"),
            ("[open_with]\n'text/plain' = 'x'", "desktop entry"),
            ("[user]\npassword = 'a:b'", "password"),
            ("[user]\nsudo = true", "needs a password"),
            ("image = 'a/b:c'\nrun = ['true']", "`image`"),
        ] {
            assert!(refused(text).contains(part), "{text}: {}", refused(text));
        }
        assert!(matches!(Template::parse("../x", "", None), Err(Error::Invalid(_))));
    }

    #[test]
    fn files_beside_the_template_are_read_and_those_above_refused() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("a"), "text").unwrap();
        std::fs::write(root.path().join("b"), "secret").unwrap();
        let text = "[[files]]\npath = '/a'\nsource = 'a'";
        assert_eq!(Template::parse("t", text, Some(&inside)).unwrap().files[0].bytes(), b"text");
        for source in ["../b", "/etc/passwd"] {
            let text = format!("[[files]]\npath = '/a'\nsource = '{source}'");
            assert!(matches!(Template::parse("t", &text, Some(&inside)), Err(Error::Invalid(_))), "{source}");
        }
    }
}
