//! Fetching, from servers good and bad.

use crate::server::Server;
use crate::{MIB, join, names, on_disk, place, raw_disk};
use hotdesk_image::Error;
use hotdesk_image::disk::{Fetch, Fetched, Meter, fetch};
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A disk, and the same disk packed by the usual programs.
struct Kit {
    place: tempfile::TempDir,
    disk: Vec<u8>,
}

impl Kit {
    fn new() -> Self {
        let place = place();
        let path = join(&place, "disk.raw");
        raw_disk(&path, 64 * MIB, 40 * MIB);
        Self { disk: std::fs::read(&path).unwrap(), place }
    }

    fn zip(&self, by: &str) -> Vec<u8> {
        let (out, script) = (join(&self.place, "disk.zip"), format!("import zipfile, sys, os\n{by}"));
        let status = Command::new("python3").args(["-c", &script]).arg(&out).current_dir(self.place.path()).status().unwrap();
        assert!(status.success());
        let bytes = std::fs::read(&out).unwrap();
        std::fs::remove_file(out).unwrap();
        bytes
    }

    fn gzip(&self, level: flate2::Compression) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), level);
        packer.write_all(&self.disk).unwrap();
        packer.finish().unwrap()
    }

    fn zstd(&self) -> Vec<u8> {
        zstd::bulk::compress(&self.disk, 1).unwrap()
    }

    async fn get(&self, url: String, change: impl FnOnce(&mut Fetch)) -> hotdesk_image::Result<Fetched> {
        let mut request = Fetch { url, output: Some(self.out()), ..Fetch::default() };
        change(&mut request);
        fetch(request, Arc::new(Meter::default())).await
    }

    fn out(&self) -> std::path::PathBuf {
        join(&self.place, "out.raw")
    }

    /// The whole disk is there, with its holes, and nothing else.
    fn good(&self, fetched: &Fetched) {
        assert!(std::fs::read(&fetched.path).unwrap() == self.disk, "the content differs");
        assert_eq!(fetched.size, self.disk.len() as u64);
        assert!(on_disk(&fetched.path) < 40 * MIB, "zeros were written: {}", on_disk(&fetched.path));
        std::fs::remove_file(&fetched.path).unwrap();
        self.nothing();
    }

    fn nothing(&self) {
        assert_eq!(names(self.place.path()), ["disk.raw"]);
    }
}

/// Deflated with a size beforehand; with a text before it; the long form; written to a pipe, so that sizes come afterwards.
const ZIPS: [&str; 4] = [
    "z = zipfile.ZipFile(sys.argv[1], 'w', 8)\nz.write('disk.raw')\nz.close()",
    "z = zipfile.ZipFile(sys.argv[1], 'w', 8)\nz.writestr('../../README', 'x' * 9999)\nz.write('disk.raw', '../../../etc/disk.img')\nz.writestr('after', 'y')\nz.close()",
    "z = zipfile.ZipFile(sys.argv[1], 'w', 0)\nf = z.open(zipfile.ZipInfo('disk.qcow2'), 'w', force_zip64=True)\nf.write(open('disk.raw', 'rb').read())\nf.close()\nz.close()",
    "class Pipe:\n  def __init__(s, f): s.f = f\n  def write(s, b): return s.f.write(b)\n  def flush(s): s.f.flush()\nz = zipfile.ZipFile(Pipe(open(sys.argv[1], 'wb')), 'w', 8)\nz.writestr('a.txt', 'text')\nz.write('disk.raw')\nz.close()",
];

