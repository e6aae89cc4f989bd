//! A D-Bus connection made for asking thousands of small questions at once.
//!
//! A tree is some ten thousand calls, and a general client spends more on each of them (a task, a
//! channel, two system calls) than the asked program does. A [`Wire`] writes many calls with one
//! system call and reads many answers with another; whoever uses it keeps a table from serial to
//! meaning. Messages are made and read by `zbus`; only sockets, framing and the greeting are here.
//!
//! It speaks to a message bus, or straight to a program that listens for peers (programs with
//! ATK do), which saves both passages through the bus daemon.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};
use zbus::message::{Message, Type as Kind};
use zbus::zvariant::serialized::{Context, Data};
use zbus::zvariant::{BE, DynamicType, LE, Signature, Type, Value};

/// No answer is larger: the D-Bus specification forbids messages beyond 128 MiB, and a tree of one
/// program stays far below this. What claims to be larger is not a message.
const LARGEST_MESSAGE: usize = 64 << 20;
const READ_SIZE: usize = 64 << 10;
/// The fixed part of a message's header: everything before its fields.
const FIXED_HEADER: usize = 16;

/// One connection. Not shared: whoever walks a program owns its wire.
pub(super) struct Wire {
    stream: UnixStream,
    outgoing: Vec<u8>,
    written: usize,
    incoming: Vec<u8>,
    taken: usize,
    /// Where the next read goes first.
    fresh: Box<[u8]>,
}

/// An answer (or a signal) as it lies in the wire's buffer.
pub(super) struct Answer<'w> {
    /// The serial of the call that this answers; 0 for everything that is no answer.
    pub(super) serial: u32,
    kind: u8,
    signature: Signature,
    error: Option<String>,
    body: Data<'w, 'static>,
}

impl Wire {
    /// To a message bus; introduces itself there.
    pub(super) fn to_bus(address: &str, time: Duration) -> io::Result<Self> {
        let mut wire = Self::to_peer(address, time)?;
        let hello = wire.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", &())?;
        wire.wait_for(hello, time, |answer| answer.read::<String>().map(drop))?;
        Ok(wire)
    }

    /// To a program that listens by itself. A frozen one lets us in and then says nothing: it has `time` to.
    pub(super) fn to_peer(address: &str, time: Duration) -> io::Result<Self> {
        let mut stream = connect(address)?;
        stream.set_read_timeout(Some(time))?;
        stream.set_write_timeout(Some(time))?;
        greet(&mut stream)?;
        stream.set_nonblocking(true)?;
        Ok(Self::over(stream))
    }

    fn over(stream: UnixStream) -> Self {
        let fresh = vec![0; READ_SIZE].into_boxed_slice();
        Self { stream, outgoing: Vec::new(), written: 0, incoming: Vec::new(), taken: 0, fresh }
    }

    /// Puts a call into the outgoing buffer and returns its serial.
    pub(super) fn call<B>(&mut self, to: &str, path: &str, interface: &str, member: &str, body: &B) -> io::Result<u32>
    where
        B: serde::Serialize + DynamicType,
    {
        let message = Message::method_call(path, member)
            .and_then(|m| m.destination(to))
            .and_then(|m| m.interface(interface))
            .and_then(|m| m.build(body))
            .map_err(|e| io::Error::new(ErrorKind::InvalidInput, e))?;
        self.outgoing.extend_from_slice(message.data().bytes());
        Ok(message.primary_header().serial_num().get())
    }

