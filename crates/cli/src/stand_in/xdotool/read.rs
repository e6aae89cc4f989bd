//! The words of a command line of `xdotool`.

use hotdesk_api::action::{Action, Button, Point};
use std::time::Duration;

/// The real one pauses between characters for programs that lose some; ours waits for the X server instead, so this is enough.
const TYPING_PAUSE: u32 = 8;

/// Slow clicks that one command makes. They are steps, each with its pause; what wants more of them is for the real program.
const MOST_STEPS: usize = 2_000;

/// One command.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Act(Action),
    MoveBy(i32, i32),
    Pause(Duration),
    Location {
        shell: bool,
    },
    ScreenSize {
        shell: bool,
    },
    Active,
    Search(Search),
    Name(Option<u32>),
    Pid(Option<u32>),
    Geometry {
        window: Option<u32>,
        shell: bool,
    },
    /// The desk's word for what is done to a window.
    Change(Option<u32>, &'static str),
}

#[derive(Debug, PartialEq)]
pub(super) struct Search {
    pub(super) field: Field,
    pub(super) pattern: Pattern,
    pub(super) visible: bool,
    pub(super) sync: bool,
    pub(super) limit: Option<usize>,
    /// Nothing follows: what is found is printed.
    pub(super) last: bool,
}

#[derive(Debug, PartialEq, Clone, Copy)]
pub(super) enum Field {
    Any,
    Name,
    Class,
}

/// A part of a text, without case. What else a regular expression can say is for the real program.
#[derive(Debug, PartialEq)]
pub(super) struct Pattern(String);

impl Pattern {
    fn read(text: &str) -> Option<Self> {
        let plain = text.trim_start_matches(".*").trim_end_matches(".*");
        (!plain.contains(['.', '*', '+', '?', '[', ']', '(', ')', '{', '}', '^', '$', '|', '\\']))
            .then(|| Self(plain.to_lowercase()))
    }

    pub(super) fn fits(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.0)
    }
}

/// All commands of a line; none if one of them is not known.
pub(super) fn steps(words: &[String]) -> Option<Vec<Step>> {
    let mut words = Words { words, at: 0 };
    let mut steps = Vec::new();
    while let Some(command) = words.next() {
        command_steps(command, &mut words, &mut steps)?;
    }
    (!steps.is_empty()).then_some(steps)
}

struct Words<'a> {
    words: &'a [String],
    at: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// The next option; `--` ends them.
    fn option(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at)?;
        let rest = word.strip_prefix('-')?;
        if rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.at += 1;
        (word != "--").then_some(word)
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.next()?.parse().ok()
    }

    /// A window that is named; none if the next word is no number.
    fn window(&mut self) -> Option<u32> {
        let word = self.words.get(self.at)?;
        let id = match word.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        };
        self.at += usize::from(id.is_some());
        id
    }

    fn rest(&mut self) -> &'a [String] {
        let rest = &self.words[self.at..];
        self.at = self.words.len();
        rest
    }

    fn is_over(&self) -> bool {
        self.at >= self.words.len()
    }
}

fn command_steps(command: &str, words: &mut Words<'_>, steps: &mut Vec<Step>) -> Option<()> {
    match command {
        "mousemove" | "mousemove_relative" => {
            while let Some(option) = words.option() {
                // Done is done: there is nothing to wait for.
                if option != "--sync" {
                    return None;
                }
            }
            let (x, y) = (words.number()?, words.number()?);
            steps.push(match command {
                "mousemove" => Step::Act(Action::Move { to: Point { x, y }, ms: 0, easing: Default::default() }),
                _ => Step::MoveBy(x, y),
            });
        }
        "click" => {
            let mut times = 1;
            let mut delay = None;
            while let Some(option) = words.option() {
                match option {
                    "--repeat" => times = words.number::<u32>()?,
                    "--delay" => delay = Some(words.number::<u64>()?),
                    "--clearmodifiers" => {}
                    _ => return None,
                }
            }
            let number: u32 = words.number()?;
            let paced = delay.filter(|delay| *delay > 20 && times > 1);
            if paced.is_some() && times as usize > MOST_STEPS / 2 {
                return None;
            }
            for turn in 0..if paced.is_some() { times } else { 1 } {
                if let Some(delay) = paced.filter(|_| turn > 0) {
                    steps.push(Step::Pause(Duration::from_millis(delay.min(1000))));
                }
                steps.push(Step::Act(click(number, if paced.is_some() { 1 } else { times })?));
            }
        }
        "mousedown" | "mouseup" => {
            while let Some(option) = words.option() {
                if option != "--clearmodifiers" {
                    return None;
                }
            }
            let button = button(words.number()?)?;
            steps.push(Step::Act(match command {
                "mousedown" => Action::ButtonDown { at: None, button },
                _ => Action::ButtonUp { at: None, button },
            }));
        }
        "type" => {
            let mut interval_ms = TYPING_PAUSE;
            while let Some(option) = words.option() {
                match option {
                    "--delay" => interval_ms = words.number::<u32>()?.min(TYPING_PAUSE),
                    "--clearmodifiers" => {}
                    _ => return None,
                }
            }
            let text = words.rest().concat();
            steps.push(Step::Act(Action::Type { text, interval_ms, secret: false }));
        }
        "key" | "keydown" | "keyup" => {
            let mut times = 1;
            while let Some(option) = words.option() {
                match option {
                    "--repeat" => times = words.number::<u32>()?,
                    "--delay" | "--repeat-delay" => drop(words.number::<u32>()?),
                    "--clearmodifiers" => {}
                    _ => return None,
                }
            }
            // All words that follow are keys, as for the real one.
            let keys = words.rest();
            if keys.is_empty() {
                return None;
            }
            for chord in keys {
                let keys: Vec<String> = chord.split('+').filter(|key| !key.is_empty()).map(str::to_owned).collect();
                let keys = if keys.is_empty() { vec![chord.clone()] } else { keys };
                steps.push(Step::Act(match command {
                    "key" => Action::Key { keys, times },
                    "keydown" => Action::KeyDown { keys },
                    _ => Action::KeyUp { keys },
                }));
            }
        }
        "sleep" => {
            let seconds: f64 = words.number()?;
            steps.push(Step::Pause(Duration::try_from_secs_f64(seconds).ok()?));
        }
        "getmouselocation" | "getdisplaygeometry" => {
            let mut shell = false;
            while let Some(option) = words.option() {
                match option {
                    "--shell" => shell = true,
                    _ => return None,
                }
            }
            steps.push(if command == "getmouselocation" { Step::Location { shell } } else { Step::ScreenSize { shell } });
        }
        "getwindowfocus" | "getactivewindow" => {
            while let Some(option) = words.option() {
                if option != "-f" {
                    return None;
                }
            }
            steps.push(Step::Active);
        }
        "search" => steps.push(Step::Search(search(words)?)),
        "getwindowname" => steps.push(Step::Name(words.window())),
        "getwindowpid" => steps.push(Step::Pid(words.window())),
        "getwindowgeometry" => {
            let mut shell = false;
            while let Some(option) = words.option() {
                match option {
                    "--shell" => shell = true,
                    _ => return None,
                }
            }
            steps.push(Step::Geometry { window: words.window(), shell });
        }
        "windowactivate" | "windowfocus" | "windowraise" | "windowclose" | "windowquit" | "windowminimize" => {
            while let Some(option) = words.option() {
                if option != "--sync" {
                    return None;
                }
            }
            let change = match command {
                "windowclose" | "windowquit" => "close",
                "windowminimize" => "minimize",
                _ => "activate",
            };
            steps.push(Step::Change(words.window(), change));
        }
        _ => return None,
    }
    Some(())
}

