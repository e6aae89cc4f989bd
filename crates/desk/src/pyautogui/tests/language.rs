//! The language around the calls: what is understood, what is printed, and what is left alone.

use super::{PREFIX, events, run};
use crate::pyautogui::understand;

fn printed(code: &str) -> String {
    let (_, outcome) = run(code);
    assert_eq!(outcome.returncode, 0, "{code}: {}", outcome.stderr);
    outcome.stdout
}

#[test]
fn shapes_of_programs() {
    let click = "M33,44 M33,44 B1+ M33,44 B1-";
    for code in [
        "pyautogui.click(33, 44);",
        "# click the button\npyautogui.click(33, 44)",
        "\n\npyautogui.click(33, 44)\n\n",
        "import pyautogui\nimport time\n'''\nObservation: a \"window\"; it's open.\n'''\npyautogui.click(33, 44)",
        "tag_1=(33, 44)\ntag_2=(1.5, 2)\npyautogui.click(tag_1)",
        "x, y = 33, 44\npyautogui.click(x, y)",
        "from pyautogui import click as press_here\npress_here(33, 44)",
        "import pyautogui as pg, subprocess\npg.click(33, 44)",
        "\nif True:\n    pyautogui.click(33, 44)\nelse:\n    pyautogui.press('a')",
        "\nfor x, y in [(33, 44)]:\n    pyautogui.click(x, y)",
        "\nn = 0\nwhile True:\n    if n == 1:\n        pyautogui.click(33, 44)\n        break\n    n += 1",
        "[pyautogui.click(x, 44) for x in (33,)]",
        "x: int = 33\npyautogui.click(x, y=44)",
        "\nif __name__ == '__main__':\n    pyautogui.click(33, 44)",
    ] {
        assert_eq!(events(code), click, "{code}");
    }
}

#[test]
fn output_is_written_as_python_writes_it() {
    for (code, output) in [
        ("print('clicked'); print('twice', 2)", "clicked\ntwice 2\n"),
        ("print('grüße ✓')", "grüße ✓\n"),
        ("print(1.0, 0.1 + 0.2, 1e16, -7 // 2, 7 % -3, 2 ** 10, 7 / 2)", "1.0 0.30000000000000004 1e+16 -4 -2 1024 3.5\n"),
        ("print([1, 'a', (2.5,), None, True], ())", "[1, 'a', (2.5,), None, True] ()\n"),
        ("print('a', 'b', sep='-', end='!'); print()", "a-b!\n"),
        ("n = 3\nprint(f'{n:03d} {n / 7:.2f} {\"x\"!r:}{{}}')", "003 0.43 'x'{}\n"),
        ("print('a' * 3 + 'b', 'abc'.upper()[::-1], len('日本'))", "aaab CBA 2\n"),
        ("print('a b'.split(), ','.join(str(i) for i in range(3)))", "['a', 'b'] 0,1,2\n"),
        ("print(1 < 2 < 3, 2 in [1, 2], not 0, 0 or 'x', 5 if False else 'y')", "True True True x y\n"),
        ("x = None\nprint(x is None, round(2.5), int(-2.7), min(3, 1.5), max([1, 2]))", "True 2 -2 1.5 2\n"),
        ("import platform; print(platform.system())", "Linux\n"),
        ("import os; print(os.path.join(os.getenv('HOME'), '.config', 'x'))", "/home/user/.config/x\n"),
        ("import os; print(os.path.expanduser('~/a'), os.environ['HOME'])", "/home/user/a /home/user\n"),
        (
            "import pyautogui; print(pyautogui.position()); print(pyautogui.size())",
            "Point(x=330, y=270)\nSize(width=1280, height=720)\n",
        ),
        ("import pyautogui\nw, h = pyautogui.size()\nprint(w // 2, h / 4, f'{w}x{h}')", "640 180.0 1280x720\n"),
        ("x = 5\ny = [x * i for x in (1, 2) for i in range(2) if i]\nprint(x, y)", "5 [1, 2]\n"),
    ] {
        assert_eq!(printed(code), output, "{code}");
    }
}

