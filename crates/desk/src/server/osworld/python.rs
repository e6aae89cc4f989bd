//! Python's ways, where clients can see them: what counts as true, how values are printed, how
//! words are split, how paths are expanded, how errors of the system read.

use crate::place::Place;
use crate::python;
pub(super) use crate::python::repr;
use serde_json::Value;

/// `bool(value)`: also `"false"` is true, because it is not empty.
pub(super) fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => !o.is_empty(),
    }
}

/// `repr(list)` of strings: `['a', "it's"]`.
pub(super) fn repr_list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| repr(item)).collect();
    format!("[{}]", items.join(", "))
}

/// `str(number)`, where floats keep their point: `2.0`, `1e-05`.
pub(super) fn number(value: &serde_json::Number) -> String {
    match value.as_f64() {
        Some(float) if value.is_f64() => python::float(float),
        _ => value.to_string(),
    }
}

/// `shlex.split(text)`; the error is what Python calls it.
pub(super) fn split_words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or("No closing quotation")? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or("No closing quotation")? {
                        '"' => break,
                        '\\' => match rest.next().ok_or("No escaped character")? {
                            c @ ('"' | '\\') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next().ok_or("No escaped character")?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// `os.path.expandvars(os.path.expanduser(path))` with the environment of the desk's programs.
pub(super) fn expand(place: &Place, path: &str) -> String {
    expand_variables(place, &expand_user(place, path))
}

/// `~` and `~user` at the beginning of a path.
pub(super) fn expand_user(place: &Place, path: &str) -> String {
    let Some(after) = path.strip_prefix('~') else { return path.to_owned() };
    let (user, rest) = after.split_at(after.find('/').unwrap_or(after.len()));
    let home = if user.is_empty() {
        home(place)
    } else {
        match nix::unistd::User::from_name(user) {
            Ok(Some(user)) => user.dir.to_string_lossy().into_owned(),
            _ => return path.to_owned(),
        }
    };
    let whole = format!("{}{rest}", home.trim_end_matches('/'));
    if whole.is_empty() { "/".to_owned() } else { whole }
}

/// The home directory as programs see it.
pub(super) fn home(place: &Place) -> String {
    place.env.get("HOME").cloned().unwrap_or_else(|| place.home.to_string_lossy().into_owned())
}

/// `$NAME` and `${NAME}`; unknown ones stay as they are.
fn expand_variables(place: &Place, path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.push_str(before);
        let (name, length) = match after.strip_prefix('{') {
            Some(inside) => inside.find('}').map_or(("", 0), |end| (&inside[..end], end + 2)),
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        match place.env.get(name) {
            Some(value) => out.push_str(value),
            None => out.push_str(&rest[at..at + 1 + length]),
        }
        rest = &after[length..];
    }
    out.push_str(rest);
    out
}

/// `str(OSError)`: `[Errno 2] No such file or directory: 'name'`.
pub(super) fn os_error(errno: i32, name: Option<&str>) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    match name {
        Some(name) => format!("[Errno {errno}] {text}: {}", repr(name)),
        None => format!("[Errno {errno}] {text}"),
    }
}

/// The same for an error of the standard library.
pub(super) fn io_error(error: &std::io::Error, name: &str) -> String {
    match error.raw_os_error() {
        Some(errno) => os_error(errno, Some(name)),
        None if error.kind() == std::io::ErrorKind::InvalidInput && name.contains('\0') => "embedded null byte".to_owned(),
        None => error.to_string(),
    }
}

/// Output of a program as text: UTF-8 with bad bytes replaced, every kind of line end as `\n`.
pub(super) fn decode(bytes: Vec<u8>) -> String {
    let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn place() -> Place {
        Place {
            display: crate::Display { number: 0, cookie: None },
            home: "/home/u".into(),
            runtime_dir: "/tmp".into(),
            bus: String::new(),
            env: [("HOME", "/home/u/"), ("A", "$B"), ("B", "b")].iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        }
    }

    #[test]
    fn truth() {
        for value in [json!(true), json!("false"), json!(" "), json!(-1), json!(0.5), json!([0]), json!({"a": 1})] {
            assert!(truthy(&value), "{value}");
        }
        for value in [json!(false), json!(null), json!(0), json!(0.0), json!(-0.0), json!(""), json!([]), json!({})] {
            assert!(!truthy(&value), "{value}");
        }
    }

    #[test]
    fn printed_lists() {
        assert_eq!(repr_list(&["sleep".into(), "it's".into()]), "['sleep', \"it's\"]");
        assert_eq!(repr_list(&[]), "[]");
    }

    #[test]
    fn printed_numbers() {
        for (value, shown) in [
            (json!(1), "1"),
            (json!(-3), "-3"),
            (json!(1.5), "1.5"),
            (json!(2.0), "2.0"),
            (json!(1e15), "1000000000000000.0"),
            (json!(1e16), "1e+16"),
            (json!(1.25e22), "1.25e+22"),
            (json!(0.0001), "0.0001"),
            (json!(0.00001), "1e-05"),
            (json!(1e-100), "1e-100"),
        ] {
            assert_eq!(number(value.as_number().unwrap()), shown);
        }
    }

    #[test]
    fn words() {
        for (text, words) in [
            ("", vec![]),
            ("  a \t b\n c\r", vec!["a", "b", "c"]),
            ("'a b' \"c d\"", vec!["a b", "c d"]),
            ("a'b c'd\"e f\"", vec!["ab cde f"]),
            (r"a\ b \'", vec!["a b", "'"]),
            (r#""a\"b\\c\nd\$e""#, vec![r#"a"b\c\nd\$e"#]),
            (r"'a\b'", vec![r"a\b"]),
            ("'' \"\"", vec!["", ""]),
            ("a # b #c", vec!["a", "#", "b", "#c"]),
            ("a;b && c|d", vec!["a;b", "&&", "c|d"]),
            ("a\\\nb", vec!["a\nb"]),
            ("é'ü ñ'\u{a0}x", vec!["éü ñ\u{a0}x"]),
        ] {
            assert_eq!(split_words(text).unwrap(), words, "{text}");
        }
        assert_eq!(split_words("a 'b"), Err("No closing quotation"));
        assert_eq!(split_words("a \"b"), Err("No closing quotation"));
        assert_eq!(split_words("a \"b\\"), Err("No escaped character"));
        assert_eq!(split_words("a\\"), Err("No escaped character"));
    }

    #[test]
    fn paths() {
        for (path, expanded) in [
            ("~", "/home/u"),
            ("~/x", "/home/u/x"),
            ("a~/x", "a~/x"),
            ("~no-such-user/x", "~no-such-user/x"),
            ("~root/x", "/root/x"),
            ("$HOME/x", "/home/u//x"),
            ("${B}x$B.$B$", "bxb.b$"),
            ("$A", "$B"),
            ("$NONE-${NONE}-${", "$NONE-${NONE}-${"),
            ("$Bé", "bé"),
            ("", ""),
        ] {
            assert_eq!(expand(&place(), path), expanded, "{path}");
        }
        let mut place = place();
        place.env.insert("HOME".into(), "/".into());
        assert_eq!(expand(&place, "~"), "/");
    }

    #[test]
    fn errors() {
        assert_eq!(os_error(2, Some("it's")), "[Errno 2] No such file or directory: \"it's\"");
        assert_eq!(os_error(28, None), "[Errno 28] No space left on device");
    }

    #[test]
    fn output() {
        assert_eq!(decode(b"a\r\nb\rc\n\r\r\nd\r".to_vec()), "a\nb\nc\n\n\nd\n");
        assert_eq!(decode(b"a\xffb\xe2\x82".to_vec()), "a\u{fffd}b\u{fffd}");
    }
}
