//! What a hostile root of a desk tries: the desk is of the template `code`, whose user may become root.

use crate::place::{Desk, Place};
use hotdesk_provider::{DeskSpec, Progress, Provider, SnapshotRef};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Every name in the desk's directory `run`, and some that the host makes for a moment.
const NAMES: [&str; 6] = ["server.sock", "desk.sock", "new.sock", "log", "desk.toml", "token"];

/// What root of a desk would put in place of a name: a link to a file of the host, and whatever else could be made there.
const ATTEMPTS: [&str; 9] = [
    "mv /run/hotdesk/NAME /run/hotdesk/other",
    "rm -f /run/hotdesk/NAME && ! test -e /run/hotdesk/NAME && ln -s TARGET /run/hotdesk/NAME",
    "ln -s TARGET /run/hotdesk/link-NAME",
    "ln -sfn TARGET /run/hotdesk/NAME",
    "mkdir /run/hotdesk/folder-NAME",
    "ln /run/hotdesk/NAME /run/hotdesk/second-NAME",
    "test -f /run/hotdesk/NAME && echo x >> /run/hotdesk/NAME",
    "dd if=/dev/zero of=/run/hotdesk/fill-NAME bs=1M count=8",
    "mount --bind /tmp /run/hotdesk",
];

/// Listens where the desk's server does, and writes down what it is told.
const LISTENER: &str = r#"
import os, socket
path = "/run/hotdesk/server.sock"
try:
    os.rename(path, path + ".away")
except OSError:
    pass
s = socket.socket(socket.AF_UNIX)
try:
    s.bind(path)
except OSError as e:
    print("refused:", e.errno)
    raise SystemExit
s.listen()
if os.fork() == 0:
    os.setsid()
    c, _ = s.accept()
    open("/tmp/got", "wb").write(c.recv(65536))
    c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
"#;

impl Place {
    fn with_root(&self, id: &str) -> DeskSpec {
        let mut spec = DeskSpec { template: "code".into(), ..self.spec(id) };
        spec.resources.disk_mib = 512;
        spec
    }

    /// A place that has the template `code`.
    async fn for_root() -> Self {
        let place = Self::new().await;
        let (progress, _) = Progress::new();
        place.local.prepare("code", &progress).await.expect("the template `code` can be built");
        place
    }
}

impl Desk {
    /// Runs a shell command inside as the desk's root.
    async fn root(&self, script: &str) -> crate::place::Output {
        let quoted = script.replace('\'', r"'\''");
        self.sh(&format!("sudo sh -c '{quoted}'")).await
    }
}

/// All attempts on a desk's directory `run`, as its root and as its user; whether any of them changed it.
async fn try_everything(desk: &Desk, run: &Path, target: &Path) {
    assert_eq!(desk.root("id -u").await.text, "0");
    let meta = |path: &Path| std::fs::symlink_metadata(path).unwrap();
    let list = || {
        let mut names: Vec<_> = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.into_iter().map(|name| (meta(&run.join(&name)).ino(), meta(&run.join(&name)).len(), name)).collect::<Vec<_>>()
    };
    assert_eq!((meta(run).uid(), meta(run).mode() & 0o022), (0, 0), "it belongs to the host");
    let before = list();
    let size = |name: &str| std::fs::metadata(run.join(name)).unwrap().len();
    let settings = size("desk.toml");
    for name in NAMES {
        for attempt in ATTEMPTS {
            let script = attempt.replace("NAME", name).replace("TARGET", &target.to_string_lossy());
            for (who, out) in [("root", desk.root(&script).await), ("the user", desk.sh(&script).await)] {
                assert_ne!(out.code, 0, "{who} did: {script}\n{}", out.text);
            }
        }
    }
    assert_ne!(desk.root("mount -o remount,rw /run/hotdesk").await.code, 0);
    assert_ne!(desk.root("chown 0:0 /run/hotdesk || chmod 777 /run/hotdesk || chown 0 /run/hotdesk/desk.toml").await.code, 0);
    assert_eq!(list(), before, "the directory is as it was");
    assert_eq!(size("desk.toml"), settings);
}

#[tokio::test]
async fn root_of_a_desk_puts_nothing_where_the_host_looks() {
    let place = Place::for_root().await;
    let secret = place.folder.path().join("secret-of-the-host");
    std::fs::write(&secret, "a-secret-of-the-host").unwrap();
    let desk = place.create(&place.with_root("d-links")).await;
    let run = place.data().join("desks/d-links/run");
    try_everything(&desk, &run, &secret).await;
    // A listener in the server's place is told nothing.
    let out = desk.sh(&format!("cat > /tmp/l.py <<'END'\n{LISTENER}\nEND\nsudo python3 /tmp/l.py")).await;
    assert!(out.text.starts_with("refused:"), "{out:?}");

    // Every verb, after all of that.
    place.local.snapshot("d-links", "s-files", false).await.unwrap();
    place.local.snapshot("d-links", "s-memory", true).await.unwrap();
    assert_ne!(desk.sh("test -e /tmp/got").await.code, 0, "somebody was told something");
    let spec = DeskSpec { snapshot: Some(SnapshotRef { id: "s-memory".into(), memory: true }), ..place.with_root("d-copy") };
    let copy = place.create(&spec).await;
    try_everything(&copy, &place.data().join("desks/d-copy/run"), &secret).await;
    place.local.snapshot("d-copy", "s-again", true).await.unwrap();
    place.local.usage("d-links").await.unwrap();
    assert!(!place.local.logs("d-links", 1000).await.unwrap().contains("a-secret-of-the-host"));
    place.local.list().await.unwrap();
    place.local.stop("d-links").await.unwrap();
    let archive = place.folder.path().join("archive");
    place.local.export("d-links", &archive).await.unwrap();
    let (progress, _) = Progress::new();
    let spec = place.with_root("d-links");
    let placed = place.local.start(&spec, &progress).await.unwrap();
    let desk = Desk::new(&spec, &placed);
    assert_eq!(desk.root("id -u").await.text, "0");
    place.local.reset(&spec, &progress).await.unwrap();
    for id in ["d-links", "d-copy"] {
        place.local.delete(id).await.unwrap();
    }
    place.local.import(&spec, &archive).await.unwrap();
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "a-secret-of-the-host");
}

