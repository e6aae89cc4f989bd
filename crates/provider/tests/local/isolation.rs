//! What a program inside a desk can't do.

use crate::place::{Desk, Place};
use hotdesk_provider::Provider;
use hotdesk_provider::local::Config;
use std::os::linux::net::SocketAddrExt;

/// The number of the error that a system call gives inside, or 0.
async fn errno(desk: &Desk, call: &str) -> i64 {
    let out = desk.sh(&format!("perl -e '$r = syscall({call}); print $r == -1 ? $!+0 : 0'")).await;
    out.text.parse().unwrap_or_else(|_| panic!("{call}: {out:?}"))
}

const EPERM: i64 = 1;
const ENOSYS: i64 = 38;

#[tokio::test]
async fn the_host_is_out_of_sight() {
    let place = Place::new().await;
    let secret = place.folder.path().join("secret-of-the-host");
    std::fs::write(&secret, "secret").unwrap();
    let desk = place.desk("d-blind").await;
    // Files.
    assert_ne!(desk.sh(&format!("cat {}", secret.display())).await.code, 0);
    assert_ne!(desk.sh(&format!("cat /proc/1/root{}", secret.display())).await.code, 0);
    let found = desk.sh("find / -xdev -name 'secret-of-the-host' 2>/dev/null; cat /proc/self/mountinfo").await;
    assert!(!found.text.contains("secret-of-the-host"), "{}", found.text);
    assert_eq!(
        desk.sh("ls -d /dev/sd* /dev/vd* /dev/loop* /dev/mem /dev/kmsg /dev/fuse /dev/kvm /dev/net 2>/dev/null").await.text,
        ""
    );
    assert_ne!(desk.sh("head -c 1 /proc/kcore").await.code, 0);
    // Processes.
    let own = std::process::id();
    let out = desk.sh(&format!("kill -0 {own} && echo reached; test -d /proc/{own} && cat /proc/{own}/cmdline")).await;
    assert!(!out.text.contains("reached") && !out.text.contains("local-"), "{out:?}");
    let count: usize = desk.sh("ls -d /proc/[0-9]* | wc -l").await.text.parse().unwrap();
    assert!(count < 40, "{count} processes are seen");
    assert_eq!(desk.sh("cat /proc/1/comm").await.text, "hotdesk");
    // Names.
    assert_eq!(desk.sh("hostname").await.text, "d-blind");
    assert_ne!(desk.sh("hostname other").await.code, 0);
    // Shared memory of System V.
    assert_eq!(desk.sh("tail -n +2 /proc/sysvipc/sem | wc -l").await.text, "0");
}

