//! What is killed comes back.

use crate::support::{Desk, kill, until};
use std::time::Instant;

/// Kills a part and waits until the desk is ready again with a new one.
fn heals(desk: &mut Desk, part: &str) -> f64 {
    let before = desk.pid(part).unwrap();
    let restarts = desk.get("/health").1["parts"][part]["restarts"].as_u64().unwrap();
    kill(before);
    let begin = Instant::now();
    let mut reasons = Vec::new();
    until("the desk to heal", || {
        let (status, health) = desk.get("/health");
        if status == 503 {
            reasons.push(health["waiting_for"].as_str().expect("a stall names its stage").to_owned());
        }
        let now = &health["parts"][part];
        (status == 200 && now["pid"].as_i64().is_some_and(|pid| pid as i32 != before)).then_some(())
    });
    let took = begin.elapsed().as_secs_f64();
    let health = desk.get("/health").1;
    assert!(health["parts"][part]["restarts"].as_u64().unwrap() > restarts, "{health}");
    eprintln!("{part} healed in {took:.3} s; meanwhile: {:?}", reasons.last());
    took
}

#[test]
fn the_x_server_and_all_that_stands_on_it() {
    let mut desk = Desk::start(&["--start", "exec sleep 1000"]);
    desk.ready();
    until("the program", || desk.pid("program_1"));
    for _ in 0..3 {
        let (manager, program) = (desk.pid("window_manager"), desk.pid("program_1"));
        heals(&mut desk, "x_server");
        assert_ne!(desk.pid("window_manager"), manager);
        until("the program to come back", || desk.pid("program_1").filter(|pid| Some(*pid) != program));
    }
    desk.stop();
}

#[test]
fn the_window_manager() {
    let mut desk = Desk::start(&[]);
    desk.ready();
    let x = desk.pid("x_server");
    heals(&mut desk, "window_manager");
    heals(&mut desk, "window_manager");
    assert_eq!(desk.pid("x_server"), x, "the display stays");
    desk.stop();
}

#[test]
fn the_bus_and_accessibility() {
    let mut desk = Desk::start(&[]);
    desk.ready();
    let running = |desk: &Desk| {
        until("accessibility", || {
            let part = desk.get("/health").1["parts"]["accessibility"].clone();
            (part["state"] == "running").then(|| part["pid"].as_i64().unwrap() as i32)
        })
    };
    let first = running(&desk);
    heals(&mut desk, "bus");
    let second = until("another one", || Some(running(&desk)).filter(|pid| *pid != first));
    kill(second);
    until("yet another one", || Some(running(&desk)).filter(|pid| *pid != second));
    desk.stop();
}

#[test]
fn everything_at_once_and_again() {
    let mut desk = Desk::start(&[]);
    desk.ready();
    for _ in 0..3 {
        let pids: Vec<i32> = ["x_server", "bus", "window_manager"].iter().filter_map(|part| desk.pid(part)).collect();
        for pid in &pids {
            kill(*pid);
        }
        until("the desk to heal", || {
            let (status, health) = desk.get("/health");
            let fresh = ["x_server", "bus", "window_manager"]
                .iter()
                .all(|part| health["parts"][part]["pid"].as_i64().is_some_and(|pid| !pids.contains(&(pid as i32))));
            (status == 200 && fresh).then_some(())
        });
    }
    desk.stop();
}

#[test]
fn one_that_can_not_be_started_is_named() {
    let mut desk = Desk::start(&["--wm", "sh -c 'echo no room for windows >&2; exit 1'"]);
    let health = until("a reason", || {
        let (_, _, body) = desk.ask("GET", "/health", "")?;
        let health: serde_json::Value = serde_json::from_slice(&body).ok()?;
        (health["parts"]["window_manager"]["restarts"].as_u64()? >= 2 && health["parts"]["window_manager"]["reason"].is_string())
            .then_some(health)
    });
    assert_eq!(health["stage"], "window_manager");
    let waiting = health["waiting_for"].as_str().unwrap();
    assert!(waiting.starts_with("waiting for the window manager since"), "{waiting}");
    assert!(waiting.contains("no room for windows"), "{waiting}");
    assert_eq!(desk.get("/health").0, 503);
    desk.signal(nix::sys::signal::SIGTERM);
    assert!(desk.wait().success());
}
