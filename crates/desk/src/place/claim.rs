//! Deciding on a place, and holding what belongs to one desk alone.

use super::environment::{Ingredients, environment};
use super::numbers::{self, Reservation};
use super::xauthority::{self, Cookie};
use super::{Display, Place};
use crate::config::{AttachTarget, Config, DisplayChoice};
use crate::error::{Error, Result};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// What is held for a desk until it ends: the number of its display, the directory of its sockets
/// and its cookie in the user's file. Dropping it gives everything back.
#[derive(Debug)]
pub struct Claim {
    /// The display was chosen by us and nobody insists on it.
    pub any_display: bool,
    /// The file that the X server reads its cookie from.
    pub server_auth: Option<PathBuf>,
    runtime: Option<RuntimeDir>,
    cookie: Option<(PathBuf, u16, Cookie)>,
    _number: Option<Reservation>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((path, number, cookie)) = self.cookie.take()
            && let Err(e) = xauthority::remove(&path, number, &cookie)
        {
            tracing::debug!(path = %path.display(), error = %e, "the cookie stays in the file");
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.give_back();
        }
    }
}

pub(super) fn claim(config: &Config) -> Result<(Place, Claim)> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let home = home(config, user.as_ref())?;
    match config.attach {
        Some(target) => attach(config, target, home, user.as_ref()),
        None => own(config, home, user.as_ref()),
    }
}

/// A place for a session of our own.
fn own(config: &Config, home: PathBuf, user: Option<&nix::unistd::User>) -> Result<(Place, Claim)> {
    let (number, any_display) = match config.display {
        DisplayChoice::Number(number) => {
            let taken = || {
                Error::Conflict(format!("display :{number} is taken by another X server or desk; name another one, or `auto`"))
            };
            let reservation = numbers::reserve(number).ok_or_else(taken)?;
            if numbers::taken(number) {
                return Err(taken());
            }
            (reservation, false)
        }
        DisplayChoice::Auto | DisplayChoice::Unnamed => {
            (numbers::reserve_free().ok_or_else(|| Error::Conflict("every display is taken".into()))?, true)
        }
    };
    let runtime = RuntimeDir::make(number.number)?;
    let cookie = xauthority::new_cookie();
    let fail = |what: &Path, e: io::Error| Error::Internal(format!("{} can't be written: {e}", what.display()));

    let server_auth = runtime.path.join("hotdesk-xauth");
    xauthority::write_alone(&server_auth, number.number, &cookie).map_err(|e| fail(&server_auth, e))?;
    // In the home directory it is found even by programs that were not started by us.
    let xauthority = [home.join(".Xauthority"), runtime.path.join("Xauthority")]
        .into_iter()
        .find(|path| xauthority::put(path, number.number, &cookie).is_ok())
        .ok_or_else(|| fail(&runtime.path, io::ErrorKind::PermissionDenied.into()))?;

    let display = Display { number: number.number, cookie: Some(cookie) };
    let bus = format!("unix:path={}", runtime.path.join("bus").display());
    let env = environment(
        own_environment(),
        &Ingredients {
            display: &display.name(),
            xauthority: Some(&xauthority.to_string_lossy()),
            home: &home.to_string_lossy(),
            runtime_dir: &runtime.path.to_string_lossy(),
            bus: &bus,
            user: user.map(|user| user.name.as_str()),
            own_session: true,
            added: &config.env,
        },
    );
    let place = Place { display, home, runtime_dir: runtime.path.clone(), bus, env };
    let claim = Claim {
        any_display,
        server_auth: Some(server_auth),
        cookie: Some((xauthority, number.number, cookie)),
        runtime: Some(runtime),
        _number: Some(number),
    };
    Ok((place, claim))
}

/// The place of a session that exists: its display, its bus, its directories.
fn attach(config: &Config, target: AttachTarget, home: PathBuf, user: Option<&nix::unistd::User>) -> Result<(Place, Claim)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let files =
        [variable("XAUTHORITY").map(PathBuf::from), Some(home.join(".Xauthority")), user.map(|u| u.dir.join(".Xauthority"))];
    let found = files.into_iter().flatten().find_map(|path| xauthority::cookie(&path, target.0).map(|cookie| (path, cookie)));
    let runtime_dir = variable("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid()))).filter(|path| path.is_dir()))
        .unwrap_or_else(std::env::temp_dir);
    let bus = variable("DBUS_SESSION_BUS_ADDRESS").unwrap_or_else(|| format!("unix:path={}", runtime_dir.join("bus").display()));
    let display = Display { number: target.0, cookie: found.as_ref().map(|(_, cookie)| *cookie) };
    let env = environment(
        own_environment(),
        &Ingredients {
            display: &display.name(),
            xauthority: found.as_ref().map(|(path, _)| path.to_string_lossy()).as_deref(),
            home: &home.to_string_lossy(),
            runtime_dir: &runtime_dir.to_string_lossy(),
            bus: &bus,
            user: user.map(|user| user.name.as_str()),
            own_session: false,
            added: &config.env,
        },
    );
    let claim = Claim { any_display: false, server_auth: None, runtime: None, cookie: None, _number: None };
    Ok((Place { display, home, runtime_dir, bus, env }, claim))
}

