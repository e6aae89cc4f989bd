//! Programs that nobody wrote: none of them panics, and none that the rehearsal let pass is
//! refused by the run, which would be too late.

use crate::pyautogui::understand;
use proptest::prelude::*;

/// Whatever it is, it is either left alone or runs to its end.
fn check(code: &str) {
    let Some(program) = understand(code) else { return };
    for pointer in [(0, 0), (330, 270), (1279, 719)] {
        let (_, outcome) = program.rehearse((1280, 720), pointer);
        assert!(!outcome.stderr.contains("hotdesk"), "{code}\n{}", outcome.stderr);
        assert!(outcome.stdout.len() < 2 << 20);
    }
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i16>().prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        (-2000.0..2000.0).prop_map(|n: f64| format!("{n:?}")),
        any::<f64>().prop_map(|n| format!("{n:?}")),
        Just("True".to_owned()),
        prop::sample::select(vec!["n", "p.x", "w", "i", "len(s)"]).prop_map(str::to_owned),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z<>!\\\\nt é]{0,8}".prop_map(|text| format!("'{text}'")),
        prop::sample::select(vec!["s", "'enter'", "'F13'", "'ctrl'", "f'{n:>5}{s}'", "f'{p.x}'", "str(n)", "t", "''"])
            .prop_map(str::to_owned),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    prop_oneof![number(), text()].prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (
                inner.clone(),
                prop::sample::select(vec!["+", "-", "*", "/", "//", "%", "**", "&", "==", "<", "in", "and", "or"]),
                inner.clone()
            )
                .prop_map(|(a, operator, b)| format!("({a} {operator} {b})")),
            (
                prop::sample::select(vec![
                    "-", "not ", "int", "float", "str", "abs", "round", "len", "list", "sum", "max", "repr"
                ]),
                inner.clone()
            )
                .prop_map(|(function, a)| format!("{function}({a})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} if {b} else {c})")),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}, {b})")),
            (prop::sample::select(vec!["s", "t", "p", "v"]), inner.clone()).prop_map(|(name, a)| format!("{name}[{a}]")),
            inner.prop_map(|a| format!("[{a} for i in range(3)]")),
        ]
    })
}

fn statement() -> impl Strategy<Value = String> {
    let gestures = vec![
        "click",
        "doubleClick",
        "rightClick",
        "moveTo",
        "moveRel",
        "dragTo",
        "dragRel",
        "mouseDown",
        "mouseUp",
        "scroll",
        "hscroll",
        "press",
        "hotkey",
        "write",
        "keyDown",
        "keyUp",
        "position",
        "size",
        "sleep",
    ];
    let keywords = vec![
        "",
        "duration=0.3",
        "button='right'",
        "clicks=2",
        "interval=0.1",
        "_pause=False",
        "x=5",
        "presses=3",
        "tween=pyautogui.easeOutElastic, duration=0.2",
        "mouseDownUp=False",
    ];
    prop_oneof![
        4 => (prop::sample::select(gestures), prop::collection::vec(prop_oneof![number(), text()], 0..3), prop::sample::select(keywords))
            .prop_map(|(name, mut arguments, keyword)| {
                if !keyword.is_empty() {
                    arguments.push(keyword.to_owned());
                }
                format!("pyautogui.{name}({})", arguments.join(", "))
            }),
        2 => (prop::sample::select(vec!["n", "s", "t", "v", "a, b"]), expression()).prop_map(|(name, value)| format!("{name} = {value}")),
        2 => expression().prop_map(|value| format!("print({value})")),
        1 => (prop::sample::select(vec!["n += ", "s *= ", "n //= "]), number()).prop_map(|(name, value)| format!("{name}{value}")),
        1 => expression().prop_map(|value| format!("for i in {value}: print(i)")),
        1 => expression().prop_map(|value| format!("if {value}: n = 1")),
        1 => prop::sample::select(vec!["pyautogui.FAILSAFE = False", "pyautogui.PAUSE = 0.2", "w, h = pyautogui.size()", "import sys; sys.exit(n)"])
            .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn programs_of_the_subset(statements in prop::collection::vec(statement(), 1..6)) {
        let head = "import pyautogui, time\nn = 3\ns = 'abc'\nt = 'it'\nv = (1, 2.5)\np = pyautogui.position()\nw = p.y\ni = 0\n";
        check(&format!("{head}{}", statements.join("\n")));
    }

    #[test]
    fn any_text(code in "\\PC{0,200}") {
        check(&code);
    }

    #[test]
    fn text_that_looks_like_python(code in "(pyautogui|print|for|in|if|:|\n|    |\\(|\\)|\\[|\\]|'|\"|,|=|\\.|[a-z]|[0-9]| |\\+|\\*|\\{|\\}|f'|\\\\|#|;|import ){0,60}") {
        check(&code);
    }
}
