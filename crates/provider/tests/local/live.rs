//! Running desks, saved with their memory, and copies of them that go their own way.

use crate::place::{Desk, Place, leftovers};
use hotdesk_provider::{DeskSpec, Error, Progress, Provider, SnapshotRef};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Counts how often it was asked, in its memory alone.
const COUNTER: &str = "n=0; while :; do if [ -e /tmp/ask ]; then n=$((n+1)); rm /tmp/ask; echo $n > /tmp/answer; fi; sleep 0.01; done";
/// Nothing here takes as long on a machine that does nothing else.
const LIMIT: Duration = Duration::from_secs(60);

impl Place {
    /// What a copy of a snapshot is to be.
    fn copy(&self, id: &str, snapshot: &str) -> DeskSpec {
        DeskSpec { snapshot: Some(SnapshotRef { id: snapshot.into(), memory: true }), ..self.spec(id) }
    }

    async fn save(&self, id: &str, snapshot: &str) -> u64 {
        self.local.snapshot(id, snapshot, true).await.unwrap_or_else(|e| panic!("{id} can't be saved: {e}"))
    }

    async fn fork(&self, id: &str, snapshot: &str) -> Desk {
        self.create(&self.copy(id, snapshot)).await
    }
}

impl Desk {
    async fn begin(&self, words: &[&str]) {
        let (status, answer) = self.ask("POST", "/v1/processes", &json!({ "argv": words })).await;
        assert_eq!(status, 201, "{answer}");
    }

    /// Asks the program that counts.
    async fn count(&self) -> String {
        self.sh("rm -f /tmp/answer; touch /tmp/ask; until [ -s /tmp/answer ]; do sleep 0.01; done; cat /tmp/answer").await.text
    }

    async fn clipboard(&self) -> String {
        String::from_utf8(self.bytes("GET", "/v1/clipboard", "").await).unwrap()
    }

    async fn copy_text(&self, text: &str) {
        self.bytes("PUT", "/v1/clipboard", text).await;
    }

    async fn bytes(&self, method: &str, path: &str, text: &str) -> Vec<u8> {
        let stream = self.door.address.connect().await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "desk")
            .header("authorization", format!("Bearer {}", self.door.secret))
            .header("content-type", "text/plain")
            .body(Full::new(Bytes::from(text.to_owned())))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes().to_vec();
        assert!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        body
    }
}

