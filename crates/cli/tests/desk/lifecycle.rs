//! From start to end.

use crate::support::{Desk, alive, binary, until};
use nix::sys::signal::Signal;
use std::os::unix::net::UnixDatagram;

#[test]
fn it_starts_tells_how_it_is_and_leaves_nothing() {
    let mut desk = Desk::start(&[]);
    let health = desk.ready();
    assert_eq!(health["stage"], "ready");
    assert!(health["waiting_for"].is_null());
    for stage in ["x_server", "bus", "window_manager", "settling", "ready"] {
        assert!(health["stages_ms"][stage].is_u64(), "{stage}: {health}");
    }
    for part in ["x_server", "bus", "window_manager"] {
        assert_eq!(health["parts"][part]["state"], "running", "{health}");
        assert_eq!(health["parts"][part]["restarts"], 0);
    }
    until("accessibility", || (desk.get("/health").1["parts"]["accessibility"]["state"] == "running").then_some(()));
    assert_eq!(desk.get("/v1/health").0, 200);
    let (status, info) = desk.get("/v1/info");
    assert_eq!(status, 200);
    assert_eq!(info["home"].as_str(), desk.home().to_str());
    assert_eq!(info["features"]["Xvfb"]["present"], true);
    let (status, logs) = desk.get("/v1/logs?part=bus&tail=3");
    assert_eq!(status, 200);
    assert!(logs["lines"].as_array().unwrap().len() <= 3);
    assert_eq!(desk.get("/v1/logs?part=engine").0, 404);
    assert!(desk.home().join(".Xauthority").exists());
    desk.stop();
}

#[test]
fn programs_of_the_template_start_and_orphans_are_swept() {
    // One that stays, one whose child outlives it in a session of its own, and one that does not want to go.
    let mut desk = Desk::start(&[
        "--start",
        "exec sleep 1001",
        "--start",
        "setsid sleep 1002 & exit 0",
        "--start",
        "setsid sh -c 'trap \"\" TERM; sleep 1003 & while :; do wait; done' & exit 0",
    ]);
    desk.ready();
    until("the programs", || {
        let all = desk.processes().join("\n");
        ["sleep 1001", "sleep 1002", "sleep 1003"].iter().all(|one| all.contains(one)).then_some(())
    });
    let parts = desk.get("/health").1["parts"].clone();
    assert_eq!(parts["program_1"]["state"], "running", "{parts}");
    until("the second one's end", || (desk.get("/health").1["parts"]["program_2"]["state"] == "ended").then_some(()));
    desk.stop();
}

#[test]
fn an_entrypoint_is_run_and_its_end_is_not_the_desks() {
    let mut desk = Desk::start(&["--entrypoint", "echo in $PWD on $DISPLAY; echo oops >&2; sleep 1; exit 88"]);
    desk.ready();
    let shell = desk.get("/v1/shells/entrypoint").1;
    assert_eq!(shell["commands"].as_array().map(Vec::len), Some(1), "whoever finds the desk finds its entrypoint: {shell}");
    let code = until("its end", || desk.get("/v1/shells/entrypoint").1["commands"][0]["exit_code"].as_i64());
    assert_eq!(code, 88);
    let (_, _, printed) = desk.ask("GET", "/v1/shells/entrypoint/commands/1/output", "").unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert!(
        printed.contains(&format!("in {} on :{}", desk.home().display(), desk.display())) && printed.contains("oops"),
        "{printed}"
    );
    assert_eq!(desk.get("/health").1["ready"], true);
    desk.stop();
}

#[test]
fn the_dead_are_reaped() {
    let mut desk = Desk::start(&["--start", "for i in 1 2 3 4 5; do (setsid sleep 0.01 &) ; done; sleep 1000"]);
    desk.ready();
    let init = desk.child.id();
    until("nobody to wait to be reaped", || {
        let stats =
            std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| std::fs::read_to_string(e.path().join("stat")).ok());
        let zombies = stats.filter(|stat| stat.contains(&format!(") Z {init} "))).count();
        (zombies == 0 && !desk.processes().iter().any(|command| command.starts_with("sleep 0.01"))).then_some(())
    });
    desk.stop();
}

#[test]
fn asked_twice_it_does_not_wait() {
    let mut desk = Desk::start(&["--start", "trap '' TERM; sleep 1000 & while :; do wait; done"]);
    desk.ready();
    until("the program", || desk.pid("program_1"));
    let pids: Vec<i32> = ["x_server", "bus", "window_manager", "program_1"].iter().filter_map(|part| desk.pid(part)).collect();
    desk.signal(Signal::SIGTERM);
    until("the beginning of the end", || desk.ask("GET", "/health", "").is_none().then_some(()));
    desk.signal(Signal::SIGTERM);
    let status = desk.wait();
    // It may have been through with stopping before the second signal came.
    assert!([Some(143), Some(0)].contains(&status.code()), "{status}");
    assert!(!pids.into_iter().any(alive));
}

#[test]
fn killed_hard_it_takes_everything_along() {
    let mut desk = Desk::start(&[]);
    desk.ready();
    desk.signal(Signal::SIGKILL);
    desk.wait();
    until("nobody to be left", || desk.processes().is_empty().then_some(()));
}

#[test]
fn the_service_manager_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let mut command = binary();
    command.args(["desk", "--display", "auto", "--size", "640x480"]).env("NOTIFY_SOCKET", &path);
    let mut desk = Desk::from(command, &[], |command| command);
    let mut text = [0; 256];
    let length = socket.recv(&mut text).unwrap();
    assert!(text[..length].starts_with(b"READY=1"));
    assert_eq!(desk.get("/health").0, 200);
    desk.signal(Signal::SIGTERM);
    let length = socket.recv(&mut text).unwrap();
    assert!(text[..length].starts_with(b"STOPPING=1"));
    assert!(desk.wait().success());
}
