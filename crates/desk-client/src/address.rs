//! Addresses of a desk's API. A name stays one segment, and a value one value, whatever characters it has.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use std::fmt::Write;

/// What stays as it is: the unreserved characters of RFC 3986.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A text as a segment of a path, or as a name or a value of a query.
pub fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, UNRESERVED)
}

/// A path and a query from parts that are not encoded.
pub fn address<S: AsRef<str>>(path: &[S], query: &[(S, S)]) -> String {
    let mut address = String::new();
    for segment in path {
        let _ = write!(address, "/{}", encoded(segment.as_ref()));
    }
    for (at, (name, value)) in query.iter().enumerate() {
        let mark = if at == 0 { '?' } else { '&' };
        let _ = write!(address, "{mark}{}={}", encoded(name.as_ref()), encoded(value.as_ref()));
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names() {
        let path = ["v1", "desks", "a/b?c d", "files"];
        assert_eq!(
            address(&path, &[("path", "/tmp/ä&b=c"), ("x", "")]),
            "/v1/desks/a%2Fb%3Fc%20d/files?path=%2Ftmp%2F%C3%A4%26b%3Dc&x="
        );
        assert_eq!(encoded("AZaz09-_.~%+\0").to_string(), "AZaz09-_.~%25%2B%00");
    }
}
