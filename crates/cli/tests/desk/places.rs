//! As root, as an ordinary user, as process 1, with little installed.

use crate::support::{Desk, binary, until};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Puts a command in front of another one.
fn around(words: &[&str], inner: Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer.args(&words[1..]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{name} must be installed for this test"))
}

/// The binary where every user can run it.
fn public_binary(folder: &Path) -> PathBuf {
    let copy = folder.join("hotdesk");
    std::fs::copy(env!("CARGO_BIN_EXE_hotdesk"), &copy).unwrap();
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    copy
}

#[test]
fn as_an_ordinary_user() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("hotdesk-skip: only root can become somebody else; here every other test is this one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(public_binary(folder.path()));
    command.args(["desk", "--display", "auto", "--size", "640x480"]).env_remove("HOME").env_remove("USER");
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
    let mut desk = Desk::from(command, &[], |inner| around(&user, inner));
    let health = desk.ready();
    let x = health["parts"]["x_server"]["pid"].as_i64().unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{x}")).unwrap());
    assert_eq!(owner, 65534);
    let runtime = format!("/tmp/hotdesk-65534-{}", desk.display());
    assert!(Path::new(&runtime).exists());
    until("accessibility", || (desk.get("/health").1["parts"]["accessibility"]["state"] == "running").then_some(()));
    desk.stop();
    assert!(!Path::new(&runtime).exists(), "{runtime} is left");
}

/// The children of a process, with their states.
fn children(of: u32) -> Vec<(u32, String)> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            let mut fields = rest.split(' ');
            let state = fields.next()?.to_owned();
            (fields.next()?.parse() == Ok(of)).then_some((entry.file_name().to_str()?.parse().ok()?, state))
        })
        .collect()
}

#[test]
fn as_process_1() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("hotdesk-skip: only root can make a namespace of processes everywhere");
        return;
    }
    let mut command = binary();
    command.args(["desk", "--display", "auto", "--size", "640x480"]);
    let start = ["--start", "for i in 1 2 3; do (setsid sleep 0.01 &) ; done; echo I am $$; sleep 1000"];
    let mut desk = Desk::from(command, &start, |inner| around(&["unshare", "--pid", "--fork", "--mount-proc"], inner));
    let outside = desk.child.id();
    // `unshare` itself does not heed signals.
    let (init, _) = until("process 1", || children(outside).first().cloned());
    desk.target = Some(init as i32);
    let health = desk.ready();
    let worker = health["parts"]["x_server"]["pid"].as_i64().unwrap();
    assert!(worker < 100, "numbers begin anew in here: {worker}");
    until("orphans to be reaped", || {
        let dead = children(init).iter().filter(|(_, state)| state == "Z").count();
        (dead == 0 && !desk.processes().iter().any(|command| command.starts_with("sleep 0.01"))).then_some(())
    });
    desk.signal(nix::sys::signal::SIGTERM);
    assert!(desk.wait().success());
    assert_eq!(desk.processes(), Vec::<String>::new());
}

#[test]
fn with_little_installed() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    for name in ["Xvfb", "sh", "sleep"] {
        std::os::unix::fs::symlink(find(name), programs.join(name)).unwrap();
    }
    let mut command = binary();
    command.args(["desk", "--display", "auto", "--size", "640x480"]).env("PATH", &programs);
    let mut desk = Desk::from(command, &[], |command| command);
    let health = desk.ready();
    assert_eq!(health["parts"]["window_manager"]["state"], "absent", "{health}");
    assert_eq!(health["parts"]["bus"]["state"], "absent");
    assert!(health["parts"]["bus"]["reason"].as_str().unwrap().contains("dbus"));
    let (_, info) = desk.get("/v1/info");
    assert_eq!(info["features"]["python3"]["present"], false);
    assert!(info["features"]["ffmpeg"]["hint"].as_str().unwrap().contains("ffmpeg"));
    let (status, _, body) = desk.ask("POST", "/v1/recording", "").unwrap();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 501, "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("ffmpeg"));
    desk.stop();
}

#[test]
fn without_a_display_server_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let output = binary().args(["desk", "--display", "auto"]).env("PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(text.contains("error: ") && text.contains("hint: ") && text.contains("xvfb"), "{text}");
}

#[test]
fn on_a_server_that_resizes() {
    let mut desk = Desk::start(&["--x-server", "Xtigervnc"]);
    let health = desk.ready();
    assert!(health["parts"]["x_server"]["command"].as_str().unwrap().contains("Xtigervnc"), "{health}");
    desk.stop();
}
