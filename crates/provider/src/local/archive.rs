//! What a desk wrote, as a tar archive: the form in which container images carry layers.
//!
//! A deleted name `x` is an empty file `.wh.x`; a directory that hides what is below it has an empty file `.wh..wh..opq`. What a desk
//! itself calls so has a PAX record that says that its name is meant.
//! Owners are those inside the desk. Several layers follow each other in one archive, the lowest first, and what comes
//! later replaces what came before; so unpacking gives one layer that says the same as all of them.

use super::ids::Ids;
use super::tree::{OPAQUE, is_opaque, kept_attributes};
use rustix::fs::{FileType, Mode, XattrFlags, fsetxattr, lgetxattr, mknodat};
use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use tar::{Builder, EntryType, Header};

const DELETED: &str = ".wh.";
const HIDES: &str = ".wh..wh..opq";
/// How extended attributes are named in archives.
const ATTRIBUTE: &str = "SCHILY.xattr.";
/// The PAX record of what is called as deleted names are.
const MEANT: &str = "HOTDESK.meant";
const BUFFER: usize = 256 << 10;

/// Writes layers, the lowest first. Returns the bytes written.
pub(crate) fn pack(layers: &[&Path], ids: Ids, to: File) -> io::Result<u64> {
    let mut pack =
        Pack { tar: Builder::new(Counted { to: BufWriter::with_capacity(BUFFER, to), bytes: 0 }), ids, links: HashMap::new() };
    for layer in layers.iter().filter(|layer| layer.is_dir()) {
        pack.links.clear();
        pack.directory(layer, Path::new(""))?;
    }
    let mut counted = pack.tar.into_inner()?;
    counted.flush()?;
    Ok(counted.bytes)
}

struct Pack<W: Write> {
    tar: Builder<W>,
    ids: Ids,
    /// Files with several names, by their first one.
    links: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Pack<W> {
    fn directory(&mut self, from: &Path, inside: &Path) -> io::Result<()> {
        if is_opaque(File::open(from)?.as_fd()) {
            self.tar.append_data(&mut empty(), inside.join(HIDES), io::empty())?;
        }
        let mut entries = std::fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            self.entry(&entry.path(), &inside.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn entry(&mut self, from: &Path, inside: &Path) -> io::Result<()> {
        let meta = std::fs::symlink_metadata(from)?;
        let kind = meta.file_type();
        if kind.is_char_device() && meta.rdev() == 0 {
            let mut name = OsString::from(DELETED);
            name.push(inside.file_name().unwrap_or_default());
            return self.tar.append_data(&mut empty(), inside.with_file_name(name), io::empty());
        }
        let mut header = Header::new_gnu();
        header.set_metadata(&meta);
        header.set_uid(self.inside(meta.uid()));
        header.set_gid(self.inside(meta.gid()));
        header.set_size(0);
        if !kind.is_dir() && meta.nlink() > 1 {
            if let Some(first) = self.links.get(&(meta.dev(), meta.ino())) {
                header.set_entry_type(EntryType::Link);
                Self::records(&mut self.tar, inside, None)?;
                return self.tar.append_link(&mut header, inside, first);
            }
            self.links.insert((meta.dev(), meta.ino()), inside.to_owned());
        }
        if kind.is_dir() {
            header.set_entry_type(EntryType::Directory);
            Self::records(&mut self.tar, inside, Some(&File::open(from)?))?;
            self.tar.append_data(&mut header, inside, io::empty())?;
            return self.directory(from, inside);
        }
        if kind.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            Self::records(&mut self.tar, inside, None)?;
            return self.tar.append_link(&mut header, inside, std::fs::read_link(from)?);
        }
        if kind.is_fifo() {
            header.set_entry_type(EntryType::Fifo);
            Self::records(&mut self.tar, inside, None)?;
            return self.tar.append_data(&mut header, inside, io::empty());
        }
        if kind.is_file() {
            let file = File::options().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(from)?;
            Self::records(&mut self.tar, inside, Some(&file))?;
            header.set_entry_type(EntryType::Regular);
            header.set_size(meta.len());
            return self.tar.append_data(&mut header, inside, BufReader::with_capacity(BUFFER, file).take(meta.len()));
        }
        Ok(()) // Sockets.
    }

    /// What a header has no place for: attributes, and that a name is no deleted one.
    fn records(tar: &mut Builder<W>, inside: &Path, file: Option<&File>) -> io::Result<()> {
        let kept = file.map_or_else(|| Ok(Vec::new()), |file| kept_attributes(file.as_fd()))?;
        let named = kept.iter().filter(|(name, _)| !OPAQUE.contains(&name.as_c_str()));
        let mut records: Vec<_> =
            named.filter_map(|(name, value)| Some((format!("{ATTRIBUTE}{}", name.to_str().ok()?), value.as_slice()))).collect();
        if inside.file_name().is_some_and(|name| name.as_bytes().starts_with(DELETED.as_bytes())) {
            records.push((MEANT.into(), b"1"));
        }
        tar.append_pax_extensions(records.iter().map(|(name, value)| (name.as_str(), *value)))
    }

    /// The owner inside the desk of a file on the disk.
    fn inside(&self, owner: u32) -> u64 {
        match self.ids {
            Ids::Mapped { .. } => owner.into(),
            Ids::Shifted { base } => owner.saturating_sub(base).into(),
            Ids::Single { .. } => super::ids::USER.into(),
        }
    }
}

fn empty() -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(0);
    header
}

/// Unpacks an archive into the root directory, which is that of a desk. At most `limit` bytes.
pub(crate) fn unpack(from: File, ids: Ids, limit: u64) -> io::Result<u64> {
    unpack_into(Path::new("/"), from, ids, limit)
}

fn unpack_into(root: &Path, from: File, ids: Ids, limit: u64) -> io::Result<u64> {
    let mut archive = tar::Archive::new(BufReader::with_capacity(BUFFER, from));
    let mut unpack = Unpack { root, ids, left: limit, times: Vec::new() };
    for entry in archive.entries()? {
        unpack.entry(entry?)?;
    }
    // What is put into a directory changes its time; so directories come last.
    for (path, time) in unpack.times.iter().rev() {
        if let Ok(folder) = File::open(path) {
            let _ = folder.set_modified(*time);
        }
    }
    Ok(limit - unpack.left)
}

struct Unpack<'a> {
    root: &'a Path,
    ids: Ids,
    left: u64,
    times: Vec<(PathBuf, std::time::SystemTime)>,
}

