//! Bytes that nobody meant: whatever comes, there is an answer and no panic.

use super::super::{body, python, serve};
use super::{Bench, Method, StatusCode, json};
use axum::http::Request;
use proptest::prelude::*;

proptest! {
    #[test]
    fn json_of_any_shape(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = body::parse(&bytes);
    }

    #[test]
    fn escapes_of_any_shape(text in r#"(\\u[dD][89a-fA-F][0-9a-f]{0,2}|\\|"|é|x){0,12}"#) {
        let _ = body::parse(format!("{{\"a\":\"{text}\"}}").as_bytes());
    }

    #[test]
    fn words_of_any_shape(text in r#"([a# \t\n'"]|\\|é){0,20}"#) {
        let _ = python::split_words(&text);
    }

    #[test]
    fn quoted_words_come_back(words in prop::collection::vec(any::<String>(), 0..5)) {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        prop_assert_eq!(python::split_words(&quoted.join(" ")).unwrap(), words);
    }

    #[test]
    fn paths_of_any_shape(path in r"([~$]|\{|\}|/|[a-zA-Z_]|é){0,12}") {
        let bench = Bench::new();
        let _ = python::expand(&bench.engines.place, &path);
    }

    #[test]
    fn names_of_any_shape_fit_a_header(name in any::<String>()) {
        axum::http::HeaderValue::try_from(serve::attachment(&name)).unwrap();
        axum::http::HeaderValue::try_from(serve::kind_of(&name)).unwrap();
        let _ = python::repr(&name);
    }

    #[test]
    fn ranges_of_any_shape_stay_inside(wanted in "bytes=[0-9]{0,21}-[0-9]{0,21}", length in 0u64..300) {
        if let Some(serve::Part::Range { first, last }) = serve::range(&wanted, length) {
            prop_assert!(first <= last && last < length);
        }
    }

    #[test]
    fn forms_of_any_shape(pieces in prop::collection::vec(prop_oneof![
        Just("--B".to_owned()), Just("--B--".to_owned()), Just("\r\n".to_owned()), Just("\r\n\r\n".to_owned()),
        Just("Content-Disposition: form-data; name=\"file_data\"; filename=\"x\"".to_owned()),
        Just("Content-Disposition: form-data; name=\"file_path\"".to_owned()),
        Just("Content-Disposition: form-data; name*=\"".to_owned()), any::<String>(),
    ], 0..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new();
            // Only paths inside of the home are made up here.
            let form = pieces.concat().replace(['/', '$', '~'], "");
            let reply = bench.raw("/setup/upload", "multipart/form-data; boundary=B", form.clone()).await;
            assert!(reply.status.is_success() || reply.status.as_u16() >= 400);
            bench.raw("/file", "multipart/form-data; boundary=B", form.clone()).await;
            bench.raw("/file", "application/x-www-form-urlencoded", form).await;
        });
    }
}

/// Whatever stands in a field: a clear answer, and no program that ran by accident.
#[tokio::test]
async fn fields_of_any_shape_are_answered() {
    let bench = Bench::new();
    let names =
        ["command", "path", "url", "code", "script", "working_dir", "timeout", "window_name", "verification", "max_wait_time"];
    let deep = json!([[[[{"a": [null]}]]]]);
    for path in super::JSON {
        for name in names {
            for value in
                [json!(5), json!(-1.5e300), json!(true), json!(["a", 5]), json!({"a": 1}), json!(null), deep.clone(), json!("\0")]
            {
                let mut fields = json!({"command": ["hotdesk-no-such-program"]});
                fields[name] = value.clone();
                if matches!(name, "code" | "script") && value == "\0" {
                    // Interpreters may take that for a program.
                    continue;
                }
                let reply = bench.post(path, fields.clone()).await;
                assert!(reply.status.as_u16() >= 400, "{path} {fields}: {} {}", reply.status, reply.text());
            }
        }
    }
}

#[tokio::test]
async fn odd_content_types_are_no_forms() {
    let bench = Bench::new();
    for kind in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=B",
        "multipart/form-data; boundary=\"",
        ";",
        "é",
    ] {
        let Ok(request) = Request::post("/setup/upload").header("content-type", kind).body("--B--".into()) else { continue };
        assert_eq!(bench.send(request).await.status, StatusCode::BAD_REQUEST, "{kind}");
    }
    assert_eq!(bench.ask(Method::POST, "/setup/upload").await.status, StatusCode::BAD_REQUEST);
}
