//! Stand-ins: commands of other makers' names that hand over to the desk's own engine.
//!
//! Clients that drive a desktop by its shell call `xdotool`, `scrot` and the like for every step. In desks of some templates those
//! names lead to this program, which asks the desk over the socket for its programs: a click costs a millisecond, and nothing waits
//! for an event that never comes. What a stand-in does not know it leaves to the real program, the next of its name in `PATH`.

mod desk;
mod screen;
mod session;
pub(crate) mod xdotool;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// How a stand-in ended.
pub(crate) enum Done {
    Code(u8),
    /// The real program shall do it.
    Unknown,
}

/// Does the work of another program if we were started under its name.
pub(crate) fn run() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let own = words.next()?;
    let name = Path::new(&own).file_name()?.to_str()?.to_owned();
    let work: fn(&[String]) -> Done = match name.as_str() {
        "xdotool" => xdotool::run,
        "scrot" => screen::scrot,
        "Xvfb" => session::xvfb,
        "startxfce4" => session::startxfce4,
        "xfce4-session" | "xfwm4" | "xfdesktop" => session::idle,
        _ => return None,
    };
    let words: Vec<OsString> = words.collect();
    // Words that are no text are not for us.
    let texts: Option<Vec<String>> = words.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    // Neither are those for another display.
    let ours = !matches!(name.as_str(), "xdotool" | "scrot") || desk::is_meant();
    let done = texts.filter(|_| ours).map_or(Done::Unknown, |texts| work(&texts));
    Some(match done {
        Done::Code(code) => ExitCode::from(code),
        Done::Unknown => real(&name, &words),
    })
}

/// Becomes the real program; returns only if there is none.
fn real(name: &str, words: &[OsString]) -> ExitCode {
    let ours = std::fs::canonicalize("/proc/self/exe").ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    for folder in std::env::split_paths(&path).chain(usual) {
        let file = folder.join(name);
        let real = std::fs::canonicalize(&file).ok();
        if real.is_some() && real != ours && executable(&file) {
            let error = Command::new(&file).arg0(name).args(words).exec();
            complain(&format!("{name}: {}: {error}", file.display()));
            return ExitCode::from(126);
        }
    }
    complain(&format!(
        "{name}: this is done by the desk, which does not know how to do what was asked, and there is no other {name} here"
    ));
    ExitCode::from(1)
}

fn executable(file: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a valid C string for the time of the call.
    file.is_file() && unsafe { nix::libc::access(path.as_ptr(), nix::libc::X_OK) } == 0
}

/// One line on standard output.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