    /// Writes what the socket takes now, reads what it has now, and otherwise waits until `until`.
    /// `Ok(false)` means that the time passed without anything read.
    pub(super) fn exchange(&mut self, until: Instant) -> io::Result<bool> {
        loop {
            self.send()?;
            if self.read_some()? {
                return Ok(true);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let mut events = PollFlags::IN;
            if self.written < self.outgoing.len() {
                events |= PollFlags::OUT;
            }
            let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            match poll(&mut [PollFd::new(&self.stream, events)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The next whole message of the incoming buffer.
    pub(super) fn next(&mut self) -> io::Result<Option<Answer<'_>>> {
        let buffer = self.incoming.get(self.taken..).unwrap_or_default();
        let Some(size) = message_size(buffer)? else {
            self.incoming.drain(..self.taken);
            self.taken = 0;
            return Ok(None);
        };
        if buffer.len() < size.whole {
            self.incoming.drain(..self.taken);
            self.taken = 0;
            self.incoming.reserve(size.whole - self.incoming.len());
            return Ok(None);
        }
        let start = self.taken;
        self.taken += size.whole;
        let message = self.incoming.get(start..self.taken).unwrap_or_default();
        Answer::parse(message, &size).map(Some)
    }

    /// Asks nothing else meanwhile: for the first words on a connection.
    pub(super) fn wait_for<T>(
        &mut self,
        serial: u32,
        time: Duration,
        read: impl Fn(&Answer<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let until = Instant::now() + time;
        loop {
            while let Some(answer) = self.next()? {
                if answer.serial == serial {
                    return read(&answer);
                }
            }
            if !self.exchange(until)? {
                return Err(io::Error::new(ErrorKind::TimedOut, "no answer came in time"));
            }
        }
    }

    /// Writes what the socket takes now.
    pub(super) fn send(&mut self) -> io::Result<()> {
        while self.written < self.outgoing.len() {
            match self.stream.write(self.outgoing.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(())
    }

    /// One read: whether anything came.
    fn read_some(&mut self) -> io::Result<bool> {
        match self.stream.read(&mut self.fresh) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.incoming.extend_from_slice(self.fresh.get(..n).unwrap_or_default());
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl<'w> Answer<'w> {
    fn parse(message: &'w [u8], size: &Size) -> io::Result<Self> {
        let endian = if size.big_endian { BE } else { LE };
        let fields = message.get(FIXED_HEADER - 4..).unwrap_or_default();
        let fields = Data::new(fields, Context::new_dbus(endian, FIXED_HEADER - 4));
        let (fields, _): (Vec<(u8, Value<'_>)>, usize) = fields.deserialize().map_err(invalid)?;
        let (mut serial, mut signature, mut error) = (0, Signature::Unit, None);
        for (code, value) in fields {
            match (code, value) {
                (4, Value::Str(name)) => error = Some(name.to_string()),
                (5, Value::U32(n)) => serial = n,
                (8, Value::Signature(s)) => signature = s,
                _ => {}
            }
        }
        let kind = message.get(1).copied().unwrap_or_default();
        if kind != Kind::MethodReturn as u8 && kind != Kind::Error as u8 {
            serial = 0;
        }
        let body = Data::new(message.get(size.body..).unwrap_or_default(), Context::new_dbus(endian, 0));
        Ok(Self { serial, kind, signature, error, body })
    }

    /// The answer's content; an error that the program answered is one here.
    pub(super) fn read<'a, T>(&'a self) -> io::Result<T>
    where
        T: serde::Deserialize<'a> + Type,
    {
        if self.kind == Kind::Error as u8 {
            let text = if self.signature == *<&str>::SIGNATURE {
                self.body.deserialize::<&str>().map(|(s, _)| s.to_owned()).unwrap_or_default()
            } else {
                String::new()
            };
            return Err(io::Error::other(format!("{}: {text}", self.error.as_deref().unwrap_or("error"))));
        }
        // What a method returns stands in the body without the brackets of a structure.
        if !same(&self.signature, T::SIGNATURE) {
            return Err(invalid(format!("the answer is {}, not {}", self.signature, T::SIGNATURE)));
        }
        self.body.deserialize().map(|(value, _)| value).map_err(invalid)
    }
}

/// `true` for equal signatures, and for a structure against its fields written one after another.
fn same(got: &Signature, wanted: &Signature) -> bool {
    got == wanted || got.to_string_no_parens() == wanted.to_string_no_parens()
}

struct Size {
    body: usize,
    whole: usize,
    big_endian: bool,
}

/// `None` while too little is there to know.
fn message_size(buffer: &[u8]) -> io::Result<Option<Size>> {
    let Some(head) = buffer.first_chunk::<FIXED_HEADER>() else { return Ok(None) };
    let big_endian = match head[0] {
        b'l' => false,
        b'B' => true,
        _ => return Err(invalid("this is no D-Bus message")),
    };
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    let (body_size, fields_size) = (number(4) as usize, number(12) as usize);
    if body_size > LARGEST_MESSAGE || fields_size > LARGEST_MESSAGE {
        return Err(invalid("a message is too large"));
    }
    let body = (FIXED_HEADER + fields_size).next_multiple_of(8);
    Ok(Some(Size { body, whole: body + body_size, big_endian }))
}

/// The first address of the list that can be reached.
fn connect(addresses: &str) -> io::Result<UnixStream> {
    let mut last = io::Error::new(ErrorKind::InvalidInput, format!("no address of a Unix socket in `{addresses}`"));
    for address in addresses.split(';') {
        let Some(pairs) = address.strip_prefix("unix:") else { continue };
        for (key, value) in pairs.split(',').filter_map(|p| p.split_once('=')) {
            let value = unescape(value);
            let tried = match key {
                "path" => UnixStream::connect(std::path::Path::new(std::ffi::OsStr::new(&value))),
                "abstract" => SocketAddr::from_abstract_name(value.as_bytes()).and_then(|a| UnixStream::connect_addr(&a)),
                _ => continue,
            };
            match tried {
                Ok(stream) => return Ok(stream),
                Err(e) => last = e,
            }
        }
    }
    Err(last)
}

/// Values in addresses have their unusual bytes written as `%xx`.
fn unescape(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = (first == b'%').then(|| tail.get(..2)).flatten().and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Authentication by the credentials of the socket.
fn greet(stream: &mut UnixStream) -> io::Result<()> {
    let uid: String = rustix::process::geteuid().as_raw().to_string().bytes().map(|b| format!("{b:02x}")).collect();
    stream.write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes())?;
    let mut line = Vec::new();
    // A line of the greeting is short; one that does not end is none.
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        if line.len() > 1000 || stream.read(&mut byte)? == 0 {
            return Err(invalid("the other side does not greet as D-Bus does"));
        }
        line.push(byte[0]);
    }
    if !line.starts_with(b"OK ") {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "the other side does not let us in"));
    }
    stream.write_all(b"BEGIN\r\n")
}

fn invalid(reason: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.to_string())
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/dbus.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    /// A wire and its other end.
    fn pair() -> (Wire, UnixStream) {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        (Wire::over(stream), other)
    }

    /// What a program would answer to a call.
    fn answer<B: serde::Serialize + DynamicType>(to: u32, body: &B) -> Vec<u8> {
        let call = Message::method_call("/", "Call").unwrap().serial(to.try_into().unwrap()).build(&()).unwrap();
        let reply = Message::method_return(&call.header()).unwrap().build(body).unwrap();
        reply.data().bytes().to_vec()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn answers_come_in_pieces_and_in_heaps() {
        let (mut wire, mut other) = pair();
        let text = "x".repeat(1000);
        let heap = [answer(7, &"one"), answer(8, &(1i32, 2i32)), answer(9, &text.as_str())].concat();
        let (first, rest) = heap.split_at(heap.len() - 500);
        other.write_all(first).unwrap();
        assert!(wire.exchange(soon()).unwrap());
        let one = wire.next().unwrap().unwrap();
        assert_eq!((one.serial, one.read::<&str>().unwrap()), (7, "one"));
        let two = wire.next().unwrap().unwrap();
        assert_eq!((two.serial, two.read::<(i32, i32)>().unwrap()), (8, (1, 2)));
        assert!(two.read::<&str>().is_err(), "an answer of another kind is an error");
        assert!(wire.next().unwrap().is_none());
        other.write_all(rest).unwrap();
        assert!(wire.exchange(soon()).unwrap());
        assert_eq!(wire.next().unwrap().unwrap().read::<&str>().unwrap(), text);
        assert!(wire.next().unwrap().is_none());
    }

    #[test]
    fn errors_are_told() {
        let (mut wire, mut other) = pair();
        let call = Message::method_call("/", "Call").unwrap().build(&()).unwrap();
        let error = Message::error(&call.header(), "org.example.Broken").unwrap().build(&"no such thing").unwrap();
        other.write_all(error.data().bytes()).unwrap();
        wire.exchange(soon()).unwrap();
        let error = wire.next().unwrap().unwrap().read::<&str>().unwrap_err();
        assert_eq!(error.to_string(), "org.example.Broken: no such thing");
    }

    #[test]
    fn a_silent_other_side_is_waited_for_no_longer_than_said() {
        let (mut wire, other) = pair();
        assert!(!wire.exchange(Instant::now() + Duration::from_millis(5)).unwrap());
        drop(other);
        assert_eq!(wire.exchange(soon()).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_message_ends_the_talk() {
        for nonsense in [&[b'x'; 16], b"l\x02\x00\x01\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00"] {
            let (mut wire, mut other) = pair();
            other.write_all(nonsense).unwrap();
            wire.exchange(soon()).unwrap();
            assert!(wire.next().is_err());
        }
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(unescape("/tmp/a%20b%2"), "/tmp/a b%2");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("so cket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let address = path.display().to_string().replace(' ', "%20");
        assert!(connect(&format!("tcp:host=x;unix:path=/nowhere;unix:path={address},guid=12")).is_ok());
        assert!(connect("unix:path=/nowhere").is_err());
        assert!(connect("").is_err());
    }
}
