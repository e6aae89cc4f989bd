//! The guest is another stack of the same kind, with a server on it.

use super::*;
use tokio::io::AsyncReadExt;

const PORT: u16 = 5000;
const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x68, 0x64, 1];

/// A wire, and a guest at its other end that sends back what it gets on one port.
fn wire_and_guest() -> (Wire, Vec<tokio_util::task::AbortOnDropHandle<()>>) {
    let wire = Wire::new();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let carried = wire.clone();
    let run = tokio::spawn(async move {
        let _ = carried.run(ours).await;
    });
    let guest = tokio::spawn(guest(wire.clone(), theirs));
    (wire, vec![tokio_util::task::AbortOnDropHandle::new(run), tokio_util::task::AbortOnDropHandle::new(guest)])
}

async fn guest(wire: Wire, mut from: UnixStream) {
    let (arrive, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(length) = from.read_u32().await {
            let mut frame = vec![0; length as usize];
            if from.read_exact(&mut frame).await.is_err() || arrive.send(frame).is_err() {
                return;
            }
        }
    });
    let mut frames = Frames::default();
    let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(GUEST_MAC)));
    let mut interface = Interface::new(config, &mut frames, Moment::ZERO);
    interface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(IpAddress::Ipv4(GUEST), 24)).unwrap());
    let mut sockets = SocketSet::new(Vec::new());
    let mut socket = Socket::new(SocketBuffer::new(vec![0; 65536]), SocketBuffer::new(vec![0; 65536]));
    socket.listen(PORT).unwrap();
    let handle = sockets.add(socket);
    let begun = Instant::now();
    loop {
        let now = Moment::from_micros(i64::try_from(begun.elapsed().as_micros()).unwrap());
        interface.poll(now, &mut frames, &mut sockets);
        let socket = sockets.get_mut::<Socket<'_>>(handle);
        while socket.can_recv() && socket.can_send() {
            let room = socket.send_capacity() - socket.send_queue();
            let mut bytes = vec![0; room];
            let count = socket.recv_slice(&mut bytes).unwrap();
            assert_eq!(socket.send_slice(&bytes[..count]).unwrap(), count);
        }
        if socket.state() == State::CloseWait && socket.recv_queue() == 0 {
            socket.close();
        }
        if socket.state() == State::Closed || socket.state() == State::TimeWait {
            socket.abort();
            socket.listen(PORT).unwrap();
        }
        interface.poll(now, &mut frames, &mut sockets);
        for frame in frames.to_guest.drain(..) {
            wire.take(frame);
        }
        let pause = interface.poll_delay(now, &sockets).map_or(Duration::from_millis(50), Duration::from);
        if let Ok(frame) = tokio::time::timeout(pause, arrived.recv()).await {
            let Some(frame) = frame else { return };
            frames.from_guest.push_back(frame);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_comes_back_and_ends_are_seen() {
    let (wire, _tasks) = wire_and_guest();
    for _ in 0..3 {
        let stream = wire.connect(PORT).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let sent = bytes.clone();
        let write = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut back = Vec::new();
        tokio::time::timeout(Duration::from_secs(60), reader.read_to_end(&mut back)).await.expect("it ends").unwrap();
        assert!(back == bytes, "{} bytes of {}", back.len(), bytes.len());
        write.await.unwrap();
    }
    let end = Instant::now() + Duration::from_secs(20);
    while wire.lock().sockets.iter().count() > 0 {
        assert!(Instant::now() < end, "connections stay");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_nobody_listens_on_is_refused() {
    let (wire, _tasks) = wire_and_guest();
    let refused = wire.connect(PORT + 1).await.err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
    assert!(wire.connect(0).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_does_not_answer_is_not_waited_for() {
    let wire = Wire::new();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let carried = wire.clone();
    let run = tokio::spawn(async move { carried.run(ours).await });
    assert_eq!(wire.connect(PORT).await.err().unwrap().kind(), io::ErrorKind::TimedOut);
    run.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_machine_is_the_end_of_its_connections() {
    let (wire, tasks) = wire_and_guest();
    let mut stream = wire.connect(PORT).await.unwrap();
    drop(tasks);
    wire.end();
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut byte)).await.expect("the reader is woken");
    assert!(!matches!(read, Ok(1..)), "{read:?}");
    assert!(wire.connect(PORT).await.is_err());
}

/// A guest writes what it likes into its frames.
#[test]
fn hostile_frames_harm_nobody() {
    let wire = Wire::new();
    let mut seed = 7_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let _stream = wire.open(PORT).unwrap();
    for _ in 0..50_000 {
        let mut frame = vec![0; next() % 120];
        frame.iter_mut().for_each(|byte| *byte = next() as u8);
        let kind = if next() % 4 == 0 { [8, 6] } else { [8, 0] };
        let address = ADDRESS.octets();
        for (at, bytes) in [(0, &MAC[..]), (12, &kind[..]), (14, &[0x45][..]), (30, &address[..]), (23, &[6][..])] {
            if next() % 8 != 0 && frame.len() >= at + bytes.len() {
                frame[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        wire.take(frame);
        wire.lock().turn();
    }
}
