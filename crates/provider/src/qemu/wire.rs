//! Connections into a guest, without a port of this machine.
//!
//! QEMU's user-mode network lets others into a guest by listening on the host, where every user of the host can connect. So the keeper
//! is a host of its own on the guest's little network instead: frames for it are taken out of what the guest sends (`filter`), and
//! its own are put in by QEMU (`filter-redirector`, one more socket). It opens connections and takes none.

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{ConnectError, RecvError, Socket, SocketBuffer, State};
use smoltcp::time::Instant as Moment;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// The keeper's own address on the guest's network. QEMU gives .2 and .3 a meaning, and guests get .15.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 100);
pub(crate) const MAC: [u8; 6] = [0x52, 0x55, 10, 0, 2, 100];
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Bytes on their way, in each direction of a connection: a screen's picture at once.
const BUFFER: usize = 256 << 10;
/// An Ethernet frame without segmentation offload.
const LARGEST_FRAME: usize = 1514;
/// Frames of the guest that wait to be looked at; what comes beyond is lost, as on any network.
const MOST_FRAMES: usize = 4096;
/// How long a guest may take to answer a connection. One that listens does so in milliseconds, an emulated one on a busy machine
/// in seconds.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection that nobody holds any more may take to end in good order.
const LINGER: Duration = Duration::from_secs(30);
/// Ports that connections come from.
const PORTS: std::ops::Range<u16> = 32768..61000;
const MOST_CONNECTIONS: usize = 1024;

/// The keeper's end. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Shared>);

struct Shared {
    stack: Mutex<Stack>,
    /// Something happened that the wire has to hear of.
    news: Notify,
}

struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    frames: Frames,
    /// Connections that nobody holds any more, and since when.
    left: Vec<(SocketHandle, Instant)>,
    next_port: u16,
    begun: Instant,
    /// The machine is gone.
    ended: bool,
}

/// Frames on their way between the guest and the stack.
#[derive(Default)]
struct Frames {
    from_guest: VecDeque<Vec<u8>>,
    to_guest: VecDeque<Vec<u8>>,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let mut frames = Frames::default();
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(MAC)));
        config.random_seed = rand::random();
        let mut interface = Interface::new(config, &mut frames, Moment::ZERO);
        interface.update_ip_addrs(|addresses| {
            // There is room for the only one.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(ADDRESS), 24));
        });
        let stack = Stack {
            interface,
            sockets: SocketSet::new(Vec::new()),
            frames,
            left: Vec::new(),
            // Programs of a guest that was saved may remember connections of the machine before it.
            next_port: rand::random_range(PORTS),
            begun: Instant::now(),
            ended: false,
        };
        Self(Arc::new(Shared { stack: Mutex::new(stack), news: Notify::new() }))
    }

    /// Takes a frame that the guest sent to the keeper.
    pub(crate) fn take(&self, frame: Vec<u8>) {
        let mut stack = self.lock();
        if stack.frames.from_guest.len() < MOST_FRAMES && frame.len() <= LARGEST_FRAME {
            stack.frames.from_guest.push_back(frame);
        }
        drop(stack);
        self.0.news.notify_one();
    }

    /// Carries frames to the guest until the machine ends.
    pub(crate) async fn run(&self, mut to: UnixStream) -> io::Result<()> {
        let ended = loop {
            let (frames, pause) = self.lock().turn();
            let news = self.0.news.notified();
            if let Err(e) = write_all(&mut to, frames).await {
                break Err(e);
            }
            match pause {
                Some(pause) => drop(tokio::time::timeout(pause, news).await),
                None => news.await,
            }
        };
        self.end();
        ended
    }

    /// The machine is gone, and with it all connections.
    pub(crate) fn end(&self) {
        let mut stack = self.lock();
        stack.ended = true;
        // Their holders are woken by it.
        stack.sockets.iter_mut().for_each(|(_, smoltcp::socket::Socket::Tcp(socket))| socket.abort());
    }

    /// Opens a connection to a port of the guest.
    pub(crate) async fn connect(&self, port: u16) -> io::Result<Stream> {
        let stream = self.open(port)?;
        self.0.news.notify_one();
        let established = std::future::poll_fn(|context| stream.poll_established(context));
        match tokio::time::timeout(CONNECT_LIMIT, established).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(e)) => Err(e),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the guest does not answer")),
        }
    }

    fn open(&self, port: u16) -> io::Result<Stream> {
        let mut stack = self.lock();
        if stack.ended {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the machine has ended"));
        }
        if stack.sockets.iter().count() >= MOST_CONNECTIONS {
            return Err(io::Error::other("the guest has too many connections"));
        }
        let mut socket = Socket::new(SocketBuffer::new(vec![0; BUFFER]), SocketBuffer::new(vec![0; BUFFER]));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        let own = stack.free_port();
        let Stack { interface, .. } = &mut *stack;
        socket.connect(interface.context(), (IpAddress::Ipv4(GUEST), port), own).map_err(|e| match e {
            ConnectError::Unaddressable => io::Error::new(io::ErrorKind::InvalidInput, "there is no such port"),
            ConnectError::InvalidState => io::Error::other("a new connection is in use"),
        })?;
        let handle = stack.sockets.add(socket);
        Ok(Stream { wire: self.clone(), handle })
    }

    fn lock(&self) -> MutexGuard<'_, Stack> {
        self.0.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stack {
    /// One look at everything: what has to be sent, and when to look again.
    fn turn(&mut self) -> (Vec<Vec<u8>>, Option<Duration>) {
        let now = Moment::from_micros(i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX));
        while self.interface.poll(now, &mut self.frames, &mut self.sockets) == PollResult::SocketStateChanged {}
        self.sweep();
        let frames = std::mem::take(&mut self.frames.to_guest).into();
        let pause = self.interface.poll_delay(now, &self.sockets).map(Duration::from);
        let pause = if self.left.is_empty() { pause } else { Some(pause.unwrap_or(LINGER).min(LINGER)) };
        (frames, pause)
    }

    /// Forgets connections that have ended and that nobody holds.
    fn sweep(&mut self) {
        let sockets = &mut self.sockets;
        self.left.retain(|(handle, since)| {
            let socket = sockets.get_mut::<Socket<'_>>(*handle);
            if since.elapsed() > LINGER && socket.is_open() {
                // The reset goes out with the next turn; then it is gone.
                socket.abort();
                return true;
            }
            let over = matches!(socket.state(), State::Closed | State::TimeWait);
            if over {
                sockets.remove(*handle);
            }
            !over
        });
    }

    fn free_port(&mut self) -> u16 {
        let used: Vec<u16> = self
            .sockets
            .iter()
            .filter_map(|(_, smoltcp::socket::Socket::Tcp(socket))| socket.local_endpoint().map(|end: IpEndpoint| end.port))
            .collect();
        loop {
            let port = self.next_port;
            self.next_port = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
            // There are many more ports than connections.
            if !used.contains(&port) {
                return port;
            }
        }
    }
}

