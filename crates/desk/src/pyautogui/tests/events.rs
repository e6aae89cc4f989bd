//! The events of PyAutoGUI's functions. Keys have their ASCII code or the low byte of their
//! keysym as keycode here: shift 225, ctrl 227, alt 233, enter 13, tab 9.

use super::{events, run, short};

/// M, then per click M B+ M B-.
const CLICK: &str = "M120,130 M120,130 B1+ M120,130 B1-";

fn same(cases: &[(&str, &str)]) {
    for (action, expected) in cases {
        assert_eq!(events(action), *expected, "{action}");
    }
}

#[test]
fn moves() {
    same(&[
        ("pyautogui.moveTo(100, 150)", "M100,150"),
        ("pyautogui.moveTo(x=300, y=220)", "M300,220"),
        ("pyautogui.moveTo((250, 260))", "M250,260"),
        ("pyautogui.moveTo([250.9, 260.9])", "M250,260"),
        ("pyautogui.moveTo(100.9, -50.999)", "M100,-50"),
        ("pyautogui.moveTo(410)", "M410,270"),
        ("pyautogui.moveTo(y=333)", "M330,333"),
        ("pyautogui.moveTo()", "M330,270"),
        ("pyautogui.moveTo(9999, 300)", "M9999,300"),
        ("pyautogui.moveTo(500, 400, duration=0.1)", "M500,400"),
        ("pyautogui.moveTo(9, 9, _pause=False); pyautogui.moveTo(8, 8)", "M9,9 M8,8"),
        ("pyautogui.moveTo(9, 9); pyautogui.moveTo(8, 8)", "M9,9 S0.1 M8,8"),
        ("pyautogui.moveRel(30, -20); pyautogui.move(-5, 5)", "M360,250 S0.1 M355,255"),
        ("pyautogui.moveRel(0, 0)", ""),
        // an offset that is missing becomes the pointer's own coordinate
        ("pyautogui.moveRel(10)", "M340,540"),
    ]);
}

#[test]
fn moves_that_take_their_time() {
    same(&[
        // n = int(d / 0.05) steps, n + 1 sleeps, halves to even
        ("pyautogui.moveTo(331, 273, duration=0.11)", "S0.055 M330,270 S0.055 M330,272 S0.055 M331,273"),
        ("pyautogui.moveTo(430, 370, 0.2)", "S0.05 M330,270 S0.05 M355,295 S0.05 M380,320 S0.05 M405,345 S0.05 M430,370"),
        (
            "pyautogui.moveTo(430, 370, 0.2, pyautogui.easeInQuad)",
            "S0.05 M330,270 S0.05 M336,276 S0.05 M355,295 S0.05 M386,326 S0.05 M430,370",
        ),
        (
            "pyautogui.moveTo(430, 370, 0.2, pyautogui.easeOutQuad)",
            "S0.05 M330,270 S0.05 M374,314 S0.05 M405,345 S0.05 M424,364 S0.05 M430,370",
        ),
        (
            "pyautogui.moveTo(430, 370, 0.2, tween=pyautogui.easeInOutQuad)",
            "S0.05 M330,270 S0.05 M342,282 S0.05 M380,320 S0.05 M418,358 S0.05 M430,370",
        ),
        (
            "pyautogui.moveTo(430, 370, 0.2, pyautogui.easeInBounce)",
            "S0.05 M331,271 S0.05 M333,273 S0.05 M353,293 S0.05 M383,323 S0.05 M430,370",
        ),
    ]);
}

#[test]
fn clicks() {
    same(&[
        ("pyautogui.click(120, 130)", CLICK),
        ("pyautogui.click(x=120, y=130)", CLICK),
        ("pyautogui.click((120, 130))", CLICK),
        ("pyautogui.click(120.48, 130.9, button='LEFT')", CLICK),
        ("pyautogui.click()", "M330,270 M330,270 B1+ M330,270 B1-"),
        ("pyautogui.click(button='right')", "M330,270 M330,270 B3+ M330,270 B3-"),
        ("pyautogui.click(button='middle')", "M330,270 M330,270 B2+ M330,270 B2-"),
        ("pyautogui.click(button='secondary')", "M330,270 M330,270 B3+ M330,270 B3-"),
        ("pyautogui.click(5, 6, clicks=2, interval=0.25)", "M5,6 M5,6 B1+ M5,6 B1- S0.25 M5,6 B1+ M5,6 B1- S0.25"),
        ("pyautogui.click(5, 6, 0)", "M5,6"),
        ("pyautogui.doubleClick(5, 6)", "M5,6 M5,6 B1+ M5,6 B1- M5,6 B1+ M5,6 B1-"),
        ("pyautogui.tripleClick(5, 6, button='right')", "M5,6 M5,6 B3+ M5,6 B3- M5,6 B3+ M5,6 B3- M5,6 B3+ M5,6 B3-"),
        // these pause twice
        ("pyautogui.rightClick(5, 6); pyautogui.press('a')", "M5,6 M5,6 B3+ M5,6 B3- S0.2 K97+ K97-"),
        ("pyautogui.leftClick(5, 6, _pause=False); pyautogui.press('a')", "M5,6 M5,6 B1+ M5,6 B1- K97+ K97-"),
        (
            "pyautogui.leftClick(5, 6, 0.0, 0.0, pyautogui.linear, None, False); pyautogui.press('a')",
            "M5,6 M5,6 B1+ M5,6 B1- S0.1 K97+ K97-",
        ),
        ("pyautogui.click(330, 270, duration=0.11)", "S0.055 M330,270 S0.055 M330,270 S0.055 M330,270 M330,270 B1+ M330,270 B1-"),
    ]);
}

