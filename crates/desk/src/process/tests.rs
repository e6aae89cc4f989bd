//! What programs get from us, and what we get from them.

use super::*;
use crate::place::Display;
use std::time::Instant;

fn processes() -> Processes {
    let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp"), ("COLOUR", "blue")];
    Processes::new(Arc::new(Place {
        display: Display { number: 0, cookie: None },
        home: "/tmp".into(),
        runtime_dir: "/tmp".into(),
        bus: String::new(),
        env: env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
    }))
}

fn sh(script: &str) -> Command {
    Command::new(["sh", "-c", script]).limit(Duration::from_secs(30))
}

async fn text(script: &str) -> String {
    let output = processes().run(sh(script)).await.unwrap();
    String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap()
}

#[tokio::test]
async fn programs_get_the_place_and_nothing_else() {
    assert_eq!(text("pwd; cat").await, "/tmp\n");
    let output = processes().run(Command::new(["env"])).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "COLOUR=blue\nHOME=/tmp\nPATH=/usr/local/bin:/usr/bin:/bin\n");
}

#[tokio::test]
async fn inherited_descriptors_are_kept_back() {
    let file = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: `file` is open.
    unsafe { nix::libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), nix::libc::F_SETFD, 0) };
    let output = processes().run(Command::new(["ls", "/proc/self/fd"])).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n3\n");
}

#[tokio::test]
async fn signals_are_as_at_boot() {
    assert_eq!(text("yes | head -n 1").await, "y\n");
    let masks = text("grep -E 'SigIgn|SigBlk' /proc/self/status").await;
    for mask in masks.split_whitespace().skip(1).step_by(2) {
        // 32 and 33 belong to the C library, which lets nobody set them.
        assert_eq!(u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31), 0, "{masks}");
    }
}

#[tokio::test]
async fn environment_input_and_directory_can_be_changed() {
    let mut command = Command::new(["sh", "-c", "pwd; echo $COLOUR-$MORE; cat"]);
    command.env = BTreeMap::from([("COLOUR".into(), None), ("MORE".into(), Some("x".into()))]);
    command.cwd = Some("/usr".into());
    command.stdin = Some(b"typed".to_vec());
    let output = processes().run(command).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "/usr\n-x\ntyped");
}

#[tokio::test]
async fn input_that_nobody_reads_does_not_block() {
    let mut command = Command::new(["true"]);
    command.stdin = Some(vec![0; 1 << 20]);
    assert!(processes().run(command).await.unwrap().status.success());
}

#[tokio::test]
async fn statuses_are_told() {
    for (script, code) in [("exit 0", 0), ("exit 77", 77), ("kill -9 $$", -9), ("kill -TERM $$", -15)] {
        assert_eq!(processes().run(sh(script)).await.unwrap().status.code(), code, "{script}");
    }
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("no-program");
    std::fs::write(&script, "echo this must not run").unwrap();
    let script = script.to_str().unwrap().to_owned();
    let errno = async |argv: Vec<&str>| match processes().run(Command::new(argv)).await {
        Err(Failure::Start { errno, .. }) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(vec!["hotdesk-no-such-program"]).await, nix::libc::ENOENT);
    assert_eq!(errno(vec!["/no/such"]).await, nix::libc::ENOENT);
    assert_eq!(errno(vec!["/tmp"]).await, nix::libc::EACCES);
    assert_eq!(errno(vec![""]).await, nix::libc::EACCES);
    assert_eq!(errno(vec![&script]).await, nix::libc::EACCES);
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(errno(vec![&script]).await, nix::libc::ENOEXEC);
    assert_eq!(errno(vec!["true", &"x".repeat(200_000)]).await, nix::libc::E2BIG);
    assert!(matches!(processes().run(Command::new(["a\0b"])).await, Err(Failure::Nul)));
    assert!(matches!(processes().run(Command::new::<String>([])).await, Err(Failure::Empty)));
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let mut command = Command::new(["true"]);
    command.cwd = Some("/no/such".into());
    let failure = processes().run(command).await.unwrap_err();
    assert_eq!(failure.to_string(), "/no/such can't be started: No such file or directory");
}

#[tokio::test]
async fn output_is_bounded_but_read_to_its_end() {
    let mut command = sh("head -c 3000000 /dev/zero; echo end >&2");
    command.output_limit = 1000;
    let output = processes().run(command).await.unwrap();
    assert_eq!((output.stdout.len(), output.truncated, output.status.code()), (1000, true, 0));
    assert_eq!(output.stderr, b"end\n");
}

#[tokio::test]
async fn merged_output_keeps_its_order() {
    let mut command = sh("echo 1; echo 2 >&2; echo 3");
    command.merge_stderr = true;
    assert_eq!(processes().run(command).await.unwrap().stdout, b"1\n2\n3\n");
}

fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

