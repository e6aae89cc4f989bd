//! Something that takes a while, and how people see that it goes on: a line on stderr that tells the stage, from the
//! first second on. Without a terminal each new stage is a line of its own.

use crate::text::safe;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is over sooner needs no progress.
const QUIET: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Waiting {
    bar: ProgressBar,
    begin: Instant,
    last: Arc<Mutex<String>>,
    terminal: bool,
    quiet: bool,
}

impl Waiting {
    /// For something without a measure. `quiet` shows nothing, as `--json` wants it.
    pub(crate) fn new(what: &str, quiet: bool) -> Self {
        Self::with(ProgressBar::hidden(), "{spinner} {prefix}{msg} ({elapsed})", what, quiet)
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

    fn with(bar: ProgressBar, style: &str, what: &str, quiet: bool) -> Self {
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_prefix(safe(what).into_owned());
        let terminal = std::io::stderr().is_terminal();
        let waiting = Self { bar, begin: Instant::now(), last: Arc::default(), terminal, quiet };
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
        let Ok(mut last) = self.last.lock() else { return };
        if *last == stage || stage.is_empty() {
            return;
        }
        stage.clone_into(&mut last);
        let stage = safe(stage);
        self.bar.set_message(format!(": {stage}"));
        if !self.terminal && !self.quiet && self.begin.elapsed() > QUIET {
            let _ = writeln!(std::io::stderr(), "{}: {stage}", self.bar.prefix());
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
