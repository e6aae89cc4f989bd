//! Values as text: `str`, `repr` and format specifications, letter by letter as Python writes them.

use super::stop::{Outcome, refuse};
use super::value::{Unknown, Value};
use crate::python;

/// The longest that an unknown number gets when it is written.
const NUMBER_LENGTH: usize = 32;
/// Widths and precisions beyond this are for the real interpreter; nobody means them.
const MOST_PADDING: usize = 1000;

/// Text under construction. While rehearsing, parts of it may not be known yet.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) text: String,
    /// How many bytes more the unknown parts can have; none if everything is known.
    pub(super) unknown: Option<usize>,
}

impl Text {
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn push_unknown(&mut self, length: usize) {
        self.unknown = Some(self.unknown.unwrap_or(0) + length);
    }

    pub(super) fn into_value(self) -> Value {
        match self.unknown {
            Some(more) => Value::Unknown(Unknown::Str(self.text.len() + more)),
            None => Value::text(self.text),
        }
    }

    /// `str(value)`
    pub(super) fn push_str_of(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::Str(text) => self.push(text),
            Value::Unknown(Unknown::Str(length)) => self.push_unknown(*length),
            value => self.push_repr_of(value)?,
        }
        Ok(())
    }

    /// `repr(value)`
    pub(super) fn push_repr_of(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::None => self.push("None"),
            Value::Bool(true) => self.push("True"),
            Value::Bool(false) => self.push("False"),
            Value::Int(n) => self.push(&n.to_string()),
            Value::Float(n) => self.push(&python::float(*n)),
            Value::Str(text) => self.push(&quoted(text)?),
            Value::Tuple(items) => {
                self.push("(");
                self.push_items(items)?;
                self.push(if items.len() == 1 { ",)" } else { ")" });
            }
            Value::List(items) => {
                self.push("[");
                self.push_items(items)?;
                self.push("]");
            }
            Value::Pair(pair, items) => {
                self.push(pair.name());
                for (i, (field, item)) in pair.fields().iter().zip(items.iter()).enumerate() {
                    self.push(if i == 0 { "(" } else { ", " });
                    self.push(field);
                    self.push("=");
                    self.push_repr_of(item)?;
                }
                self.push(")");
            }
            Value::Range { start, stop, step: 1 } => self.push(&format!("range({start}, {stop})")),
            Value::Range { start, stop, step } => self.push(&format!("range({start}, {stop}, {step})")),
            Value::Unknown(Unknown::Str(_)) => return refuse("the quotes of an unknown text"),
            Value::Unknown(_) => self.push_unknown(NUMBER_LENGTH),
            Value::Once(_) | Value::Module(_) | Value::Function(_) | Value::Stream(_) => {
                return refuse("its text has an address in it");
            }
        }
        Ok(())
    }

    fn push_items(&mut self, items: &[Value]) -> Outcome<()> {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.push(", ");
            }
            self.push_repr_of(item)?;
        }
        Ok(())
    }

    /// `format(value, specification)`
    pub(super) fn push_formatted(&mut self, value: &Value, specification: &str) -> Outcome<()> {
        if specification.is_empty() {
            return self.push_str_of(value);
        }
        let specification = Specification::parse(specification)?;
        // Whether a specification fits depends on the type alone, so a sample proves it.
        let (text, unknown) = match value {
            Value::Unknown(Unknown::Int(_)) => (specification.apply(&Value::Int(1))?, Some(2 * NUMBER_LENGTH)),
            Value::Unknown(Unknown::Float(_)) => (specification.apply(&Value::Float(1.5))?, Some(2 * NUMBER_LENGTH)),
            Value::Unknown(Unknown::Str(length)) => (specification.apply(&Value::text("a"))?, Some(*length)),
            Value::Unknown(Unknown::Bool) => return refuse("a truth value with a format specification"),
            value => (specification.apply(value)?, None),
        };
        match unknown {
            Some(length) => self.push_unknown(length + text.len()),
            None => self.push(&text),
        }
        Ok(())
    }
}

/// `str(value)` of something that is known.
pub(super) fn text_of(value: &Value) -> Outcome<Text> {
    let mut text = Text::default();
    text.push_str_of(value)?;
    Ok(text)
}

/// `repr` of a string.
fn quoted(text: &str) -> Outcome<String> {
    if !text.is_ascii() {
        return refuse("which characters are printable depends on Python's Unicode tables");
    }
    Ok(python::repr(text))
}

