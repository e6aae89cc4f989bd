//! Against a directory, and against a real S3 server that `scripts/s3` starts.

mod folders;

use super::*;
use crate::store::tests::desk;
use folders::Folders;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, ReadBuf};

/// The fleet's.
const KEY: [u8; 32] = [7; 32];

/// A place for archives, and the folder behind it.
struct Here {
    archives: Archives,
    folder: PathBuf,
    _directory: Option<TempDir>,
}

impl Here {
    fn directory() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("archives");
        let archives = Archives::open(folder.to_str().unwrap()).unwrap().sealed(Some(KEY), std::env::temp_dir());
        Self { archives, folder, _directory: Some(directory) }
    }

    /// A prefix of its own in the bucket of the server that all tests of this process share.
    fn s3() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = server();
        let prefix = format!("some/prefix{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let archives = Archives::open_with(&format!("s3://hotdesk/{prefix}"), server.variables.clone()).unwrap();
        let archives = archives.sealed(Some(KEY), std::env::temp_dir());
        Self { archives, folder: server.directory.join("data/hotdesk").join(prefix), _directory: None }
    }

    /// Everything that lies there, but for the server's own notes.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { found.push(path) }
            }
        }
        found.retain(|path| !path.file_name().unwrap().to_string_lossy().starts_with(".object"));
        found
    }
}

/// Ends with this process, however that ends.
struct Server {
    directory: PathBuf,
    variables: BTreeMap<String, String>,
    // It waits for the end of its input, which is ours.
    _keeper: Child,
}

impl Server {
    fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/s3");
        let directory = tempfile::tempdir().unwrap().keep();
        let output = Command::new(&script).arg("start").arg(&directory).output().unwrap();
        assert!(output.status.success(), "the S3 server did not start: {}", String::from_utf8_lossy(&output.stderr));
        let keeper = Command::new("sh")
            .args(["-c", r#"cat; "$0" stop "$1"; rm -rf "$1""#])
            .arg(&script)
            .arg(&directory)
            // Whoever ends the tests as a group must not end it too.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let line = String::from_utf8(output.stdout).unwrap();
        let pairs = line.trim().trim_start_matches("export ").split(' ').map(|pair| pair.split_once('=').unwrap());
        let variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { directory, variables, _keeper: keeper }
    }
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// Random bytes, which can't be compressed, and then zeros, which can.
fn data(random: usize, zeros: usize) -> Vec<u8> {
    let mut data = vec![0; random + zeros];
    rand::rngs::SmallRng::seed_from_u64(random as u64).fill_bytes(&mut data[..random]);
    data
}

async fn read(archives: &Archives, archive: &ArchiveRef) -> std::result::Result<Vec<u8>, String> {
    let mut reader = archives.get(archive).await.map_err(|e| e.to_string())?;
    let mut data = Vec::new();
    reader.read_to_end(&mut data).await.map_err(|e| e.to_string())?;
    Ok(data)
}

/// Makes each property a test on each kind of place.
macro_rules! on_both {
    ($($property:ident),* $(,)?) => {
        mod directory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                super::$property(super::Here::directory()).await;
            })*
        }
        mod s3 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                super::$property(super::Here::s3()).await;
            })*
        }
    };
}

on_both!(
    what_is_written_comes_back,
    a_damaged_archive_is_refused,
    nothing_is_passed_on_that_the_fleet_did_not_write,
    archives_of_older_versions_come_back,
    a_reader_that_fails_leaves_nothing,
    an_upload_that_is_dropped_leaves_nothing,
    a_desk_goes_and_comes_back,
    a_desk_of_a_damaged_archive_is_not_left,
    an_export_that_fails_is_no_archive,
    what_nobody_knows_is_swept,
);

