//! Terminals as their users see them.

use super::*;
use crate::process::tape::Next;
use crate::server::tests::place;

fn terminals() -> Terminals {
    Terminals::new(Arc::new(place(std::path::Path::new("/tmp"))))
}

fn sh(script: &str) -> OpenTerminal {
    OpenTerminal { argv: Some(vec!["sh".into(), "-c".into(), script.into()]), ..Default::default() }
}

/// Reads until `end` was shown, or the terminal ended.
async fn until(view: &mut View, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        match view.reader.next().await {
            Some(Next::Data { bytes, .. }) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Some(Next::Lost(_)) => {}
            None => break,
        }
    }
    text
}

#[tokio::test]
async fn a_shell_is_typed_into_and_resized() {
    let terminals = terminals();
    let terminal = terminals.open(OpenTerminal { cols: Some(100), rows: Some(30), ..Default::default() }).unwrap();
    let mut view = terminal.view();
    terminal.write(b"stty size; echo $TERM $((40+2))\n").await.unwrap();
    let text = until(&mut view, "xterm-256color 42").await;
    assert!(text.contains("30 100"), "{text}");
    terminal.resize(90, 20).await.unwrap();
    terminal.write(b"stty size\n").await.unwrap();
    until(&mut view, "20 90").await;
    assert_eq!((terminal.info().cols, terminal.info().rows, terminal.info().viewers), (90, 20, 1));
    // Who comes later sees what was shown before.
    let mut late = terminal.view();
    assert!(until(&mut late, "20 90").await.contains("30 100"));
    terminal.write(b"exit 5\n").await.unwrap();
    until(&mut view, "never").await;
    assert_eq!(terminal.info().exit.unwrap().exit_code, Some(5));
    assert!(matches!(terminal.write(b"x").await, Err(Error::Conflict(_))));
    assert!(matches!(terminal.resize(80, 24).await, Err(Error::Conflict(_))));
}

#[tokio::test]
async fn a_program_has_its_place() {
    let mut request = sh("pwd; echo $COLOUR-$HOME; tty");
    request.cwd = Some("/usr".into());
    request.env = BTreeMap::from([("COLOUR".into(), Some("blue".into())), ("HOME".into(), None)]);
    let terminal = terminals().open(request).unwrap();
    let text = until(&mut terminal.view(), "never").await;
    assert!(text.starts_with("/usr\r\nblue-\r\n/dev/pts/"), "{text}");
}

#[tokio::test]
async fn the_end_of_the_program_is_the_end_of_the_terminal() {
    // A child that ignores the hang-up keeps the terminal open, but not in the eyes of its users.
    let terminal = terminals().open(sh("trap '' HUP; sleep 5 & echo bye")).unwrap();
    assert_eq!(until(&mut terminal.view(), "never").await, "bye\r\n");
    assert_eq!(terminal.info().exit.unwrap().exit_code, Some(0));
}

#[tokio::test]
async fn closing_ends_everything_in_it() {
    let terminals = terminals();
    let terminal =
        terminals.open(sh("trap '' HUP TERM; sh -c 'trap \"\" HUP; echo $$ ok; sleep 300' & wait; sleep 300")).unwrap();
    let text = until(&mut terminal.view(), "ok").await;
    let pid = text.split_whitespace().next().unwrap().to_owned();
    terminals.close(terminal.info().id).await.unwrap();
    assert!(!terminal.info().running);
    let gone = || std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
    let begin = std::time::Instant::now();
    while !gone() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{pid} lives on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(terminals.list().is_empty());
    assert!(matches!(terminals.close(1).await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn their_number_is_bounded() {
    let terminals = terminals();
    let first = terminals.open(sh("exit 0")).unwrap();
    first.wait().await;
    for _ in 1..TERMINAL_LIMIT {
        terminals.open(sh("read x")).unwrap();
    }
    terminals.open(sh("read x")).unwrap();
    assert!(terminals.get(first.info().id).is_err(), "the ended one made room");
    assert!(matches!(terminals.open(sh("read x")), Err(Error::TooMany { .. })));
    for terminal in terminals.list() {
        terminals.close(terminal.id).await.unwrap();
    }
}

#[tokio::test]
async fn bad_wishes_are_refused() {
    let terminals = terminals();
    let refused = |request| terminals.open(request).err().map(|e| e.problem().status);
    let argv = |words: &[&str]| OpenTerminal { argv: Some(words.iter().map(|w| (*w).into()).collect()), ..Default::default() };
    assert_eq!(refused(argv(&[])), Some(400));
    assert_eq!(refused(argv(&[""])), Some(400));
    assert_eq!(refused(argv(&["a\0b"])), Some(400));
    assert_eq!(refused(argv(&["hotdesk-no-such-program"])), Some(404));
    assert_eq!(refused(OpenTerminal { cols: Some(0), ..Default::default() }), Some(400));
    assert_eq!(refused(OpenTerminal { rows: Some(60_000), ..Default::default() }), Some(400));
    assert_eq!(refused(OpenTerminal { cwd: Some("/no/such".into()), ..Default::default() }), Some(404));
    assert_eq!(refused(OpenTerminal { env: BTreeMap::from([("a=b".into(), None)]), ..Default::default() }), Some(400));
    assert!(terminals.list().is_empty());
}