/// `[[fill]align][sign][0][width][,][.precision][type]`
#[derive(Debug)]
struct Specification {
    fill: char,
    align: Option<char>,
    sign: char,
    width: usize,
    thousands: bool,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Specification {
    fn parse(specification: &str) -> Outcome<Self> {
        let mut rest: Vec<char> = specification.chars().rev().collect();
        let is_align = |c: Option<&char>| matches!(c, Some('<' | '>' | '^' | '='));
        let mut this = Self { fill: ' ', align: None, sign: '-', width: 0, thousands: false, precision: None, kind: None };
        if rest.len() > 1 && is_align(rest.get(rest.len() - 2)) {
            this.fill = rest.pop().unwrap_or(' ');
            this.align = rest.pop();
        } else if is_align(rest.last()) {
            this.align = rest.pop();
        }
        if let Some('+' | '-' | ' ') = rest.last() {
            this.sign = rest.pop().unwrap_or('-');
        }
        if rest.last() == Some(&'0') {
            rest.pop();
            if this.align.is_none() {
                (this.fill, this.align) = ('0', Some('='));
            } else {
                return refuse("a zero after an alignment");
            }
        }
        this.width = number(&mut rest)?.unwrap_or(0);
        if rest.last() == Some(&',') {
            rest.pop();
            this.thousands = true;
        }
        if rest.last() == Some(&'.') {
            rest.pop();
            this.precision = match number(&mut rest)? {
                Some(n) => Some(n),
                None => return refuse("a format specification without digits after the point"),
            };
        }
        this.kind = rest.pop();
        if !rest.is_empty() || !matches!(this.kind, None | Some('s' | 'd' | 'f' | 'x')) {
            return refuse("a format specification outside the subset");
        }
        if this.thousands && this.fill == '0' {
            return refuse("zeros that need thousands separators");
        }
        Ok(this)
    }

    fn apply(&self, value: &Value) -> Outcome<String> {
        match (value, self.kind) {
            (Value::Str(text), None | Some('s')) => {
                if self.sign != '-' || self.align == Some('=') || self.thousands {
                    return refuse("a number's format for a text");
                }
                let text: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                Ok(self.pad("", &text, '<'))
            }
            (Value::Int(n), None | Some('d' | 'x')) => {
                if self.precision.is_some() || (self.thousands && self.kind == Some('x')) {
                    return refuse("a format that an int can't have");
                }
                let digits = n.unsigned_abs();
                let digits = if self.kind == Some('x') { format!("{digits:x}") } else { digits.to_string() };
                Ok(self.number(*n < 0, &digits))
            }
            (Value::Int(n), Some('f')) if n.unsigned_abs() <= 1 << 53 => {
                let digits = format!("{:.*}", self.precision.unwrap_or(6), n.unsigned_abs() as f64);
                Ok(self.number(*n < 0, &digits))
            }
            (Value::Float(n), Some('f')) => {
                let digits = format!("{:.*}", self.precision.unwrap_or(6), n.abs());
                Ok(self.number(n.is_sign_negative(), &digits))
            }
            (Value::Float(n), None) if self.precision.is_none() => {
                let digits = python::float(n.abs());
                if self.thousands && digits.contains('e') {
                    return refuse("thousands separators and an exponent");
                }
                Ok(self.number(n.is_sign_negative(), &digits))
            }
            _ => refuse("a format specification that does not fit"),
        }
    }

    fn number(&self, negative: bool, digits: &str) -> String {
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, '+') => "+",
            (false, ' ') => " ",
            _ => "",
        };
        let digits = if self.thousands { with_thousands(digits) } else { digits.to_owned() };
        self.pad(sign, &digits, '>')
    }

    fn pad(&self, sign: &str, text: &str, default: char) -> String {
        let missing = self.width.saturating_sub(sign.len() + text.chars().count());
        let fill = |n: usize| self.fill.to_string().repeat(n);
        match self.align.unwrap_or(default) {
            '<' => format!("{sign}{text}{}", fill(missing)),
            '^' => format!("{}{sign}{text}{}", fill(missing / 2), fill(missing - missing / 2)),
            '=' => format!("{sign}{}{text}", fill(missing)),
            _ => format!("{}{sign}{text}", fill(missing)),
        }
    }
}

fn number(rest: &mut Vec<char>) -> Outcome<Option<usize>> {
    let mut n = None;
    while let Some(digit) = rest.last().and_then(|c| c.to_digit(10)) {
        rest.pop();
        n = Some(n.unwrap_or(0) * 10 + digit as usize);
        if n > Some(MOST_PADDING) {
            return refuse("a format that is too wide");
        }
    }
    Ok(n)
}

fn with_thousands(digits: &str) -> String {
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(value: Value, specification: &str) -> Option<String> {
        let mut text = Text::default();
        text.push_formatted(&value, specification).ok()?;
        Some(text.text)
    }

    #[test]
    fn strings_choose_their_quotes() {
        assert_eq!(quoted("it's").unwrap(), "\"it's\"");
        assert_eq!(quoted("a\"b'c").unwrap(), "'a\"b\\'c'");
        assert_eq!(quoted("\0\x7f\n\\").unwrap(), "'\\x00\\x7f\\n\\\\'");
        assert!(quoted("é").is_err());
    }

    #[test]
    fn format_specifications() {
        for (value, specification, text) in [
            (Value::Int(5), "03d", "005"),
            (Value::Int(-5), "05", "-0005"),
            (Value::Int(1234567), ",", "1,234,567"),
            (Value::Int(255), "x", "ff"),
            (Value::Int(7), ">4", "   7"),
            (Value::Int(7), "*^5", "**7**"),
            (Value::Int(3), ".2f", "3.00"),
            (Value::Float(0.125), ".2f", "0.12"),
            (Value::Float(2.5), ".0f", "2"),
            (Value::Float(-1.005), "+.2f", "-1.00"),
            (Value::Float(3.25), "8", "    3.25"),
            (Value::Float(1234.5), ",.2f", "1,234.50"),
            (Value::text("ab"), "5", "ab   "),
            (Value::text("abcdef"), ">5.2", "   ab"),
        ] {
            assert_eq!(formatted(value.clone(), specification).as_deref(), Some(text), "{value:?} {specification}");
        }
        for (value, specification) in [
            (Value::text("a"), "d"),
            (Value::None, "5"),
            (Value::Bool(true), "d"),
            (Value::Float(1.0), ".3"),
            (Value::Int(1), "q"),
        ] {
            assert_eq!(formatted(value, specification), None);
        }
    }
}