#[test]
fn buttons_and_drags() {
    same(&[
        ("pyautogui.mouseDown()", "M330,270 M330,270 B1+"),
        ("pyautogui.mouseUp(7, 8, 'right', duration=0.5)", "M7,8 M7,8 B3-"),
        ("pyautogui.dragTo(350, 351)", "M330,270 M330,270 B1+ M350,351 M350,351 M350,351 B1-"),
        ("pyautogui.dragTo(350, 351, mouseDownUp=False)", "M350,351"),
        ("pyautogui.dragTo(350, 351, mouseDownUp=False, button=9)", "M350,351"),
        (
            "pyautogui.dragTo(332, 270, duration=0.11, button='middle')",
            "M330,270 M330,270 B2+ S0.055 M330,270 S0.055 M331,270 S0.055 M332,270 M332,270 M332,270 B2-",
        ),
        ("pyautogui.dragRel(4, 5)", "M330,270 M330,270 B1+ M334,275 M334,275 M334,275 B1-"),
        ("pyautogui.drag(0, 0); pyautogui.press('a')", "S0.1 K97+ K97-"),
        ("pyautogui.drag((4, 0))", "M330,270 M330,270 B1+ M334,270 M334,270 M334,270 B1-"),
    ]);
}

#[test]
fn wheels() {
    let notch = |button: u8| format!("M330,270 B{button}+ M330,270 B{button}-");
    let twice = |button: u8| format!("{0} {0}", notch(button));
    assert_eq!(events("pyautogui.scroll(2)"), twice(4));
    assert_eq!(events("pyautogui.scroll(-2.7)"), twice(5));
    assert_eq!(events("pyautogui.vscroll(1)"), notch(4));
    assert_eq!(events("pyautogui.hscroll(1)"), notch(7));
    assert_eq!(events("pyautogui.hscroll(-2)"), twice(6));
    assert_eq!(events("pyautogui.scroll(0)"), "");
    assert_eq!(events("pyautogui.scroll(1, 20, 30)"), "M20,30 B4+ M20,30 B4-");
    assert_eq!(events("pyautogui.scroll(1, x=20)"), "M20,270 B4+ M20,270 B4-");
    assert_eq!(events("pyautogui.scroll(1, (20, 30))"), "M20,30 B4+ M20,30 B4-");
}

#[test]
fn keys() {
    same(&[
        ("pyautogui.press('enter')", "K13+ K13-"),
        ("pyautogui.press('A')", "K225+ K65+ K225- K65-"),
        ("pyautogui.press(['Tab', 'b'])", "K9+ K9- K98+ K98-"),
        ("pyautogui.press('b', presses=2, interval=0.2)", "K98+ K98- S0.2 K98+ K98- S0.2"),
        ("pyautogui.press('<')", "K225+ K60+ K225- K60-"),
        ("pyautogui.press('command'); pyautogui.press('é'); pyautogui.press('')", ""),
        ("pyautogui.press('command'); pyautogui.press('a')", "S0.1 K97+ K97-"),
        ("pyautogui.keyDown('ctrlright')", "K228+"),
        ("pyautogui.keyDown('!'); pyautogui.keyUp('!')", "K225+ K33+ K225- S0.1 K33-"),
        ("pyautogui.hotkey('ctrl', 'c')", "K227+ K99+ K99- K227-"),
        ("pyautogui.hotkey(['ctrl', 'c'])", "K227+ K99+ K99- K227-"),
        ("pyautogui.hotkey(*('ctrl', 'c'), interval=0.1)", "K227+ S0.1 K99+ S0.1 K99- S0.1 K227- S0.1"),
        ("pyautogui.hotkey('ctrl', 'shift', 'T')", "K227+ K225+ K225+ K84+ K225- K84- K225- K227-"),
        ("pyautogui.write('aB')", "K97+ K97- K225+ K66+ K225- K66-"),
        ("pyautogui.typewrite('a\\tb\\n')", "K97+ K97- K9+ K9- K98+ K98- K13+ K13-"),
        ("pyautogui.write('ab', interval=0.15)", "K97+ K97- S0.15 K98+ K98- S0.15"),
        ("pyautogui.typewrite(['a', 'Enter'])", "K97+ K97- K13+ K13-"),
        ("pyautogui.write('naïve €')", "K110+ K110- K97+ K97- K118+ K118- K101+ K101- K32+ K32-"),
    ]);
}

