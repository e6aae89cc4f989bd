//! Windows, as the window manager knows them (EWMH), without any helper program.

mod ewmh;
pub(crate) mod text;
mod watch;

use crate::error::{Error, Result};
use crate::lease::Gate;
use crate::place::{Display, Place};
use crate::x11::Line;
use ewmh::{Ewmh, Found};
use hotdesk_api::action::Rect;
use hotdesk_api::trace::{Deed, OtherDeed};
use hotdesk_api::window::{NewArea, WaitForWindow, WindowChange};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Waits at once: each has a thread and a connection while it lasts.
const MOST_WAITS: usize = 32;
/// The longest wait for a window.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How long the window manager has to do what it was told before we answer anyway.
const OBEYS_WITHIN: Duration = Duration::from_millis(1500);
/// How often it is told to give a window the keyboard: a busy one now and then lets that drop.
const TELLINGS: u32 = 3;

/// One managed window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub id: u32,
    /// The virtual desktop; -1 is all of them.
    pub desktop: i32,
    /// `WM_CLIENT_MACHINE`.
    pub machine: String,
    pub title: String,
    /// `WM_CLASS`: instance and class.
    pub instance: String,
    pub class: String,
    pub pid: Option<u32>,
    /// The client's own area on the screen, without the frame.
    pub area: Rect,
    pub active: bool,
    pub minimized: bool,
    pub maximized: bool,
    pub fullscreen: bool,
    pub above: bool,
}

/// How a window is looked for by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Match {
    /// The whole text, case and all, instead of a part of it.
    pub strict: bool,
    /// `instance.class` instead of the title.
    pub by_class: bool,
}

/// The window engine. Cheap to clone.
#[derive(Clone)]
pub struct Windows {
    display: Display,
    line: Arc<Line<Ewmh>>,
    waits: Arc<Semaphore>,
    gate: Gate,
}

impl Windows {
    pub fn new(place: Arc<Place>) -> Self {
        let display = place.display.clone();
        let line = Arc::new(Line::new(display.clone(), Ewmh::open));
        Self { display, line, waits: Arc::new(Semaphore::new(MOST_WAITS)), gate: Gate::default() }
    }

    /// The same behind a gate.
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// All managed windows, in the order of `_NET_CLIENT_LIST`.
    pub async fn list(&self) -> Result<Vec<Window>> {
        let found = self.line.ask(|ewmh| ewmh.windows()).await?;
        Ok(found.into_iter().map(|found| found.window).collect())
    }

    /// The lines that `wmctrl -l` prints.
    pub async fn listing(&self) -> Result<String> {
        let found = self.line.ask(|ewmh| ewmh.windows()).await?;
        Ok(text::listing(&found))
    }

    /// The first window of that name; `wmctrl`'s rules.
    pub async fn find(&self, name: &str, how: Match) -> Result<Option<Window>> {
        let found = self.line.ask(|ewmh| ewmh.windows()).await?;
        let wanted = text::Wanted::new(name, how.strict);
        let fits = |found: &Found| match name {
            ":ACTIVE:" => found.window.active,
            _ if how.by_class => found.class.as_deref().is_some_and(|class| wanted.fits(class)),
            _ => found.title.as_deref().is_some_and(|title| wanted.fits(title)),
        };
        Ok(found.into_iter().find(fits).map(|found| found.window))
    }

    /// One window.
    pub async fn get(&self, id: u32) -> Result<Window> {
        self.line.ask(move |ewmh| ewmh.window(id)).await
    }

    /// Whether the keyboard belongs to this window.
    pub async fn has_focus(&self, id: u32) -> Result<bool> {
        self.line.ask(move |ewmh| ewmh.has_focus(id)).await
    }

    /// Gives a window the keyboard, or the window manager had its chances.
    pub async fn activate(&self, id: u32) -> Result<()> {
        self.change(id, WindowChange::Activate).await.map(|_| ())
    }

