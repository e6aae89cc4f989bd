//! Running desks, saved with their memory, and copies of them that go their own way.

use crate::place::{Desk, Place, leftovers};
use hotdesk_api::action::Size;
use hotdesk_api::desk::Resources;
use hotdesk_provider::{DeskSpec, Error, Progress, Provider, SnapshotRef};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Counts how often it was asked, in its memory alone.
const COUNTER: &str =
    "n=0; while :; do if [ -e /tmp/ask ]; then n=$((n+1)); rm /tmp/ask; echo $n > /tmp/answer; fi; sleep 0.01; done";
/// Holds a file that has another name left, and one that has none, and reads them when it is asked.
const HOLDER: &str = "cd; echo held > a; ln a b; exec 4<a; rm a; echo lost > c; exec 5<c; rm c; touch /tmp/holds; \
    until [ -e /tmp/read ]; do sleep 0.01; done; read x <&4; read y <&5; echo $x $y > /tmp/done";
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
    source
        .sh("echo source > file; mkdir -p folder; echo deleted > gone; mkdir /dev/shm/memory; echo memory > /dev/shm/memory/file")
        .await;
    source.copy_text("of the source").await;
    source.begin(&["sh", "-c", HOLDER]).await;
    source.sh("until [ -e /tmp/holds ]; do sleep 0.01; done").await;

    let size = place.save("d-source", "s-one").await;
    assert_eq!(place.save("d-source", "s-one").await, size, "saving again under the same name saves nothing");
    let first = place.fork("d-first", "s-one").await;
    let spec = DeskSpec { env: [("COPY".to_owned(), "second".to_owned())].into(), ..place.copy("d-second", "s-one") };
    let second = place.create(&spec).await;
    assert_eq!(place.local.list().await.unwrap().iter().filter(|found| found.running).count(), 3);

    // The same memory and the same files in all three.
    for desk in [&source, &first, &second] {
        assert_eq!(desk.count().await, "3");
        assert_eq!(desk.clipboard().await, "of the source");
        assert_eq!(desk.sh("cat file; cat /dev/shm/memory/file; ls -d folder; id -u").await.text, "source\nmemory\nfolder\n1000");
    }
    for desk in [&second, &source] {
        let read =
            desk.sh("touch /tmp/read; until [ -s /tmp/done ]; do sleep 0.01; done; cat /tmp/done; ls -d [a-z]*").await.text;
        assert_eq!(read, "held lost\nb\nfile\nfolder\ngone", "files without a name are in every copy");
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
    let stranger =
        Desk { door: hotdesk_provider::Door { secret: source.door.secret.clone(), ..first.door.clone() }, pid: first.pid };
    assert_eq!(stranger.ask("GET", "/v1/windows", &Value::Null).await.0, 401);
    let usage = place.local.usage("d-first").await.unwrap();
    assert!(usage.processes > 5 && usage.memory_bytes > 1 << 20, "{usage:?}");
    let owner = |desk: &Desk| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{}", desk.pid)).unwrap());
    assert_ne!(owner(&first), owner(&second));
    assert!(
        first.sh("cat /proc/self/cgroup").await.text.lines().all(|line| line.ends_with(":/")),
        "a copy sees its group as the root"
    );
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
    assert_eq!(
        third.sh("cat file; ls gone folder").await.text,
        "first\nls: cannot access 'gone': No such file or directory\nfolder:\nfirst"
    );
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

/// A desk of the template with windows.
async fn with_windows(place: &Place, id: &str) -> Desk {
    let (progress, _) = Progress::new();
    place.local.prepare("base", &progress).await.expect("the template `base` can be built");
    place.create(&windows(place.spec(id))).await
}

fn windows(spec: DeskSpec) -> DeskSpec {
    let resources = Resources { cpus: 2.0, memory_mib: 2048, disk_mib: 1024 };
    DeskSpec { template: "base".into(), resources, screen: Size { width: 1280, height: 800 }, ..spec }
}

impl Desk {
    /// Starts a program and waits for its window, which is to be the active one.
    async fn open(&self, words: &[&str], class: &str) {
        self.begin(words).await;
        let wait = json!({ "class": class, "limit_ms": LIMIT.as_millis() as u64 });
        let (status, answer) = self.ask("POST", "/v1/windows/wait", &wait).await;
        assert_eq!(status, 200, "{class}: {answer}");
        self.activate(class).await;
        self.ask("POST", "/v1/screen/settled", &json!({ "quiet_ms": 300, "limit_ms": 20_000 })).await;
    }

    async fn activate(&self, class: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let (_, answer) = self.ask("GET", "/v1/windows", &Value::Null).await;
            let all = answer["windows"].as_array().cloned().unwrap_or_default();
            let window = all.iter().find(|window| window["class"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(class)));
            match window {
                Some(window) if window["active"] == true => return,
                Some(window) => drop(self.ask("POST", &format!("/v1/windows/{}/activate", window["id"]), &Value::Null).await),
                None => {}
            }
            assert!(Instant::now() < end, "{class} does not become active: {all:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn act(&self, actions: Value) {
        let (status, answer) = self.ask("POST", "/v1/input", &json!({ "actions": actions })).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// Waits until programs show a text, or do not show it.
    async fn shows(&self, text: &str, shown: bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let tree = String::from_utf8_lossy(&self.bytes("GET", "/v1/accessibility.xml", "").await).into_owned();
            if tree.contains(text) == shown {
                return;
            }
            assert!(Instant::now() < end, "`{text}` is{} shown: {tree}", if shown { " not" } else { "" });
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// For people who want to see it.
    async fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("HOTDESK_PICTURES") {
            std::fs::write(std::path::Path::new(&folder).join(name), self.bytes("GET", "/v1/screenshot", "").await).unwrap();
        }
    }
}

#[tokio::test]
async fn typed_text_and_terminals_are_in_every_copy() {
    let place = Place::new().await;
    let source = with_windows(&place, "d-source").await;
    source.open(&["xfce4-terminal"], "xfce4-terminal").await;
    // Not the shell itself, but a program in the foreground of the terminal holds it by this name.
    source.act(json!([{ "do": "type", "text": "sh -c 'exec 3<>/dev/tty; touch /tmp/holds; sleep 1000'\n" }])).await;
    source.sh("until [ -e /tmp/holds ]; do sleep 0.02; done").await;
    source.open(&["gedit"], "gedit").await;
    source.act(json!([{ "do": "type", "text": "typed in the source" }])).await;
    source.shows("typed in the source", true).await;
    source.picture("source.png").await;

    place.save("d-source", "s-text").await;
    let mut desks = vec![(source, "source")];
    for name in ["first", "second"] {
        desks.push((place.create(&windows(place.copy(&format!("d-{name}"), "s-text"))).await, name));
    }
    for (desk, name) in &desks {
        desk.shows("typed in the source", true).await;
        desk.activate("gedit").await;
        desk.act(json!([{ "do": "type", "text": format!(" and then in the {name}") }])).await;
        desk.activate("xfce4-terminal").await;
        desk.act(json!([{ "do": "key", "keys": ["ctrl", "c"] }, { "do": "type", "text": format!("echo {name} > ~/typed\n") }]))
            .await;
    }
    for (desk, name) in &desks {
        desk.shows(&format!("typed in the source and then in the {name}"), true).await;
        for other in ["source", "first", "second"].iter().filter(|other| *other != name) {
            desk.shows(&format!("then in the {other}"), false).await;
        }
        let typed = desk.sh("until [ -s ~/typed ]; do sleep 0.02; done; cat ~/typed").await;
        assert_eq!(typed.text, *name);
        desk.picture(&format!("{name}.png")).await;
    }
}

#[tokio::test]
async fn a_browser_is_copied_with_its_page() {
    let place = Place::new().await;
    let source = with_windows(&place, "d-source").await;
    // Keys that come before the field has the focus are nobody's.
    let page =
        "data:text/html,<title>page</title><textarea autofocus rows=8 cols=60 onfocus=\"document.title='has-focus'\"></textarea>";
    source.open(&["chromium", "--force-renderer-accessibility", "--remote-debugging-port=9222", page], "chromium").await;
    source.shows("has-focus - ", true).await;
    source.act(json!([{ "do": "type", "text": "typed before" }])).await;
    source.shows("typed before", true).await;
    source.picture("browser-source.png").await;
    place.save("d-source", "s-page").await;
    let copy = place.create(&windows(place.copy("d-copy", "s-page"))).await;
    copy.shows("typed before", true).await;
    copy.act(json!([{ "do": "type", "text": ", typed after" }])).await;
    copy.shows("typed before, typed after", true).await;
    source.shows("typed after", false).await;
    copy.picture("browser-copy.png").await;
    // Loopback is there, and so is who listened on it.
    let version = copy.sh("curl -s --max-time 10 http://127.0.0.1:9222/json/version").await.text;
    assert!(version.contains("Protocol-Version"), "{version}");
}

#[tokio::test]
async fn a_copy_has_a_network_of_its_own() {
    let place = Place::new().await;
    let spec = DeskSpec { network: true, ..place.spec("d-source") };
    place.create(&spec).await;
    place.save("d-source", "s-net").await;
    let copy = place.create(&DeskSpec { network: true, ..place.copy("d-copy", "s-net") }).await;
    let routes =
        copy.sh("until grep -q ^tap0 /proc/net/route; do sleep 0.02; done; cat /proc/net/route /etc/resolv.conf").await.text;
    assert!(routes.contains("nameserver"), "{routes}");
    let alone = place.fork("d-alone", "s-net").await;
    assert_eq!(
        alone.sh("grep -c tap0 /proc/net/dev; ls -A /etc/resolv.conf; cat /etc/resolv.conf").await.text,
        "0\n/etc/resolv.conf"
    );
}

#[tokio::test]
async fn what_cannot_be_saved_goes_on() {
    let place = Place::new().await;
    let source = place.desk("d-source").await;
    source.begin(&["sh", "-c", COUNTER]).await;
    assert_eq!(source.count().await, "1");
    // A question to the kernel whose answer nobody has read yet can't be saved.
    let question = "import socket, struct, time; s = socket.socket(16, 3, 0); s.bind((0, 0)); \
                    s.send(struct.pack('=IHHIIB', 17, 18, 0x301, 1, 0, 0)); open('/tmp/asked', 'w'); time.sleep(1000)";
    source.begin(&["python3", "-c", question]).await;
    source.sh("until [ -e /tmp/asked ]; do sleep 0.02; done").await;
    let refused = place.local.snapshot("d-source", "s-no", true).await.unwrap_err().to_string();
    assert!(refused.contains("can't be saved") && refused.contains("netlink"), "{refused}");
    assert_eq!(source.count().await, "2", "it goes on as if nothing had been");
    source.sh("pkill -f socket.socket").await;
    place.save("d-source", "s-yes").await;
    assert_eq!(place.local.snapshots().await.unwrap(), ["s-yes"]);
    for folder in ["layers", "memory"] {
        assert_eq!(std::fs::read_dir(place.data().join(folder)).unwrap().count(), 1, "only what was saved is there");
    }
    assert_eq!(std::fs::read_dir(place.data().join("trash")).unwrap().count(), 0);
    // One that does not run has nothing to save.
    place.local.stop("d-source").await.unwrap();
    let refused = place.local.snapshot("d-source", "s-none", true).await.unwrap_err().to_string();
    assert!(refused.contains("does not run"), "{refused}");
}

#[tokio::test]
async fn a_damaged_copy_leaves_nothing() {
    let place = Place::new().await;
    let source = place.desk("d-source").await;
    place.save("d-source", "s-one").await;
    let memory = place.data().join("memory/s-one");
    let core = memory.join("pstree.img");
    let whole = std::fs::read(&core).unwrap();
    let (progress, _) = Progress::new();
    for damaged in [Vec::new(), whole[..whole.len() / 2].to_vec(), vec![7; whole.len()]] {
        std::fs::write(&core, &damaged).unwrap();
        let refused = place.local.create(&place.copy("d-copy", "s-one"), &progress).await.unwrap_err();
        assert!(matches!(&refused, Error::Failed(text) if text.contains("can't be restored")), "{refused}");
        assert!(!place.data().join("desks/d-copy").exists());
        assert_eq!(place.local.list().await.unwrap().len(), 1);
    }
    std::fs::write(&core, &whole).unwrap();
    place.fork("d-copy", "s-one").await;
    place.local.delete("d-copy").await.unwrap();
    std::fs::remove_file(memory.join("saved.json")).unwrap();
    let refused = place.local.create(&place.copy("d-copy", "s-one"), &progress).await.unwrap_err();
    assert!(matches!(refused, Error::NotFound(_)), "{refused}");
    // Its files are still good.
    let files = DeskSpec { snapshot: Some(SnapshotRef { id: "s-one".into(), memory: false }), ..place.spec("d-files") };
    place.create(&files).await;
    drop(source);
}

#[tokio::test]
async fn a_desk_that_was_left_without_a_door_gets_it_back() {
    let place = Place::new().await;
    let source = place.desk("d-source").await;
    std::fs::remove_file(source.socket()).unwrap();
    // Whoever comes meanwhile waits.
    let waiting = source.sh("echo here");
    let mending = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        place.again().list().await.unwrap()
    };
    let (output, found) = tokio::join!(waiting, mending);
    assert!(found[0].running);
    assert_eq!(output.text, "here");
}

#[tokio::test]
async fn whoever_asked_may_go_away_in_the_midst() {
    let place = Place::new().await;
    let source = place.desk("d-source").await;
    place.local.capabilities().await;
    for pause in [0, 5, 20, 60, 120] {
        // The request is dropped; what it began goes on, and the desk with it.
        let _ = tokio::time::timeout(Duration::from_millis(pause), place.local.snapshot("d-source", "s-half", true)).await;
    }
    // Waits for whoever is still at work.
    place.save("d-source", "s-whole").await;
    assert_eq!(source.sh("echo here").await.text, "here");
    let found = place.again().list().await.unwrap();
    assert!(found.len() == 1 && found[0].running);
    assert_eq!(std::fs::read_dir(place.data().join("trash")).unwrap().count(), 0, "what has no name is swept up");
    assert_eq!(place.fork("d-copy", "s-whole").await.sh("echo there").await.text, "there");
}

#[tokio::test]
async fn a_desk_that_ends_in_the_midst_is_no_snapshot() {
    let place = Place::new().await;
    place.local.capabilities().await;
    for (number, pause) in [(1, 20), (2, 60), (3, 120)] {
        let id = format!("d-{number}");
        let desk = place.desk(&id).await;
        let name = format!("s-{number}");
        let save = place.local.snapshot(&id, &name, true);
        let end = async {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(desk.pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        };
        let (saved, ()) = tokio::join!(save, end);
        // Either it was quicker, or it says why.
        match saved {
            Ok(_) => drop(place.fork(&format!("d-copy-{number}"), &name).await),
            Err(e) => {
                assert!(!e.to_string().is_empty());
                assert!(!place.local.snapshots().await.unwrap().contains(&name), "{e}");
            }
        }
        place.local.delete(&id).await.unwrap();
    }
}

/// `cargo test -p hotdesk-provider --test local -- --ignored measure_copies --nocapture`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures, proves nothing"]
async fn measure_copies() {
    const ROUNDS: usize = 10;
    let place = Place::new().await;
    place.local.capabilities().await;
    place.desk("d-bare").await;
    let browser = with_windows(&place, "d-browser").await;
    browser.open(&["chromium", "data:text/html,<h1>page</h1>"], "chromium").await;
    for (id, spec) in [("d-bare", place.copy("d-copy", "s")), ("d-browser", windows(place.copy("d-copy", "s")))] {
        let (mut saves, mut copies, mut wholes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            let size = place.save(id, "s").await;
            saves.push(begin.elapsed());
            let middle = Instant::now();
            place.create(&spec).await;
            copies.push(middle.elapsed());
            wholes.push(begin.elapsed());
            place.local.delete("d-copy").await.unwrap();
            place.local.delete_snapshot("s").await.unwrap();
            if wholes.len() == ROUNDS {
                eprintln!("{id}: {} MiB", size >> 20);
            }
        }
        for (what, times) in [("save", &mut saves), ("copy", &mut copies), ("both", &mut wholes)] {
            times.sort();
            eprintln!("{id}: {what} median {:?}, {:?} to {:?}", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
        }
        let load = std::fs::read_to_string("/proc/loadavg").unwrap();
        eprintln!("load of the machine: {}", load.split_whitespace().next().unwrap());
    }
}
