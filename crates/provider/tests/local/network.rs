//! Desks that may reach the outside, and only that.

use crate::place::{Desk, Place, leftovers};
use hotdesk_provider::Provider;
use hotdesk_provider::local::Config;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

/// A machine next door: a network namespace behind a pair of interfaces.
struct Outside {
    name: String,
    server: std::process::Child,
    /// The address of this machine towards it.
    ours: String,
    theirs: String,
    /// A link-local address of it.
    credentials: String,
    /// A private one.
    private: String,
}

const PORT: u16 = 8099;

impl Outside {
    /// With addresses of its own, so that several can be there at once: 198.18.0.0/15 is set aside for tests.
    fn new() -> Self {
        let number = rand::random::<u16>();
        let [high, low] = number.to_be_bytes();
        let name = format!("hd{number:04x}{:02x}", rand::random::<u8>());
        let (ours, theirs) = (format!("198.18.{high}.{}", low & 0xfc | 1), format!("198.18.{high}.{}", low & 0xfc | 2));
        let credentials = format!("169.254.{}.{}", high.clamp(1, 254), low.clamp(1, 254));
        let private = format!("10.199.{high}.{low}");
        let run = |words: &str| {
            let words: Vec<_> = words.split_whitespace().collect();
            let status = Command::new("ip").args(&words).status().expect("the command `ip` is installed (package iproute2)");
            assert!(status.success(), "ip {}", words.join(" "));
        };
        run(&format!("netns add {name}"));
        run(&format!("link add {name} type veth peer name eth0 netns {name}"));
        run(&format!("addr add {ours}/30 dev {name}"));
        run(&format!("link set {name} up"));
        run(&format!("-n {name} addr add {theirs}/30 dev eth0"));
        // Where clouds answer with credentials.
        run(&format!("-n {name} addr add {credentials}/32 dev eth0"));
        run(&format!("-n {name} addr add {private}/32 dev eth0"));
        run(&format!("-n {name} link set eth0 up"));
        run(&format!("-n {name} link set lo up"));
        run(&format!("route add {credentials}/32 via {theirs}"));
        run(&format!("route add {private}/32 via {theirs}"));
        let script = format!(
            "use IO::Socket::INET; my $l = IO::Socket::INET->new(LocalPort => {PORT}, Listen => 9, ReuseAddr => 1) or die; \
             while (my $c = $l->accept) {{ print $c \"hello from outside\\n\"; close $c }}"
        );
        let server = Command::new("ip").args(["netns", "exec", &name, "perl", "-e", &script]).spawn().unwrap();
        let outside = Self { name, server, ours, theirs, credentials, private };
        let end = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect((outside.theirs.as_str(), PORT)).is_err() {
            assert!(Instant::now() < end, "the machine next door does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::net::TcpStream::connect((outside.credentials.as_str(), PORT))
            .expect("this machine itself reaches the address of credentials");
        std::net::TcpStream::connect((outside.private.as_str(), PORT)).expect("this machine itself reaches the private address");
        outside
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("ip").args(["link", "del", &self.name]).status();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

async fn fetch(desk: &Desk, address: &str, port: u16) -> String {
    desk.sh(&format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{port} && cat <&3'")).await.text
}

#[tokio::test]
async fn the_outside_is_reached_and_the_host_is_not() {
    let outside = Outside::new();
    let place = Place::new().await;
    assert!(place.local.capabilities().await.network);
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut spec = place.spec("d-net");
    spec.network = true;
    let desk = place.create(&spec).await;
    // The network comes up while the desk does; it may be a moment later.
    let end = Instant::now() + Duration::from_secs(60);
    while fetch(&desk, &outside.theirs, PORT).await != "hello from outside" {
        assert!(Instant::now() < end, "the outside is not reached");
    }
    assert_eq!(desk.sh("cat /etc/resolv.conf").await.text, "nameserver 10.0.2.3");
    let own: Vec<String> = host_addresses();
    assert!(own.contains(&outside.ours));
    for address in own.iter().map(String::as_str).chain(["10.0.2.2", "127.0.0.1", "0.0.0.0"]) {
        let code = desk.sh(&format!("timeout 3 bash -c '</dev/tcp/{address}/{port}'")).await.code;
        assert_ne!(code, 0, "a service of this machine is reached at {address}");
    }
    let port = loopback.local_addr().unwrap().port();
    assert_ne!(desk.sh(&format!("timeout 3 bash -c '</dev/tcp/10.0.2.2/{port}'")).await.code, 0);
    assert!(!fetch(&desk, &outside.credentials, PORT).await.contains("hello"), "the address of credentials is reached");
    assert_ne!(
        desk.sh("ip route del unreachable 169.254.0.0/16; perl -e 'socket(my $s, 16, 3, 0) or die' && false").await.code,
        0
    );
    place.local.delete("d-net").await.unwrap();
    assert_eq!(leftovers(&place, desk.pid), Vec::<String>::new());
    drop(outside);
}

#[tokio::test]
async fn the_network_ends_with_its_keeper_and_the_desk_goes_on() {
    let place = Place::new().await;
    let mut spec = place.spec("d-keeper");
    spec.network = true;
    let desk = place.create(&spec).await;
    let running: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.data().join("desks/d-keeper/running.json")).unwrap()).unwrap();
    let keeper = i32::try_from(running["keeper"]["pid"].as_i64().unwrap()).unwrap();
    let helper = crate::place::children(keeper).into_iter().find(|(_, name)| name.contains("slirp") || name.contains("pasta"));
    let (helper, name) = helper.expect("the network has a process");
    // It has no rights on the host.
    let status = std::fs::read_to_string(format!("/proc/{helper}/status")).unwrap();
    assert!(!status.contains("Uid:\t0\t"), "{name} runs as root: {status}");
    // A helper that dies is started again.
    rustix::process::kill_process(rustix::process::Pid::from_raw(helper).unwrap(), rustix::process::Signal::KILL).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let next = loop {
        let all = crate::place::children(keeper);
        if let Some((next, _)) =
            all.into_iter().find(|(pid, name)| *pid != helper && (name.contains("slirp") || name.contains("pasta")))
        {
            break next;
        }
        assert!(Instant::now() < end, "it is not started again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    rustix::process::kill_process(rustix::process::Pid::from_raw(keeper).unwrap(), rustix::process::Signal::KILL).unwrap();
    while std::path::Path::new(&format!("/proc/{next}")).exists() {
        assert!(Instant::now() < end + Duration::from_secs(60), "the network outlives its keeper");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(desk.sh("echo alive").await.text, "alive");
    place.local.delete("d-keeper").await.unwrap();
    assert_eq!(leftovers(&place, desk.pid), Vec::<String>::new());
}

/// Waits until a desk reaches the outside: its network comes up while it starts, and may be a moment later.
async fn reaches(desk: &Desk, address: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while fetch(desk, address, PORT).await != "hello from outside" {
        assert!(Instant::now() < end, "{address} is not reached");
    }
}

/// The number of the error that a datagram to an address gives, sent past all routes: by a socket that is bound to the device.
async fn datagram(desk: &Desk, address: &str) -> String {
    let script = format!(
        "use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 17) or die; setsockopt($s, 1, 25, \"tap0\\0\") or die; \
         print send($s, \"x\", 0, pack_sockaddr_in(9, inet_aton(\"{address}\"))) ? \"sent\" : $!+0"
    );
    desk.sh(&format!("perl -e '{script}'")).await.text
}

const EPERM: &str = "1";

#[tokio::test]
async fn what_is_closed_is_closed_past_the_routes_too() {
    let outside = Outside::new();
    let place = Place::new().await;
    let mut spec = place.spec("d-past");
    spec.network = true;
    let desk = place.create(&spec).await;
    reaches(&desk, &outside.theirs).await;
    assert_eq!(datagram(&desk, &outside.theirs).await, "sent");
    // The kernel itself may refuse these.
    for address in ["127.0.0.1", "127.9.9.9", "0.0.0.1"] {
        assert_ne!(datagram(&desk, address).await, "sent", "{address}");
    }
    let fixed = ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "240.0.0.1"];
    let private = ["10.0.2.2", "10.0.2.3", "10.1.2.3", "172.16.0.1", "172.17.0.2", "192.168.1.1", "100.64.0.1", &outside.private];
    // A host that is itself behind slirp has the address that the desk has, which is then the desk's own.
    let own: Vec<_> = host_addresses().into_iter().filter(|address| address != "10.0.2.100").collect();
    for address in own.iter().map(String::as_str).chain(fixed).chain(private) {
        assert_eq!(datagram(&desk, address).await, EPERM, "{address}");
    }
    assert!(!fetch(&desk, &outside.private, PORT).await.contains("hello"), "a private network is reached");
    // The desk has no IPv6 but that of its own loopback.
    let script = "use Socket; socket(my $s, AF_INET6, SOCK_DGRAM, 17) or die; setsockopt($s, 1, 25, \"tap0\\0\") or die; \
                  print send($s, \"x\", 0, pack_sockaddr_in6(9, inet_pton(AF_INET6, \"fd00:ec2::254\"))) ? \"sent\" : $!+0";
    assert_ne!(desk.sh(&format!("perl -e '{script}'")).await.text, "sent");
    // Its own services are its own.
    let own = "perl -MIO::Socket::INET -e 'my $l = IO::Socket::INET->new(LocalAddr => \"127.0.0.1\", Listen => 1) or die; \
               IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $l->sockport) or die; print \"own\"'";
    assert_eq!(desk.sh(own).await.text, "own");
}

#[tokio::test]
async fn an_operator_opens_private_networks_and_nothing_else() {
    let outside = Outside::new();
    let allow_private =
        vec!["10.199.0.0/16".parse().unwrap(), "198.18.0.0/15".parse().unwrap(), "169.254.0.0/16".parse().unwrap()];
    let place = Place::with(Config { allow_private, ..Config::default() }).await;
    let mut spec = place.spec("d-open");
    spec.network = true;
    let desk = place.create(&spec).await;
    reaches(&desk, &outside.private).await;
    assert_eq!(datagram(&desk, "10.1.2.3").await, EPERM);
    assert_eq!(datagram(&desk, &outside.ours).await, EPERM, "an address of this machine, in a network that was opened");
    assert_eq!(datagram(&desk, &outside.credentials).await, EPERM, "no setting opens the addresses of credentials");
}

#[tokio::test]
async fn addresses_that_the_host_gets_later_are_closed_too() {
    let place = Place::new().await;
    let mut spec = place.spec("d-later");
    spec.network = true;
    let desk = place.create(&spec).await;
    let outside = Outside::new();
    reaches(&desk, &outside.theirs).await;
    let end = Instant::now() + Duration::from_secs(60);
    while datagram(&desk, &outside.ours).await != EPERM {
        assert!(Instant::now() < end, "an address that came after the desk's start stays open");
    }
    assert_eq!(datagram(&desk, &outside.theirs).await, "sent", "the rest of the filter is as it was");
    assert_eq!(datagram(&desk, "169.254.169.254").await, EPERM);
}

fn host_addresses() -> Vec<String> {
    let out = Command::new("hostname").arg("-I").output().unwrap();
    String::from_utf8(out.stdout).unwrap().split_whitespace().filter(|address| !address.contains(':')).map(Into::into).collect()
}
