//! How Python writes numbers and strings. Clients of the OSWorld dialect read its texts.

use std::fmt::Write;

/// `repr` of a float: the fewest digits that give the same number back.
pub(crate) fn float(n: f64) -> String {
    if !n.is_finite() {
        return if n.is_nan() {
            "nan"
        } else if n > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    if n == 0.0 {
        return if n.is_sign_negative() { "-0.0".into() } else { "0.0".into() };
    }
    let shortest = format!("{n:e}");
    let digits = shortest.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count();
    // Two numbers of so few digits may be equally near. Python takes the one that ends even.
    let even = format!("{n:.*e}", digits.saturating_sub(1));
    let scientific = if even.parse() == Ok(n) { even } else { shortest };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let decimals = i32::try_from(digits).unwrap_or(1) - 1 - exponent;
        return format!("{n:.*}", usize::try_from(decimals).unwrap_or(0).max(1));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `repr(text)`.
pub(crate) fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if printable(c) => out.push(c),
            c => {
                let code = c as u32;
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// `str.isprintable` of one character.
fn printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // The library escapes the same categories as Python does, and marks at the beginning of a
    // text too, so the character must not stand there.
    let mut buffer = [b'a'; 5];
    let length = 1 + c.encode_utf8(&mut buffer[1..]).len();
    std::str::from_utf8(&buffer[..length]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        for (number, text) in [
            (200.0, "200.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.25, "1.25"),
            (-2.5, "-2.5"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (2147483647.0, "2147483647.0"),
            (1e15, "1000000000000000.0"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.5e22, "1.5e+22"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN, "-1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (0.1 + 0.2, "0.30000000000000004"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.1 * 9007199254740992.0, "900719925474099.2"),
            (1.5e-7, "1.5e-07"),
            (-123.456, "-123.456"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(number), text);
        }
    }

    #[test]
    fn printed_strings() {
        for (text, shown) in [
            ("", "''"),
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("say \"it's\"", "'say \"it\\'s\"'"),
            ("a\"b", "'a\"b'"),
            ("tab\t\r\n\\", "'tab\\t\\r\\n\\\\'"),
            ("\0\x1b\x7f\u{80}\u{a0}\u{ad}", "'\\x00\\x1b\\x7f\\x80\\xa0\\xad'"),
            ("nö日😀", "'nö日😀'"),
            ("\u{301}x\u{301}", "'\u{301}x\u{301}'"),
            ("\u{200b}\u{2028}\u{feff}\u{e000}\u{378}", "'\\u200b\\u2028\\ufeff\\ue000\\u0378'"),
            ("\u{e0001}\u{10ffff}", "'\\U000e0001\\U0010ffff'"),
        ] {
            assert_eq!(repr(text), shown);
        }
    }
}