#[tokio::test]
async fn nothing_gives_rights() {
    let place = Place::new().await;
    let desk = place.desk("d-weak").await;
    let status = desk.sh("grep -E '^(Cap|NoNewPrivs|Seccomp|Uid)' /proc/self/status").await.text;
    for line in
        ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
    {
        assert!(status.contains(line), "{line} in {status}");
    }
    // Programs that change the user exist, and do nothing.
    assert_eq!(desk.sh("stat -c %a /usr/bin/su").await.text, "4755");
    let out = desk.sh("cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && /tmp/id -u; su -c 'id -u' </dev/null; grep ' / / ' /proc/self/mountinfo | grep -o nosuid").await;
    assert!(!out.text.lines().any(|line| line == "0"), "{out:?}");
    assert!(out.text.ends_with("nosuid"));
    assert_ne!(desk.sh("mknod /tmp/sda b 8 0").await.code, 0);
    // Settings of the kernel.
    for file in [
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sysrq-trigger",
        "/sys/power/state",
    ] {
        assert_ne!(desk.sh(&format!("echo 1 > {file}")).await.code, 0, "{file}");
    }
    assert_ne!(desk.sh("mount -t tmpfs none /mnt").await.code, 0);
    assert_ne!(desk.sh("unshare -U true").await.code, 0);
    assert_ne!(desk.sh("unshare -m true").await.code, 0);
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn dangerous_calls_are_refused() {
    let place = Place::new().await;
    let desk = place.desk("d-calls").await;
    for (what, call) in [
        ("mount", "165, 0, 0, 0, 0, 0"),
        ("umount2", "166, 0, 0"),
        ("pivot_root", "155, 0, 0"),
        ("fsopen", "430, 0, 0"),
        ("open_tree", "428, 0, 0, 0"),
        ("setns", "308, 0, 0"),
        ("unshare a user namespace", "272, 0x10000000"),
        ("clone a user namespace", "56, 0x10000011, 0, 0, 0, 0"),
        ("ptrace init", "101, 16, 1, 0, 0"),
        ("process_vm_writev init", "311, 1, 0, 0, 0, 0, 0"),
        ("init_module", "175, 0, 0, 0"),
        ("finit_module", "313, 0, 0, 0"),
        ("kexec_load", "246, 0, 0, 0, 0"),
        ("reboot", "169, 0, 0, 0, 0"),
        ("swapon", "167, 0, 0"),
        ("bpf", "321, 0, 0, 0"),
        ("perf_event_open", "298, 0, 0, 0, 0, 0"),
        ("userfaultfd", "323, 0"),
        ("keyctl", "250, 0, 0, 0, 0, 0"),
        ("add_key", "248, 0, 0, 0, 0, 0"),
        ("open_by_handle_at", "304, 0, 0, 0"),
        ("settimeofday", "164, 0, 0"),
        ("a socket to the virtual machine's host", "41, 40, 1, 0"),
        ("a packet socket", "41, 17, 3, 0"),
        ("a pair of TIPC sockets", "53, 30, 1, 0, 0"),
    ] {
        assert_eq!(errno(&desk, call).await, EPERM, "{what}");
    }
    for (what, call) in [
        ("clone3", "435, 0, 0"),
        ("io_uring_setup", "425, 1, 0"),
        ("mount by its other number", "0x40000000 + 165, 0, 0, 0, 0, 0"),
        ("listmount", "458, 0, 0, 0, 0"),
        ("open_tree_attr", "467, 0, 0, 0, 0, 0"),
        ("one that no kernel has", "600, 0"),
    ] {
        assert_eq!(errno(&desk, call).await, ENOSYS, "{what}");
    }
    // And ordinary ones are not: an unprivileged program goes on as it always did.
    assert_eq!(desk.sh("perl -e 'socket(my $s, 2, 1, 0) or die; print fork() // die' | grep -c .").await.code, 0);
}

#[tokio::test]
async fn memory_processes_and_disk_are_bounded() {
    let place = Place::with(Config { max_processes: 120, ..Config::default() }).await;
    let mut spec = place.spec("d-bound");
    spec.resources.memory_mib = 256;
    spec.resources.disk_mib = 64;
    let desk = place.create(&spec).await;
    let memory = desk.sh("perl -e '$x = \"a\" x (600 << 20); print \"had it\"'").await;
    assert!(memory.code != 0 && !memory.text.contains("had it"), "{memory:?}");
    let shared = desk.sh("head -c 400M /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x; rm /dev/shm/x").await;
    let size: u64 = shared.text.lines().last().unwrap().parse().unwrap();
    assert!(size <= 128 << 20, "{shared:?}");
    let forks = desk.sh("perl -e 'for (1..300) { $p = fork; last unless defined $p; unless ($p) { sleep 20; exit } $n++ } print $n; kill 9, -getpgrp(0) if 0' & wait; pkill -9 -x perl").await;
    let count: usize = forks.text.lines().next().unwrap_or_default().parse().unwrap_or_else(|_| panic!("{forks:?}"));
    assert!(count < 120, "{count} processes");
    for target in ["~/big", "/tmp/big", "/var/tmp/big"] {
        let out = desk.sh(&format!("head -c 200M /dev/zero > {target}; echo $?; rm -f {target}")).await;
        assert!(out.text.contains("No space left"), "{target}: {out:?}");
    }
    let out = desk.sh("head -c 100M /dev/zero > /run/user/1000/big; rm -f /run/user/1000/big").await;
    assert!(out.text.contains("No space left"), "{out:?}");
    // What it deleted is given back.
    assert_eq!(desk.sh("head -c 20M /dev/zero > ~/again && echo fits").await.text, "fits");
    assert!(place.local.usage("d-bound").await.unwrap().disk_bytes <= (64 << 20) + (1 << 20));
}

#[tokio::test]
async fn a_desk_that_used_up_its_memory_says_so() {
    let place = Place::new().await;
    let mut spec = place.spec("d-tight");
    // Less than its parts need together: the kernel ends one after the other, the server at last.
    spec.resources.memory_mib = 16;
    let (progress, _) = hotdesk_provider::Progress::new();
    let error = place.local.create(&spec, &progress).await.unwrap_err().to_string();
    assert!(error.contains("memory was used up"), "{error}");
    place.local.delete("d-tight").await.unwrap();
}

#[tokio::test]
async fn its_directory_on_the_host_is_not_its_own() {
    let place = Place::new().await;
    let desk = place.desk("d-run").await;
    assert_eq!(desk.sh("ls /run/hotdesk").await.text.replace('\n', " "), "desk.sock desk.toml log server.sock");
    for attempt in [
        "echo x > /run/hotdesk/file",
        "rm -f /run/hotdesk/desk.sock && ! test -e /run/hotdesk/desk.sock",
        "mv /run/hotdesk/desk.sock /run/hotdesk/other",
        "ln -sf /etc/passwd /run/hotdesk/desk.sock",
        "echo x >> /run/hotdesk/desk.toml",
        "chmod 666 /run/hotdesk/desk.toml",
        "echo x > /run/hotdesk/log",
        "echo x >> /usr/local/bin/hotdesk",
        "rm -f /usr/local/bin/hotdesk && ! test -e /usr/local/bin/hotdesk",
    ] {
        assert_ne!(desk.sh(attempt).await.code, 0, "{attempt}");
    }
    let meta = std::fs::metadata(place.data().join("desks")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&meta) & 0o077, 0, "and other users of the host can't get to it");
}