async fn what_is_written_comes_back(here: Here) {
    // Nothing, little, several parts.
    for (random, zeros) in [(0, 0), (1000, 5000), (20 << 20, 30 << 20)] {
        let data = data(random, zeros);
        let archive = here.archives.put("d-1", std::io::Cursor::new(data.clone())).await.unwrap();
        assert_eq!(archive.sha256.len(), 64);
        assert!(archive.bytes as usize >= random && (archive.bytes as usize) < random + random / 50 + 10_000, "{archive:?}");
        assert!(read(&here.archives, &archive).await.unwrap() == data, "other bytes came back");
        here.archives.delete(&archive).await.unwrap();
        here.archives.delete(&archive).await.unwrap();
        let gone = read(&here.archives, &archive).await.unwrap_err();
        assert!(gone.contains("is gone"), "{gone}");
        assert_eq!(here.files(), Vec::<PathBuf>::new());
    }
}

async fn a_damaged_archive_is_refused(here: Here) {
    let data = data(3 << 20, 1 << 20);
    let archive = here.archives.put("d-1", std::io::Cursor::new(data)).await.unwrap();
    let [path] = &here.files()[..] else { panic!("{:?}", here.files()) };
    let good = std::fs::read(path).unwrap();
    assert_eq!(good.len() as u64, archive.bytes);

    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let mut last = good.clone();
    *last.last_mut().unwrap() ^= 1;
    let longer = [&good[..], b"x"].concat();
    let other = [&good[..good.len() - 5], &good[..5]].concat();
    for (what, bad) in [
        ("flipped", &flipped[..]),
        ("end", &last),
        ("cut", &good[..good.len() - 1]),
        ("longer", &longer),
        ("other", &other),
        ("empty", b""),
    ] {
        std::fs::write(path, bad).unwrap();
        let error = read(&here.archives, &archive).await.expect_err(what);
        assert!(error.contains("damaged") || error.contains("SHA"), "{what}: {error}");
    }
    std::fs::write(path, &good).unwrap();
    read(&here.archives, &archive).await.unwrap();
    // The right archive of another desk.
    let error = read(&here.archives, &ArchiveRef { sha256: "0".repeat(64), ..archive }).await.unwrap_err();
    assert!(error.contains("damaged"), "{error}");
}

/// What comes of an archive before its reader fails.
async fn passed_on(archives: &Archives, archive: &ArchiveRef) -> Vec<u8> {
    let mut data = Vec::new();
    if let Ok(mut reader) = archives.get(archive).await {
        reader.read_to_end(&mut data).await.expect_err("a changed archive");
    }
    data
}

async fn nothing_is_passed_on_that_the_fleet_did_not_write(here: Here) {
    let data = data(10 << 20, 0);
    let plain = Archives { key: None, ..here.archives.clone() };
    for (archives, what) in [(&here.archives, "sealed"), (&plain, "of an older version")] {
        let archive = archives.put("d-1", std::io::Cursor::new(data.clone())).await.unwrap();
        let path = here
            .files()
            .into_iter()
            .find(|path| archive.location.ends_with(path.file_name().unwrap().to_str().unwrap()))
            .unwrap();
        let good = std::fs::read(&path).unwrap();
        // Somebody who can write to the bucket puts files of his own there, of the same length, before and behind what was there.
        let evil = zstd::encode_all(&b"evil".repeat(1 << 20)[..], 3).unwrap();
        let filled = |mut bytes: Vec<u8>| {
            bytes.resize(good.len(), 0);
            bytes
        };
        let half = good.len() / 2;
        for bad in [filled(evil.clone()), filled([&good[..half], &evil].concat()), filled([&evil, &good[..half]].concat())] {
            std::fs::write(&path, bad).unwrap();
            let passed = passed_on(archives, &archive).await;
            assert!(data.starts_with(&passed), "{what}: {} bytes were passed on", passed.len());
        }
        here.archives.delete(&archive).await.unwrap();
    }
    // An archive of the fleet's own in the place of another, with the record of the first.
    let own = here.archives.put("d-1", std::io::Cursor::new(data.clone())).await.unwrap();
    let own_path = here.files().remove(0);
    let other = here.archives.put("d-2", std::io::Cursor::new(vec![1; 10 << 20])).await.unwrap();
    let other_path = here.files().into_iter().find(|path| *path != own_path).unwrap();
    std::fs::copy(&other_path, &own_path).unwrap();
    let swapped = ArchiveRef { location: own.location, ..other };
    assert_eq!(passed_on(&here.archives, &swapped).await, b"");
}