    pub async fn close(&self, id: u32) -> Result<()> {
        self.gate.turn(self.changed(id, WindowChange::Close).await, |_| self.line.ask(move |ewmh| ewmh.close(id))).await
    }

    /// Changes a window and waits a moment until the window manager has done it. Nothing is left of a closed window.
    pub async fn change(&self, id: u32, change: WindowChange) -> Result<Option<Window>> {
        self.gate.turn(self.changed(id, change).await, |_| self.change_now(id, change)).await
    }

    async fn change_now(&self, id: u32, change: WindowChange) -> Result<Option<Window>> {
        let tellings = if change == WindowChange::Activate { TELLINGS } else { 1 };
        let tell = move |ewmh: &Ewmh| match change {
            WindowChange::Activate => ewmh.activate(id),
            WindowChange::Close => ewmh.close(id),
            WindowChange::Minimize => ewmh.minimize(id),
            WindowChange::Maximize => ewmh.maximize(id),
            WindowChange::Fullscreen => ewmh.fullscreen(id),
            WindowChange::Restore => ewmh.restore(id),
        };
        let done = move |ewmh: &Ewmh, w: &Window| {
            Ok(match change {
                // The active window is told before the keyboard is its own.
                WindowChange::Activate => w.active && !w.minimized && ewmh.has_focus(w.id)?,
                WindowChange::Close => false,
                WindowChange::Minimize => w.minimized,
                WindowChange::Maximize => w.maximized,
                WindowChange::Fullscreen => w.fullscreen,
                WindowChange::Restore => !w.minimized && !w.maximized && !w.fullscreen,
            })
        };
        for telling in 1..=tellings {
            match self.line.ask(tell).await {
                // Whoever was told before may have ended meanwhile.
                Err(Error::NotFound(_)) if telling > 1 => return Ok(None),
                told => told?,
            }
            if let Some(seen) = self.until(OBEYS_WITHIN / tellings, id, done).await {
                return Ok(seen);
            }
        }
        self.as_it_is(id).await
    }

    /// Moves and resizes the client's area; a maximized window is restored first.
    pub async fn place(&self, id: u32, area: NewArea) -> Result<Option<Window>> {
        // X knows no larger ones, and some window managers die of them.
        let most = i32::from(i16::MAX);
        if area.width.into_iter().chain(area.height).any(|side| side == 0 || side > most as u32) {
            return Err(Error::Invalid(format!("width and height of a window are between 1 and {most}")));
        }
        if area.x.into_iter().chain(area.y).any(|place| place.unsigned_abs() > most as u32) {
            return Err(Error::Invalid(format!("the place of a window is between -{most} and {most}")));
        }
        let title = self.title(id).await;
        let deed = || vec![Deed::Other(OtherDeed::PlaceWindow { id, title, area })];
        self.gate.turn(deed, |_| self.place_now(id, area)).await
    }

    async fn place_now(&self, id: u32, area: NewArea) -> Result<Option<Window>> {
        self.line.ask(move |ewmh| ewmh.place(id, area)).await?;
        let reached = |wanted: Option<i64>, is: i64| wanted.is_none_or(|wanted| wanted == is);
        let done = move |_: &Ewmh, w: &Window| {
            Ok(reached(area.x.map(i64::from), w.area.x.into())
                && reached(area.y.map(i64::from), w.area.y.into())
                && reached(area.width.map(i64::from), w.area.width.into())
                && reached(area.height.map(i64::from), w.area.height.into()))
        };
        match self.until(OBEYS_WITHIN, id, done).await {
            Some(seen) => Ok(seen),
            None => self.as_it_is(id).await,
        }
    }