#[test]
fn exceptions_and_exits() {
    let (events, outcome) = run(&format!("{PREFIX}pyautogui.press('a')\n1/0\npyautogui.press('b')"));
    assert_eq!(super::short(&events), "K97+ K97-");
    assert_eq!(
        outcome.stderr,
        "Traceback (most recent call last):\n  File \"<string>\", line 2, in <module>\nZeroDivisionError: division by zero\n"
    );
    assert_eq!(outcome.returncode, 1);
    for (exit, status, stderr) in [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(-1)", 255, ""),
        ("sys.exit('no')", 1, "no\n"),
        ("exit(256)", 0, ""),
    ] {
        let (_, outcome) = run(&format!("import sys; print('x', file=sys.stderr); {exit}; print('never')"));
        assert_eq!((outcome.returncode, outcome.stdout.as_str()), (status, ""), "{exit}");
        assert_eq!(outcome.stderr, format!("x\n{stderr}"));
    }
    let (_, outcome) = run("a = (1, 2)\nprint(a[2])");
    assert!(outcome.stderr.ends_with("\nIndexError: tuple index out of range\n"));
}

/// What is not wholly inside the subset is not touched.
#[test]
fn everything_else_is_for_the_real_interpreter() {
    for code in [
        "pyautogui.presss('b')",
        "pyautogui.screenshot()",
        "pyautogui.click('button.png')",
        "pyautogui.click(1, 2, foo=3)",
        "pyautogui.click(1, 2, 3, 4, 'left', 6, pyautogui.linear, None, True, 10)",
        "pyautogui.press()",
        "pyautogui.press(5)",
        "pyautogui.press('a', presses=1.5)",
        "pyautogui.click(1, 2, logScreenshot=True)",
        "pyautogui.moveTo(40000, 5)",
        "pyautogui.moveTo((1, 2, 3))",
        "pyautogui.moveTo((1, 2), 3)",
        "pyautogui.moveTo(1, 2, duration='1')",
        "pyautogui.moveTo(1, 2, 0.5, lambda n: n)",
        "pyautogui.FAILSAFE_POINTS = []",
        "pyautogui.PAUSE = None",
        "pyautogui.alert('x')",
        "time.sleep(-1)",
        "time.time()",
        "time.sleep(1, 2)",
        "undefined",
        "x = undefined",
        "print(print)",
        "print(pyautogui)",
        "x = 10 ** 25",
        "x = 9223372036854775807 + 1",
        "x = 1e308 * 10",
        "1 // 0",
        "x = 'a' + 1",
        "x, y = 1, 2, 3",
        "x = [1]; x.append(2)",
        "x = [1]; x += [2]",
        "x = {'a': 1}",
        "x = lambda: 1",
        "import requests",
        "from pyautogui import *",
        "import subprocess; subprocess.run(['ls'])",
        "import pyperclip; pyperclip.copy('x')",
        "import random; random.random()",
        "print('\\d')",
        "print('\\N{BULLET}')",
        "print('\\ud800')",
        "print(repr('é'))",
        "print(1if True else 2)",
        "print(5 is None)",
        "print((1, 2)(3))",
        "print(f'{1=}')",
        "print(f'{1!a}')",
        "print(__file__)",
        "é = 1",
        "x = (i for i in range(3))",
        "print(*enumerate('a'), *(i for i in 'b'))",
        "e = enumerate('ab')",
        "print(end=5)",
        "print(sum([0.1, 0.2]))",
        "x = yield",
        "break",
        "return",
        "global x",
        "assert True",
        "del time",
        "import os; print(os.getenv('PATH'))",
        "import os; os.system('ls')",
        "print(1\r)",
    ] {
        assert!(understand(&format!("{PREFIX}{code}")).is_none(), "{code}");
    }
    for code in ["def f(): pass", "class A: pass", "with open('x') as f: pass", "try:\n    1/0\nexcept Exception:\n    pass"] {
        assert!(understand(&format!("{PREFIX}\n{code}")).is_none(), "{code}");
    }
    assert!(understand("pyautogui.click(1, 2)").is_none(), "not imported");
    assert!(understand("# coding: latin-1\nprint('é')").is_none());
}

