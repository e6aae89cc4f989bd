//! Desks that may reach the outside, and only that.

use crate::place::{Desk, Place, leftovers};
use hotdesk_provider::Provider;
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
        run(&format!("-n {name} link set eth0 up"));
        run(&format!("-n {name} link set lo up"));
        run(&format!("route add {credentials}/32 via {theirs}"));
        let script = format!(
            "use IO::Socket::INET; my $l = IO::Socket::INET->new(LocalPort => {PORT}, Listen => 9, ReuseAddr => 1) or die; \
             while (my $c = $l->accept) {{ print $c \"hello from outside\\n\"; close $c }}"
        );
        let server = Command::new("ip").args(["netns", "exec", &name, "perl", "-e", &script]).spawn().unwrap();
        let outside = Self { name, server, ours, theirs, credentials };
        let end = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect((outside.theirs.as_str(), PORT)).is_err() {
            assert!(Instant::now() < end, "the machine next door does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::net::TcpStream::connect((outside.credentials.as_str(), PORT))
            .expect("this machine itself reaches the address of credentials");
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

fn host_addresses() -> Vec<String> {
    let out = Command::new("hostname").arg("-I").output().unwrap();
    String::from_utf8(out.stdout).unwrap().split_whitespace().filter(|address| !address.contains(':')).map(Into::into).collect()
}
