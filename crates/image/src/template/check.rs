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
    if template.image.is_some() && (template.extends.is_some() || !template.packages.is_empty() || !template.files.is_empty()) {
        return Err("`image` names a finished image; it can't be combined with `extends`, `packages` or `files`".into());
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
    template.files.iter().try_for_each(file_entry)?;
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
    if template.ports.contains(&0) {
        return Err("port 0 is no port".into());
    }
    Ok(())
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
