//! For tests: an X server of their own, and a client that draws on it.

use super::{PIXEL, Screen};
use crate::place::{Display, Place, numbers};
use hotdesk_api::action::Size;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt, CreateGCAux, ImageFormat, Rectangle, SubwindowMode};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

pub(crate) const SIZE: Size = Size { width: 320, height: 240 };

/// An X server of its own for each test.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) number: u16,
    pub(crate) reserved: Arc<numbers::Reservation>,
    /// Held open: the server ends when it can't write to it.
    _said: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_on(Arc::new(numbers::reserve_for_test()), arguments)
    }

    /// A server in the place of another one.
    pub(crate) fn start_on(reserved: Arc<numbers::Reservation>, arguments: &[&str]) -> Self {
        let number = reserved.number;
        let mut command = Command::new("Xvfb");
        command.arg(format!(":{number}")).args(["-displayfd", "1", "-noreset", "-nolisten", "tcp", "-screen", "0"]);
        command.arg(format!("{}x{}x24", SIZE.width, SIZE.height)).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("these tests need Xvfb (Debian: apt install xvfb)");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("readable");
        assert_eq!(line.trim(), number.to_string(), "Xvfb tells its display number when it is ready");
        Self { child, number, reserved, _said: said }
    }

    pub(crate) fn screen(&self) -> Screen {
        let place = Place {
            display: Display { number: self.number, cookie: None },
            home: "/".into(),
            runtime_dir: "/".into(),
            bus: String::new(),
            env: Default::default(),
        };
        Screen::new(Arc::new(place))
    }

    pub(crate) fn painter(&self) -> Painter {
        let (connection, _) = Display { number: self.number, cookie: None }.connect().expect("Xvfb runs");
        let root = connection.setup().roots[0].root;
        let gc = connection.generate_id().expect("an id");
        let aux = CreateGCAux::new().subwindow_mode(SubwindowMode::INCLUDE_INFERIORS);
        connection.create_gc(gc, root, &aux).expect("sent");
        Painter { connection, root, gc }
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), signal).expect("our child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for leftover in [format!("/tmp/.X{}-lock", self.number), format!("/tmp/.X11-unix/X{}", self.number)] {
            let _ = std::fs::remove_file(leftover);
        }
    }
}

/// Another client, which draws.
pub(crate) struct Painter {
    connection: RustConnection,
    root: u32,
    gc: u32,
}

impl Painter {
    pub(crate) fn fill(&self, colour: u32, x: i16, y: i16, width: u16, height: u16) {
        let aux = x11rb::protocol::xproto::ChangeGCAux::new().foreground(colour);
        self.connection.change_gc(self.gc, &aux).expect("sent");
        self.connection.poly_fill_rectangle(self.root, self.gc, &[Rectangle { x, y, width, height }]).expect("sent");
        self.connection.sync().expect("the server lives");
    }

    pub(crate) fn point(&self, x: i16, y: i16) {
        self.connection.warp_pointer(x11rb::NONE, self.root, 0, 0, 0, 0, x, y).expect("sent");
        self.connection.sync().expect("the server lives");
    }

    /// What is on the screen, as RGB, by the plainest way.
    pub(crate) fn look(&self) -> Vec<u8> {
        let geometry = self.connection.get_geometry(self.root).expect("sent").reply().expect("a reply");
        let image = self
            .connection
            .get_image(ImageFormat::Z_PIXMAP, self.root, 0, 0, geometry.width, geometry.height, u32::MAX)
            .expect("sent")
            .reply()
            .expect("a reply");
        rgb_of(&image.data)
    }
}

pub(crate) fn rgb_of(pixels: &[u8]) -> Vec<u8> {
    pixels.chunks_exact(PIXEL).flat_map(|p| [p[2], p[1], p[0]]).collect()
}

pub(crate) fn decode(png: &[u8]) -> (Size, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a PNG");
    let mut out = vec![0; reader.output_buffer_size().expect("small")];
    let info = reader.next_frame(&mut out).expect("a whole picture");
    (Size { width: info.width, height: info.height }, out)
}