fn search(words: &mut Words<'_>) -> Option<Search> {
    let (mut field, mut visible, mut sync, mut limit) = (Field::Any, false, false, None);
    while let Some(option) = words.option() {
        match option {
            "--onlyvisible" => visible = true,
            "--sync" => sync = true,
            "--any" | "--all" => {}
            "--name" | "--title" => field = Field::Name,
            "--class" | "--classname" => field = Field::Class,
            "--limit" => limit = Some(words.number()?),
            _ => return None,
        }
    }
    let pattern = Pattern::read(words.next()?)?;
    Some(Search { field, pattern, visible, sync, limit, last: words.is_over() })
}

fn click(number: u32, times: u32) -> Option<Action> {
    let turns = i32::try_from(times).ok()?;
    Some(match number {
        4 => Action::Scroll { at: None, dx: 0, dy: -turns, hold: Vec::new() },
        5 => Action::Scroll { at: None, dx: 0, dy: turns, hold: Vec::new() },
        6 => Action::Scroll { at: None, dx: -turns, dy: 0, hold: Vec::new() },
        7 => Action::Scroll { at: None, dx: turns, dy: 0, hold: Vec::new() },
        number => Action::Click { at: None, button: button(number)?, times, hold: Vec::new() },
    })
}

fn button(number: u32) -> Option<Button> {
    Some(match number {
        1 => Button::Left,
        2 => Button::Middle,
        3 => Button::Right,
        8 => Button::Back,
        9 => Button::Forward,
        _ => return None,
    })
}

#[cfg(any(test, fuzzing))]
#[path = "../../../../../fuzz/src/xdotool.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Vec<Step>> {
        steps(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn lines_of_the_desktop_sdk_are_known() {
        let to = |x, y| Step::Act(Action::Move { to: Point { x, y }, ms: 0, easing: Default::default() });
        let click = |button, times| Step::Act(Action::Click { at: None, button, times, hold: Vec::new() });
        assert_eq!(read("mousemove --sync 10 20"), Some(vec![to(10, 20)]));
        assert_eq!(read("mousemove --sync -5 20 click 3"), Some(vec![to(-5, 20), click(Button::Right, 1)]));
        assert_eq!(read("click --repeat 2 1"), Some(vec![click(Button::Left, 2)]));
        let scroll = Action::Scroll { at: None, dx: 0, dy: -3, hold: Vec::new() };
        assert_eq!(read("click --repeat 3 4"), Some(vec![Step::Act(scroll)]));
        let typed = Action::Type { text: "-a b".into(), interval_ms: TYPING_PAUSE, secret: false };
        let words = ["type", "--delay", "75", "--", "-a b"].map(str::to_owned);
        assert_eq!(steps(&words), Some(vec![Step::Act(typed)]));
        let chord = Action::Key { keys: vec!["Control_L".into(), "c".into()], times: 1 };
        assert_eq!(read("key Control_L+c"), Some(vec![Step::Act(chord)]));
        assert_eq!(read("getmouselocation"), Some(vec![Step::Location { shell: false }]));
        assert_eq!(read("getwindowname 99"), Some(vec![Step::Name(Some(99))]));
        let found = read("search --onlyvisible --class Probe").unwrap();
        let [Step::Search(search)] = found.as_slice() else { panic!("not a search") };
        assert!(search.visible && search.last && search.field == Field::Class && search.pattern.fits("myPROBE1"));
    }

    #[test]
    fn what_is_not_known_is_left_to_the_real_one() {
        for line in
            ["", "behave_screen_edge left", "search --name ^x$", "mousemove --polar 1 2", "click 1 set_desktop 2", "click x"]
        {
            assert_eq!(read(line), None, "{line}");
        }
        assert!(read("search --name .*").is_some());
    }
}
