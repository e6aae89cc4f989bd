//! What requests bring: JSON objects and forms, read as Flask reads them.

use super::answer::Refusal;
use super::python;
use axum::Form;
use axum::body::to_bytes;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Number, Value};
use std::error::Error as _;

/// The largest JSON body. Programs and scripts travel inside it, and data inside of them as
/// base64; what is larger than this belongs into `/setup/upload`.
const JSON_LIMIT: usize = 64 << 20;

/// A body that must be a JSON object.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl<S: Sync> FromRequest<S> for Fields {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        if !is_json(request.headers()) {
            let why = "The content type must be application/json.";
            return Err(Refusal::Page(StatusCode::UNSUPPORTED_MEDIA_TYPE, why.into()));
        }
        let body = to_bytes(request.into_body(), JSON_LIMIT).await.map_err(|e| {
            if e.source().is_some_and(|e| e.is::<http_body_util::LengthLimitError>()) {
                let why = format!("The body is larger than {JSON_LIMIT} bytes.");
                Refusal::Page(StatusCode::PAYLOAD_TOO_LARGE, why)
            } else {
                Refusal::bad_request(format!("The body ended early: {e}"))
            }
        })?;
        parse(&body).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

pub(super) fn parse(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let value = serde_json::from_slice(body).or_else(|e| {
        // Python can hold half of a surrogate pair in a string and sends it escaped; Rust can't.
        let mended = std::str::from_utf8(body).ok().and_then(mend_surrogates).ok_or(e)?;
        serde_json::from_str(&mended)
    });
    match value {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Refusal::bad_request("The body must be a JSON object.")),
        Err(e) => Err(Refusal::bad_request(format!("The body is not JSON: {e}"))),
    }
}

/// Replaces `\ud83d` and the like where they stand alone; `None` if there are none.
fn mend_surrogates(text: &str) -> Option<String> {
    let unit = |at: usize| {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut mended = String::with_capacity(text.len());
    let (mut from, mut at) = (0, 0);
    while let Some(found) = text.get(at..)?.find('\\') {
        at += found;
        at += match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                mended.push_str(&text[from..at]);
                mended.push_str("\\ufffd");
                from = at + 6;
                6
            }
            Some(_) => 6,
            None => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    mended.push_str(&text[from..]);
    (from > 0).then_some(mended)
}

impl Fields {
    /// The value of a field, `null` if it is missing.
    pub(super) fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn truthy(&self, name: &str) -> bool {
        python::truthy(self.get(name))
    }

    /// A text; `None` if it is missing or empty in Python's sense.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        match self.get(name) {
            Value::String(text) if !text.is_empty() => Ok(Some(text)),
            value if !python::truthy(value) => Ok(None),
            _ => Err(Refusal::bad_request(format!("{name} must be a string."))),
        }
    }

    /// A number; the default if it is missing.
    pub(super) fn number(&self, name: &str, default: u32) -> Result<Number, Refusal> {
        match self.0.get(name) {
            None => Ok(default.into()),
            Some(Value::Number(number)) => Ok(number.clone()),
            Some(Value::Bool(truth)) => Ok(u8::from(*truth).into()),
            Some(_) => Err(Refusal::bad_request(format!("{name} must be a number."))),
        }
    }
}

#[cfg(test)]
impl Fields {
    pub(super) fn of(value: Value) -> Self {
        match value {
            Value::Object(fields) => Self(fields),
            other => panic!("{other} is no object"),
        }
    }
}

/// One field of a form, encoded in either way; `None` if there is no such field. The route's body
/// limit applies.
pub(super) async fn form_field(request: Request, name: &str) -> Option<String> {
    let kind = request.headers().get(header::CONTENT_TYPE)?.to_str().ok()?.trim().to_ascii_lowercase();
    if kind.starts_with("multipart/form-data") {
        let mut form = Multipart::from_request(request, &()).await.ok()?;
        while let Some(field) = form.next_field().await.ok()? {
            // A part with a file name is a file, not a field.
            if field.name() == Some(name) && field.file_name().is_none() {
                return field.bytes().await.ok().map(|b| String::from_utf8_lossy(&b).into_owned());
            }
        }
        return None;
    }
    let Form(pairs) = Form::<Vec<(String, String)>>::from_request(request, &()).await.ok()?;
    pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced() {
        let text = |json: &str| parse(format!("{{\"a\":\"{json}\"}}").as_bytes()).unwrap()["a"].as_str().unwrap().to_owned();
        assert_eq!(text(r"\u00e9\ud83d\ude00/\/"), "é😀//");
        assert_eq!(text(r"x\ud83dy"), "x\u{fffd}y");
        assert_eq!(text(r"\ud83d\ud83d\ude00\ude00"), "\u{fffd}😀\u{fffd}");
        assert_eq!(text(r"\\ud83d\ud83d"), "\\ud83d\u{fffd}");
        assert_eq!(text(r"é\ud83dé"), "é\u{fffd}é");
    }

    #[test]
    fn broken_json_is_refused() {
        for body in [
            "",
            "{bad",
            "{'a': 1}",
            r#"{"a": 1} x"#,
            "[]",
            "5",
            "null",
            r#"{"a":"\ud83"}"#,
            r#"{"a":"\"#,
            "{\"a\":\"\n\"}",
            "\u{1}",
        ] {
            assert!(matches!(parse(body.as_bytes()), Err(Refusal::Page(StatusCode::BAD_REQUEST, _))), "{body}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
        assert!(parse("{\"a\":".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn a_byte_order_mark_is_ignored() {
        assert_eq!(parse(b"\xef\xbb\xbf{\"a\":1}").unwrap()["a"], 1);
    }

    #[test]
    fn json_types() {
        let is = |kind: &str| is_json(&HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]));
        assert!(is("application/json") && is("Application/JSON; charset=utf-8") && is("application/vnd.x+json"));
        assert!(!is("text/json") && !is("text/plain") && !is("application/jsonx") && !is(""));
        assert!(!is_json(&HeaderMap::new()));
    }
}