#[tokio::test]
async fn a_desk_whose_directory_is_its_own_is_not_talked_to() {
    // As an older version made them: the directory is the desk's, and so may be what is in it.
    let place = Place::for_root().await;
    let desk = place.create(&place.with_root("d-old")).await;
    let folder = place.data().join("desks/d-old");
    let owner: u32 = std::fs::read_to_string(format!("/proc/{}/uid_map", desk.pid))
        .unwrap()
        .split_whitespace()
        .nth(1)
        .and_then(|base| base.parse().ok())
        .unwrap();
    std::os::unix::fs::chown(folder.join("run"), Some(owner), Some(owner)).unwrap();
    let victim = place.folder.path().join("victim");
    let listener = std::os::unix::net::UnixListener::bind(&victim).unwrap();
    listener.set_nonblocking(true).unwrap();
    for name in ["server.sock", "desk.sock"] {
        std::fs::remove_file(folder.join("run").join(name)).unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("run").join(name)).unwrap();
    }
    let error = place.local.snapshot("d-old", "s-old", true).await.unwrap_err().to_string();
    assert!(error.contains("older version"), "{error}");
    assert!(desk.door.health().await.is_err(), "a link is not followed");
    place.local.list().await.unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "somebody came by way of the link");
}

#[tokio::test]
async fn the_secret_of_a_desk_is_not_in_the_desk() {
    let place = Place::for_root().await;
    let spec = place.with_root("d-secret");
    let desk = place.create(&spec).await;
    // Looked for in halves: this very command line would be found otherwise.
    let (first, second) = spec.secret.split_at(4);
    let look = format!(
        "p='{first}'; grep -rlaF \"$p\"'{second}' /run /etc /tmp /home 2>/dev/null; \
         for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do grep -laF \"$p\"'{second}' $f 2>/dev/null; done; \
         for f in /proc/[0-9]*/fd/4; do timeout 1 head -c 100 $f 2>/dev/null | grep -aF \"$p\"'{second}'; done; echo looked"
    );
    for out in [desk.sh(&look).await, desk.root(&look).await] {
        assert_eq!(out.text, "looked");
    }
    let kept = place.data().join("desks/d-secret/secret");
    assert_eq!(std::fs::metadata(kept).unwrap().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn programs_of_a_desk_do_not_lock_its_keeper_out() {
    let place = Place::new().await;
    let desk = place.desk("d-keep").await;
    let ask = |path: &str, body: &str| {
        format!(
            "perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(Peer => \"/run/user/1000/hotdesk.sock\") or die; \
             print $s \"POST {path} HTTP/1.1\\r\\nhost: d\\r\\nconnection: close\\r\\ncontent-type: application/json\\r\\ncontent-length: {}\\r\\n\\r\\n\" . q({body}); \
             print scalar <$s>'",
            body.len()
        )
    };
    let token = r#"{"token":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
    for (path, body) in [("/v1/thaw", token), ("/v1/freeze", "{}")] {
        let out = desk.sh(&ask(path, body)).await;
        assert!(out.text.starts_with("HTTP/1.1 403"), "{path}: {out:?}");
    }
    assert_eq!(desk.sh("echo still in").await.text, "still in");
}

#[tokio::test]
async fn root_of_a_desk_has_few_rights() {
    let place = Place::for_root().await;
    let desk = place.create(&place.with_root("d-few")).await;
    let status = desk.root("grep CapBnd /proc/self/status; cat /proc/1/oom_score_adj").await.text;
    // Owners, permissions, users, signals, low ports; no raw packets, no devices, no files with rights.
    assert_eq!(status, "CapBnd:\t00000000000005fb\n500");
    let python = |script: &str| format!("python3 -c '{script}'");
    for (what, script) in [
        ("a raw socket of IP", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)"),
        ("a raw socket of TCP", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 6)"),
        ("a raw socket of ICMP", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
        ("a raw socket of IPv6", "import socket; socket.socket(socket.AF_INET6, socket.SOCK_RAW, 255)"),
        ("a packet socket", "import socket; socket.socket(17, 3, 0)"),
        ("a pair of TIPC sockets", "import socket; socket.socketpair(30, socket.SOCK_STREAM)"),
        ("a device", "import os; os.mknod(\"/tmp/dev\", 0o60600, os.makedev(7, 0))"),
        (
            "a file with rights",
            "import os; open(\"/tmp/x\", \"w\"); os.setxattr(\"/tmp/x\", \"security.capability\", bytes([1,0,0,2]+[0]*16))",
        ),
    ] {
        let out = desk.root(&python(script)).await;
        assert!(out.code != 0 && out.text.contains("Error"), "{what}: {out:?}");
    }
    // What is meant to work does: pings need no raw packets, and packages are installed by changing owners.
    for script in [
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)",
        "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)",
        "import os; open(\"/tmp/y\", \"w\"); os.chown(\"/tmp/y\", 33, 33); os.chmod(\"/tmp/y\", 0o4755)",
    ] {
        let out = desk.root(&python(script)).await;
        assert_eq!(out.code, 0, "{script}: {out:?}");
    }
    let out = desk.sh(&python("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)")).await;
    assert_eq!(out.code, 0, "and so for the user: {out:?}");
}
