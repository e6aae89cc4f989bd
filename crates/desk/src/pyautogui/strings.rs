//! Methods of strings.

use super::builtin::iterate;
use super::gestures::Arguments;
use super::operate::check_length;
use super::stop::{Outcome, refuse};
use super::value::{Unknown, Value};

/// `text.method(…)`
pub(super) fn call(text: &str, method: &str, arguments: &Arguments) -> Outcome<Value> {
    if !arguments.keywords.is_empty() {
        return refuse("keywords of a string's method");
    }
    match (method, &arguments.positional[..]) {
        // Beyond ASCII it is a matter of Python's Unicode tables.
        ("lower", []) if text.is_ascii() => Ok(Value::text(text.to_ascii_lowercase())),
        ("upper", []) if text.is_ascii() => Ok(Value::text(text.to_ascii_uppercase())),
        ("strip", []) => Ok(Value::text(text.trim_matches(is_space))),
        ("lstrip", []) => Ok(Value::text(text.trim_start_matches(is_space))),
        ("rstrip", []) => Ok(Value::text(text.trim_end_matches(is_space))),
        ("startswith", [Value::Str(part)]) => Ok(Value::Bool(text.starts_with(part.as_ref()))),
        ("endswith", [Value::Str(part)]) => Ok(Value::Bool(text.ends_with(part.as_ref()))),
        ("split", []) => texts(text.split(is_space).filter(|part| !part.is_empty())),
        ("split", [Value::Str(separator)]) if !separator.is_empty() => texts(text.split(separator.as_ref())),
        ("splitlines", []) => texts(lines(text).into_iter()),
        ("replace", [Value::Str(old), Value::Str(new)]) if !old.is_empty() => {
            check_length(text.len() + text.matches(old.as_ref()).count().saturating_mul(new.len()))?;
            Ok(Value::text(text.replace(old.as_ref(), new)))
        }
        ("join", [values]) => join(text, values),
        _ => refuse("a method of strings that is outside the subset"),
    }
}

fn texts<'a>(parts: impl Iterator<Item = &'a str>) -> Outcome<Value> {
    Value::list(parts.map(Value::text))
}

fn join(separator: &str, values: &Value) -> Outcome<Value> {
    if matches!(values, Value::Range { .. }) {
        return refuse("numbers joined as text");
    }
    let (mut joined, mut unknown) = (String::new(), None);
    for (i, value) in iterate(values)?.enumerate() {
        if i > 0 {
            joined.push_str(separator);
        }
        match value {
            Value::Str(text) => joined.push_str(&text),
            Value::Unknown(Unknown::Str(length)) => unknown = Some(unknown.unwrap_or(0) + length),
            _ => return refuse("something joined that is no text"),
        }
        check_length(joined.len() + unknown.unwrap_or(0))?;
    }
    Ok(match unknown {
        Some(length) => Value::Unknown(Unknown::Str(joined.len() + length)),
        None => Value::text(joined),
    })
}

/// What Python takes for white space.
fn is_space(c: char) -> bool {
    matches!(c,
        '\t'..='\r' | '\u{1c}'..=' ' | '\u{85}' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}'
        | '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// What Python takes for the end of a line.
fn lines(text: &str) -> Vec<&str> {
    let is_end =
        |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(at) = rest.find(is_end) else {
            lines.push(rest);
            break;
        };
        let (line, end) = rest.split_at(at);
        lines.push(line);
        let length = if end.starts_with("\r\n") { 2 } else { end.chars().next().map_or(1, char::len_utf8) };
        rest = end.get(length..).unwrap_or_default();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_words_end_where_python_ends_them() {
        assert_eq!(lines("a\r\nb\n\nc\u{2028}d\n"), ["a", "b", "", "c", "d"]);
        assert!(is_space('\u{1f}') && is_space('\u{3000}') && !is_space('\u{200b}'));
    }
}