impl Unpack<'_> {
    fn entry<R: Read>(&mut self, mut entry: tar::Entry<'_, R>) -> io::Result<()> {
        let inside = plain(&entry.path()?)?;
        let Some(name) = inside.file_name().map(OsStr::to_owned) else { return Ok(()) };
        let path = self.root.join(&inside);
        let parent = path.parent().unwrap_or(self.root).to_owned();
        std::fs::create_dir_all(&parent)?;
        let Records { meant, attributes } = Records::of(&mut entry)?;
        if name == HIDES && !meant {
            return self.hide(&parent);
        }
        if let Some(deleted) = name.as_bytes().strip_prefix(DELETED.as_bytes()).filter(|_| !meant) {
            if matches!(deleted, b"" | b"." | b"..") {
                return Err(broken("a deleted name that is none"));
            }
            let path = parent.join(OsStr::from_bytes(deleted));
            super::directory::remove_all(&path)?;
            return Ok(mknodat(rustix::fs::CWD, &path, FileType::CharacterDevice, Mode::empty(), 0)?);
        }
        let header = entry.header().clone();
        let before = std::fs::symlink_metadata(&path).ok();
        let kind = header.entry_type();
        if before.as_ref().is_some_and(|before| !(before.is_dir() && kind.is_dir())) {
            super::directory::remove_all(&path)?;
        }
        match kind {
            EntryType::Directory => {
                if !path.is_dir() {
                    std::fs::create_dir(&path)?;
                    // What stood here hid whatever the template has of this name, and so must this.
                    if before.is_some() {
                        self.hide(&path)?;
                    }
                }
            }
            EntryType::Symlink => {
                let to = entry.link_name()?.ok_or_else(|| broken("a link that leads nowhere"))?;
                std::os::unix::fs::symlink(to, &path)?;
            }
            EntryType::Link => {
                let to = entry.link_name()?.ok_or_else(|| broken("a link that leads nowhere"))?;
                return std::fs::hard_link(self.root.join(plain(&to)?), &path);
            }
            EntryType::Fifo => mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self.file(&mut entry, &path)?,
            _ => return Err(broken("something that is neither a file, a directory nor a link")),
        }
        self.finish(&path, &header, &attributes)
    }

    fn file<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, path: &Path) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        let copied = io::copy(&mut entry.take(self.left.saturating_add(1)), &mut file)?;
        self.left = self.left.checked_sub(copied).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }

    fn finish(&mut self, path: &Path, header: &Header, attributes: &[(CString, Vec<u8>)]) -> io::Result<()> {
        let number =
            |id: u64| u32::try_from(id).ok().filter(|id| *id < super::ids::COUNT).ok_or_else(|| broken("an unknown owner"));
        if !self.ids.is_rootless() {
            let (uid, gid) = (self.ids.on_disk(number(header.uid()?)?), self.ids.on_disk(number(header.gid()?)?));
            std::os::unix::fs::lchown(path, Some(uid), Some(gid))?;
        }
        let time = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(header.mtime()?));
        let time = time.ok_or_else(|| broken("a time that no clock shows"))?;
        match header.entry_type() {
            EntryType::Symlink | EntryType::Fifo => return Ok(()),
            EntryType::Directory => self.times.push((path.to_owned(), time)),
            _ => {}
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(header.mode()? & 0o7777))?;
        // Root can open what is closed to its owner.
        let file = File::open(path)?;
        for (name, value) in attributes {
            fsetxattr(&file, name.as_c_str(), value, XattrFlags::empty())?;
        }
        if header.entry_type() != EntryType::Directory {
            file.set_modified(time)?;
        }
        Ok(())
    }

    /// From here on the directory hides what is below it, also what came before in this archive.
    fn hide(&self, directory: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            super::directory::remove_all(&entry?.path())?;
        }
        let [of_root, of_users] = OPAQUE;
        let name = if self.ids.is_rootless() { of_users } else { of_root };
        if !matches!(lgetxattr(directory, name, &mut [0; 8]), Ok(1..)) {
            fsetxattr(File::open(directory)?, name, b"y", XattrFlags::empty())?;
        }
        Ok(())
    }
}

