//! Numbers of displays: which are taken, by whom, and what dead servers left behind.

use nix::unistd::geteuid;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The folder of all X sockets.
pub const SOCKETS: &str = "/tmp/.X11-unix";
/// The number that is tried first when nobody names one.
pub const FIRST: u16 = 99;
/// How many numbers are tried before giving up; a machine with that many displays is full.
const TRIES: u16 = 4096;

pub fn socket(number: u16) -> PathBuf {
    Path::new(SOCKETS).join(format!("X{number}"))
}

pub fn lock(number: u16) -> PathBuf {
    PathBuf::from(format!("/tmp/.X{number}-lock"))
}

/// A number that no other desk will take while this lives.
///
/// X servers guard their number with a lock file once they run; this guards it from the moment of
/// choice, and while a dead server is being replaced. It is a name in the kernel rather than a
/// file, so nothing is left behind however we end.
#[derive(Debug)]
pub struct Reservation {
    pub number: u16,
    _name: UnixListener,
}

/// Reserves this number. `None` if another desk has it.
pub fn reserve(number: u16) -> Option<Reservation> {
    let address = SocketAddr::from_abstract_name(format!("hotdesk-display-{number}")).ok()?;
    UnixListener::bind_addr(&address).ok().map(|name| Reservation { number, _name: name })
}

/// Reserves the first number from [`FIRST`] on that neither a desk nor an X server has.
pub fn reserve_free() -> Option<Reservation> {
    (FIRST..FIRST + TRIES).filter(|number| !taken(*number) && !blocked(*number, geteuid().as_raw())).find_map(reserve)
}

/// Whether another user's dead server left something there: its folders let only its owner, or root, remove it.
fn blocked(number: u16, user: u32) -> bool {
    let others = |path: PathBuf| std::fs::symlink_metadata(path).is_ok_and(|file| file.uid() != user);
    user != 0 && [lock(number), socket(number)].into_iter().any(others)
}

/// A number for a display that a test starts itself: no other test gets it while this lives, and no desk looks for one there. So who
/// kills its server finds nobody else in its place.
#[cfg(test)]
pub(crate) fn reserve_for_test() -> Reservation {
    (10_000..40_000).filter(|number| !taken(*number)).find_map(reserve).expect("a machine has fewer displays")
}

/// Whether an X server has this number.
pub fn taken(number: u16) -> bool {
    if UnixStream::connect(socket(number)).is_ok() {
        return true;
    }
    let name = socket(number);
    let abstract_socket = SocketAddr::from_abstract_name(name.as_os_str().as_encoded_bytes());
    if abstract_socket.is_ok_and(|address| UnixStream::connect_addr(&address).is_ok()) {
        return true;
    }
    // A server that is just starting holds the lock before it listens.
    lock_holder(number).is_some_and(alive)
}

/// Removes the lock and the socket of a server that is gone. A living server's are left alone.
pub fn remove_leftovers(number: u16) {
    if !taken(number) {
        remove(number);
    }
}

/// Removes the lock and the socket of the server `pid`, which is known to be dead. Its id may be
/// in use again by now, so that the lock looks held.
pub fn remove_leftovers_of(number: u16, pid: u32) {
    if lock_holder(number) == Some(pid) || (lock_holder(number).is_none() && !taken(number)) {
        remove(number);
    }
}

fn remove(number: u16) {
    for path in [lock(number), socket(number)] {
        if let Err(e) = std::fs::remove_file(&path)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), error = %e, "what a dead X server left behind can't be removed");
        }
    }
}

fn lock_holder(number: u16) -> Option<u32> {
    std::fs::read_to_string(lock(number)).ok()?.trim().parse().ok()
}

fn alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Makes the folder of all X sockets. X makes it only for root, so an ordinary user's server would
/// not be reachable by programs in a container that never had one.
pub fn make_socket_folder() {
    let folder = Path::new(SOCKETS);
    if std::fs::DirBuilder::new().mode(0o1777).create(folder).is_ok() {
        // The mode above went through the umask.
        let _ = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o1777));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_number_is_not_given_again() {
        let first = reserve_free().unwrap();
        assert!(reserve(first.number).is_none());
        let second = reserve_free().unwrap();
        assert_ne!(first.number, second.number);
        let number = first.number;
        drop(first);
        assert!(reserve(number).is_some());
    }

    #[test]
    fn what_another_user_left_can_not_be_taken() {
        let reserved = reserve_for_test();
        let (own, file) = (geteuid().as_raw(), lock(reserved.number));
        assert!(!blocked(reserved.number, own + 1));
        std::fs::write(&file, "").unwrap();
        assert!(blocked(reserved.number, own + 1) && !blocked(reserved.number, own));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_lock_of_the_dead_does_not_count() {
        let reserved = reserve_for_test();
        let number = reserved.number;
        let path = lock(number);
        std::fs::write(&path, format!("{:>10}\n", std::process::id())).unwrap();
        assert!(taken(number));
        remove_leftovers(number);
        assert!(path.exists(), "the lock of a living process stays");
        // Larger than any process id that Linux gives.
        std::fs::write(&path, format!("{:>10}\n", 4_194_305)).unwrap();
        assert!(!taken(number));
        remove_leftovers(number);
        assert!(!path.exists());
    }
}