/// Our own environment; what is not UTF-8 in it can't be handed on as text and is left out.
fn own_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn home(config: &Config, user: Option<&nix::unistd::User>) -> Result<PathBuf> {
    let home = match &config.home {
        Some(home) => {
            let home = std::path::absolute(home).map_err(|e| Error::Invalid(format!("home {}: {e}", home.display())))?;
            std::fs::create_dir_all(&home).map_err(|e| Error::Invalid(format!("home {} can't be made: {e}", home.display())))?;
            home
        }
        None => std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| user.map(|user| user.dir.clone()))
            .unwrap_or_else(|| PathBuf::from("/")),
    };
    if home.is_dir() {
        Ok(home)
    } else {
        Err(Error::Invalid(format!("home {} is not a directory; name one with --home", home.display())))
    }
}

/// `XDG_RUNTIME_DIR`: private to the user, and to one desk.
#[derive(Debug)]
struct RuntimeDir {
    path: PathBuf,
    /// We made it, so it goes when we go.
    ours: bool,
    _lock: std::fs::File,
}

impl RuntimeDir {
    /// The user's own directory if the system has one that no session uses, because programs know it
    /// by heart (`/run/user/1000/bus`); else a new one.
    fn make(display: u16) -> Result<Self> {
        let uid = nix::unistd::geteuid().as_raw();
        let system = PathBuf::from(format!("/run/user/{uid}"));
        if private(&system, uid)
            && UnixStream::connect(system.join("bus")).is_err()
            && let Some(lock) = lock(&system)
        {
            return Ok(Self { path: system, ours: false, _lock: lock });
        }
        let plain = std::env::temp_dir().join(format!("hotdesk-{uid}-{display}"));
        let odd = std::env::temp_dir().join(format!("hotdesk-{uid}-{display}-{:08x}", rand::random::<u32>()));
        // Where somebody else made that directory first, a name that nobody can guess is taken.
        let mut last = io::Error::from(io::ErrorKind::PermissionDenied);
        for path in [plain, odd] {
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    last = e;
                    continue;
                }
                _ => {}
            }
            if !private(&path, uid) {
                continue;
            }
            if let Some(lock) = lock(&path) {
                return Ok(Self { path, ours: true, _lock: lock });
            }
        }
        Err(Error::Internal(format!("no directory for sockets can be made in {}: {last}", std::env::temp_dir().display())))
    }

    fn give_back(&self) {
        if self.ours {
            if let Err(e) = std::fs::remove_dir_all(&self.path) {
                tracing::warn!(path = %self.path.display(), error = %e, "the directory of the sockets can't be removed");
            }
            return;
        }
        for name in ["bus", "hotdesk-xauth", "hotdesk-bus.conf", "Xauthority", "hotdesk-token", "hotdesk.lock"] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
    }
}

/// A real directory that is this user's; made so that nobody else can look into it.
fn private(path: &Path, uid: u32) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return false };
    meta.is_dir() && meta.uid() == uid && std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).is_ok()
}

fn lock(folder: &Path) -> Option<std::fs::File> {
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(folder.join("hotdesk.lock")).ok()?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(home: &Path) -> Config {
        Config { home: Some(home.into()), display: DisplayChoice::Auto, ..Config::default() }
    }

    #[test]
    fn two_desks_share_nothing_and_leave_nothing() {
        let home = tempfile::tempdir().unwrap();
        let (first, first_claim) = Place::claim(&config(home.path())).unwrap();
        let (second, second_claim) = Place::claim(&config(home.path())).unwrap();
        assert_ne!(first.display.number, second.display.number);
        assert_ne!(first.runtime_dir, second.runtime_dir);
        assert_ne!(first.bus, second.bus);
        let file = home.path().join(".Xauthority");
        assert_eq!(xauthority::cookie(&file, first.display.number), first.display.cookie);
        assert_eq!(xauthority::cookie(&file, second.display.number), second.display.cookie);
        assert_eq!(first.env["XAUTHORITY"], file.to_string_lossy());
        assert_eq!(std::fs::metadata(&first.runtime_dir).unwrap().mode() & 0o777, 0o700);
        drop(first_claim);
        drop(second_claim);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        assert!(!second.runtime_dir.exists());
    }

    #[test]
    fn a_named_display_is_not_replaced_by_another() {
        let home = tempfile::tempdir().unwrap();
        let (place, _claim) = Place::claim(&config(home.path())).unwrap();
        let named = Config { display: DisplayChoice::Number(place.display.number), ..config(home.path()) };
        assert!(matches!(Place::claim(&named), Err(Error::Conflict(_))));
    }

    #[test]
    fn an_attached_place_has_the_cookie_of_the_display() {
        let home = tempfile::tempdir().unwrap();
        xauthority::put(&home.path().join(".Xauthority"), 48_212, &[4; 16]).unwrap();
        let attached = Config { attach: Some(AttachTarget(48_212)), display: DisplayChoice::Unnamed, ..config(home.path()) };
        let (place, claim) = Place::claim(&attached).unwrap();
        assert_eq!(place.display.cookie, Some([4; 16]));
        assert_eq!(place.env["DISPLAY"], ":48212");
        drop(claim);
        assert!(home.path().join(".Xauthority").exists(), "what we did not make stays");
    }
}
