//! Real builds, of a template that is as small as they come. They need mmdebstrap, root and a mirror.

use hotdesk_image::{Error, Library};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const TINY: &str = "
description = 'nothing but the base system'
run = ['''
if mount -t tmpfs none /mnt || mknod /root/disk b 8 0 || chroot / true; then exit 1; fi 2>/dev/null
touch /root/ran
''']
screen = '800x600'
start = ['true']
[user]
name = 'somebody'
uid = 1234
[env]
COLOUR = 'green'
[[files]]
path = '/etc/motto'
content = 'no place like home'
mode = '0600'
[[files]]
path = '/home/somebody/deep/note'
content = 'mine'
[[checks]]
what = 'the user has a home'
run = 'test \"$(id -un)\" = somebody && test -d /home/somebody/deep'
";

/// Packages, kept from run to run of the tests.
fn images() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let debs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debs");
    std::fs::create_dir_all(&debs).unwrap();
    let link = |from: &Path, to: &Path| {
        for entry in std::fs::read_dir(from).into_iter().flatten().flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_file()))
        {
            let _ = std::fs::hard_link(entry.path(), to.join(entry.file_name()));
        }
    };
    let own = directory.path().join("images/debs");
    std::fs::create_dir_all(&own).unwrap();
    link(&debs, &own);
    directory
}

fn library(directory: &Path, templates: &[(&str, &str)]) -> Library {
    let own = directory.join("templates");
    std::fs::create_dir_all(&own).unwrap();
    for (name, text) in templates {
        std::fs::write(own.join(format!("{name}.toml")), text).unwrap();
    }
    Library::open(directory.join("images")).unwrap().with_templates(own)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Nothing that could be taken for a tree, nothing half-made.
fn assert_empty(directory: &Path) {
    for part in ["rootfs", "inputs", "work"] {
        assert_eq!(names(&directory.join("images").join(part)), Vec::<String>::new(), "{part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_is_built_once_and_completely() {
    let directory = images();
    let stages = Mutex::new(Vec::new());
    let host_lists = || names(Path::new("/var/lib/apt/lists")).iter().any(|name| name.ends_with("Release"));
    let had_lists = host_lists();
    let (first, second) = (library(directory.path(), &[("tiny", TINY)]), library(directory.path(), &[]));
    assert!(matches!(first.rootfs("tiny"), Err(Error::NotBuilt { .. })));
    assert!(first.names().contains(&"tiny".to_owned()));
    // Two at once: as two processes would, each has its own library.
    let told = |stage: &str| stages.lock().unwrap().push(stage.to_owned());
    let (one, two) = tokio::join!(first.build("tiny", told), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        second.build("tiny", told).await
    });
    let rootfs = one.unwrap();
    assert_eq!(rootfs, two.unwrap());
    assert_eq!(rootfs, first.rootfs("tiny").unwrap());
    let stages = stages.into_inner().unwrap();
    assert!(stages.iter().any(|stage| stage == "waiting for another build of the same template"));
    assert_eq!(stages.iter().filter(|stage| *stage == "putting it into place").count(), 1);
    let shares: Vec<f32> = stages.iter().filter_map(|stage| hotdesk_image::share(stage)).collect();
    assert!(shares.len() > 50, "{} stages tell how far it is", shares.len());

    assert_eq!(host_lists(), had_lists, "the host's own lists of packages are left alone");

    let tree = &rootfs.path;
    let read = |path: &str| std::fs::read_to_string(tree.join(path)).unwrap();
    let data = |path: &str| std::fs::metadata(tree.join(path)).unwrap();
    assert_eq!(read("etc/motto"), "no place like home");
    assert_eq!((data("etc/motto").mode() & 0o777, data("etc/motto").uid()), (0o600, 0));
    assert_eq!((data("home/somebody/deep").uid(), data("home/somebody/deep/note").uid()), (1234, 1234));
    assert!(read("etc/passwd").contains("somebody:x:1234:1234::/home/somebody:/bin/bash"));
    assert_eq!(read("etc/hotdesk/desk.toml"), "size = \"800x600\"\nstart = [\"true\"]\n\n[env]\nCOLOUR = \"green\"\n");
    assert_eq!(read("etc/hostname"), "desk\n");
    assert!(tree.join("root/ran").exists(), "its steps have run, though without the rights to leave the tree");
    assert_eq!(read("etc/resolv.conf"), "");
    assert_eq!(read("etc/machine-id").trim().len(), 32);
    assert_eq!(names(&tree.join("tmp")), Vec::<String>::new());
    assert_eq!(names(&tree.join("var/cache/apt/archives")), ["partial"]);
    let logs = Command::new("find").arg(tree.join("var/log")).args(["-type", "f"]).output().unwrap();
    assert_eq!(String::from_utf8(logs.stdout).unwrap(), "");

    let built = first.built("tiny").unwrap();
    assert_eq!(built.digest, rootfs.digest);
    assert!(built.size_bytes > 50 << 20 && first.size("tiny").unwrap() == built.size_bytes);
    let lock = first.lock("tiny").unwrap();
    assert_eq!(lock.len(), built.packages);
    assert!(lock.version("bash").is_some());
    let debs = directory.path().join("images/debs");
    for name in names(&debs).iter().filter(|name| name.ends_with(".deb")) {
        let _ = std::fs::hard_link(debs.join(name), Path::new(env!("CARGO_TARGET_TMPDIR")).join("debs").join(name));
    }
    assert!(names(&debs).len() >= lock.len(), "packages are kept for the next build");

    // What is built from something else has another name; what is removed is gone.
    std::fs::write(directory.path().join("templates/tiny.toml"), TINY.replace("green", "blue")).unwrap();
    assert!(matches!(first.rootfs("tiny"), Err(Error::NotBuilt { .. })));
    std::fs::write(directory.path().join("templates/tiny.toml"), TINY).unwrap();
    assert_eq!(first.trees(), [built]);
    first.remove("tiny").unwrap();
    first.remove("tiny").unwrap();
    assert_empty(directory.path());
}

#[tokio::test]
async fn what_can_not_be_built_leaves_nothing() {
    let directory = images();
    let library = library(directory.path(), &[("odd", "packages = ['no-such-package-anywhere']"), ("image", "image = 'a/b:c'")]);
    let error = library.build("odd", |_| {}).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("no-such-package-anywhere")), "{error}");
    let error = library.build("image", |_| {}).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(m) if m.contains("only docker")), "{error}");
    let error = library.build("none", |_| {}).await.unwrap_err();
    assert!(matches!(&error, Error::Unknown { known, .. } if known.contains("bare")), "{error}");
    assert_empty(directory.path());
    assert!(names(&directory.path().join("images/logs")).contains(&"odd.log".to_owned()));
}

