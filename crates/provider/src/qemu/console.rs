//! What a guest prints on its serial console: kept, within bounds, and read for signs of how far it is.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// What is kept of a console: the newest of this, and as much before it. A guest could print for ever.
const LARGEST_LOG: u64 = 256 << 10;
/// Lines that are longer are cut where signs are looked for.
const LONGEST_LINE: usize = 4 << 10;

/// How far a guest is, as far as its console tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sign {
    /// Nothing was printed yet.
    Silent,
    Firmware,
    Kernel,
    Session,
    Ready,
}

/// Signs in what firmware, kernels and our own init print.
const SIGNS: [(&str, Sign); 7] = [
    ("SeaBIOS", Sign::Firmware),
    ("BdsDxe", Sign::Firmware),
    ("Linux version", Sign::Kernel),
    ("hotdesk: kernel", Sign::Kernel),
    ("hotdesk: network", Sign::Kernel),
    ("hotdesk: session", Sign::Session),
    ("hotdesk: ready", Sign::Ready),
];

pub(crate) fn log(folder: &Path) -> PathBuf {
    folder.join("console.log")
}

fn log_before(folder: &Path) -> PathBuf {
    folder.join("console-before.log")
}

/// The last lines of it.
pub(crate) fn last_lines(folder: &Path, lines: usize) -> String {
    let read =
        |path: PathBuf| String::from_utf8_lossy(&super::jail::read(&path, 2 * LARGEST_LOG).unwrap_or_default()).into_owned();
    let text = read(log_before(folder)) + &read(log(folder));
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| format!("{line}\n")).collect()
}

/// Reads the console until the guest ends.
pub(crate) async fn run(mut from: UnixStream, folder: PathBuf, sign: watch::Sender<Sign>) {
    let open = || File::options().create(true).append(true).mode(0o600).open(log(&folder));
    let _ = std::fs::rename(log(&folder), log_before(&folder));
    let (mut file, mut written) = (open().ok(), 0);
    let mut line = Vec::new();
    let mut buffer = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let heard = &buffer[..count];
        // A console that can't be kept is still read, or the guest would wait for us.
        if let Some(file) = &mut file {
            let _ = file.write_all(heard);
        }
        written += count as u64;
        if written > LARGEST_LOG {
            let _ = std::fs::rename(log(&folder), log_before(&folder));
            (file, written) = (open().ok(), 0);
        }
        for byte in heard {
            if *byte != b'\n' && line.len() < LONGEST_LINE {
                line.push(*byte);
                continue;
            }
            let text = String::from_utf8_lossy(&line);
            if let Some((_, found)) = SIGNS.iter().rev().find(|(words, _)| text.contains(words)) {
                sign.send_if_modified(|known| {
                    let new = *found > *known;
                    *known = (*known).max(*found);
                    new
                });
            }
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn signs_are_read_and_floods_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, mut guest) = UnixStream::pair().unwrap();
        let (sender, mut signs) = watch::channel(Sign::Silent);
        let reader = tokio::spawn(run(ours, folder.path().into(), sender));
        guest.write_all(b"\x1b[2JSeaBIOS (version 1.16)\r\n").await.unwrap();
        signs.wait_for(|sign| *sign == Sign::Firmware).await.unwrap();
        guest.write_all(b"[    0.0] Linux version 6.1\r\nhotdesk: ses").await.unwrap();
        guest.write_all(b"sion\r\n").await.unwrap();
        signs.wait_for(|sign| *sign == Sign::Session).await.unwrap();
        guest.write_all(b"hotdesk: kernel\n").await.unwrap();
        let flood = vec![b'x'; 3 * LARGEST_LOG as usize];
        guest.write_all(&flood).await.unwrap();
        guest.write_all(b"\nthe end\n").await.unwrap();
        drop(guest);
        reader.await.unwrap();
        assert_eq!(*signs.borrow(), Sign::Session, "a guest does not go back");
        let kept =
            std::fs::metadata(log(folder.path())).unwrap().len() + std::fs::metadata(log_before(folder.path())).unwrap().len();
        assert!(kept < 3 * LARGEST_LOG, "{kept}");
        assert!(last_lines(folder.path(), 1).contains("the end"));
    }
}
