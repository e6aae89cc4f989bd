//! The parts of a session that clients want to start and that a desk has already: an X server, a desktop.

use super::desk;
use super::{Done, complain};
use hotdesk_desk::place::{numbers, xauthority};
use hotdesk_desk_client::http::Method;
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;

/// What belongs to the desktop that clients look for.
const PARTS: [&str; 2] = ["xfwm4", "xfdesktop"];

/// `Xvfb :0 -screen 0 1024x768x24 -dpi 96 …`: the desk's screen gets that size, and that display leads to it. A display that is the
/// desk's own to start is for the real one.
pub(super) fn xvfb(words: &[String]) -> Done {
    let Some(number) = words.first().and_then(|word| word.strip_prefix(':')).and_then(|number| number.parse::<u16>().ok()) else {
        return Done::Unknown;
    };
    let Some(own) = desk::display() else { return Done::Unknown };
    if words.iter().any(|word| word == "-displayfd" || word == "-auth") || number == own {
        return Done::Unknown;
    }
    let after = |name: &str, skip: usize| words.iter().position(|word| word == name).and_then(|at| words.get(at + skip));
    if let Some((width, height)) = after("-screen", 2).and_then(|size| size_of(size)) {
        let size = json!({ "width": width, "height": height });
        match desk::ask(async |desk| desk.tell(Method::PUT, "/v1/screen/size", &size).await) {
            None => return Done::Unknown,
            Some(Err(error)) => complain(&format!("Xvfb: the screen stays as it is: {}", desk::reason(&error))),
            // On a new screen the pointer is in the middle.
            Some(Ok(())) => {
                let middle = json!({ "actions": [{ "do": "move", "to": { "x": width / 2, "y": height / 2 } }] });
                let _ = desk::ask(async |desk| desk.tell(Method::POST, "/v1/input", &middle).await);
            }
        }
    }
    lead(number, own);
    if let Some(dpi) = after("-dpi", 1).filter(|dpi| dpi.parse::<u32>().is_ok_and(|dpi| (1..=1000).contains(&dpi))) {
        let _ = Command::new("xrandr").args(["--dpi", dpi]).env("DISPLAY", format!(":{own}")).output();
    }
    // As long as a server lives; whoever started it may end it.
    idle(words)
}

/// `1024x768x24`
fn size_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('x').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Another number for the desk's display: a link beside its socket, and its cookie under that number too.
fn lead(number: u16, own: u16) {
    let link = numbers::socket(number);
    let _ = std::fs::remove_file(&link);
    if let Err(e) = std::os::unix::fs::symlink(numbers::socket(own), &link) {
        complain(&format!("Xvfb: display :{number} can't lead to the desk's: {e}"));
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".Xauthority"));
    let file = std::env::var_os("XAUTHORITY").map(PathBuf::from).or(home);
    if let Some(file) = file
        && let Some(cookie) = xauthority::cookie(&file, own)
        && let Err(e) = xauthority::put(&file, number, &cookie)
    {
        complain(&format!("Xvfb: the cookie of display :{number} can't be written: {e}"));
    }
}

/// `startxfce4`: the desk's desktop is there; clients look for the processes of another one, which wait here under those names.
pub(super) fn startxfce4(_: &[String]) -> Done {
    use std::os::unix::process::CommandExt;
    let own = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let beside = |name: &str| match own.parent().filter(|folder| folder.is_absolute()) {
        Some(folder) => folder.join(name),
        None => PathBuf::from(name),
    };
    for part in PARTS {
        if let Err(e) = Command::new(beside(part)).spawn() {
            complain(&format!("startxfce4: {part}: {e}"));
        }
    }
    let error = Command::new(beside("xfce4-session")).exec();
    complain(&format!("startxfce4: xfce4-session: {error}"));
    Done::Code(1)
}

/// Waits for its end.
pub(super) fn idle(_: &[String]) -> Done {
    loop {
        nix::unistd::pause();
    }
}

#[cfg(test)]
mod tests {
    use super::size_of;

    #[test]
    fn sizes_of_screens_are_read() {
        assert_eq!(size_of("1024x768x24"), Some((1024, 768)));
        assert_eq!(size_of("800x600"), Some((800, 600)));
        assert_eq!(size_of("big"), None);
    }
}
