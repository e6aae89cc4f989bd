//! Files over HTTP.

use super::*;
use futures_util::StreamExt;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_file_goes_up_and_comes_down_whole_and_in_parts() {
    let desk = TestDesk::new().await;
    let content: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    desk.put("/v1/files/content?path=deep/f.bin", content.clone()).await.problem(404, "not_found");
    let written = desk.put("/v1/files/content?path=deep/f.bin&make_parents=true&mode=0600", content.clone()).await.good();
    assert_eq!(written, json!({ "path": desk.path("deep/f.bin"), "size": 1_000_000, "created": true }));

    let whole = desk.get("/v1/files/content?path=~/deep/f.bin").await;
    assert_eq!((whole.status.as_u16(), whole.header("content-length")), (200, "1000000"));
    assert!(whole.body == content);
    let etag = whole.header("etag").to_owned();
    let ask = async |name: &str, value: &str| {
        desk.ask(Request::get("/v1/files/content?path=deep/f.bin").header(name, value).body(Body::empty()).unwrap()).await
    };
    assert_eq!(ask("if-none-match", &etag).await.status, 304);
    let part = ask("range", "bytes=1000-1999").await;
    assert_eq!((part.status.as_u16(), part.header("content-range")), (206, "bytes 1000-1999/1000000"));
    assert!(part.body == content[1000..2000]);
    let beyond = ask("range", "bytes=1000000-").await;
    beyond.problem(416, "range");
    assert_eq!(beyond.header("content-range"), "bytes */1000000");

    desk.put("/v1/files/content?path=deep/f.bin", "new").await.good();
    assert_eq!(ask("if-none-match", &etag).await.text(), "new");
    assert_eq!(desk.get("/v1/files/stat?path=deep/f.bin").await.good()["mode"], "0600");
    let head = desk.ask(Request::head("/v1/files/content?path=deep/f.bin").body(Body::empty()).unwrap()).await;
    assert_eq!((head.header("content-length"), head.body.len()), ("3", 0));
}

#[tokio::test]
async fn odd_files_are_read_as_they_are() {
    let desk = TestDesk::new().await;
    std::fs::write(desk.path("empty"), "").unwrap();
    let empty = desk.get("/v1/files/content?path=empty").await;
    assert_eq!((empty.status.as_u16(), empty.body.len()), (200, 0));
    assert!(desk.get("/v1/files/content?path=/proc/self/status").await.text().contains("VmRSS"), "it says that it has no bytes");
    desk.get("/v1/files/content?path=~").await.problem(409, "conflict");
    desk.get("/v1/files/content?path=/dev/zero").await.problem(409, "conflict");
    nix::unistd::mkfifo(&desk.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    desk.get("/v1/files/content?path=fifo").await.problem(409, "conflict");
    desk.get("/v1/files/content?path=none").await.problem(404, "not_found");
    desk.get("/v1/files/content?path=empty/below").await.problem(409, "conflict");
    desk.get("/v1/files/content?path=a%00b").await.problem(400, "invalid");
    let long = format!("/v1/files/content?path={}", "x".repeat(300));
    desk.get(&long).await.problem(400, "invalid");
    desk.put("/v1/files/content?path=x&mode=rw", "").await.problem(400, "invalid");
}

#[tokio::test]
async fn directories_are_made_moved_copied_listed_and_deleted() {
    let desk = TestDesk::new().await;
    desk.post("/v1/files/mkdir", json!({ "path": "a/b", "make_parents": true })).await.good();
    desk.put("/v1/files/content?path=a/b/f", "text").await.good();
    desk.post("/v1/files/copy", json!({ "from": "a", "to": "c" })).await.good();
    desk.post("/v1/files/move", json!({ "from": "a/b/f", "to": "c/b/f" })).await.problem(409, "conflict");
    desk.post("/v1/files/move", json!({ "from": "a/b/f", "to": "c/g" })).await.good();
    let list = desk.get("/v1/files?path=c&depth=5").await.good();
    let names: Vec<_> = list["entries"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "f", "g"]);
    desk.delete("/v1/files?path=c").await.problem(409, "conflict");
    desk.delete("/v1/files?path=c&recursive=true").await.good();
    desk.delete("/v1/files?path=c").await.problem(404, "not_found");
    desk.delete("/v1/files?path=~&recursive=true").await.problem(403, "denied");
    assert!(desk.path("a").exists());
}