#[tokio::test]
async fn copies_go_their_own_way() {
    let place = Place::new().await;
    let source = place.desk("d-source").await;
    source.begin(&["sh", "-c", COUNTER]).await;
    assert_eq!(source.count().await, "1");
    assert_eq!(source.count().await, "2");
    source.sh("echo source > file; mkdir -p folder; echo deleted > gone; mkdir /dev/shm/memory; echo memory > /dev/shm/memory/file").await;
    source.copy_text("of the source").await;

    let begin = Instant::now();
    let size = place.save("d-source", "s-one").await;
    println!("saved {size} bytes in {:?}", begin.elapsed());
    assert_eq!(place.save("d-source", "s-one").await, size, "saving again under the same name saves nothing");
    let begin = Instant::now();
    let first = place.fork("d-first", "s-one").await;
    println!("first copy in {:?}", begin.elapsed());
    let begin = Instant::now();
    let spec = DeskSpec { env: [("COPY".to_owned(), "second".to_owned())].into(), ..place.copy("d-second", "s-one") };
    let second = place.create(&spec).await;
    println!("second copy in {:?}", begin.elapsed());
    assert_eq!(place.local.list().await.unwrap().iter().filter(|found| found.running).count(), 3);

    // The same memory and the same files in all three.
    for desk in [&source, &first, &second] {
        assert_eq!(desk.count().await, "3");
        assert_eq!(desk.clipboard().await, "of the source");
        assert_eq!(desk.sh("cat file; cat /dev/shm/memory/file; ls -d folder; id -u").await.text, "source\nmemory\nfolder\n1000");
    }
    // And then not.
    for (desk, name) in [(&first, "first"), (&second, "second"), (&source, "source")] {
        desk.sh(&format!("echo {name} > file; echo {name} > folder/{name}")).await;
        desk.copy_text(name).await;
    }
    first.sh("rm gone").await;
    assert_eq!(first.count().await, "4");
    for (desk, name) in [(&first, "first"), (&second, "second"), (&source, "source")] {
        assert_eq!(desk.sh("cat file; ls folder").await.text, format!("{name}\n{name}"));
        assert_eq!(desk.clipboard().await, name);
        assert_eq!(desk.sh("hostname; cat /etc/hostname").await.text, format!("d-{name}\nd-{name}"));
    }
    assert_eq!(first.sh("ls gone").await.code, 2);
    assert_eq!(source.sh("cat gone").await.text, "deleted");
    assert_eq!(second.count().await, "4");
    assert_eq!(second.sh("echo $COPY").await.text, "second");
    assert_eq!(first.sh("echo $COPY").await.text, "");

    // Each has its own key, its own place among the groups, its own users on the host.
    let stranger = Desk { door: hotdesk_provider::Door { secret: source.door.secret.clone(), ..first.door.clone() }, pid: first.pid };
    assert_eq!(stranger.ask("GET", "/v1/windows", &Value::Null).await.0, 401);
    let usage = place.local.usage("d-first").await.unwrap();
    assert!(usage.processes > 5 && usage.memory_bytes > 1 << 20, "{usage:?}");
    let owner = |desk: &Desk| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{}", desk.pid)).unwrap());
    assert_ne!(owner(&first), owner(&second));
    assert!(first.sh("cat /proc/self/cgroup").await.text.lines().all(|line| line.ends_with(":/")), "a copy sees its group as the root");
    assert!(first.sh("mount | grep -c proc").await.text.parse::<u32>().unwrap() > 1);
    let status = first.sh("grep -E 'NoNewPrivs|CapEff|Seccomp:' /proc/self/status").await.text;
    assert_eq!(status, source.sh("grep -E 'NoNewPrivs|CapEff|Seccomp:' /proc/self/status").await.text);

    // A copy of a copy, after everything that it came from is gone.
    place.save("d-first", "s-two").await;
    for id in ["d-source", "d-first"] {
        place.local.delete(id).await.unwrap();
    }
    place.local.delete_snapshot("s-one").await.unwrap();
    let third = place.fork("d-third", "s-two").await;
    assert_eq!(third.count().await, "5");
    assert_eq!(third.sh("cat file; ls gone folder").await.text, "first\nls: cannot access 'gone': No such file or directory\nfolder:\nfirst");
    assert_eq!(second.count().await, "5", "the other one notices nothing");

    // It ends and starts like any desk: with its files, without its programs. A reset brings the programs back.
    place.local.stop("d-third").await.unwrap();
    let (progress, _) = Progress::new();
    let started = place.local.start(&place.copy("d-third", "s-two"), &progress).await;
    let Ok(placed) = started else { panic!("{started:?}; {}", place.local.logs("d-third", 30).await.unwrap()) };
    let third = Desk::new(&place.spec("d-third"), &placed);
    assert_eq!(third.sh("cat file; echo changed > file; pgrep -fc 'ask'").await.text.lines().next().unwrap(), "first");
    let placed = place.local.reset(&place.copy("d-third", "s-two"), &progress).await.unwrap();
    let third = Desk::new(&place.spec("d-third"), &placed);
    assert_eq!(third.count().await, "5");
    assert_eq!(third.sh("cat file").await.text, "first");

    // Nothing is left of any of them.
    let pid = third.pid;
    for id in ["d-second", "d-third"] {
        place.local.delete(id).await.unwrap();
    }
    place.local.delete_snapshot("s-two").await.unwrap();
    assert_eq!(leftovers(&place, pid), Vec::<String>::new());
    for folder in ["desks", "layers", "memory", "snapshots", "trash"] {
        let left: Vec<_> = std::fs::read_dir(place.data().join(folder)).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