#[tokio::test]
async fn a_build_that_is_dropped_ends_and_leaves_nothing() {
    let directory = images();
    let library = library(directory.path(), &[("tiny", TINY)]);
    let (send, mut begun) = tokio::sync::mpsc::unbounded_channel();
    {
        let build = library.build("tiny", move |stage| drop(send.send(stage.to_owned())));
        tokio::pin!(build);
        loop {
            tokio::select! {
                outcome = &mut build => panic!("it ended before it was dropped: {outcome:?}"),
                stage = begun.recv() => if stage.unwrap().starts_with("installing") { break },
            }
        }
    }
    no_process_of(directory.path()).await;
    drop(library);
    Library::open(directory.path().join("images")).unwrap();
    assert_empty(directory.path());
}

#[tokio::test]
async fn a_builder_that_is_killed_leaves_nothing() {
    let directory = images();
    library(directory.path(), &[("tiny", TINY)]);
    let mut child = Command::new(example())
        .args([directory.path().join("images").to_str().unwrap(), "tiny"])
        .env("HOTDESK_TEMPLATES", directory.path().join("templates"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let begun = lines.map_while(Result::ok).find(|line| line.starts_with("installing"));
    assert!(begun.is_some(), "the builder ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    no_process_of(directory.path()).await;
    assert_ne!(names(&directory.path().join("images/work")), Vec::<String>::new(), "there is something to clean");
    Library::open(directory.path().join("images")).unwrap();
    assert_empty(directory.path());
}

#[tokio::test]
async fn a_full_disk_is_told_before_anything_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Mounted::new(directory.path());
    let library = Library::open(mounted.0.clone()).unwrap();
    let error = library.build("bare", |_| {}).await.unwrap_err();
    assert!(matches!(&error, Error::Full(m) if m.contains("HOTDESK_IMAGES")), "{error}");
}

/// A disk of 16 MiB.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Self {
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "none"]).arg(at).status().unwrap();
        assert!(done.success(), "a small disk can't be mounted; this test needs root");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The example that builds, which `cargo test` builds too.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().and_then(Path::parent).unwrap().join("examples/build");
    assert!(example.is_file(), "{} is missing; `cargo build -p hotdesk-image --examples` makes it", example.display());
    assert_ne!(example.metadata().unwrap().permissions().mode() & 0o111, 0);
    example
}

/// Waits until nothing runs any more that names the directory on its command line or has it as its root.
async fn no_process_of(directory: &Path) {
    let directory = directory.to_str().unwrap();
    let alive = || {
        let mut alive = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let path = entry.path();
            if path.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.parse::<u32>().is_err()) {
                continue;
            }
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let root = std::fs::read_link(path.join("root")).unwrap_or_default();
            if command.contains(directory) || root.starts_with(directory) {
                alive.push(command);
            }
        }
        alive
    };
    let begun = Instant::now();
    while !alive().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "still alive: {:?}", alive());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