/// A path without anything that leads elsewhere.
fn plain(path: &Path) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(broken("a path that leads out of it")),
        }
    }
    Ok(plain)
}

/// What is told of an entry besides its header.
#[derive(Default)]
struct Records {
    /// Its name is meant, whatever it looks like.
    meant: bool,
    /// Only what an owner can set: an archive from elsewhere gives no rights.
    attributes: Vec<(CString, Vec<u8>)>,
}

impl Records {
    fn of<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Self> {
        let mut found = Self::default();
        for extension in entry.pax_extensions()?.into_iter().flatten() {
            let extension = extension?;
            found.meant |= extension.key_bytes() == MEANT.as_bytes();
            let Some(name) = extension.key_bytes().strip_prefix(ATTRIBUTE.as_bytes()) else { continue };
            if name.starts_with(b"user.") && !name.starts_with(b"user.overlay.") {
                let name = CString::new(name).map_err(|_| broken("a bad attribute"))?;
                found.attributes.push((name, extension.value_bytes().to_vec()));
            }
        }
        Ok(found)
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the archive holds {what}"))
}

/// Counts what goes through.
struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.to.write(bytes)?;
        self.bytes += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/archive.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const IDS: Ids = Ids::Mapped { base: 1 << 20 };

    fn root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn layers_become_one_that_says_the_same() {
        assert!(root(), "this test needs root, for owners and deleted names");
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["lower/kept", "lower/replaced", "lower/cleared", "upper/replaced", "upper/cleared", "upper/home"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("lower/kept/a"), "a").unwrap();
        std::fs::write(at("lower/cleared/old"), "old").unwrap();
        std::fs::write(at("lower/file"), "was a file").unwrap();
        std::fs::write(at("upper/cleared/new"), "new").unwrap();
        std::fs::create_dir(at("upper/file")).unwrap();
        std::fs::write(at("upper/home/text"), "text").unwrap();
        for name in [".wh.", ".wh..", ".wh...", ".wh.text", ".wh..wh..opq"] {
            std::fs::write(at("upper/home").join(name), name).unwrap();
        }
        symlink("text", at("upper/home/.wh.link")).unwrap();
        std::fs::hard_link(at("upper/home/text"), at("upper/home/again")).unwrap();
        symlink("text", at("upper/home/link")).unwrap();
        std::os::unix::fs::chown(at("upper/home/text"), Some(1000), Some(1000)).unwrap();
        mknodat(rustix::fs::CWD, at("upper/replaced/x"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        mknodat(rustix::fs::CWD, at("upper/gone"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        fsetxattr(File::open(at("upper/cleared")).unwrap(), OPAQUE[0], b"y", XattrFlags::empty()).unwrap();
        fsetxattr(File::open(at("upper/home/text")).unwrap(), c"user.note", b"n", XattrFlags::empty()).unwrap();
        let bytes = pack(&[&at("lower"), &at("upper")], IDS, File::create(at("tar")).unwrap()).unwrap();
        assert_eq!(bytes, std::fs::metadata(at("tar")).unwrap().len());

        std::fs::create_dir(at("to")).unwrap();
        unpack_into(&at("to"), File::open(at("tar")).unwrap(), IDS, 1 << 20).unwrap();
        let meta = |name: &str| std::fs::symlink_metadata(at("to").join(name)).unwrap();
        assert_eq!(std::fs::read(at("to/kept/a")).unwrap(), b"a");
        assert!(meta("gone").file_type().is_char_device() && meta("replaced/x").file_type().is_char_device());
        assert!(!at("to/cleared/old").exists() && at("to/cleared/new").exists());
        let opaque = |name: &str| is_opaque(File::open(at("to").join(name)).unwrap().as_fd());
        assert!(opaque("cleared") && opaque("file") && !opaque("kept") && !opaque("home"));
        assert_eq!(meta("home/text").ino(), meta("home/again").ino());
        for name in [".wh.", ".wh..", ".wh...", ".wh.text", ".wh..wh..opq"] {
            assert_eq!(std::fs::read_to_string(at("to/home").join(name)).unwrap(), name, "its own name");
        }
        assert_eq!(std::fs::read_link(at("to/home/.wh.link")).unwrap(), Path::new("text"));
        assert_eq!((meta("home/text").uid(), meta("home/text").mode() & 0o777), (1000, 0o644));
        assert_eq!(std::fs::read_link(at("to/home/link")).unwrap(), Path::new("text"));
        let kept = kept_attributes(File::open(at("to/home/text")).unwrap().as_fd()).unwrap();
        assert_eq!(kept, [(c"user.note".to_owned(), b"n".to_vec())]);
    }

    #[test]
    fn hostile_archives_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let attempt = |make: &dyn Fn(&mut Builder<File>)| {
            let path = folder.path().join("tar");
            let mut builder = Builder::new(File::create(&path).unwrap());
            make(&mut builder);
            builder.finish().unwrap();
            let to = folder.path().join(format!("to{}", rand::random::<u32>()));
            std::fs::create_dir(&to).unwrap();
            unpack_into(&to, File::open(&path).unwrap(), IDS, 1000)
        };
        let named = |name: &str| {
            let mut header = empty();
            // Written by hand: the builder itself refuses such names.
            header.as_old_mut().name.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
            header.set_cksum();
            header
        };
        assert!(
            attempt(&|tar| tar.append(&named("../out"), io::empty()).unwrap()).unwrap_err().to_string().contains("out of it")
        );
        assert!(!folder.path().join("out").exists());
        let device = |tar: &mut Builder<File>| {
            let mut header = empty();
            header.set_entry_type(EntryType::Block);
            tar.append_data(&mut header, "sda", io::empty()).unwrap();
        };
        assert!(attempt(&device).is_err());
        let large = |tar: &mut Builder<File>| {
            let mut header = empty();
            header.set_size(2000);
            tar.append_data(&mut header, "large", &[0; 2000][..]).unwrap();
        };
        assert_eq!(attempt(&large).unwrap_err().kind(), io::ErrorKind::StorageFull);
        for name in ["kept/.wh.", "kept/.wh..", "kept/.wh..."] {
            let error = attempt(&|tar| tar.append(&named(name), io::empty()).unwrap()).unwrap_err();
            assert!(error.to_string().contains("deleted name"), "{name}: {error}");
        }
        let late = |tar: &mut Builder<File>| {
            let mut header = empty();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(u64::MAX);
            tar.append_data(&mut header, "x", io::empty()).unwrap();
        };
        assert!(!root() || attempt(&late).unwrap_err().to_string().contains("no clock"));
        let stranger = |tar: &mut Builder<File>| {
            let mut header = empty();
            header.set_uid(4_000_000);
            tar.append_data(&mut header, "x", io::empty()).unwrap();
        };
        assert!(!root() || attempt(&stranger).unwrap_err().to_string().contains("owner"));
        let cut = folder.path().join("cut");
        std::fs::write(&cut, [1; 700]).unwrap();
        assert!(unpack_into(folder.path(), File::open(cut).unwrap(), IDS, 1000).is_err());
    }
}