async fn write_all(to: &mut UnixStream, frames: Vec<Vec<u8>>) -> io::Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    let mut wire = Vec::with_capacity(frames.iter().map(|frame| frame.len() + 4).sum());
    for frame in frames {
        wire.extend_from_slice(&u32::try_from(frame.len()).unwrap_or_default().to_be_bytes());
        wire.extend_from_slice(&frame);
    }
    to.write_all(&wire).await
}

/// A connection to a port of the guest.
pub(crate) struct Stream {
    wire: Wire,
    handle: SocketHandle,
}

impl Stream {
    fn with<T>(&self, work: impl FnOnce(&mut Socket<'static>) -> T) -> T {
        let mut stack = self.wire.lock();
        let done = work(stack.sockets.get_mut::<Socket<'static>>(self.handle));
        drop(stack);
        self.wire.0.news.notify_one();
        done
    }

    fn poll_established(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stack = self.wire.lock();
        let socket = stack.sockets.get_mut::<Socket<'static>>(self.handle);
        match socket.state() {
            State::SynSent | State::SynReceived => {
                socket.register_send_waker(context.waker());
                Poll::Pending
            }
            State::Closed => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the guest refused the connection")))
            }
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.with(|socket| match socket.recv_slice(buffer.initialize_unfilled()) {
            Ok(0) => {
                socket.register_recv_waker(context.waker());
                Poll::Pending
            }
            Ok(count) => {
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(RecvError::Finished) => Poll::Ready(Ok(())),
            Err(RecvError::InvalidState) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|socket| match socket.send_slice(bytes) {
            Ok(0) if !bytes.is_empty() => {
                socket.register_send_waker(context.waker());
                Poll::Pending
            }
            Ok(count) => Poll::Ready(Ok(count)),
            Err(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        })
    }

    /// What was written goes out in any case.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(Socket::close);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut stack = self.wire.lock();
        let socket = stack.sockets.get_mut::<Socket<'static>>(self.handle);
        // As with any socket: what was not read is told to the other side.
        if socket.can_recv() {
            socket.abort()
        } else {
            socket.close()
        }
        stack.left.push((self.handle, Instant::now()));
        drop(stack);
        self.wire.0.news.notify_one();
    }
}

struct Taken(Vec<u8>);
struct Given<'a>(&'a mut VecDeque<Vec<u8>>);

impl Device for Frames {
    type RxToken<'a> = Taken;
    type TxToken<'a> = Given<'a>;

    fn receive(&mut self, _: Moment) -> Option<(Taken, Given<'_>)> {
        let frame = self.from_guest.pop_front()?;
        Some((Taken(frame), Given(&mut self.to_guest)))
    }

    fn transmit(&mut self, _: Moment) -> Option<Given<'_>> {
        // What QEMU has not taken yet is enough.
        (self.to_guest.len() < MOST_FRAMES).then_some(Given(&mut self.to_guest))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = LARGEST_FRAME;
        capabilities
    }
}

impl RxToken for Taken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(&self.0)
    }
}

impl TxToken for Given<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        let mut frame = vec![0; length];
        let done = work(&mut frame);
        self.0.push_back(frame);
        done
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../fuzz/src/frames.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;
