//! Something that takes a while, and how people see that it goes on: a line on stderr that tells the stage, from the
//! first second on. Without a terminal each new stage is a line of its own.

use crate::text::safe;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What is over sooner needs no progress.
const QUIET: Duration = Duration::from_millis(700);
const STEPS: u64 = 1000;
const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Waiting {
    bar: ProgressBar,
    begin: Instant,
    /// The last line that was written where there is no terminal.
    told: Mutex<String>,
    terminal: bool,
    quiet: bool,
}

impl Waiting {
    /// For something without a measure. `quiet` shows nothing, as `--json` wants it.
    pub(crate) fn new(what: &str, quiet: bool) -> Self {
        Self::with(ProgressBar::hidden(), "{spinner} {prefix} {msg} ({elapsed})", what, quiet)
    }

    /// For bytes that go somewhere.
    pub(crate) fn bytes(what: &str, size: Option<u64>, quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::hidden());
        let style = match size {
            Some(_) => "{prefix} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{spinner} {prefix} {bytes}, {bytes_per_sec}",
        };
        Self::with(bar, style, what, quiet)
    }

    /// For something that can be counted now and then: see [`Self::share`].
    pub(crate) fn steps(what: &str, quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        Self::with(bar, "{spinner} {prefix} {bar:20} {msg} ({elapsed})", what, quiet)
    }

    /// How much of the stage is done, 0 to 1, where that is known.
    pub(crate) fn share(&self, share: Option<f32>) {
        self.bar.set_position(share.map_or(0, |share| (share * STEPS as f32) as u64));
    }

    fn with(bar: ProgressBar, style: &str, what: &str, quiet: bool) -> Self {
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_prefix(safe(what).into_owned());
        let terminal = std::io::stderr().is_terminal();
        let waiting = Self { bar, begin: Instant::now(), told: Mutex::default(), terminal, quiet };
        if terminal && !quiet {
            let bar = waiting.bar.clone();
            tokio::spawn(async move {
                tokio::time::sleep(QUIET).await;
                if !bar.is_finished() {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(TICK);
                }
            });
        }
        waiting
    }

    /// What goes on now.
    pub(crate) fn stage(&self, stage: &str) {
        let Ok(mut told) = self.told.lock() else { return };
        if stage.is_empty() {
            return;
        }
        let stage = safe(stage);
        self.bar.set_message(stage.clone().into_owned());
        // `packages 12 of 300` is one stage, not three hundred.
        let kind = stage.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().to_owned();
        if !self.terminal && !self.quiet && self.begin.elapsed() > QUIET && *told != kind {
            let _ = writeln!(std::io::stderr(), "{}: {stage}", self.bar.prefix());
            *told = kind;
        }
    }

    /// A count of its own, for streams that are read elsewhere.
    pub(crate) fn counter(&self) -> ProgressBar {
        self.bar.clone()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Talk for people, on stderr.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
