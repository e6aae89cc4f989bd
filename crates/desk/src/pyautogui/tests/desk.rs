//! Programs on a real X server.

use crate::error::Error;
use crate::input::Input;
use crate::pyautogui::{Outcome, understand};
use crate::x11::tests::TestDisplay;
use std::time::{Duration, Instant};
use x11rb::protocol::xproto::ConnectionExt as _;

const LIMIT: Duration = Duration::from_secs(60);

async fn run(display: &TestDisplay, input: &Input, code: &str, limit: Duration) -> crate::Result<Outcome> {
    let program = understand(code).unwrap_or_else(|| panic!("not understood: {code}"));
    program.run(input, display.place.clone(), limit).await
}

#[tokio::test]
async fn what_it_does_is_seen_on_the_display() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let code = "import pyautogui\npyautogui.moveTo(100.9, 150)\npyautogui.keyDown('b')\npyautogui.mouseDown(button='right')\n\
                pyautogui.press('f13')\nprint(pyautogui.position(), pyautogui.size())";
    let outcome = run(&display, &input, code, LIMIT).await.expect("it runs");
    assert_eq!(outcome.stdout, "Point(x=100, y=150) Size(width=1280, height=800)\n");
    assert_eq!(
        outcome.stderr.matches("X protocol error:\n<class 'Xlib.error.BadValue'>: code = 2, ").count(),
        2,
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.returncode, 0);
    let hands = input.hands().expect("a display");
    assert_eq!(hands.pointer().expect("a pointer"), (100, 150));
    let keymap = hands.connection.get_keyboard_mapping(8, 248).unwrap().reply().unwrap();
    let row = keymap.keysyms.chunks(usize::from(keymap.keysyms_per_keycode)).position(|row| row[0] == u32::from(b'b')).unwrap();
    let keys = hands.connection.query_keymap().unwrap().reply().unwrap().keys;
    assert_ne!(keys[(row + 8) / 8] & (1 << (row % 8)), 0, "the key stays down after the program");
    let mask = u16::from(hands.connection.query_pointer(hands.root).unwrap().reply().unwrap().mask);
    assert_eq!(mask & 0x1f00, 0x400, "the right button stays down, too");
}

#[tokio::test]
async fn no_display_is_needed_to_print() {
    let mut display = TestDisplay::bare();
    display.kill();
    let input = Input::new(display.place.clone());
    let code = "import platform, os; print(platform.system(), os.getenv('HOME'))";
    let outcome = run(&display, &input, code, LIMIT).await.expect("it runs");
    assert_eq!(outcome.stdout, format!("Linux {}\n", display.place.home.display()));
}

#[tokio::test]
async fn a_display_that_is_down_is_told_before_anything_happens() {
    let mut display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let code = "import pyautogui; pyautogui.FAILSAFE = False; pyautogui.moveTo(5, 6)";
    run(&display, &input, code, LIMIT).await.expect("it runs");
    display.kill();
    let error = run(&display, &input, code, LIMIT).await.expect_err("no display");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    display.restart();
    run(&display, &input, code, LIMIT).await.expect("it runs again");
}

#[tokio::test]
async fn a_display_that_dies_midway_is_an_exception() {
    let mut display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let code = "import pyautogui, time\nprint('one')\npyautogui.moveTo(5, 6)\ntime.sleep(3)\npyautogui.moveTo(7, 8)";
    let program = understand(code).expect("understood");
    let running = tokio::spawn({
        let (input, place) = (input.clone(), display.place.clone());
        async move { program.run(&input, place, LIMIT).await }
    });
    let hands = input.hands().expect("a display");
    while hands.pointer().expect("a pointer") != (5, 6) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    display.kill();
    let outcome = running.await.expect("no panic").expect("it had an effect, so it has an outcome");
    assert_eq!((outcome.returncode, outcome.stdout.as_str()), (1, "one\n"));
    assert!(outcome.stderr.starts_with("Traceback (most recent call last):\n"), "{}", outcome.stderr);
}

#[tokio::test]
async fn the_time_limit_ends_it() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let code =
        "import pyautogui, time\npyautogui.FAILSAFE = False\npyautogui.moveTo(5, 6)\ntime.sleep(3000)\npyautogui.moveTo(7, 8)";
    let start = Instant::now();
    let error = run(&display, &input, code, Duration::from_millis(300)).await.expect_err("too slow");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(100));
    assert_eq!(input.hands().expect("a display").pointer().expect("a pointer"), (5, 6));
}

#[tokio::test]
async fn it_goes_on_when_nobody_waits_for_it() {
    let display = TestDisplay::bare();
    let input = Input::new(display.place.clone());
    let code = "import pyautogui\npyautogui.FAILSAFE = False\npyautogui.moveTo(5, 6)\npyautogui.sleep(2)\npyautogui.moveTo(7, 8)";
    let hands = input.hands().expect("a display");
    tokio::select! {
        _ = run(&display, &input, code, LIMIT) => panic!("it has not begun when it is over"),
        () = async {
            while hands.pointer().expect("a pointer") != (5, 6) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        } => {}
    }
    let deadline = Instant::now() + LIMIT;
    while hands.pointer().expect("a pointer") != (7, 8) {
        assert!(Instant::now() < deadline, "it stopped");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
