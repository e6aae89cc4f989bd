//! Files that come and go.

use super::{Bench, StatusCode, header, json};
use axum::http::Request;
use std::sync::Arc;

fn part(name: &str, file: Option<&str>, content: &str) -> String {
    let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
    format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n")
}

fn form(parts: &[String]) -> String {
    parts.concat() + "--B--\r\n"
}

#[tokio::test]
async fn files_come_and_go() {
    let bench = Bench::new();
    let data = "line\r\nline\n--B--no\0";
    let path = part("file_path", None, "~/new dir/$WORD.bin");
    let file = part("file_data", Some("x"), data);
    for parts in [[path.clone(), file.clone()], [file.clone(), path.clone()]] {
        let reply = bench.upload(&form(&parts)).await;
        assert_eq!((reply.status, reply.text()), (StatusCode::OK, &*format!("File Uploaded: {} bytes", data.len())));
        let reply = bench.file("%24HOME/new+dir/value.bin").await;
        assert_eq!((reply.status, &reply.body[..]), (StatusCode::OK, data.as_bytes()));
        assert_eq!(reply.headers[header::CONTENT_DISPOSITION], "attachment; filename=value.bin");
        assert_eq!(reply.headers[header::CONTENT_LENGTH], data.len().to_string());
    }
    let left: Vec<_> = std::fs::read_dir(bench.home.path().join("new dir")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["value.bin"]);

    let request = Request::post("/file")
        .header(header::RANGE, "bytes=2-3")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let reply = bench.send(request.body("file_path=new dir/value.bin".into()).unwrap()).await;
    assert_eq!((reply.status, &reply.body[..]), (StatusCode::PARTIAL_CONTENT, &b"ne"[..]));
    assert_eq!(reply.headers[header::CONTENT_RANGE], format!("bytes 2-3/{}", data.len()));
}

#[tokio::test]
async fn uploads_keep_links_and_modes() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let bench = Bench::new();
    let home = bench.home.path();
    std::fs::write(home.join("real"), "old and longer").unwrap();
    std::fs::set_permissions(home.join("real"), PermissionsExt::from_mode(0o750)).unwrap();
    symlink("real", home.join("link")).unwrap();
    symlink("made", home.join("dangling")).unwrap();
    for name in ["link", "dangling"] {
        let reply = bench.upload(&form(&[part("file_path", None, name), part("file_data", Some("x"), "new")])).await;
        assert_eq!(reply.text(), "File Uploaded: 3 bytes");
        assert!(home.join(name).is_symlink());
    }
    assert_eq!(std::fs::read_to_string(home.join("real")).unwrap(), "new");
    assert_eq!(std::fs::metadata(home.join("real")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(std::fs::read_to_string(home.join("made")).unwrap(), "new");
}

#[tokio::test]
async fn bad_uploads_leave_nothing() {
    let bench = Bench::new();
    let (path, file) = (part("file_path", None, "target"), part("file_data", Some("x"), "data"));
    let required = json!({"error": "file_path and file_data are required"});
    for parts in [vec![], vec![path.clone()], vec![file.clone()], vec![path.clone(), part("file_data", None, "a field")]] {
        let reply = bench.upload(&form(&parts)).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::BAD_REQUEST, required.clone()));
    }
    assert_eq!(bench.raw("/setup/upload", "text/plain", "x").await.json(), required);
    // Cut off in the middle of the file.
    let whole = form(&[path.clone(), file]);
    let reply = bench.upload(&whole[..whole.len() - 12]).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    let reply = bench.upload(&form(&[part("file_path", None, &"x".repeat(100_000)), part("file_data", Some("x"), "y")])).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(std::fs::read_dir(bench.home.path()).unwrap().count(), 0);

    let directory = bench.home();
    let reply = bench.upload(&form(&[part("file_path", None, directory), part("file_data", Some("x"), "y")])).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json(), json!({"error": format!("Failed to upload file: [Errno 21] Is a directory: '{directory}'")}));
}