async fn archives_of_older_versions_come_back(here: Here) {
    let older = Archives { key: None, ..here.archives.clone() };
    for (random, zeros) in [(0, 0), (1000, 5000), (5 << 20, 3 << 20)] {
        let data = data(random, zeros);
        let archive = older.put("d-1", std::io::Cursor::new(data.clone())).await.unwrap();
        assert!(read(&here.archives, &archive).await.unwrap() == data);
    }
    // The other way there is nothing to check with.
    let sealed = here.archives.put("d-1", std::io::Cursor::new(vec![1])).await.unwrap();
    assert!(read(&older, &sealed).await.unwrap_err().contains("without its key"));
    // What was sealed is what zstd reads.
    let path =
        here.files().into_iter().find(|path| sealed.location.ends_with(path.file_name().unwrap().to_str().unwrap())).unwrap();
    assert_eq!(zstd::decode_all(&std::fs::read(path).unwrap()[..]).unwrap(), [1]);
}

/// Gives so many bytes and then an error, or nothing more at all.
struct Broken {
    left: usize,
    hangs: Option<tokio::sync::mpsc::Sender<()>>,
}

impl AsyncRead for Broken {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let length = buffer.remaining().min(self.left);
        // Other noise each time: what is repeated can be compressed.
        let mut noise = vec![0; length];
        rand::rngs::SmallRng::seed_from_u64(self.left as u64).fill_bytes(&mut noise);
        buffer.put_slice(&noise);
        self.left -= length;
        match &self.hangs {
            _ if length > 0 => Poll::Ready(Ok(())),
            None => Poll::Ready(Err(std::io::Error::other("the disk broke"))),
            Some(told) => {
                let _ = told.try_send(());
                Poll::Pending
            }
        }
    }
}

async fn a_reader_that_fails_leaves_nothing(here: Here) {
    for size in [0, 100, 20 << 20] {
        let error = here.archives.put("d-1", Broken { left: size, hangs: None }).await.unwrap_err();
        assert!(error.to_string().contains("the disk broke"), "{error}");
        assert_eq!(here.files(), Vec::<PathBuf>::new(), "after {size} bytes");
    }
}

