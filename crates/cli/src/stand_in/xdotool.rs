//! `xdotool`: hands and windows.
//!
//! A command line is a chain of commands. It is read whole before anything is done, so that a chain with one command that we do not
//! know is left to the real program from its beginning.

pub(crate) mod read;

use super::{Done, complain, desk, say};
use hotdesk_api::action::Action;
use hotdesk_api::screen::ScreenInfo;
use hotdesk_api::window::{Window, WindowList};
use hotdesk_desk_client::http::Method;
use read::{Field, Search, Step};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::time::Duration;

pub(super) fn run(words: &[String]) -> Done {
    let Some(steps) = read::steps(words) else { return Done::Unknown };
    if desk::display().is_none() {
        return Done::Unknown;
    }
    let mut chain = Chain::default();
    for step in steps {
        match chain.step(step) {
            Ok(()) => {}
            Err(Stop::Unknown) => return Done::Unknown,
            Err(Stop::Failed(message)) => {
                if !message.is_empty() {
                    complain(&message);
                }
                return Done::Code(1);
            }
        }
    }
    Done::Code(0)
}

/// Why a chain stops.
enum Stop {
    /// There is no desk to ask.
    Unknown,
    Failed(String),
}

impl From<hotdesk_desk_client::Error> for Stop {
    fn from(error: hotdesk_desk_client::Error) -> Self {
        Self::Failed(format!("xdotool: {}", desk::reason(&error)))
    }
}

/// What a chain knows: windows that were found, for the commands that follow.
#[derive(Default)]
struct Chain {
    found: Vec<u32>,
}

impl Chain {
    fn step(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Step::Act(action) => act(action),
            Step::MoveBy(dx, dy) => {
                let pointer = screen()?.pointer;
                act(Action::Move {
                    to: hotdesk_api::action::Point { x: pointer.x.saturating_add(dx), y: pointer.y.saturating_add(dy) },
                    ms: 0,
                    easing: Default::default(),
                })
            }
            Step::Pause(time) => {
                std::thread::sleep(time);
                Ok(())
            }
            Step::Location { shell } => {
                let pointer = screen()?.pointer;
                let window = under(&windows()?, pointer.x, pointer.y).unwrap_or(0);
                match shell {
                    true => say(&format!("X={}\nY={}\nSCREEN=0\nWINDOW={window}", pointer.x, pointer.y)),
                    false => say(&format!("x:{} y:{} screen:0 window:{window}", pointer.x, pointer.y)),
                }
                Ok(())
            }
            Step::ScreenSize { shell } => {
                let size = screen()?.size;
                match shell {
                    true => say(&format!("WIDTH={}\nHEIGHT={}", size.width, size.height)),
                    false => say(&format!("{} {}", size.width, size.height)),
                }
                Ok(())
            }
            Step::Active => match windows()?.into_iter().find(|window| window.active) {
                Some(window) => {
                    self.found = vec![window.id];
                    say(&window.id.to_string());
                    Ok(())
                }
                None => Err(Stop::Failed("xdotool: no window has the focus".into())),
            },
            Step::Search(search) => self.search(&search),
            Step::Name(window) => self.each(window, |window| say(&window.title)),
            Step::Pid(window) => self.each(window, |window| say(&window.pid.unwrap_or(0).to_string())),
            Step::Geometry { window, shell } => self.each(window, |window| geometry(window, shell)),
            Step::Change(window, change) => {
                for id in self.windows(window)? {
                    let path = format!("/v1/windows/{id}/{change}");
                    desk::ask(async |desk| desk.tell(Method::POST, &path, &json!({})).await).ok_or(Stop::Unknown)??;
                }
                Ok(())
            }
        }
    }

    fn search(&mut self, search: &Search) -> Result<(), Stop> {
        let fits = |window: &Window| {
            let fields: &[&str] = match search.field {
                Field::Name => &[&window.title],
                Field::Class => &[&window.class, &window.instance],
                Field::Any => &[&window.title, &window.class, &window.instance],
            };
            fields.iter().any(|text| search.pattern.fits(text))
        };
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let mut all = windows()?;
            all.retain(|window| fits(window) && !(search.visible && window.minimized));
            all.truncate(search.limit.unwrap_or(usize::MAX));
            if all.is_empty() && search.sync && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            self.found = all.iter().map(|window| window.id).collect();
            if all.is_empty() {
                return Err(Stop::Failed(String::new()));
            }
            if search.last {
                all.iter().for_each(|window| say(&window.id.to_string()));
            }
            return Ok(());
        }
    }

    fn windows(&self, named: Option<u32>) -> Result<Vec<u32>, Stop> {
        match named {
            Some(id) => Ok(vec![id]),
            None if self.found.is_empty() => Err(Stop::Failed("There are no windows in the stack".into())),
            None => Ok(self.found.clone()),
        }
    }

    fn each(&self, named: Option<u32>, tell: impl Fn(&Window)) -> Result<(), Stop> {
        for id in self.windows(named)? {
            tell(&get(&format!("/v1/windows/{id}"))?);
        }
        Ok(())
    }
}

fn geometry(window: &Window, shell: bool) {
    let area = window.area;
    match shell {
        true => say(&format!(
            "WINDOW={}\nX={}\nY={}\nWIDTH={}\nHEIGHT={}\nSCREEN=0",
            window.id, area.x, area.y, area.width, area.height
        )),
        false => say(&format!(
            "Window {}\n  Position: {},{} (screen: 0)\n  Geometry: {}x{}",
            window.id, area.x, area.y, area.width, area.height
        )),
    }
}

/// Does one thing. Keys that have no name are left out, as by the real one, and the pointer stays on the screen.
fn act(action: Action) -> Result<(), Stop> {
    let action = match action {
        Action::Move { to, ms, easing } => {
            let size = screen()?.size;
            let keep = |at: i32, side: u32| at.clamp(0, i32::try_from(side).unwrap_or(i32::MAX) - 1);
            let to = hotdesk_api::action::Point { x: keep(to.x, size.width), y: keep(to.y, size.height) };
            Action::Move { to, ms, easing }
        }
        other => other,
    };
    let keys = matches!(action, Action::Key { .. } | Action::KeyDown { .. } | Action::KeyUp { .. });
    let batch = json!({ "actions": [action] });
    match desk::ask(async |desk| desk.tell(Method::POST, "/v1/input", &batch).await).ok_or(Stop::Unknown)? {
        Err(error) if keys && error.status().is_some_and(|status| status == 400) => {
            complain(&format!("(symbol) No such key name. Ignoring it: {error}"));
            Ok(())
        }
        done => Ok(done?),
    }
}

fn screen() -> Result<ScreenInfo, Stop> {
    get("/v1/screen")
}

fn windows() -> Result<Vec<Window>, Stop> {
    get("/v1/windows").map(|list: WindowList| list.windows)
}

fn get<T: DeserializeOwned>(path: &str) -> Result<T, Stop> {
    Ok(desk::ask(async |desk| desk.get(path).await).ok_or(Stop::Unknown)??)
}

/// The window that shows at a place; the newest, where several could.
fn under(windows: &[Window], x: i32, y: i32) -> Option<u32> {
    let holds = |window: &&Window| {
        let area = window.area;
        let within = |at: i32, from: i32, side: u32| at >= from && i64::from(at) < i64::from(from) + i64::from(side);
        !window.minimized && within(x, area.x, area.width) && within(y, area.y, area.height)
    };
    let active = windows.iter().filter(|window| window.active).find(holds);
    active.or_else(|| windows.iter().rev().find(holds)).map(|window| window.id)
}
