//! Small helps for engines that talk to the X server: waiting for events with a limit, and one
//! shared connection that is opened when needed and opened again when it broke.

use crate::error::{Error, Result};
use crate::place::Display;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{ConnectionExt as _, Window};
use x11rb::rust_connection::RustConnection;

/// How long a request may take before the display counts as hung. The X server answers within a
/// millisecond when it lives.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The next event, or nothing when the deadline comes first.
pub(crate) fn next_event(connection: &RustConnection, deadline: Instant) -> Result<Option<Event>> {
    loop {
        connection.flush()?;
        if let Some(event) = connection.poll_for_event()? {
            return Ok(Some(event));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let timeout = Timespec { tv_sec: left.as_secs().min(3600) as _, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(connection.stream(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::display_down(e)),
        }
    }
}

/// A connection and its root window.
pub(crate) struct Client {
    pub(crate) connection: RustConnection,
    pub(crate) root: Window,
}

impl Client {
    pub(crate) fn connect(display: &Display) -> Result<Self> {
        let (connection, screen) = display.connect()?;
        let root = connection.setup().roots.get(screen).ok_or_else(|| Error::display_down("it has no screen"))?.root;
        Ok(Self { connection, root })
    }

    fn is_alive(&self) -> bool {
        let Ok(cookie) = self.connection.get_input_focus() else { return false };
        // Errors of requests without an answer and notices to everybody are of no use here.
        let alive = cookie.reply().is_ok();
        while let Ok(Some(_)) = self.connection.poll_for_event() {}
        alive
    }
}

/// One connection for all who ask, one after the other.
pub(crate) struct Line<T> {
    display: Display,
    open: fn(Client) -> Result<T>,
    slot: Arc<Mutex<Option<T>>>,
}

impl<T: AsRef<Client> + Send + 'static> Line<T> {
    /// `open` prepares a fresh connection: looks up atoms and the like.
    pub(crate) fn new(display: Display, open: fn(Client) -> Result<T>) -> Self {
        Self { display, open, slot: Arc::default() }
    }

    /// Asks the X server something on a thread that may block.
    pub(crate) async fn ask<R: Send + 'static>(&self, question: impl FnOnce(&T) -> Result<R> + Send + 'static) -> Result<R> {
        let answer = async {
            let mut slot = self.slot.clone().lock_owned().await;
            let (display, open) = (self.display.clone(), self.open);
            let work = move || {
                // It may have died and come back since the last question.
                if slot.as_ref().is_some_and(|client| !client.as_ref().is_alive()) {
                    *slot = None;
                }
                let client = match slot.take() {
                    Some(client) => client,
                    None => open(Client::connect(&display)?)?,
                };
                let answer = question(&client);
                if !matches!(answer, Err(Error::Unavailable { .. })) {
                    *slot = Some(client);
                }
                answer
            };
            tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
        };
        match tokio::time::timeout(ANSWER_LIMIT, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::display_down(format!("it did not answer within {} s", ANSWER_LIMIT.as_secs()))),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::place::{Place, numbers};
    use std::io::Read;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use x11rb::protocol::xproto::{ClientMessageEvent, CreateWindowAux, EventMask, WindowClass};

    /// What comes on a busy machine comes within this time.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

    /// An X server of a test's own, with a window manager if wanted. Ends with its value.
    pub(crate) struct TestDisplay {
        pub(crate) place: Arc<Place>,
        children: Vec<Child>,
        _home: tempfile::TempDir,
        _number: numbers::Reservation,
    }

    impl TestDisplay {
        pub(crate) fn bare() -> Self {
            let home = tempfile::tempdir().unwrap();
            let reserved = numbers::reserve_for_test();
            let server = start_server(reserved.number);
            let place = place(reserved.number, home.path().to_owned());
            Self { place: Arc::new(place), children: vec![server], _home: home, _number: reserved }
        }

        pub(crate) fn managed() -> Self {
            let mut this = Self::bare();
            let client = Client::connect(&this.place.display).unwrap();
            let manager = this.command("openbox", &["--sm-disable"]).spawn().expect("this test needs openbox");
            this.children.push(manager);
            // It loses requests of its first moments, even after it has said that it manages the display.
            // Once it answers one, it is up.
            let connection = &client.connection;
            let window = connection.generate_id().unwrap();
            let values = CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE).override_redirect(1);
            connection.create_window(0, window, client.root, 0, 0, 1, 1, 0, WindowClass::INPUT_OUTPUT, 0, &values).unwrap();
            let request = connection.intern_atom(false, b"_NET_REQUEST_FRAME_EXTENTS").unwrap().reply().unwrap().atom;
            let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
            let deadline = Instant::now() + PATIENCE;
            loop {
                assert!(Instant::now() < deadline, "openbox did not come up");
                let message = ClientMessageEvent::new(32, window, request, [0u32; 5]);
                connection.send_event(false, client.root, mask, message).unwrap();
                if next_event(connection, Instant::now() + Duration::from_millis(100)).unwrap().is_some() {
                    return this;
                }
            }
        }

        /// Kills the X server and starts another one on the same number.
        pub(crate) fn restart(&mut self) {
            self.kill();
            self.children.push(start_server(self.place.display.number));
        }

        /// Sends a signal to the X server.
        pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
            let server = self.children.first().expect("the display runs");
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(server.id() as i32), signal).unwrap();
        }

        pub(crate) fn kill(&mut self) {
            for child in self.children.drain(..).rev() {
                end(child);
            }
        }

        /// A program of the display.
        pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
            let mut command = Command::new(program);
            command.args(arguments).envs(&self.place.env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            command
        }

        /// Runs a program of the display to its end and gives what it wrote.
        pub(crate) async fn output(&self, program: &str, arguments: &[&str]) -> String {
            let child = self.start(program, arguments);
            let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
            let output = output.unwrap_or_else(|_| panic!("{program} {arguments:?} does not end")).unwrap();
            String::from_utf8(output.stdout).unwrap()
        }

        /// Starts a program of the display; it ends when the value is dropped.
        pub(crate) fn start(&self, program: &str, arguments: &[&str]) -> tokio::process::Child {
            let mut command = tokio::process::Command::from(self.command(program, arguments));
            command.kill_on_drop(true).spawn().unwrap_or_else(|e| panic!("this test needs {program}: {e}"))
        }
    }

    impl Drop for TestDisplay {
        fn drop(&mut self) {
            self.kill();
            // A server that is killed leaves these behind.
            let number = self.place.display.number;
            let _ = std::fs::remove_file(format!("/tmp/.X11-unix/X{number}"));
            let _ = std::fs::remove_file(format!("/tmp/.X{number}-lock"));
        }
    }

    fn end(mut child: Child) {
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Xvfb says its number when it is ready.
    fn start_server(number: u16) -> Child {
        let mut child = Command::new("Xvfb")
            .arg(format!(":{number}"))
            .args(["-screen", "0", "1280x800x24", "-noreset", "-nolisten", "tcp", "-displayfd", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("tests of the X engines need Xvfb: {e}"));
        let mut line = Vec::new();
        let mut byte = [0];
        let mut output = child.stdout.take().unwrap();
        while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        assert_eq!(line, number.to_string().as_bytes(), "Xvfb did not start");
        child
    }

    fn place(number: u16, home: PathBuf) -> Place {
        let mut env: std::collections::BTreeMap<_, _> =
            ["PATH", "LANG"].iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
        env.insert("DISPLAY".into(), format!(":{number}"));
        env.insert("HOME".into(), home.display().to_string());
        env.insert("XDG_RUNTIME_DIR".into(), home.display().to_string());
        env.insert("LANG".into(), "C.UTF-8".into());
        env.insert("NO_AT_BRIDGE".into(), "1".into());
        env.insert("GSETTINGS_BACKEND".into(), "memory".into());
        Place { display: Display { number, cookie: None }, home: home.clone(), runtime_dir: home, bus: String::new(), env }
    }
}
