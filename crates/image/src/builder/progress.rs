//! Reads mmdebstrap's output and says how far it is.

use std::collections::HashSet;

/// The share that a stage's text tells (`… 120 of 310`), 0 to 1, for a progress bar.
pub fn share(stage: &str) -> Option<f32> {
    let words: Vec<&str> = stage.split_whitespace().collect();
    let at = words.iter().rposition(|word| *word == "of")?;
    let number = |word: Option<&&str>| word?.trim_end_matches(',').parse::<f32>().ok();
    let (done, all) = (number(words.get(at.checked_sub(1)?))?, number(words.get(at + 1))?);
    (all > 0.0).then(|| (done / all).clamp(0.0, 1.0))
}

/// Follows the output line by line. apt tells the number of packages twice, for the essential ones and for the rest;
/// both sums together are unknown until the second, so each has its own count.
#[derive(Default)]
pub(super) struct Progress {
    all: usize,
    fetched: usize,
    unpacked: usize,
    set_up: HashSet<String>,
    essential_over: bool,
}

impl Progress {
    /// The stage that a line begins or moves on, if it does.
    pub(super) fn line(&mut self, line: &str) -> Option<String> {
        if let Some(what) = line.strip_prefix("I: ") {
            return self.step(what);
        }
        if line.contains(" newly installed,") {
            self.all =
                line.split_whitespace().zip(line.split_whitespace().skip(1)).find(|(_, w)| *w == "newly")?.0.parse().ok()?;
            (self.fetched, self.unpacked) = (0, 0);
            self.set_up.clear();
            return None;
        }
        if line.starts_with("Get:") && self.all > 0 {
            self.fetched = (self.fetched + 1).min(self.all);
            return Some(format!("downloading packages {} of {}", self.fetched, self.all));
        }
        if line.starts_with("Unpacking ") {
            self.unpacked += 1;
            return self.installing();
        }
        if let Some(rest) = line.strip_prefix("Setting up ") {
            self.set_up.insert(rest.split(' ').next().unwrap_or_default().to_owned());
            return self.installing();
        }
        None
    }

    fn step(&mut self, what: &str) -> Option<String> {
        let stage = match what {
            _ if what.starts_with("running apt-get update") => "reading the lists of packages",
            _ if what.starts_with("extracting archives") => "unpacking the base system",
            _ if what.starts_with("installing essential") => "installing the base system",
            _ if what.starts_with("installing remaining") => {
                self.essential_over = true;
                "installing packages"
            }
            _ if what.starts_with("running --customize-hook") => "finishing: user, files, checks",
            _ if what.starts_with("cleaning") => "cleaning up",
            _ if what.starts_with("creating tarball") => "writing the tree",
            _ => return None,
        };
        Some(stage.into())
    }

    /// Each package is unpacked and set up: both count half.
    fn installing(&self) -> Option<String> {
        let what = if self.essential_over { "installing packages" } else { "installing the base system" };
        let done = (self.unpacked + self.set_up.len()) / 2;
        (self.all > 0).then(|| format!("{what} {} of {}", done.min(self.all), self.all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_stages() {
        let mut progress = Progress::default();
        let mut stages = Vec::new();
        for line in "I: running apt-get update...\nGet:1 x y\n0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.\n\
                     Get:1 x bookworm a\nGet:2 x bookworm b\nI: installing essential packages...\nUnpacking a (1) ...\nSetting up a (1) ...\n\
                     I: installing remaining packages inside the chroot...\n0 upgraded, 4 newly installed, 0 to remove and 0 not upgraded.\n\
                     Unpacking c (1) ...\nUnpacking d (1) ...\nSetting up c (1) ...\nSetting up d (2) ...\nnoise"
            .lines()
        {
            stages.extend(progress.line(line));
        }
        assert_eq!(
            stages,
            [
                "reading the lists of packages",
                "downloading packages 1 of 2",
                "downloading packages 2 of 2",
                "installing the base system",
                "installing the base system 0 of 2",
                "installing the base system 1 of 2",
                "installing packages",
                "installing packages 0 of 4",
                "installing packages 1 of 4",
                "installing packages 1 of 4",
                "installing packages 2 of 4",
            ]
        );
    }

    #[test]
    fn a_share_is_read_from_a_stage() {
        assert_eq!(share("installing packages 120 of 480"), Some(0.25));
        assert_eq!(share("loading 10 of 20 MiB"), Some(0.5));
        assert_eq!(share("cleaning up"), None);
        assert_eq!(share("0 of 0"), None);
        assert_eq!(share("of 3"), None);
    }
}
