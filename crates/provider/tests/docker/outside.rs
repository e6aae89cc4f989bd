//! What is beyond a desk's network.

use crate::engine::shell;
use hotdesk_provider::Door;
use std::process::Command;
use std::time::Duration;

/// `reached`, or why not.
pub(crate) async fn reach(door: &Door, address: &str, port: u16) -> String {
    let python = format!("import socket; socket.create_connection((\"{address}\", {port}), 2); print(\"reached\")");
    shell(door, &format!("python3 -c '{python}' 2>&1 | tail -n 1")).await.trim().to_owned()
}

/// A network beyond the daemon's, with a server on it; and a server on the daemon's own end of the cable.
pub(crate) struct Outside {
    server: std::process::Child,
    _machine: std::net::TcpListener,
    pub(crate) machine_port: u16,
}

impl Outside {
    pub(crate) const ADDRESS: &str = "203.0.113.2";
    pub(crate) const PRIVATE: &str = "10.77.0.2";
    pub(crate) const METADATA: [&str; 3] = ["169.254.169.254", "168.63.129.16", "100.100.100.200"];
    pub(crate) const MACHINE: &str = "10.77.0.1";
    pub(crate) const PORT: u16 = 8080;

    pub(crate) fn new() -> Self {
        let script = "ip link set lo up; until ip link show out1 >/dev/null 2>&1; do sleep 0.05; done; \
                      for a in 203.0.113.2/24 10.77.0.2/24 169.254.169.254/32 168.63.129.16/32 100.100.100.200/32; do \
                      ip addr add $a dev out1; done; ip link set out1 up; exec python3 -m http.server 8080 --bind 0.0.0.0";
        let server = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", script])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Its namespace is there as soon as it differs from ours.
        let ours = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        while std::fs::read_link(format!("/proc/{}/ns/net", server.id())).unwrap() == ours {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = server.id().to_string();
        for command in [
            "ip link add out0 type veth peer name out1 netns PID",
            "ip addr add 203.0.113.1/24 dev out0; ip addr add 10.77.0.1/24 dev out0; ip link set out0 up",
            "for a in 169.254.169.254 168.63.129.16 100.100.100.200; do ip route add $a dev out0; done",
        ] {
            let command = command.replace("PID", &pid);
            assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
        }
        while std::net::TcpStream::connect((Self::ADDRESS, Self::PORT)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let machine = std::net::TcpListener::bind((Self::MACHINE, 0)).unwrap();
        let machine_port = machine.local_addr().unwrap().port();
        Self { server, _machine: machine, machine_port }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        // Its end of the cable goes with its namespace, some time later.
        let _ = Command::new("ip").args(["link", "del", "out0"]).stderr(std::process::Stdio::null()).status();
    }
}
