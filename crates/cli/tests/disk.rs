//! A golden disk in a real machine: QEMU without KVM. Needs qemu-system-x86, qemu-utils, grub-pc-bin, and packages' lists.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A boot takes 15 s on a quiet machine; a busy one must not fail for it.
const PATIENCE: Duration = Duration::from_secs(400);
const TOKEN: &str = "a-token-of-this-test";

#[test]
fn a_disk_of_bare_boots_serves_and_goes_down() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = directory.path().join("bare.qcow2");
    let made = Command::new(env!("CARGO_BIN_EXE_hotdesk"))
        .args(["template", "build", "bare", "--as", "disk", "--size", "2G", "--json", "-o"])
        .arg(&disk)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let info: Value = serde_json::from_slice(&std::fs::read(disk.with_extension("json")).unwrap()).unwrap();
    assert_eq!(info["disk"], "bare.qcow2");
    assert_eq!(info["size_bytes"], 2_u64 << 30);

    // By itself: what the BIOS starts finds the kernel and the root. The rest is the same as below.
    let bios = Machine::start(directory.path(), "bios", &[], None);
    bios.wait_for("hotdesk: network");
    drop(bios);

    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let token = directory.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let [kernel, initrd] =
        [&info["kernel"]["file"], &info["initrd"]].map(|name| directory.path().join(text(name)).to_str().unwrap().to_owned());
    let firmware = format!("name={},file={}", text(&info["boot"]["token_fw_cfg"]), token.display());
    // On a larger disk than it was made as, the root grows.
    let machine = Machine::start(
        directory.path(),
        "direct",
        &["-kernel", &kernel, "-initrd", &initrd, "-append", &text(&info["boot"]["command_line"]), "-fw_cfg", &firmware],
        Some("3G"),
    );
    let mut seen = Vec::new();
    for stage in info["boot"]["stages"].as_array().unwrap() {
        seen.extend(machine.wait_for(stage.as_str().unwrap()));
    }
    assert!(seen.iter().any(|line| line.contains("the root has grown to 3071 MiB")), "{seen:?}");

    let (status, body) = machine.get("/health", None);
    assert!(status == 200 && body.starts_with(b"{\"ready\":true"), "{}", String::from_utf8_lossy(&body));
    assert_eq!(machine.get("/v1/screenshot", None).0, 401);
    let (status, body) = machine.get_in_time("/v1/screenshot", TOKEN);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    assert!(body.starts_with(b"\x89PNG") && body.len() > 1000, "{} bytes are not a picture", body.len());

    machine.press_the_power_button();
    machine.wait_for("hotdesk: off");
    machine.wait_for_its_end();
}

struct Machine {
    qemu: Child,
    lines: Receiver<String>,
    port: u16,
    control: std::path::PathBuf,
}

impl Machine {
    fn start(directory: &Path, name: &str, more: &[&str], size: Option<&str>) -> Self {
        let overlay = directory.join(format!("{name}.qcow2"));
        let mut create = Command::new("qemu-img");
        create
            .args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"])
            .arg(directory.join("bare.qcow2"))
            .arg(&overlay)
            .args(size);
        assert!(create.status().expect("qemu-utils is installed").success());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let control = directory.join(format!("{name}.qmp"));
        let mut qemu = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"])
            .arg("-drive")
            .arg(format!("if=virtio,format=qcow2,file={}", overlay.display()))
            .arg("-netdev")
            .arg(format!("user,id=net,hostfwd=tcp:127.0.0.1:{port}-:5000"))
            .args(["-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci", "-qmp"])
            .arg(format!("unix:{},server=on,wait=off", control.display()))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("qemu-system-x86 is installed");
        let console = BufReader::new(qemu.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in console.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                eprintln!("{line}");
                let _ = send.send(line);
            }
        });
        Self { qemu, lines, port, control }
    }

    /// The lines until one says this.
    fn wait_for(&self, text: &str) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.ends_with(text) => return seen,
                Ok(line) => seen.push(line),
                Err(_) => panic!("the console did not say `{text}`; it said {seen:#?}"),
            }
        }
    }

    fn get(&self, path: &str, token: Option<&str>) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{token}\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer of HTTP");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), answer.split_off(end + 4))
    }

    /// On a busy machine the X server inside may take longer than a desk waits for it.
    fn get_in_time(&self, path: &str, token: &str) -> (u16, Vec<u8>) {
        let end = Instant::now() + PATIENCE;
        loop {
            let (status, body) = self.get(path, Some(token));
            if !matches!(status, 503 | 504) || Instant::now() > end {
                return (status, body);
            }
        }
    }

    fn press_the_power_button(&self) {
        let mut control = UnixStream::connect(&self.control).unwrap();
        control.write_all(b"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"system_powerdown\"}").unwrap();
        // The greeting, and an answer to each; then it is done.
        let answers =
            BufReader::new(&control).lines().take(3).filter(|line| line.as_ref().is_ok_and(|line| line.contains("return")));
        assert!(answers.count() >= 1);
    }

    fn wait_for_its_end(mut self) {
        let end = Instant::now() + PATIENCE;
        while self.qemu.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "the machine did not turn itself off");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