#[tokio::test]
async fn desks_do_not_know_each_other() {
    let place = Place::new().await;
    let (one, two) = (place.desk("d-one").await, place.desk("d-two").await);
    assert_ne!(one.sh(&format!("ls {}", two.socket().display())).await.code, 0);
    assert!(!one.sh("cat /run/hotdesk/* /proc/*/environ 2>/dev/null").await.text.contains("secret-of-d-two"));
    assert_eq!(one.sh("ip addr 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await.text, "lo");
    // X of one is not X of the other, although both have the same number.
    one.sh("echo mine > /tmp/.X11-unix/mark").await;
    assert_ne!(two.sh("cat /tmp/.X11-unix/mark").await.code, 0);
    let users = |desk: &Desk| std::fs::read_to_string(format!("/proc/{}/uid_map", desk.pid)).unwrap();
    assert_ne!(users(&one), users(&two), "their users are different ones on the host");
    // A wrong secret opens nothing.
    let thief = Desk {
        door: hotdesk_provider::Door { address: two.door.address.clone(), secret: one.door.secret.clone() },
        pid: two.pid,
    };
    let (status, _) = thief.ask("GET", "/v1/windows", &serde_json::Value::Null).await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn the_hosts_sockets_are_out_of_reach() {
    let place = Place::new().await;
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = format!("hotdesk-test-{}", rand::random::<u32>());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let desk = place.desk("d-deaf").await;
    assert_ne!(desk.sh(&format!("timeout 2 bash -c '</dev/tcp/127.0.0.1/{port}'")).await.code, 0);
    let script = format!(
        "use Socket; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; connect($s, pack(\"Sa*\", AF_UNIX, \"\\0{name}\")) or die; print \"reached\""
    );
    let out = desk.sh(&format!("perl -e '{script}'")).await;
    assert!(out.code != 0 && !out.text.contains("reached"), "{out:?}");
}