async fn until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it never happened");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_time_limit_ends_the_child_or_the_tree() {
    for (policy, survives) in [(OnTimeout::KillChild, true), (OnTimeout::KillTree, false)] {
        let mut command = sh("sleep 60 & echo $!; setsid sleep 60 & wait");
        command.limit = Some(Duration::from_millis(500));
        command.on_timeout = policy;
        let Err(Failure::TimedOut { stdout, .. }) = processes().run(command).await else { panic!("no time-out") };
        let pid: i32 = String::from_utf8(stdout).unwrap().trim().parse().unwrap();
        if survives {
            assert!(alive(pid));
            kill_now(pid);
        } else {
            until(|| !alive(pid)).await;
        }
    }
}

fn kill_now(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn leaving_ends_the_tree_or_not() {
    let directory = tempfile::tempdir().unwrap();
    for (policy, survives) in [(OnLeave::Keep, true), (OnLeave::KillTree, false)] {
        let processes = processes();
        let mark = directory.path().join(format!("{policy:?}"));
        let mut command = sh(&format!("echo $$ > {0}.part; mv {0}.part {0}; sleep 60", mark.display()));
        command.on_leave = policy;
        let mut run = Box::pin(processes.run(command));
        tokio::select! {
            _ = &mut run => panic!("it ended"),
            () = until(|| mark.exists()) => {}
        }
        drop(run);
        let pid: i32 = std::fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
        if survives {
            // It runs before it is known to run.
            until(|| processes.list().len() == 1).await;
            assert!(alive(pid));
            assert!(processes.get(processes.list()[0].id).unwrap().signal_tree(nix::libc::SIGKILL).await >= 1);
        }
        until(|| !alive(pid) && processes.list().is_empty()).await;
    }
}

#[tokio::test]
async fn children_that_hold_the_pipes_are_waited_for() {
    assert_eq!(text("(sleep 0.3; echo late) & echo early").await, "early\nlate\n");
    let begin = Instant::now();
    assert_eq!(text("sleep 25 >/dev/null 2>&1 & echo ok").await, "ok\n");
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn launched_programs_are_listed_and_reaped() {
    let processes = processes();
    let pid = processes.launch(Command::new(["sleep", "60"])).await.unwrap();
    let listed = processes.list();
    assert_eq!((listed.len(), listed[0].pid, listed[0].argv.as_slice()), (1, pid, &["sleep".into(), "60".into()][..]));
    let process = processes.get(listed[0].id).unwrap();
    process.signal(nix::libc::SIGTERM).unwrap();
    assert_eq!(process.wait().await, Status::Signalled(15));
    until(|| processes.list().is_empty() && !std::path::Path::new(&format!("/proc/{pid}")).exists()).await;
    assert!(process.signal(nix::libc::SIGTERM).is_err());
}

#[tokio::test]
async fn a_started_program_talks_and_listens() {
    let mut running = processes().start(Command::new(["sh", "-c", "read a; echo got $a; echo bad >&2; exit 3"])).await.unwrap();
    running.stdin.as_mut().unwrap().write(b"this\n").await.unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match running.events.recv().await.unwrap() {
            Event::Stdout(piece) => stdout.extend_from_slice(&piece),
            Event::Stderr(piece) => stderr.extend_from_slice(&piece),
            Event::Exit { status, timed_out } => {
                assert_eq!((status, timed_out), (Status::Exited(3), false));
                break;
            }
        }
    }
    assert_eq!((stdout.as_slice(), stderr.as_slice()), (&b"got this\n"[..], &b"bad\n"[..]));
    assert_eq!(running.process.wait().await, Status::Exited(3));
    assert!(running.events.recv().await.is_none());
}

#[tokio::test]
async fn a_slow_reader_holds_the_program_back() {
    let mut running = processes().start(Command::new(["sh", "-c", "head -c 50000000 /dev/zero"])).await.unwrap();
    let mut total = 0;
    while let Some(event) = running.events.recv().await {
        match event {
            Event::Stdout(piece) => {
                assert!(piece.len() <= 64 << 10);
                total += piece.len();
            }
            Event::Stderr(_) => panic!("nothing was said there"),
            Event::Exit { status, .. } => assert!(status.success()),
        }
    }
    assert_eq!(total, 50_000_000);
}

#[tokio::test]
async fn a_started_program_is_bounded_and_ends_with_its_reader() {
    let processes = processes();
    let mut running = processes.start(sh("sleep 60 & wait").limit(Duration::from_millis(300))).await.unwrap();
    assert_eq!(running.events.recv().await, Some(Event::Exit { status: Status::Signalled(9), timed_out: true }));
    let running = processes.start(sh("sleep 60 & wait")).await.unwrap();
    let process = running.process.clone();
    drop(running);
    assert_eq!(process.wait().await, Status::Signalled(9));
}

#[test]
fn programs_are_found_on_the_path_of_the_place() {
    let place = processes().place;
    assert!(find_program(&place, "sh").is_some());
    assert!(find_program(&place, "/bin/sh").is_some());
    assert!(find_program(&place, "/bin").is_none());
    assert!(find_program(&place, "hotdesk-none").is_none());
    assert!(find_program(&place, "").is_none());
}
