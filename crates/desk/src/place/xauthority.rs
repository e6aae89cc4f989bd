//! `.Xauthority`: the file that tells programs the cookies of displays.
//!
//! A file is a list of records, each of them: family (2 bytes), then address, display number, name of
//! the method and data, each as a length (2 bytes) and bytes; numbers are big endian. The lock
//! protocol is the one that `xauth` uses, so that both can write the same file.

use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// A cookie of MIT-MAGIC-COOKIE-1.
pub type Cookie = [u8; 16];

/// The address is the name of the machine, for connections over sockets in the file system.
const FAMILY_LOCAL: u16 = 256;
/// Any address.
const FAMILY_WILD: u16 = 65_535;
const METHOD: &[u8] = b"MIT-MAGIC-COOKIE-1";
/// Nobody has that many displays; a larger file is not one of cookies.
const LARGEST: u64 = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    family: u16,
    address: Vec<u8>,
    number: Vec<u8>,
    method: Vec<u8>,
    data: Vec<u8>,
}

impl Record {
    fn is_for(&self, number: u16, host: &[u8]) -> bool {
        self.number == number.to_string().as_bytes()
            && (self.family == FAMILY_WILD || (self.family == FAMILY_LOCAL && self.address == host))
    }
}

/// The cookie of a display on this machine, if the file has one.
pub fn cookie(path: &Path, number: u16) -> Option<Cookie> {
    let host = hostname();
    let records = read(path).ok()?;
    let usable = |record: &&Record| {
        record.method == METHOD
            && (record.number.is_empty() || record.number == number.to_string().as_bytes())
            && (record.family == FAMILY_WILD || (record.family == FAMILY_LOCAL && record.address == host))
    };
    records.iter().find(usable).and_then(|record| record.data.as_slice().try_into().ok())
}

/// Writes the cookie of a display into the file, over what it held for that display; all else in it stays.
pub fn put(path: &Path, number: u16, cookie: &Cookie) -> io::Result<()> {
    change(path, |records, host| {
        records.retain(|record| !record.is_for(number, host));
        let record = |family, address: &[u8]| Record {
            family,
            address: address.to_vec(),
            number: number.to_string().into_bytes(),
            method: METHOD.to_vec(),
            data: cookie.to_vec(),
        };
        // First, because Python's Xlib takes the first record that fits and knows only this family.
        // The other one serves after the machine was renamed, as happens to copies of containers.
        records.insert(0, record(FAMILY_WILD, b""));
        records.insert(0, record(FAMILY_LOCAL, host));
    })
}

/// Takes a display's cookie out again, if the file still has this one.
pub fn remove(path: &Path, number: u16, cookie: &Cookie) -> io::Result<()> {
    change(path, |records, host| records.retain(|record| !(record.is_for(number, host) && record.data == cookie)))
}

/// A file that holds this one cookie, for the server itself.
pub fn write_alone(path: &Path, number: u16, cookie: &Cookie) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    put(path, number, cookie)
}

/// A new cookie.
pub fn new_cookie() -> Cookie {
    rand::random()
}

fn change(path: &Path, edit: impl FnOnce(&mut Vec<Record>, &[u8])) -> io::Result<()> {
    let _lock = Lock::take(path);
    let mut records = match read(path) {
        Ok(records) => records,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e),
    };
    edit(&mut records, &hostname());
    if records.is_empty() {
        // An empty file makes Python's Xlib print a warning where programs expect output.
        return match std::fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    }
    let mut bytes = Vec::new();
    for record in &records {
        bytes.extend(record.family.to_be_bytes());
        for field in [&record.address, &record.number, &record.method, &record.data] {
            let length = u16::try_from(field.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            bytes.extend(length.to_be_bytes());
            bytes.extend(field);
        }
    }
    // Written beside it and moved over it, so that nobody ever reads half a file.
    let new = with_suffix(path, "-n");
    let _ = std::fs::remove_file(&new);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&bytes)?;
    std::fs::rename(&new, path)
}

fn read(path: &Path) -> io::Result<Vec<Record>> {
    let size = std::fs::metadata(path)?.size();
    if size > LARGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is too large to hold cookies", path.display())));
    }
    Ok(parse(&std::fs::read(path)?))
}

