//! A screen that is drawn again and again until somebody has seen enough, and the terminal's raw mode.

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;
use tokio::sync::mpsc;

/// Takes the terminal's own handling of keys away, and gives it back when dropped.
pub(crate) struct Raw(Termios);

impl Raw {
    /// Every key goes to the program as it is.
    pub(crate) fn whole() -> io::Result<Self> {
        Self::with(Termios::make_raw)
    }

    /// Keys come one by one and unseen, but Ctrl-C still ends the program.
    fn keys() -> io::Result<Self> {
        Self::with(|mode| mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO))
    }

    fn with(change: impl FnOnce(&mut Termios)) -> io::Result<Self> {
        let before = termios::tcgetattr(rustix::stdio::stdin())?;
        let mut mode = before.clone();
        change(&mut mode);
        termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &mode)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.0);
    }
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// What is read from stdin, piece by piece, by a thread of its own: a terminal can't be waited for otherwise.
pub(crate) fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut piece = vec![0; 64 * 1024];
        loop {
            match stdin.read(&mut piece) {
                Ok(length @ 1..) if sender.blocking_send(piece[..length].to_vec()).is_ok() => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    });
    receiver
}

/// The second screen of the terminal.
pub(crate) struct Live {
    _raw: Raw,
    typed: mpsc::Receiver<Vec<u8>>,
}

impl Live {
    pub(crate) fn begin() -> io::Result<Self> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(io::Error::other("stdin and stdout are not one"));
        }
        let raw = Raw::keys()?;
        put("\x1b[?1049h\x1b[?25l");
        Ok(Self { _raw: raw, typed: typed() })
    }

    /// Replaces what is shown. What does not fit is cut off.
    pub(crate) fn show(&mut self, text: &str) {
        let rows = usize::from(size().map_or(24, |(_, rows)| rows)).saturating_sub(1);
        let mut screen = String::from("\x1b[H");
        for line in text.lines().take(rows) {
            screen.push_str(line);
            screen.push_str("\x1b[K\r\n");
        }
        screen.push_str("\x1b[J");
        put(&screen);
    }

    /// Waits; true if it should end.
    pub(crate) async fn pause(&mut self, time: Duration) -> bool {
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return false,
                _ = tokio::signal::ctrl_c() => return true,
                keys = self.typed.recv() => match keys {
                    Some(keys) if !keys.iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 27)) => {}
                    _ => return true,
                },
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        put("\x1b[?25h\x1b[?1049l");
    }
}

fn put(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