#[tokio::test(flavor = "multi_thread")]
async fn every_packing_from_every_server() {
    let kit = Kit::new();
    let zips = ZIPS.map(|by| kit.zip(by));
    let [plain, text, long, pipe] = zips;
    let files = [
        ("disk.raw", kit.disk.clone()),
        ("disk.gz", kit.gzip(flate2::Compression::fast())),
        ("disk.zst", kit.zstd()),
        ("plain.zip", plain),
        ("text.zip", text),
        ("long.zip", long),
        ("pipe.zip", pipe),
    ];
    let local = place();
    for (name, data) in &files {
        std::fs::write(local.path().join(name), data).unwrap();
    }
    let list: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let digest = |name: &str| {
        let sum = Command::new("sha256sum").arg(local.path().join(name)).output().unwrap();
        String::from_utf8(sum.stdout).unwrap()[..64].to_owned()
    };
    let digests: Vec<String> = list.iter().map(|name| digest(name)).collect();
    let server = Server::start(files.clone()).await;
    for (name, digest) in list.iter().zip(&digests) {
        for no_ranges in [false, true] {
            server.change(|habits| habits.no_ranges = no_ranges);
            let told = |what: &str| format!("{name}, no_ranges {no_ranges}, {what}");
            kit.good(&kit.get(server.url(name), |_| ()).await.unwrap_or_else(|e| panic!("{}: {e}", told("plain"))));
            let fetched = kit.get(server.url(name), |f| f.sha256 = Some(digest.clone())).await;
            kit.good(&fetched.unwrap_or_else(|e| panic!("{}: {e}", told("with a digest"))));
            let wrong = kit.get(server.url(name), |f| f.sha256 = Some("0".repeat(64))).await.unwrap_err();
            assert!(matches!(&wrong, Error::Invalid(why) if why.contains("SHA-256")), "{}: {wrong}", told("wrong digest"));
            kit.nothing();
        }
        let url = format!("file://{}", local.path().join(name).display());
        kit.good(&kit.get(url, |_| ()).await.unwrap_or_else(|e| panic!("{name} as a file: {e}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_goes_on_where_it_was() {
    let kit = Kit::new();
    let stored = kit.gzip(flate2::Compression::none());
    let server = Server::start([("disk.raw", kit.disk.clone()), ("disk.gz", stored)]).await;
    // What is on its way on four connections is lost, which is at most four segments.
    for name in ["disk.raw", "disk.gz"] {
        server.sent.store(0, Ordering::Relaxed);
        server.change(|habits| habits.dies_after = Some(50 * MIB));
        let died = kit.get(server.url(name), |_| ()).await.unwrap_err().to_string();
        assert!(died.contains("run it again to go on"), "{name}: {died}");
        assert_eq!(names(kit.place.path()), ["disk.raw", "out.raw.part", "out.raw.part.json"]);
        server.change(|habits| habits.dies_after = None);
        server.sent.store(0, Ordering::Relaxed);
        let fetched = kit.get(server.url(name), |_| ()).await.unwrap();
        assert!(fetched.resumed >= 4 * MIB, "{name}: {fetched:?}");
        assert!(server.sent.load(Ordering::Relaxed) <= 66 * MIB - fetched.resumed);
        kit.good(&fetched);
    }
    // The file was replaced in between: what is there is of no use.
    server.sent.store(0, Ordering::Relaxed);
    server.change(|habits| habits.dies_after = Some(50 * MIB));
    kit.get(server.url("disk.raw"), |_| ()).await.unwrap_err();
    server.change(|habits| (habits.dies_after, habits.tag) = (None, "\"two\"".into()));
    let fetched = kit.get(server.url("disk.raw"), |_| ()).await.unwrap();
    assert_eq!(fetched.resumed, 0);
    kit.good(&fetched);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_and_nothing_is_left() {
    let kit = Kit::new();
    let zip = kit.zip(ZIPS[0]);
    let half = |data: &[u8]| data[..data.len() / 2].to_vec();
    let mut damaged = zip.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    let several = kit.zip(
        "z = zipfile.ZipFile(sys.argv[1], 'w', 8)\nz.writestr('a.img', 'x' * 999)\nz.writestr('b.img', 'y' * 999)\nz.close()",
    );
    let none = kit.zip("z = zipfile.ZipFile(sys.argv[1], 'w', 8)\nz.writestr('a.txt', 'x')\nz.writestr('b.txt', 'y')\nz.close()");
    let server = Server::start([
        ("cut.zip", half(&zip)),
        ("cut.gz", half(&kit.gzip(flate2::Compression::fast()))),
        ("cut.zst", half(&kit.zstd())),
        ("damaged.zip", damaged),
        ("several.zip", several),
        ("none.zip", none),
        ("empty.raw", Vec::new()),
        ("disk.raw", kit.disk.clone()),
    ])
    .await;
    for no_ranges in [false, true] {
        server.change(|habits| habits.no_ranges = no_ranges);
        for name in ["cut.zip", "cut.gz", "cut.zst", "damaged.zip", "none.zip", "empty.raw", "missing"] {
            let error = kit.get(server.url(name), |_| ()).await.expect_err(name);
            assert!(matches!(error, Error::Invalid(_) | Error::Failed(_)), "{name}: {error}");
            let words = match name {
                "cut.zip" | "cut.gz" | "cut.zst" => &["cut off", "can't be unpacked", "incomplete"] as &[&str],
                "none.zip" => &["looks like a disk"],
                "missing" => &["404"],
                _ => &[""],
            };
            assert!(words.iter().any(|word| error.to_string().contains(word)), "{name}, no_ranges {no_ranges}: {error}");
            kit.nothing();
        }
    }
    server.change(|habits| habits.no_ranges = false);
    let error = kit.get(server.url("several.zip"), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("several disks") && error.contains("--entry"), "{error}");
    let fetched = kit.get(server.url("several.zip"), |f| f.entry = Some("b.img".into())).await.unwrap();
    assert_eq!(std::fs::read(&fetched.path).unwrap(), [b'y'; 999]);
    let error = kit.get(server.url("disk.raw"), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("there already"), "{error}");
    std::fs::remove_file(&fetched.path).unwrap();
    // Dies midway, and lets nobody go on.
    server.change(|habits| (habits.no_ranges, habits.dies_after) = (true, Some(18 * MIB)));
    server.sent.store(0, Ordering::Relaxed);
    let error = kit.get(server.url("disk.raw"), |_| ()).await.unwrap_err().to_string();
    assert!(error.contains("does not let a fetch go on"), "{error}");
    kit.nothing();
    for url in ["ftp://host/x", "no address", "file:///nowhere/x"] {
        kit.get(url.into(), |_| ()).await.unwrap_err();
    }
    kit.nothing();
}

/// A file system of 24 MiB is too small for a disk of 64. Needs root, as the other tests of this crate do.
#[tokio::test(flavor = "multi_thread")]
async fn too_little_room_is_told_first() {
    let kit = Kit::new();
    let server = Server::start([("disk.raw", kit.disk.clone())]).await;
    let point = place();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(point.path()).status().unwrap();
    assert!(mounted.success());
    let answer = kit.get(server.url("disk.raw"), |f| f.output = Some(point.path().join("out"))).await;
    let left = names(point.path());
    Command::new("umount").arg(point.path()).status().unwrap();
    let error = answer.unwrap_err();
    assert!(matches!(&error, Error::Full(why) if why.contains("it needs 64 MiB")), "{error}");
    assert!(left.is_empty(), "{left:?}");
    assert!(server.sent.load(Ordering::Relaxed) < MIB, "it was fetched before it was refused");
}