#[tokio::test]
async fn directories_travel_as_archives() {
    let desk = TestDesk::new().await;
    std::fs::create_dir_all(desk.path("from/sub")).unwrap();
    std::fs::write(desk.path("from/sub/f"), vec![1; 100_000]).unwrap();
    let archive = desk.get("/v1/files/tar?path=from").await;
    assert_eq!(archive.header("content-type"), "application/x-tar");
    let done = desk.put("/v1/files/tar?path=to", archive.body).await.good();
    assert_eq!((done["entries"].as_u64(), done["bytes"].as_u64()), (Some(2), Some(100_000)));
    assert_eq!(std::fs::read(desk.path("to/sub/f")).unwrap(), vec![1; 100_000]);
    desk.get("/v1/files/tar?path=none").await.problem(404, "not_found");
    desk.put("/v1/files/tar?path=to", "this is no archive, but long enough to be taken for one".repeat(20))
        .await
        .problem(400, "invalid");
}

#[tokio::test]
async fn changes_are_streamed() {
    let desk = TestDesk::new().await;
    let request = Request::get("/v1/files/watch?path=~").body(Body::empty()).unwrap();
    let response = desk.app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("event: watching") {
        text.push_str(&String::from_utf8_lossy(&body.next().await.unwrap().unwrap()));
    }
    std::fs::write(desk.path("new"), "x").unwrap();
    while !text.contains("event: modified") {
        text.push_str(&String::from_utf8_lossy(&body.next().await.unwrap().unwrap()));
    }
    assert!(text.contains("event: created\ndata: {\"event\":\"created\""), "{text}");
    desk.get("/v1/files/watch?path=none").await.problem(404, "not_found");
}

fn resident() -> u64 {
    procfs::process::Process::myself().unwrap().statm().unwrap().resident * procfs::page_size()
}

/// A huge file to a reader that stops in the middle, and then reads on.
#[tokio::test]
async fn huge_files_and_slow_readers_cost_no_memory() {
    const SIZE: u64 = 2 << 30;
    let desk = TestDesk::new().await;
    std::fs::File::create(desk.path("huge")).unwrap().set_len(SIZE).unwrap();
    let served = Served::new(desk.desk.clone()).await;
    let before = resident();
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = "GET /v1/files/content?path=huge HTTP/1.1\r\nHost: localhost\r\nRange: bytes=100-\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut read = stream.read(&mut buffer).await.unwrap() as u64;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Other tests run in this process too, but none of them needs a tenth of the file.
    assert!(resident().saturating_sub(before) < SIZE / 10, "a reader that waits");
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => break,
            count => read += count as u64,
        }
    }
    assert!(read > SIZE - 100, "{read}");
    assert!(resident().saturating_sub(before) < SIZE / 10, "a reader that reads");
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let request = "PUT /v1/files/content?path=f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nonly this";
    stream.write_all(request.as_bytes()).await.unwrap();
    let entries = || std::fs::read_dir(desk.home.path()).unwrap().filter(|e| e.as_ref().unwrap().file_name() != ".run").count();
    while entries() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(stream);
    let begin = std::time::Instant::now();
    while entries() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the part stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_refused_upload_sees_its_answer() {
    let desk = TestDesk::new().await;
    let served = Served::new(desk.desk.clone()).await;
    let (read, mut write) = TcpStream::connect(served.address).await.unwrap().into_split();
    let size = 50_000_000;
    let head = format!(
        "PUT /v1/files/content?path=no/such/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    );
    // As simple clients do: all of the body first, then the answer.
    write.write_all(head.as_bytes()).await.unwrap();
    write.write_all(&vec![0; size]).await.unwrap();
    let mut answer = String::new();
    let mut read = read;
    read.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}
