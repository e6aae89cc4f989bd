//! What the command line, the environment and the file say, and what is said about them.

use crate::support::{Desk, binary};

fn complaint(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = binary().args(arguments).envs(variables.iter().copied()).output().unwrap();
    assert!(output.stdout.is_empty(), "complaints go to stderr");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_can_not_be_used_is_told_with_a_hint() {
    let (code, text) = complaint(&["desk"], &[("RESOLUTION", "big")]);
    assert_eq!(code, Some(2));
    assert_eq!(
        text,
        "error: the environment variable RESOLUTION can't be used: `big` is not a size; write it like 1920x1080\n\
         hint: correct RESOLUTION or unset it\n"
    );
    let (code, text) = complaint(&["desk", "--vnc", "0.0.0.0:5900"], &[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("hint: set a password in VNC_PASSWORD"), "{text}");
    let (code, text) = complaint(&["desk", "--config", "/no/such/file.toml"], &[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("/no/such/file.toml"), "{text}");
    let (code, text) = complaint(&["desk", "--size", "7x7"], &[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("each side is 64 to 16384 pixels"), "{text}");
    assert_eq!(complaint(&["desk", "--log", "==="], &[]).0, Some(2));
    assert_eq!(complaint(&["frobnicate"], &[]).0, Some(2));
}

#[test]
fn variables_count_and_empty_ones_do_not() {
    let mut command = binary();
    command.args(["desk", "--display", "auto"]).env("RESOLUTION", "800x600x24").env("HOTDESK_SIZE", "").env("HOTDESK_WM", "none");
    let mut desk = Desk::from(command, &[], |command| command);
    let health = desk.ready();
    let server = health["parts"]["x_server"]["command"].as_str().unwrap();
    assert!(server.contains("800x600x24"), "{server}");
    assert_eq!(health["parts"]["window_manager"]["state"], "absent");
    desk.stop();
}

#[test]
fn an_address_that_is_taken_ends_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let output =
        binary().args(["desk", "--display", "auto", "--listen", &address, "--home"]).arg(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains(&address), "{text}");
}

#[test]
fn small_commands() {
    let run = |arguments: &[&str]| {
        let output = binary().args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(run(&["--version"]), (Some(0), format!("hotdesk {}\n", env!("CARGO_PKG_VERSION"))));
    assert!(run(&["completions", "bash"]).1.contains("_hotdesk"));
    let (code, text) = run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code == Some(0), report["ok"] == true);
    assert!(run(&["doctor"]).1.contains("Xvfb"));
    let help = run(&["desk", "--help"]).1;
    for word in ["--listen", "--display", "--size", "--attach", "--open", "--vnc", "--config"] {
        assert!(help.contains(word), "{word}");
    }
}