/// What only the world knows may be computed with, but may not decide anything.
#[test]
fn decisions_are_made_before() {
    for code in [
        "x, y = pyautogui.position()\npyautogui.moveTo(x + 10, y / 2)",
        "w, h = pyautogui.size()\npyautogui.click(w - 5, int(h * 0.9))",
        "p = pyautogui.position()\nprint(p.x * 2, -p.y, abs(p.x - p.y), max(p.x, 5), p.x > 3)",
        "import os; pyautogui.write(os.path.expanduser('~/file'))",
    ] {
        assert!(understand(&format!("{PREFIX}{code}")).is_some(), "{code}");
    }
    for code in [
        "p = pyautogui.position()\nif p.x > 5: pyautogui.click()",
        "p = pyautogui.position()\nprint(1 / p.x)",
        "p = pyautogui.position()\nprint('a' * p.x)",
        "p = pyautogui.position()\nfor i in range(p.x): pass",
        "p = pyautogui.position()\nprint([1, 2][p.x])",
        "p = pyautogui.position()\ntime.sleep(p.x)",
        "p = pyautogui.position()\npyautogui.scroll(p.x)",
        "p = pyautogui.position()\npyautogui.moveTo(p.x * 1000, 5)",
        "import os\nprint(os.getenv('HOME')[0])",
        "import os\nif os.getenv('HOME') == '/root': pass",
    ] {
        assert!(understand(&format!("{PREFIX}{code}")).is_none(), "{code}");
    }
}

/// Programs without end or without measure are refused in milliseconds.
#[test]
fn nothing_runs_away() {
    for code in [
        "\nwhile True: pass",
        "\nwhile True:\n    pyautogui.press('a')",
        "pyautogui.scroll(10 ** 9)",
        "pyautogui.press('a', presses=10 ** 12)",
        "pyautogui.press([], presses=10 ** 12)",
        "pyautogui.click(clicks=10 ** 9)",
        "x = 'a' * 10 ** 9",
        "x = 'a' * 90000\nfor i in range(1000):\n    x = x + '' + 'b' * 90000",
        "x = [0] * 10 ** 9",
        "x = list(range(10 ** 12))",
        "x = ()\nfor i in range(100):\n    x = (x, x)",
        "for i in range(10 ** 12): pass",
        "x = ['a' * 90000 for i in range(10000)]",
        "\nx = tuple(range(50000))\nfor i in range(10000):\n    x == x",
        "\nfor i in range(100000):\n    print('a' * 1000)",
    ] {
        let start = std::time::Instant::now();
        assert!(understand(&format!("{PREFIX}{code}")).is_none(), "{code}");
        assert!(start.elapsed().as_secs() < 20, "{code} took {:?}", start.elapsed());
    }
}

#[test]
fn nesting_does_not_reach_the_end_of_the_stack() {
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("[", "", "]"),
        ("-", "1", ""),
        ("not ", "1", ""),
        ("f(", "", ")"),
        ("1+", "1", ""),
        ("", "x", ".a"),
        ("", "x", "[0]"),
        ("", "x", "()"),
        ("1 if 1 else ", "1", ""),
        ("lambda: ", "1", ""),
        ("{", "", "}"),
        ("f'{", "1", "}'"),
        ("1 < ", "1", ""),
        ("x = ", "1", ""),
        ("1 ** ", "1", ""),
    ] {
        for count in [10, 40, 60, 1000, 20_000] {
            let code = format!("{}{middle}{}", open.repeat(count), close.repeat(count));
            if code.len() < 90_000 {
                let _ = understand(&code);
            }
        }
    }
    let mut deep = String::new();
    for depth in 0..200 {
        deep.push_str(&format!("{}if 1:\n", " ".repeat(depth)));
    }
    let _ = understand(&format!("{deep}{}pass", " ".repeat(200)));
    assert!(understand(&"x".repeat(200_000)).is_none());
}