#[tokio::test]
async fn missing_files_are_told_apart() {
    let bench = Bench::new();
    for path in ["/no/such", "", "~/none", "%00", &"x".repeat(10_000)] {
        let reply = bench.file(path).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::NOT_FOUND, json!({"error": "File not found"})), "{path}");
    }
    let reply = bench.file(bench.home()).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply.json(), json!({"error": format!("Failed to serve file: [Errno 21] Is a directory: '{}'", bench.home())}));
    for (kind, body) in
        [("", ""), ("application/json", r#"{"file_path": "/etc/passwd"}"#), ("application/x-www-form-urlencoded", "x=y")]
    {
        let reply = bench.raw("/file", kind, body).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::BAD_REQUEST, json!({"error": "file_path is required"})));
    }
    nix::unistd::mkfifo(&bench.home.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(bench.file("pipe").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    let reply = bench.file("/proc/self/status").await;
    assert!(reply.status == StatusCode::OK && reply.text().starts_with("Name:"));
}

#[tokio::test]
async fn directories_are_listed_without_going_round() {
    use std::os::unix::fs::symlink;
    let bench = Bench::new();
    let home = bench.home.path();
    std::fs::create_dir_all(home.join("d/sub \"q\"")).unwrap();
    symlink("..", home.join("d/sub \"q\"/up")).unwrap();
    symlink("nowhere", home.join("d/dangling")).unwrap();
    let reply = bench.post("/list_directory", json!({"path": "d"})).await;
    let tree = reply.json()["directory_tree"].clone();
    assert_eq!((tree["type"].as_str(), tree["name"].as_str()), (Some("directory"), Some("d")));
    let children = tree["children"].as_array().unwrap();
    let up = json!({"type": "directory", "name": "up", "children": []});
    assert!(children.contains(&json!({"type": "directory", "name": "sub \"q\"", "children": [up]})), "{tree}");
    assert!(children.contains(&json!({"type": "file", "name": "dangling"})));

    let mut deep = home.join("deep");
    for _ in 0..400 {
        deep.push("x");
    }
    std::fs::create_dir_all(deep).unwrap();
    assert_eq!(bench.post("/list_directory", json!({"path": "deep/"})).await.status, StatusCode::OK);
    for path in ["~", "", "/no/such", "$HOME", "d/dangling", "a\0b"] {
        let reply = bench.post("/list_directory", json!({"path": path})).await;
        assert_eq!(
            (reply.status, reply.json()),
            (StatusCode::BAD_REQUEST, json!({"error": "The provided path is not a directory"}))
        );
    }
    assert_eq!(bench.post("/list_directory", json!({})).await.json(), json!({"error": "Missing 'path' parameter"}));
}

#[tokio::test]
async fn downloads_are_tried_three_times() {
    let bench = Bench::new();
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = tries.clone();
    let app = axum::Router::new().route("/ok", axum::routing::get(async || "content")).route(
        "/third",
        axum::routing::get(async move || match counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            2 => Ok("at last"),
            _ => Err(StatusCode::SERVICE_UNAVAILABLE),
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    for (what, words) in [("/ok", "File downloaded successfully: 7 bytes"), ("/third", "File downloaded successfully: 7 bytes")] {
        let reply = bench.post("/setup/download_file", json!({"url": address.clone() + what, "path": "~/new/f"})).await;
        assert_eq!((reply.status, reply.text()), (StatusCode::OK, words));
    }
    assert_eq!(std::fs::read_to_string(bench.home.path().join("new/f")).unwrap(), "at last");
    for url in [address + "/none", "http://127.0.0.1:9/x".into(), "nonsense".into()] {
        let reply = bench.post("/setup/download_file", json!({"url": url, "path": "gone"})).await;
        assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(reply.text().starts_with(&format!("Failed to download {url}. No retries left. Error: ")), "{}", reply.text());
    }
    assert!(!bench.home.path().join("gone").exists());
}