async fn an_upload_that_is_dropped_leaves_nothing(here: Here) {
    let (told, mut hangs) = tokio::sync::mpsc::channel(1);
    let archives = here.archives.clone();
    let upload = tokio::spawn(async move { archives.put("d-1", Broken { left: 20 << 20, hangs: Some(told) }).await });
    hangs.recv().await.unwrap();
    upload.abort();
    assert!(upload.await.unwrap_err().is_cancelled());
    // The thread that read lets go of its reader.
    while hangs.recv().await.is_some() {}
    let mut tries = 0;
    while !here.files().is_empty() {
        tries += 1;
        assert!(tries < 1000, "left: {:?}", here.files());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_desk_goes_and_comes_back(here: Here) {
    let folders = Folders::new();
    folders.make("d-1", &data(2 << 20, 2 << 20));
    let provider = folders.provider();
    let archive = here.archives.save(&provider, "d-1").await.unwrap();
    assert!(archive.location.contains("/d-1/"), "{}", archive.location);
    provider.delete("d-1").await.unwrap();
    here.archives.restore(&archive, &provider, &desk("d-1").spec).await.unwrap();
    assert!(folders.read("d-1") == data(2 << 20, 2 << 20));

    // Small enough for a pipe's buffer.
    folders.make("d-2", b"little");
    let little = here.archives.save(&provider, "d-2").await.unwrap();
    provider.delete("d-2").await.unwrap();
    here.archives.restore(&little, &provider, &desk("d-2").spec).await.unwrap();
    assert_eq!(folders.read("d-2"), b"little");

    // Also with other settings, as the location says where it is.
    let other = Archives::open_with(tempfile::tempdir().unwrap().path().to_str().unwrap(), here.archives.place.variables.clone())
        .unwrap()
        .sealed(Some(KEY), std::env::temp_dir());
    other.restore(&little, &provider, &desk("d-3").spec).await.unwrap();
    assert_eq!(folders.read("d-3"), b"little");
}

async fn a_desk_of_a_damaged_archive_is_not_left(here: Here) {
    let folders = Folders::new();
    folders.make("d-1", &data(2 << 20, 0));
    let provider = folders.provider();
    let archive = here.archives.save(&provider, "d-1").await.unwrap();
    provider.delete("d-1").await.unwrap();
    let path = here.files().remove(0);
    let good = std::fs::read(&path).unwrap();
    // The end of the frame, after all files: a tar reader would never notice.
    for place in [100, good.len() / 2, good.len() - 2] {
        let mut bad = good.clone();
        bad[place] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let error = here.archives.restore(&archive, &provider, &desk("d-1").spec).await.unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert!(!folders.exists("d-1"), "a desk of a bad archive is there");
    }
    // A provider that does not even open the stream.
    let error = here.archives.restore(&archive, &provider, &desk("refused").spec).await.unwrap_err();
    assert!(error.to_string().contains("damaged") || error.to_string().contains("refused"), "{error}");
    std::fs::write(&path, &good).unwrap();
    let error = here.archives.restore(&archive, &provider, &desk("refused").spec).await.unwrap_err();
    assert!(error.to_string().contains("import is refused"), "{error}");
}

async fn an_export_that_fails_is_no_archive(here: Here) {
    let folders = Folders::new();
    let provider = folders.provider();
    // At once, and after it wrote something.
    for desk in ["unknown", "broken"] {
        folders.make("broken", &data(20 << 20, 0));
        let error = here.archives.save(&provider, desk).await.unwrap_err();
        assert!(
            matches!(error, Error::Provider(hotdesk_provider::Error::NotFound(_) | hotdesk_provider::Error::Failed(_))),
            "{error:?}"
        );
        assert_eq!(here.files(), Vec::<PathBuf>::new());
    }
}

async fn what_nobody_knows_is_swept(here: Here) {
    let known = here.archives.put("d-1", std::io::Cursor::new(b"known".to_vec())).await.unwrap();
    let unknown = here.archives.put("d-1", std::io::Cursor::new(b"unknown".to_vec())).await.unwrap();
    let keep = std::slice::from_ref(&known);
    assert_eq!(here.archives.sweep(keep, Duration::from_secs(3600)).await.unwrap(), 0, "it may belong to an upload under way");
    std::fs::write(here.folder.join("notes.txt"), "of somebody else").unwrap();
    assert_eq!(here.archives.sweep(keep, Duration::ZERO).await.unwrap(), 1);
    read(&here.archives, &known).await.unwrap();
    assert!(read(&here.archives, &unknown).await.unwrap_err().contains("gone"));
    assert!(here.folder.join("notes.txt").exists());
}

/// The server keeps parts beside its buckets until the upload is completed or aborted.
#[tokio::test]
async fn no_parts_of_an_aborted_upload_lie_in_the_server() {
    let server = Server::start();
    let parts = || {
        let files =
            std::fs::read_dir(server.directory.join("data")).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
        files.filter(|name| name != "hotdesk").collect::<Vec<_>>()
    };
    let archives = Archives::open_with("s3://hotdesk", server.variables.clone()).unwrap();
    let (told, mut hangs) = tokio::sync::mpsc::channel(1);
    let upload = {
        let archives = archives.clone();
        tokio::spawn(async move { archives.put("d-1", Broken { left: 20 << 20, hangs: Some(told) }).await })
    };
    hangs.recv().await.unwrap();
    let mut tries = 0;
    while parts().len() < 2 {
        tries += 1;
        assert!(tries < 1000, "no parts are seen, so this test sees nothing: {:?}", parts());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    upload.abort();
    while !parts().is_empty() {
        tries += 1;
        assert!(tries < 2000, "left: {:?}", parts());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    archives.put("d-1", Broken { left: 20 << 20, hangs: None }).await.unwrap_err();
    assert_eq!(parts(), Vec::<String>::new());
}

#[tokio::test]
async fn remains_of_a_killed_upload_are_swept() {
    let here = Here::directory();
    let known = here.archives.put("d-1", std::io::Cursor::new(b"known".to_vec())).await.unwrap();
    std::fs::create_dir(here.folder.join("d-2")).unwrap();
    std::fs::write(here.folder.join("d-2/abc.tar.zst#1"), "half").unwrap();
    assert_eq!(here.archives.sweep(std::slice::from_ref(&known), Duration::from_secs(3600)).await.unwrap(), 0);
    assert_eq!(here.archives.sweep(std::slice::from_ref(&known), Duration::ZERO).await.unwrap(), 1);
    assert!(!here.folder.join("d-2").exists());
    read(&here.archives, &known).await.unwrap();
}

#[tokio::test]
async fn a_directory_is_for_its_owner_alone() {
    let here = Here::directory();
    here.archives.put("d-1", std::io::Cursor::new(vec![1])).await.unwrap();
    for folder in [here.folder.clone(), here.folder.join("d-1")] {
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{folder:?}");
    }
}

#[test]
fn impossible_places_are_refused() {
    for bad in ["s3://", "ftp://host/x", "/proc/nowhere/x", ""] {
        let error = Archives::open_with(bad, []).err().unwrap_or_else(|| panic!("{bad} was taken"));
        assert!(matches!(error, Error::Invalid(_)), "{bad}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_told() {
    let mut variables = server().variables.clone();
    variables.insert("AWS_SECRET_ACCESS_KEY".into(), "wrong".into());
    let wrong = Archives::open_with("s3://hotdesk/x", variables).unwrap();
    let error = wrong.put("d-1", std::io::Cursor::new(vec![1])).await.unwrap_err();
    assert!(matches!(error, Error::Provider(hotdesk_provider::Error::Unavailable { .. })), "{error:?}");
    assert!(!error.to_string().contains("wrong"), "{error}");
}

const SMALL: &str = "HOTDESK_TEST_SMALL";

/// The process whose memory is measured.
#[tokio::test]
async fn streamer() {
    let Some(folder) = std::env::var_os(SMALL) else { return };
    let archives = Archives::open(folder.to_str().unwrap()).unwrap();
    let noise = tokio::io::repeat(0).take(64 << 20).chain(Broken { left: 160 << 20, hangs: None }.take(160 << 20));
    let archive = archives.put("d-1", noise).await.unwrap();
    let mut reader = archives.get(&archive).await.unwrap();
    let length = tokio::io::copy(&mut reader, &mut tokio::io::sink()).await.unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    writeln!(std::io::stdout(), "streamed {length} peak {peak}").unwrap();
}

#[test]
fn memory_does_not_grow_with_the_desk() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "archive::tests::streamer", "--nocapture"])
        .env(SMALL, directory.path())
        .output()
        .unwrap();
    let line = output.stdout.lines().map(|l| l.unwrap()).find_map(|l| l.split_once("streamed ").map(|(_, rest)| rest.to_owned()));
    let line = line.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers[0], 224 << 20);
    assert!(numbers[1] < 100 << 10, "{} KiB of memory for a desk of 224 MiB", numbers[1]);
}
