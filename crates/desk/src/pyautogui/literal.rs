//! Literals that mean the same to every version of Python, without a warning.

/// Whether all escapes of a string literal are well known. `raw` literals have none.
pub(super) fn is_clean_string(source: &str, raw: bool) -> bool {
    if raw {
        return true;
    }
    let mut rest = source;
    while let Some(at) = rest.find('\\') {
        rest = rest.get(at + 1..).unwrap_or_default();
        let Some(c) = rest.chars().next() else { return false };
        let digits = match c {
            '\n' | '\\' | '\'' | '"' | 'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' => 0,
            '0'..='7' => {
                let digits = rest.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
                // Beyond a byte it is a warning.
                if digits == 3 && c > '3' {
                    return false;
                }
                digits - 1
            }
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return false,
        };
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        if matches!(c, 'x' | 'u' | 'U') && !is_character(rest.get(..digits)) {
            return false;
        }
        rest = rest.get(digits..).unwrap_or_default();
    }
    true
}

/// Whether these hexadecimal digits are a character, and not half of one.
fn is_character(digits: Option<&str>) -> bool {
    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32).is_some()
}

/// Whether a number stands for itself: nothing glued to its end, no zeros in front.
pub(super) fn is_clean_number(source: &str, rest: &str) -> bool {
    let glued = rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let bytes = source.as_bytes();
    let zeros = bytes.first() == Some(&b'0') && bytes.get(1).is_some_and(|b| b.is_ascii_digit() || *b == b'_');
    !glued && !zeros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        for clean in ["plain", "a\\nb", "\\x41\\u00e9\\U0001f600", "\\0\\12\\377", "\\\\d", "line\\\nline"] {
            assert!(is_clean_string(clean, false), "{clean}");
        }
        for other in ["\\d", "\\400", "\\ud800", "\\N{DASH}", "\\x4", "\\", "\\U00110000", "\\é"] {
            assert!(!is_clean_string(other, false), "{other}");
        }
        assert!(is_clean_string("\\d", true));
    }

    #[test]
    fn numbers() {
        assert!(is_clean_number("10", ", 5)"));
        assert!(is_clean_number("0.5", ")"));
        assert!(!is_clean_number("1", "if x"));
        assert!(!is_clean_number("007", ")"));
    }
}
