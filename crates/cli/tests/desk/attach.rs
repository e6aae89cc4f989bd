//! A display that was there before.

use crate::support::{Desk, binary, until};
use hotdesk_desk::place::numbers;
use std::io::Read;
use std::process::{Child, Command, Stdio};

struct Xvfb {
    child: Child,
    number: u16,
}

impl Xvfb {
    fn start(number: Option<u16>) -> Self {
        let mut command = Command::new("Xvfb");
        if let Some(number) = number {
            command.arg(format!(":{number}"));
        }
        // Its stdout is closed at once, its stderr is not: that is where it can tell its number.
        command.args(["-displayfd", "2", "-screen", "0", "640x480x24", "-noreset", "-nolisten", "tcp", "-ac"]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("Xvfb must be installed for this test");
        let mut stderr = child.stderr.take().unwrap();
        let mut text = String::new();
        let number = until("the number of the display", || {
            let mut byte = [0];
            stderr.read_exact(&mut byte).ok()?;
            text.push(byte[0] as char);
            text.strip_suffix('\n')?.lines().last()?.trim().parse().ok()
        });
        // It may still want to say something.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self { child, number }
    }

    fn end(&mut self) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), nix::sys::signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Xvfb {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.end();
        }
    }
}

#[test]
fn it_is_used_watched_and_left_alone() {
    // One that nobody takes while it has no server.
    let reserved = (40_000..50_000).filter(|number| !numbers::taken(*number)).find_map(numbers::reserve).unwrap();
    let mut display = Xvfb::start(Some(reserved.number));
    let name = format!(":{}", display.number);
    let mut command = binary();
    command.args(["desk", "--attach", &name]).env_remove("DBUS_SESSION_BUS_ADDRESS").env("XDG_RUNTIME_DIR", "/nowhere");
    let mut desk = Desk::from(command, &[], |command| command);
    let health = desk.ready();
    assert_eq!(health["parts"]["x_server"]["reason"], "attached", "{health}");
    assert_eq!(health["parts"]["window_manager"]["state"], "absent");
    assert_eq!(desk.get("/v1/info").1["attached"], true);

    display.end();
    until("the loss to be seen", || {
        let (status, health) = desk.get("/health");
        (status == 503 && health["parts"]["x_server"]["state"] == "healing").then_some(())
    });
    let mut again = Xvfb::start(Some(display.number));
    desk.ready();

    desk.signal(nix::sys::signal::SIGTERM);
    assert!(desk.wait().success());
    assert!(again.child.try_wait().unwrap().is_none(), "what was there before stays");
}

#[test]
fn a_display_that_is_taken_is_not_taken_twice() {
    let display = Xvfb::start(None);
    let output = binary().args(["desk", "--display", &format!(":{}", display.number), "--listen", "0"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("is taken"), "{text}");
}
