//! Any headers that ask for a part of a file: what is sent lies in the file. The first eight bytes are its size; each line is a header.

use super::{Part, is_known, parse, wanted};
use axum::http::{HeaderMap, HeaderValue, header};
use std::time::{Duration, SystemTime};

pub(crate) fn run(input: &[u8]) {
    let Some((size, text)) = input.split_first_chunk::<8>() else { return };
    let size = u64::from_le_bytes(*size);
    let mut headers = HeaderMap::new();
    let names = [header::RANGE, header::IF_RANGE, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];
    for (name, value) in names.into_iter().zip(text.split(|byte| *byte == b'\n')) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.insert(name, value);
        }
    }
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    is_known(&headers, "\"a\"", Some(modified));
    for modified in [None, Some(modified)] {
        if let Part::Range(first, last) = wanted(&headers, "\"a\"", modified, size) {
            assert!(first <= last && last < size, "{first} to {last} of {size}");
            assert_eq!(parse(&format!("bytes={first}-{last}"), size), Part::Range(first, last));
        }
    }
}
