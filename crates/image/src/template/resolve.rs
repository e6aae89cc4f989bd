//! Folds a chain of `extends` into one template.

use super::Template;
use crate::{Error, Result};

/// A longer chain is a mistake.
const LONGEST_CHAIN: usize = 16;

/// The template and its ancestors, the eldest first.
pub(crate) fn chain(name: &str, read: &dyn Fn(&str) -> Result<Template>) -> Result<Vec<Template>> {
    let mut chain = vec![read(name)?];
    while let Some(parent) = chain.last().and_then(|t| t.extends.clone()) {
        if chain.iter().any(|t| t.name == parent) || chain.len() >= LONGEST_CHAIN {
            return Err(Error::Invalid(format!(
                "template `{name}`: its chain of `extends` comes back to `{parent}` or is too long"
            )));
        }
        chain.push(read(&parent).map_err(|e| match e {
            Error::Unknown { known, .. } => {
                let by = chain.last().map_or(name, |t| &t.name);
                Error::Invalid(format!("template `{by}` extends `{parent}`, which does not exist; there are: {known}"))
            }
            other => other,
        })?);
    }
    chain.reverse();
    if let Some(foreign) = chain.iter().find(|t| t.image.is_some() && t.name != name) {
        return Err(Error::Invalid(format!("template `{name}` extends `{}`, which is a finished image", foreign.name)));
    }
    Ok(chain)
}

/// What installs packages of the Python index, without asking anybody.
const PYTHON_TOOLS: [&str; 4] = ["python3", "python3-pip", "python3-setuptools", "python3-wheel"];

/// One template that says all that the chain says: lists are joined, the younger wins where there can be one only. Packages that
/// other keys need are added.
pub(crate) fn fold(chain: Vec<Template>) -> Option<Template> {
    let mut whole = join_all(chain)?;
    if !whole.python.is_empty() {
        join(&mut whole.packages, PYTHON_TOOLS.map(String::from).into());
    }
    if whole.user.sudo {
        join(&mut whole.packages, vec!["sudo".into()]);
    }
    Some(whole)
}

fn join_all(chain: Vec<Template>) -> Option<Template> {
    chain.into_iter().reduce(|mut whole, next| {
        whole.name = next.name;
        whole.description = next.description;
        whole.extends = next.extends;
        whole.suite = next.suite.or(whole.suite);
        whole.image = next.image;
        join(&mut whole.packages, next.packages);
        join(&mut whole.optional_packages, next.optional_packages);
        for file in next.files {
            whole.files.retain(|f| f.path != file.path);
            whole.files.push(file);
        }
        join(&mut whole.python, next.python);
        whole.run.extend(next.run);
        whole.env.extend(next.env);
        whole.open_with.extend(next.open_with);
        if next.user != super::User::default() {
            whole.user = next.user;
        }
        whole.screen = next.screen.or(whole.screen);
        whole.display = next.display.or(whole.display);
        whole.vnc = next.vnc.or(whole.vnc);
        join(&mut whole.ports, next.ports);
        join(&mut whole.start, next.start);
        whole.resources = next.resources.or(whole.resources);
        whole.root |= next.root;
        whole.keep_tmp |= next.keep_tmp;
        whole.checks.extend(next.checks);
        whole
    })
}

fn join<T: PartialEq>(list: &mut Vec<T>, more: Vec<T>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Result<Template> {
        let text = match name {
            "a" => {
                "packages = ['xa']\nscreen = '800x600'\nstart = ['one']\n[env]\nA = '1'\nB = '1'\n[[files]]\npath = '/f'\ncontent = 'a'"
            }
            "b" => {
                "extends = 'a'\npackages = ['xb', 'xa']\nstart = ['two']\n[env]\nB = '2'\n[[files]]\npath = '/f'\ncontent = 'b'"
            }
            "round" => "extends = 'trip'",
            "trip" => "extends = 'round'",
            "image" => "image = 'x/y:1'",
            "on-image" => "extends = 'image'",
            "orphan" => "extends = 'gone'",
            _ => return Err(Error::Unknown { name: name.into(), known: "a, b".into() }),
        };
        Template::parse(name, text, None)
    }

    #[test]
    fn the_younger_adds_and_wins() {
        let whole = fold(chain("b", &read).unwrap()).unwrap();
        assert_eq!(whole.name, "b");
        assert_eq!(whole.packages, ["xa", "xb"]);
        assert_eq!(whole.start, ["one", "two"]);
        assert_eq!(whole.env["B"], "2");
        assert_eq!(whole.env["A"], "1");
        assert_eq!(whole.files.len(), 1);
        assert_eq!(whole.files[0].bytes(), b"b");
        assert_eq!(String::from(whole.screen.unwrap()), "800x600");
    }

    #[test]
    fn chains_that_lead_nowhere_are_refused() {
        for (name, part) in [("round", "comes back"), ("on-image", "finished image"), ("orphan", "extends `gone`")] {
            let error = chain(name, &read).unwrap_err().to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
    }
}
