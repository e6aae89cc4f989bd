//! Round trips, and archives that mean harm.

use super::*;
use futures_util::stream;

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, std::io::Error>> + Send>>;

fn body(bytes: Vec<u8>) -> Pieces {
    let pieces: Vec<_> = bytes.chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    Box::pin(stream::iter(pieces))
}

async fn packed(path: &Path) -> Vec<u8> {
    let mut stream = Box::pin(pack(path.to_owned()).await.unwrap());
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    all
}

fn header(kind: EntryType, name: &str, link: Option<&str>, size: u64) -> Header {
    let mut header = Header::new_gnu();
    // Written raw: the library itself refuses to make hostile names.
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    if let Some(link) = link {
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    }
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o4755);
    header.set_mtime(1_000_000);
    header.set_cksum();
    header
}

fn archive(entries: &[(EntryType, &str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, name, link, data) in entries {
        all.extend_from_slice(header(*kind, name, *link, data.len() as u64).as_bytes());
        all.extend_from_slice(data);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

#[tokio::test]
async fn a_tree_survives_the_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to/deep"));
    std::fs::create_dir_all(from.join("empty")).unwrap();
    std::fs::create_dir_all(from.join("sub/below")).unwrap();
    let long = "n".repeat(200);
    std::fs::write(from.join("sub").join(&long), vec![7; 300_000]).unwrap();
    std::fs::write(from.join("sub/below/script"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(from.join("sub/below/script"), Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("../script", from.join("sub/below/up")).unwrap();
    std::os::unix::fs::symlink(format!("./{}", "l".repeat(150)), from.join("long-link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    let bytes = packed(&from).await;
    let done = unpack(to.clone(), body(bytes)).await.unwrap();
    assert_eq!((done.entries, done.bytes), (7, 300_010));
    assert_eq!(std::fs::read(to.join("sub").join(&long)).unwrap(), vec![7; 300_000]);
    assert_eq!(std::fs::metadata(to.join("sub/below/script")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_link(to.join("sub/below/up")).unwrap(), Path::new("../script"));
    assert!(to.join("empty").is_dir() && !to.join("socket").exists());
    // Again, over what is there.
    let bytes = packed(&from).await;
    assert_eq!(unpack(to, body(bytes)).await.unwrap().entries, 7);
}

#[tokio::test]
async fn a_single_file_is_an_archive_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "text").unwrap();
    let bytes = packed(&dir.path().join("f")).await;
    unpack(dir.path().join("out"), body(bytes)).await.unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("out/f")).unwrap(), "text");
    assert!(matches!(pack(dir.path().join("none")).await.err(), Some(Error::NotFound(_))));
}

#[tokio::test]
async fn hostile_archives_are_refused() {
    use EntryType::{Block, Char, Fifo, Link, Regular, Symlink};
    let secret = tempfile::tempdir().unwrap();
    std::fs::write(secret.path().join("s"), "secret").unwrap();
    let outside = secret.path().to_str().unwrap().to_owned();
    let absolute = format!("{outside}/s");
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("parent", archive(&[(Regular, "../evil", None, b"x")])),
        ("parent inside", archive(&[(Regular, "a/../../evil", None, b"x")])),
        ("absolute", archive(&[(Regular, "/tmp/hotdesk-evil", None, b"x")])),
        ("absolute link", archive(&[(Symlink, "l", Some(&outside), b"")])),
        ("link up", archive(&[(Symlink, "l", Some("../x"), b"")])),
        ("link up and down again", archive(&[(Symlink, "l", Some("../box/x"), b"")])),
        ("hidden link up", archive(&[(Symlink, "d/l", Some("x/../../../y"), b"")])),
        ("link through a link", archive(&[(Symlink, "p", Some("."), b""), (Symlink, "p/p/l", Some("../../x"), b"")])),
        ("hard link", archive(&[(Link, "l", Some(&absolute), b"")])),
        ("hard link up", archive(&[(Link, "l", Some("../outside"), b"")])),
        ("fifo", archive(&[(Fifo, "f", None, b"")])),
        ("device", archive(&[(Char, "c", None, b"")])),
        ("disk", archive(&[(Block, "b", None, b"")])),
        ("no archive", vec![b'x'; 2000]),
    ];
    for (what, bytes) in cases {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("outside"), "keep").unwrap();
        let target = dir.path().join("box");
        let error = unpack(target, body(bytes)).await.unwrap_err();
        assert!(error.problem().status < 500, "{what}: {error}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{what}: {left:?}");
    }
    assert!(!Path::new("/tmp/hotdesk-evil").exists());
}

#[tokio::test]
async fn existing_links_do_not_lead_writes_out() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("box");
    std::fs::create_dir_all(&target).unwrap();
    std::fs::create_dir_all(dir.path().join("out")).unwrap();
    std::fs::write(dir.path().join("out/victim"), "keep").unwrap();
    std::os::unix::fs::symlink("../out", target.join("d")).unwrap();
    std::os::unix::fs::symlink("../out/victim", target.join("f")).unwrap();
    assert!(unpack(target.clone(), body(archive(&[(EntryType::Regular, "d/new", None, b"x")]))).await.is_err());
    unpack(target.clone(), body(archive(&[(EntryType::Regular, "f", None, b"new")]))).await.unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("out/victim")).unwrap(), "keep");
    assert_eq!(std::fs::read_to_string(target.join("f")).unwrap(), "new");
    assert_eq!(std::fs::read_dir(dir.path().join("out")).unwrap().count(), 1);
    assert_eq!(std::fs::metadata(target.join("f")).unwrap().permissions().mode() & 0o7777, 0o755, "no set-user bit");
}

#[tokio::test]
async fn endless_headers_do_not_fill_the_memory() {
    for kind in [EntryType::GNULongName, EntryType::XHeader, EntryType::XGlobalHeader] {
        let head = header(kind, "long", None, 1 << 40);
        let start = stream::iter([Ok::<_, std::io::Error>(Bytes::copy_from_slice(head.as_bytes()))]);
        let endless = stream::repeat_with(|| Ok(Bytes::from_static(&[b'a'; 8192])));
        let dir = tempfile::tempdir().unwrap();
        let error = unpack(dir.path().into(), Box::pin(futures_util::StreamExt::chain(start, endless))).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
}

#[tokio::test]
async fn an_archive_that_breaks_off_is_told() {
    let whole = archive(&[(EntryType::Regular, "a", None, &[1; 5000])]);
    let dir = tempfile::tempdir().unwrap();
    let error = unpack(dir.path().join("x"), body(whole[..2000].to_vec())).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert!(!dir.path().join("x/a").exists(), "half a file is none");
    // What can't be replaced is not taken away.
    std::fs::create_dir(dir.path().join("x/a")).unwrap();
    assert!(unpack(dir.path().join("x"), body(whole)).await.is_err());
    assert!(dir.path().join("x/a").is_dir());
}
