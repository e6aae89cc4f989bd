//! What the commands say: on stdout for programs, on stderr for people, and with which status they end.
//!
//! `INSTA_UPDATE=always cargo test -p hotdesk --test words` writes the texts anew; look at the difference.

mod gateway;

use gateway::{Gateway, plain, shown};
use insta::assert_snapshot;

#[test]
fn lists() {
    let gateway = Gateway::start();
    assert_snapshot!("ls", gateway.run(&["ls"]));
    assert_snapshot!("ls_quiet", gateway.run(&["ls", "-q", "--state", "error"]));
    assert_snapshot!("ls_state", gateway.run(&["ls", "--state", "dead"]));
    assert_snapshot!("pool", gateway.run(&["pool", "ls"]));
    assert_snapshot!("costs", gateway.run(&["costs"]));
    assert_snapshot!("events", gateway.run(&["events"]));
    assert_snapshot!("logs", gateway.run(&["logs", "work"]));
}

#[test]
fn json_is_what_the_api_says() {
    let gateway = Gateway::start();
    let output = gateway.command(&["ls", "--json"]).output().unwrap();
    let desks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(desks[0], {
        let mut desk = gateway::desk("d-aaaaaaaaaaaa", Some("work"), "running");
        desk["idle_s"] = 190.into();
        desk["cost"] = 0.1234.into();
        desk
    });
    assert!(!output.stdout.contains(&0x1b), "no control characters in JSON either");
    assert!(output.stderr.is_empty());
}

#[test]
fn a_desk_is_found_by_any_part_that_names_it() {
    let gateway = Gateway::start();
    for name in ["d-aaaaaaaaaaaa", "work", "d-aa", "aa", "wor"] {
        assert_eq!(gateway.run(&["stop", name]), "d-aaaaaaaaaaaa  stopped\n--- stderr\n--- ended with 0\n", "{name}");
    }
    assert_snapshot!("ambiguous", gateway.run(&["stop", "d-a"]));
    assert_snapshot!("misspelt", gateway.run(&["stop", "wrok"]));
    assert_snapshot!("nobody", gateway.run(&["stop", ""]));
    assert_snapshot!("which", gateway.run(&["shot"]));
}

#[test]
fn making_a_desk() {
    let gateway = Gateway::start();
    let arguments =
        "new --name new --label a=b --env X=1 --cpus 1 --memory 2G --auto-stop 1h --ttl never --screen 1280x800 --no-network";
    let said = gateway.run(&arguments.split(' ').collect::<Vec<_>>());
    assert!(said.starts_with("d-nnnnnnnnnnnn\n--- stderr\n") && said.ends_with("--- ended with 0\n"), "{said}");
    assert_eq!(
        gateway.changes(),
        [concat!(
            "POST /v1/desks?wait=1 ",
            r#"{"env":{"X":"1"},"labels":{"a":"b"},"name":"new","network":false,"policy":{"auto_stop_s":3600,"ttl_s":0},"#,
            r#""resources":{"cpus":1.0,"memory_mib":2048},"screen":{"height":800,"width":1280}}"#
        )]
    );
    assert_snapshot!("full", gateway.run(&["new", "--name", "full"]));
    assert_snapshot!("fails", gateway.run(&["new", "--name", "fails"]));
    assert_snapshot!("nonsense", gateway.run(&["new", "--auto-stop", "soon"]));
}

#[test]
fn many_desks_at_once() {
    let gateway = Gateway::start();
    assert_snapshot!("rm", gateway.run(&["rm", "work", "d-c", "d-aaaaaaaaaaaa"]));
    let mut changes = gateway.changes();
    changes.sort_unstable();
    assert_eq!(changes, ["DELETE /v1/desks/d-aaaaaaaaaaaa?wait=1", "DELETE /v1/desks/d-cccccccccccc?wait=1"]);
    assert_snapshot!("all", gateway.run(&["rm", "--all"]));
    assert_eq!(gateway.changes().len(), 2, "nothing was done without a yes");
    assert_snapshot!("stop_all", gateway.run(&["stop", "--all", "-y"]));
    // What is misspelt is told before anything is done.
    gateway.run(&["rm", "d-ab", "nobody"]);
    assert_eq!(gateway.changes().len(), 4);
}

#[test]
fn pictures_go_where_they_are_wanted() {
    let gateway = Gateway::start();
    let folder = tempfile::tempdir().unwrap();
    let output = gateway.command(&["shot", "work"]).current_dir(&folder).output().unwrap();
    assert_eq!(output.stdout, "\u{89}PNG".as_bytes(), "down the pipe");
    let output = gateway.command(&["shot", "work", "-o", "a.png"]).current_dir(&folder).output().unwrap();
    assert_eq!(output.stdout, b"a.png\n");
    assert_eq!(std::fs::read(folder.path().join("a.png")).unwrap(), "\u{89}PNG".as_bytes());
    let output = gateway.command(&["shot", "work", "--json"]).current_dir(&folder).output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(folder.path().join(said["file"].as_str().unwrap()).exists(), "{said}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn secrets_are_data_and_alone() {
    let gateway = Gateway::start();
    assert_snapshot!("key_new", gateway.run(&["key", "new", "ci", "--admin"]));
    assert_snapshot!("key_scope", gateway.run(&["key", "new", "ci"]));
    assert_eq!(
        gateway.run(&["env"]),
        "export HOTDESK_URL=http://GATEWAY\nexport HOTDESK_KEY=hd_good\n--- stderr\n--- ended with 0\n"
    );
    assert_snapshot!("env_osworld", {
        let text = gateway.run(&["env", "osworld", "work"]);
        let port = text.lines().find_map(|line| line.strip_prefix("export OSWORLD_PORT=")).unwrap().to_owned();
        text.replace(&port, "PORT")
    });
}

#[test]
fn errors_teach() {
    let gateway = Gateway::start();
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = plain(arguments);
        command.envs(variables.iter().copied());
        shown(&command.output().unwrap())
    };
    assert_snapshot!("no_fleet", run(&["ls"], &[]));
    assert_snapshot!("no_such_host", run(&["ls"], &[("HOTDESK_URL", "http://127.0.0.1:1"), ("HOTDESK_KEY", "hd_x")]));
    assert_snapshot!("no_url", run(&["ls"], &[("HOTDESK_URL", "ftp://x")]));
    let mut command = gateway.command(&["ls"]);
    assert_snapshot!("wrong_key", shown(&command.env("HOTDESK_KEY", "hd_wrong").output().unwrap()));
    assert_snapshot!("cp_nowhere", gateway.run(&["cp", "a", "b"]));
    assert_snapshot!("unknown_command", run(&["shto"], &[]));
    assert_snapshot!("exec_nobody", gateway.run(&["exec", "nobody", "--", "true"]));
}

#[test]
fn help() {
    assert_snapshot!("help", shown(&plain(&["--help"]).output().unwrap()));
    assert_snapshot!("help_of_nothing", shown(&plain(&[]).output().unwrap()));
}

/// Somebody who only wants to know whether it is there does not wait.
#[test]
fn an_early_reader_is_no_failure() {
    let gateway = Gateway::start();
    let mut child = gateway.command(&["ls"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