#[test]
fn a_key_that_no_keyboard_has_is_complained_about() {
    let (events, outcome) = run("import pyautogui; pyautogui.press('f13'); print('done')");
    assert_eq!(short(&events), "");
    assert_eq!(outcome.returncode, 0);
    assert_eq!(outcome.stdout, "done\n");
    assert_eq!(outcome.stderr.matches("X protocol error:\n<class 'Xlib.error.BadValue'>: code = 2").count(), 2);
}

#[test]
fn pauses_are_kept_but_for_the_last() {
    same(&[
        ("pyautogui.press('a'); print('x')", "K97+ K97-"),
        ("pyautogui.press('a'); time.sleep(0.5)", "K97+ K97- S0.1 S0.5"),
        ("pyautogui.press('a'); pyautogui.sleep(1); pyautogui.press('b')", "K97+ K97- S0.1 S1. K98+ K98-"),
        ("pyautogui.PAUSE = 0.5; pyautogui.press('a'); pyautogui.press('b')", "K97+ K97- S0.5 K98+ K98-"),
        ("pyautogui.PAUSE = 0; pyautogui.press('a'); pyautogui.press('b')", "K97+ K97- K98+ K98-"),
    ]);
}

#[test]
fn the_fail_safe_stops_in_corners() {
    let stopped = |code: &str, pointer: (u16, u16)| {
        let program = super::understand(code).expect("understood");
        let (events, outcome) = program.rehearse((1280, 720), pointer);
        (short(&events), outcome)
    };
    let (events, outcome) = stopped("import pyautogui; pyautogui.press('a')", (0, 0));
    assert_eq!((events.as_str(), outcome.returncode), ("", 1));
    assert!(outcome.stderr.starts_with("Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\n"));
    assert!(
        outcome.stderr.contains("\npyautogui.FailSafeException: PyAutoGUI fail-safe triggered from mouse moving to a corner")
    );
    // going there is allowed, staying is not
    let (events, outcome) = stopped("import pyautogui\npyautogui.moveTo(1279, 719)\npyautogui.press('a')", (5, 5));
    assert_eq!((events.as_str(), outcome.returncode), ("M1279,719 S0.1", 1));
    assert!(outcome.stderr.contains("line 3"));
    let (events, outcome) = stopped("import pyautogui; pyautogui.click(0, 0)", (5, 5));
    assert_eq!((events.as_str(), outcome.returncode), ("M0,0", 1));
    let (_, outcome) = stopped("import pyautogui; pyautogui.FAILSAFE = False; pyautogui.press('a')", (0, 719));
    assert_eq!(outcome.returncode, 0);
    let (_, outcome) = stopped("import pyautogui; pyautogui.press('a')", (0, 360));
    assert_eq!(outcome.returncode, 0);
}

#[test]
fn a_wrong_button_is_an_exception_before_anything_moves() {
    for (button, words) in [
        ("1", "AttributeError: 'int' object has no attribute 'lower'\n"),
        ("None", "AttributeError: 'NoneType' object has no attribute 'lower'\n"),
        ("'wheel'", "pyautogui.PyAutoGUIException: button argument must be one of ('left', 'middle', 'right', "),
    ] {
        let (events, outcome) = run(&format!("import pyautogui; pyautogui.click(5, 6, button={button})"));
        assert_eq!((short(&events).as_str(), outcome.returncode), ("", 1));
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
}

#[test]
fn left_handed_people_have_their_primary_button_on_the_right() {
    use crate::pyautogui::{Machine, Rehearsal, lower::lower};
    let script = lower("import pyautogui; pyautogui.click(5, 6); pyautogui.click(button='left')").expect("understood");
    let mut world = Rehearsal::seeing((1280, 720), (5, 6));
    world.left_handed = true;
    let mut machine = Machine::new(world);
    machine.run(&script).expect("no exception");
    let events = machine.player.world.events.take().unwrap_or_default();
    assert_eq!(short(&events), "M5,6 M5,6 B3+ M5,6 B3- S0.1 M5,6 M5,6 B1+ M5,6 B1-");
}
