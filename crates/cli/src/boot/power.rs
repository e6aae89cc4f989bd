//! The power button, and the end of the machine.

use super::{End, mounts, say};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

/// An event of the kernel: time (16 bytes), kind, code, value.
const EVENT: usize = 24;
const KIND_KEY: u16 = 1;
const KEY_POWER: u16 = 116;
/// Programs other than the desk's get so long to end.
const GRACE: Duration = Duration::from_millis(300);

/// Asks process 1 to go down when the button is pressed. Ctrl-Alt-Del comes as SIGINT.
pub(super) fn listen() {
    // SAFETY: a plain system call.
    unsafe { libc::reboot(libc::RB_DISABLE_CAD) };
    for entry in std::fs::read_dir("/dev/input").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("event")
            && let Ok(device) = File::open(entry.path())
        {
            std::thread::spawn(move || wait_for_button(device));
        }
    }
}

fn wait_for_button(mut device: File) {
    let mut event = [0; EVENT];
    while device.read_exact(&mut event).is_ok() {
        if pressed(&event) {
            say("the power button was pressed");
            let _ = kill(Pid::this(), Signal::SIGTERM);
        }
    }
}

fn pressed(event: &[u8; EVENT]) -> bool {
    let number = |at: usize| u16::from_le_bytes([event[at], event[at + 1]]);
    number(16) == KIND_KEY && number(18) == KEY_POWER && number(20) == 1
}

/// Ends everybody, writes everything, and turns the machine off or starts it again.
pub(super) fn go_down(end: End) -> ExitCode {
    say(if end == End::Off { "off" } else { "starting again" });
    let all = Pid::from_raw(-1);
    let _ = kill(all, Signal::SIGTERM);
    std::thread::sleep(GRACE);
    let _ = kill(all, Signal::SIGKILL);
    mounts::read_only_root();
    let how = if end == End::Off { libc::RB_POWER_OFF } else { libc::RB_AUTOBOOT };
    // SAFETY: a plain system call; it returns only if it fails.
    unsafe { libc::reboot(how) };
    say("error: the machine can't be turned off");
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_press_of_the_button_counts() {
        let event = |kind: u16, code: u16, value: u16| {
            let mut event = [0; EVENT];
            for (at, number) in [(16, kind), (18, code), (20, value)] {
                event[at..at + 2].copy_from_slice(&number.to_le_bytes());
            }
            event
        };
        assert!(pressed(&event(1, 116, 1)));
        assert!(!pressed(&event(1, 116, 0)));
        assert!(!pressed(&event(1, 30, 1)));
        assert!(!pressed(&event(2, 116, 1)));
    }
}
