//! What a template file may say. Names end up on command lines and in paths, so they are held to their alphabets here.

use super::Template;

/// Returned with the reason, which the caller puts after the template's name.
type Checked = Result<(), String>;

pub(super) fn name(name: &str) -> Checked {
    let good = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') && !name.starts_with('-');
    if good && (1..=40).contains(&name.len()) {
        return Ok(());
    }
    Err("a name has 1 to 40 lower-case letters, digits and dashes, and begins with no dash".into())
}

pub(super) fn template(template: &Template, file: &str) -> Checked {
    if template.name != file {
        return Err(format!("it calls itself `{}`, but its file is named `{file}`", template.name));
    }
    if template.extends.as_deref() == Some(file) {
        return Err("it extends itself".into());
    }
    if let Some(suite) = &template.suite
        && !is_word(suite, b"-./")
    {
        return Err(format!("`{suite}` is not the name of a suite"));
    }
    let builds =
        !template.packages.is_empty() || !template.files.is_empty() || !template.python.is_empty() || !template.run.is_empty();
    if template.image.is_some() && (template.extends.is_some() || builds) {
        return Err(
            "`image` names a finished image; it can't be combined with `extends`, `packages`, `python`, `files` or `run`".into(),
        );
    }
    if let Some(image) = &template.image
        && !is_word(image, b"-._/:@")
    {
        return Err(format!("`{image}` is not the name of an image"));
    }
    for package in template.packages.iter().chain(&template.optional_packages) {
        let good = package.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b));
        if !good || package.len() < 2 || !package.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(format!("`{package}` is not the name of a package"));
        }
    }
    template.python.iter().try_for_each(|text| python(text))?;
    template.files.iter().try_for_each(file_entry)?;
    for (kind, entry) in &template.open_with {
        let halves = kind.split_once('/').filter(|(a, b)| is_word(a, b"-.+") && is_word(b, b"-.+_"));
        if halves.is_none() {
            return Err(format!("`{kind}` is not a kind of file, such as `text/plain` or `x-scheme-handler/http`"));
        }
        if !entry.ends_with(".desktop") || !is_word(entry, b"-._") {
            return Err(format!("`{entry}` is not a desktop entry, such as `org.gnome.gedit.desktop`"));
        }
    }
    for name in template.env.keys() {
        let good = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.is_empty();
        if !good || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("`{name}` is not the name of a variable"));
        }
    }
    let user = &template.user;
    if !is_word(&user.name, b"-_") || user.name.len() > 32 || !user.name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(format!("`{}` is not the name of a user", user.name));
    }
    // Below 1000 are the distribution's own users, above 59999 those that are made on the fly.
    if !(1000..=59999).contains(&user.uid) {
        return Err(format!("the user's uid is {}; it must lie between 1000 and 59999", user.uid));
    }
    if user.sudo && user.password.is_none() {
        return Err("the user may use sudo, which needs a password".into());
    }
    if let Some(password) = &user.password
        && (password.is_empty() || password.len() > 64 || !password.bytes().all(|b| b.is_ascii_graphic() && b != b':'))
    {
        return Err("the user's password has 1 to 64 visible ASCII characters, without a colon".into());
    }
    if template.ports.contains(&0) || template.vnc == Some(0) {
        return Err("port 0 is no port".into());
    }
    if let Some(display) = &template.display
        && display.strip_prefix(':').is_none_or(|number| number.parse::<u16>().is_err())
    {
        return Err(format!("`{display}` is not a display, such as `:0`"));
    }
    Ok(())
}

/// `name==version`, nothing else: the tool that installs it would take the rest for options or addresses.
fn python(text: &str) -> Checked {
    let good = text.split_once("==").is_some_and(|(name, version)| is_word(name, b"-_.") && is_word(version, b".+"));
    if good { Ok(()) } else { Err(format!("`{text}` must be written as name==version")) }
}

fn file_entry(file: &super::File) -> Checked {
    let path = &file.path;
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(format!("file `{path}`: the path must be absolute and name a file"));
    }
    if path.split('/').any(|part| part == ".." || part == ".") {
        return Err(format!("file `{path}`: the path must not contain `.` or `..`"));
    }
    if [file.content.is_some(), file.source.is_some(), file.link.is_some()].into_iter().filter(|said| *said).count() != 1 {
        return Err(format!("file `{path}`: say either `content` or `source` or `link`"));
    }
    if u32::from_str_radix(&file.mode, 8).is_ok_and(|mode| mode <= 0o7777) {
        return Ok(());
    }
    Err(format!("file `{path}`: mode `{}` is not octal, such as \"0644\"", file.mode))
}

/// Letters, digits and the given others.
fn is_word(text: &str, others: &[u8]) -> bool {
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(|b| b.is_ascii_alphanumeric() || others.contains(&b))
}