/// All whole records. What follows a broken one can't be made sense of and is left out, as libXau does.
fn parse(mut bytes: &[u8]) -> Vec<Record> {
    fn number(bytes: &mut &[u8]) -> Option<u16> {
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        *bytes = rest;
        Some(u16::from_be_bytes(*head))
    }
    fn field(bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let length = usize::from(number(bytes)?);
        let (head, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(head.to_vec())
    }
    let mut next = || {
        Some(Record {
            family: number(&mut bytes)?,
            address: field(&mut bytes)?,
            number: field(&mut bytes)?,
            method: field(&mut bytes)?,
            data: field(&mut bytes)?,
        })
    };
    std::iter::from_fn(&mut next).collect()
}

fn hostname() -> Vec<u8> {
    nix::unistd::gethostname().map(|name| name.into_encoded_bytes()).unwrap_or_default()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The lock of `xauth`: a file `-c`, made by one alone, and a second name `-l` for it.
struct Lock {
    files: Option<[PathBuf; 2]>,
}

impl Lock {
    /// How long a living writer is waited for; it needs a millisecond.
    const PATIENCE: Duration = Duration::from_secs(1);
    /// A lock that is older was left by somebody who died.
    const STALE: Duration = Duration::from_secs(10);

    /// Goes on without the lock where none can be had: a desk without a cookie is worse than a lost record.
    fn take(path: &Path) -> Self {
        let files = [with_suffix(path, "-c"), with_suffix(path, "-l")];
        let begin = Instant::now();
        loop {
            let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&files[0]);
            match made {
                Ok(_) if std::fs::hard_link(&files[0], &files[1]).is_ok() => return Self { files: Some(files) },
                // File systems without links have no second name.
                Ok(_) if !files[1].exists() => return Self { files: Some(files) },
                Ok(_) => drop(std::fs::remove_file(&files[0])),
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Self { files: None },
                Err(_) => {}
            }
            for file in &files {
                let age = std::fs::metadata(file)
                    .and_then(|m| m.modified())
                    .ok()
                    .and_then(|t| SystemTime::now().duration_since(t).ok());
                if age.is_some_and(|age| age > Self::STALE) {
                    let _ = std::fs::remove_file(file);
                }
            }
            if begin.elapsed() > Self::PATIENCE {
                tracing::warn!(path = %path.display(), "somebody keeps the lock of this file; it is written without");
                return Self { files: None };
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        for file in self.files.iter().flatten() {
            let _ = std::fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".Xauthority");
        put(&path, 1, &[1; 16]).unwrap();
        put(&path, 2, &[2; 16]).unwrap();
        put(&path, 1, &[3; 16]).unwrap();
        assert_eq!(cookie(&path, 1), Some([3; 16]));
        assert_eq!(cookie(&path, 2), Some([2; 16]));
        assert_eq!(cookie(&path, 3), None);
        assert_eq!(read(&path).unwrap().len(), 4);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

        remove(&path, 1, &[9; 16]).unwrap();
        assert_eq!(cookie(&path, 1), Some([3; 16]), "another cookie than the named one stays");
        remove(&path, 1, &[3; 16]).unwrap();
        remove(&path, 2, &[2; 16]).unwrap();
        assert!(!path.exists(), "an empty file must not be left");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no lock is left");
    }

    #[test]
    fn foreign_records_survive_byte_by_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        // An Internet address with a method that we don't know.
        let foreign = b"\0\0\0\x04\x7f\0\0\x01\0\x0210\0\x05X-DES\0\x03abc".to_vec();
        std::fs::write(&path, &foreign).unwrap();
        put(&path, 99, &[7; 16]).unwrap();
        remove(&path, 99, &[7; 16]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), foreign);
    }

    #[test]
    fn broken_files_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for bytes in [&b""[..], b"\x01", b"\x01\0\xff\xff", &[0xff; 300], &[0; 7]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(cookie(&path, 0), None);
            put(&path, 0, &[5; 16]).unwrap();
            assert_eq!(cookie(&path, 0), Some([5; 16]));
        }
    }

    #[test]
    fn a_lock_of_the_dead_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let old = std::fs::File::create(with_suffix(&path, "-c")).unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        put(&path, 0, &[5; 16]).unwrap();
        assert!(!with_suffix(&path, "-c").exists());
    }

    #[test]
    fn many_writers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::thread::scope(|scope| {
            for number in 0..8u16 {
                let path = &path;
                scope.spawn(move || put(path, number, &[number as u8; 16]).unwrap());
            }
        });
        for number in 0..8u16 {
            assert_eq!(cookie(&path, number), Some([number as u8; 16]));
        }
    }
}
