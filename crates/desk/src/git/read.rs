//! What git prints for programs, as values.

use hotdesk_api::git::{Commit, GitAuthor, GitChange, GitDistance, GitFile, GitStatus, History};

/// The form of a commit that [`history`] reads.
pub(super) const HISTORY: &str = "--format=%H%x1f%aI%x1f%an%x1f%ae%x1f%B";

/// Reads what `git status --porcelain=v2 --branch -z` says.
pub(super) fn status(said: &str, truncated: bool) -> GitStatus {
    let mut status = GitStatus { truncated, ..GitStatus::default() };
    let mut records = whole(said, truncated);
    while let Some(record) = records.next() {
        let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
        // How many words stand before the name.
        let before = match kind {
            "#" => {
                heading(&mut status, rest);
                continue;
            }
            "?" => {
                let (staged, unstaged) = (GitChange::Untracked, GitChange::Untracked);
                status.files.push(GitFile { path: rest.to_owned(), from: None, staged, unstaged });
                continue;
            }
            "1" => 7,
            "2" => 8,
            "u" => 9,
            _ => continue,
        };
        let Some(path) = rest.splitn(before + 1, ' ').nth(before) else { continue };
        let mut letters = rest.chars();
        let mut change = || letters.next().map_or(GitChange::Unmodified, change);
        let (staged, unstaged) = (change(), change());
        // Renamed and copied files have their old name behind them.
        let from = if kind == "2" { records.next().map(str::to_owned) } else { None };
        status.files.push(GitFile { path: path.to_owned(), from, staged, unstaged });
    }
    status
}

fn heading(status: &mut GitStatus, text: &str) {
    let (key, value) = text.split_once(' ').unwrap_or((text, ""));
    match key {
        "branch.head" => status.branch = Some(value.to_owned()).filter(|branch| branch != "(detached)"),
        "branch.upstream" => status.upstream = Some(value.to_owned()),
        "branch.ab" => {
            let number = |text: &str| text.trim_start_matches(['+', '-']).parse().unwrap_or(0);
            status.distance =
                value.split_once(' ').map(|(ahead, behind)| GitDistance { ahead: number(ahead), behind: number(behind) });
        }
        _ => {}
    }
}

fn change(letter: char) -> GitChange {
    match letter {
        'M' => GitChange::Modified,
        'T' => GitChange::TypeChanged,
        'A' => GitChange::Added,
        'D' => GitChange::Deleted,
        'R' => GitChange::Renamed,
        'C' => GitChange::Copied,
        'U' => GitChange::Unmerged,
        _ => GitChange::Unmodified,
    }
}

/// Reads what `git log -z` says in the form of [`HISTORY`].
pub(super) fn history(said: &str, truncated: bool) -> History {
    let commit = |record: &str| {
        let mut parts = record.splitn(5, '\x1f');
        let mut next = || parts.next().unwrap_or_default().to_owned();
        let (hash, time, name, email, message) = (next(), next(), next(), next(), next());
        Commit { hash, author: GitAuthor { name, email }, time, message: message.trim_end().to_owned() }
    };
    History { commits: whole(said, truncated).map(commit).collect(), truncated }
}

/// Records that end with a NUL, without a last one that is cut off.
fn whole(said: &str, truncated: bool) -> impl Iterator<Item = &str> {
    let end = if truncated { said.rfind('\0').unwrap_or(0) } else { said.len() };
    said[..end].split('\0').filter(|record| !record.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read() {
        use GitChange::*;
        let said = "# branch.oid 1\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0\
                    1 .M N... 100644 100644 100644 a b a file\0\
                    2 R. N... 100644 100644 100644 a b R100 new name\0old name\0\
                    1 T. N... 100644 100644 100644 a b link\0\
                    u UU N... 1 2 3 4 a b c both\0? un tracked\0";
        let now = status(said, false);
        assert_eq!((now.branch.as_deref(), now.upstream.as_deref()), (Some("main"), Some("origin/main")));
        assert_eq!(now.distance, Some(GitDistance { ahead: 2, behind: 1 }));
        let file = |path: &str, from: Option<&str>, staged, unstaged| GitFile {
            path: path.into(),
            from: from.map(str::to_owned),
            staged,
            unstaged,
        };
        let files = [
            file("a file", None, Unmodified, Modified),
            file("new name", Some("old name"), Renamed, Unmodified),
            file("link", None, TypeChanged, Unmodified),
            file("both", None, Unmerged, Unmerged),
            file("un tracked", None, Untracked, Untracked),
        ];
        assert_eq!(now.files, files);
        let fresh = status("# branch.oid (initial)\0# branch.head (detached)\0", false);
        assert_eq!((fresh.branch, fresh.distance, fresh.files.len()), (None, None, 0));
    }

    #[test]
    fn what_is_cut_off_is_left_out() {
        let cut = status("? whole\0? cut o", true);
        assert_eq!((cut.files.len(), cut.files[0].path.as_str(), cut.truncated), (1, "whole", true));
        let cut = history("a\x1ft\x1fn\x1fe\x1fm\n\0b\x1ft", true);
        assert_eq!((cut.commits.len(), cut.commits[0].message.as_str()), (1, "m"));
        assert!(history("", true).commits.is_empty());
    }
}