    /// Waits for a window to be there, or to be gone.
    pub async fn wait(&self, wanted: WaitForWindow, limit: Duration) -> Result<Option<Window>> {
        if wanted.title.is_none() && wanted.class.is_none() {
            return Err(Error::Invalid("say `title`, `class` or both of the window to wait for".into()));
        }
        if limit > LONGEST_WAIT {
            return Err(Error::Invalid(format!("the longest wait is {} s", LONGEST_WAIT.as_secs())));
        }
        let gone = wanted.gone;
        let what = describe(&wanted);
        let title = wanted.title.map(|title| text::Wanted::new(&title, wanted.strict));
        let class = wanted.class.map(|class| text::Wanted::new(&class, wanted.strict));
        let fits = move |found: &Found| {
            let fits = |wanted: &Option<text::Wanted>, text: &Option<String>| {
                wanted.as_ref().is_none_or(|wanted| text.as_deref().is_some_and(|text| wanted.fits(text)))
            };
            fits(&title, &found.title) && fits(&class, &found.class)
        };
        let look = move |ewmh: &Ewmh| {
            let found = ewmh.windows()?.into_iter().find(&fits).map(|found| found.window);
            Ok(if found.is_some() == gone { None } else { Some(found) })
        };
        match self.watch(limit, look).await? {
            Some(window) => Ok(window),
            None => Err(Error::Timeout { what, limit }),
        }
    }

    /// A change of a window, for whoever records it.
    async fn changed(&self, id: u32, change: WindowChange) -> impl FnOnce() -> Vec<Deed> {
        let title = self.title(id).await;
        move || vec![Deed::Other(OtherDeed::Window { id, title, change })]
    }

    /// Only where it is recorded.
    async fn title(&self, id: u32) -> Option<String> {
        if !self.gate.records() {
            return None;
        }
        self.get(id).await.ok().map(|window| window.title)
    }

    /// Waits until a window is as it should be, and tells how it is then: nothing is left of one that is gone.
    /// No answer when the limit comes first.
    async fn until(
        &self,
        limit: Duration,
        id: u32,
        done: impl Fn(&Ewmh, &Window) -> Result<bool> + Send + 'static,
    ) -> Option<Option<Window>> {
        let look = move |ewmh: &Ewmh| match ewmh.window(id) {
            Ok(window) => Ok(if done(ewmh, &window)? { Some(Some(window)) } else { None }),
            Err(Error::NotFound(_)) => Ok(Some(None)),
            Err(other) => Err(other),
        };
        self.watch(limit, look).await.ok().flatten()
    }

    /// A window that was told to change, whether it did or not.
    async fn as_it_is(&self, id: u32) -> Result<Option<Window>> {
        match self.get(id).await {
            Ok(window) => Ok(Some(window)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    async fn watch<R: Send + 'static>(
        &self,
        limit: Duration,
        look: impl FnMut(&Ewmh) -> Result<Option<R>> + Send + 'static,
    ) -> Result<Option<R>> {
        let Ok(_permit) = self.waits.try_acquire() else {
            return Err(Error::TooMany { what: "waits for windows", limit: MOST_WAITS });
        };
        watch::watch(self.display.clone(), limit, look).await
    }
}

fn describe(wanted: &WaitForWindow) -> String {
    let mut what = String::from("waiting for a window");
    for (name, text) in [("title", &wanted.title), ("class", &wanted.class)] {
        if let Some(text) = text {
            let shown: String = text.chars().take(80).collect();
            what += &format!(" of {name} {shown:?}");
        }
    }
    what + if wanted.gone { " to be gone" } else { "" }
}

impl From<Window> for hotdesk_api::window::Window {
    fn from(w: Window) -> Self {
        Self {
            id: w.id,
            title: w.title,
            instance: w.instance,
            class: w.class,
            pid: w.pid,
            desktop: w.desktop,
            machine: w.machine,
            area: w.area,
            active: w.active,
            minimized: w.minimized,
            maximized: w.maximized,
            fullscreen: w.fullscreen,
            above: w.above,
        }
    }
}

#[cfg(test)]
mod tests;
