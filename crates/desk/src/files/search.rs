//! Looking through files: for text, for names, and replacing text.

use super::{blocking, write};
use crate::error::{Error, Result};
use hotdesk_api::file::{FoundLine, FoundLines, FoundNames, Replaced, ReplacedFile};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// How many hits one answer holds.
const MOST_HITS: usize = 10_000;
/// How many files are looked at before a search gives up: a whole root file system has fewer.
const MOST_FILES: usize = 1_000_000;
/// Of a line that is shown.
const LONGEST_LINE: usize = 4096;
/// Of a line that is looked at: the rest of it is read and left out, so that one without end takes no memory.
const LONGEST_READ: u64 = 1 << 20;
/// A file with a zero byte in its beginning is no text.
const BEGINNING: usize = 8 << 10;
/// The largest file in which text is replaced, which is done in memory.
const LARGEST_REPLACED: u64 = 64 << 20;

/// Lines that hold `text`, in a file or in all files below a directory. Files that are not text are left out.
pub async fn find_text(path: PathBuf, text: String) -> Result<FoundLines> {
    if text.is_empty() {
        return Err(Error::Invalid("the text to look for is empty".into()));
    }
    blocking(move || {
        let mut found = FoundLines { lines: Vec::new(), truncated: false };
        found.truncated = !walk(&path, &mut |file, is_directory| {
            if !is_directory {
                // What can't be read holds nothing for this user.
                let _ = search_file(file, text.as_bytes(), &mut found.lines);
            }
            found.lines.len() < MOST_HITS
        })?;
        Ok(found)
    })
    .await
}

fn search_file(path: &Path, text: &[u8], lines: &mut Vec<FoundLine>) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(BEGINNING, std::fs::File::open(path)?);
    if reader.fill_buf()?.contains(&0) {
        return Ok(());
    }
    let mut line = Vec::new();
    let mut number = 0;
    while lines.len() < MOST_HITS {
        line.clear();
        if (&mut reader).take(LONGEST_READ).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if !line.ends_with(b"\n") {
            reader.skip_until(b'\n')?;
        }
        number += 1;
        if line.windows(text.len()).any(|window| window == text) {
            let shown = line.strip_suffix(b"\n").unwrap_or(&line);
            let shown = String::from_utf8_lossy(&shown[..shown.len().min(LONGEST_LINE)]).into_owned();
            lines.push(FoundLine { path: path.to_string_lossy().into_owned(), line: number, text: shown });
        }
    }
    Ok(())
}

/// Files and directories below a directory whose name fits a pattern of `*`, `?` and `[…]`.
pub async fn find_names(path: PathBuf, pattern: String) -> Result<FoundNames> {
    blocking(move || {
        let mut found = FoundNames { paths: Vec::new(), truncated: false };
        let wanted: Vec<char> = pattern.chars().collect();
        found.truncated = !walk(&path, &mut |file, _| {
            // A pattern with slashes is about the path below the directory.
            let name = if wanted.contains(&'/') { file.strip_prefix(&path).ok() } else { file.file_name().map(Path::new) };
            let name: Vec<char> = name.map(|name| name.to_string_lossy().chars().collect()).unwrap_or_default();
            if file != path && fits(&wanted, &name) {
                found.paths.push(file.to_string_lossy().into_owned());
            }
            found.paths.len() < MOST_HITS
        })?;
        Ok(found)
    })
    .await
}

/// Replaces every `text` by another in each of the files. One that fails does not keep the others.
pub async fn replace(paths: Vec<PathBuf>, text: String, by: String) -> Result<Replaced> {
    if text.is_empty() {
        return Err(Error::Invalid("the text to replace is empty".into()));
    }
    let mut files = Vec::new();
    for path in paths {
        let shown = path.to_string_lossy().into_owned();
        let (count, problem) = match replace_in(path, &text, &by).await {
            Ok(count) => (count, None),
            Err(error) => (0, Some(error.to_string())),
        };
        files.push(ReplacedFile { path: shown, count, problem });
    }
    Ok(Replaced { files })
}

async fn replace_in(path: PathBuf, text: &str, by: &str) -> Result<u64> {
    let (text, by, place) = (text.to_owned(), by.to_owned(), path.clone());
    let (count, changed) = blocking(move || {
        let failed = |e: std::io::Error| Error::file(place.display(), &e);
        let meta = std::fs::metadata(&place).map_err(failed)?;
        if !meta.is_file() {
            return Err(Error::Invalid(format!("{} is not a file", place.display())));
        }
        if meta.len() > LARGEST_REPLACED {
            return Err(Error::TooLarge { what: place.display().to_string(), limit: LARGEST_REPLACED });
        }
        let content = std::fs::read(&place).map_err(failed)?;
        let content = String::from_utf8(content).map_err(|_| Error::Invalid(format!("{} is no text", place.display())))?;
        let count = content.matches(&text).count() as u64;
        Ok((count, content.replace(&text, &by)))
    })
    .await?;
    if count > 0 {
        let data = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(bytes::Bytes::from(changed))]);
        write::write(path, None, false, data).await?;
    }
    Ok(count)
}

/// Shows everything below a path, in order, and the path itself; links are not followed. False if it was stopped.
fn walk(path: &Path, see: &mut dyn FnMut(&Path, bool) -> bool) -> Result<bool> {
    let meta = std::fs::metadata(path).map_err(|e| Error::file(path.display(), &e))?;
    let mut todo = vec![(path.to_owned(), meta.is_dir())];
    let mut seen = 0;
    while let Some((path, is_directory)) = todo.pop() {
        seen += 1;
        if seen > MOST_FILES || !see(&path, is_directory) {
            return Ok(false);
        }
        if !is_directory {
            continue;
        }
        // What can't be listed is left out.
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        let mut below: Vec<_> = entries
            .filter_map(|entry| {
                let kind = entry.file_type().ok()?;
                (kind.is_dir() || kind.is_file()).then(|| (entry.path(), kind.is_dir()))
            })
            .collect();
        below.sort_unstable_by(|a, b| b.cmp(a));
        todo.extend(below);
    }
    Ok(true)
}

/// Whether a name fits a pattern: `*` is any text, `?` one character, `[a-z]` one of them, `[!a]` none of them.
fn fits(pattern: &[char], name: &[char]) -> bool {
    // Where to go on when a try fails: behind the last star, with one more character of the name in it.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => class(&pattern[p..], name[n]),
            Some(c) if *c == name[n] => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => (p, n) = (p + length, n + 1),
            (None, Some((after, begun))) => {
                star = Some((after, begun + 1));
                (p, n) = (after, begun + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// How long a class is that holds the character; none if it does not.
fn class(pattern: &[char], c: char) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let first = if negated { 2 } else { 1 };
    let length = pattern.iter().skip(first + 1).position(|c| *c == ']').map(|end| end + first + 1);
    let Some(end) = length else { return (c == '[').then_some(1) };
    let inside = &pattern[first..end];
    let mut holds = false;
    let mut at = 0;
    while at < inside.len() {
        match inside.get(at..at + 3) {
            Some([from, '-', to]) => {
                holds |= (*from..=*to).contains(&c);
                at += 3;
            }
            _ => {
                holds |= inside[at] == c;
                at += 1;
            }
        }
    }
    (holds != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let fit = |pattern: &str, name: &str| fits(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>());
        for (pattern, name) in
            [("*.py", "a.py"), ("*", ""), ("a?c", "abc"), ("[a-c]x", "bx"), ("[!a]x", "bx"), ("*a*b*", "xaybz")]
        {
            assert!(fit(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.py", "a.pyc"), ("a?c", "ac"), ("[a-c]x", "dx"), ("", "a"), ("[!a]x", "ax"), ("[", "a")] {
            assert!(!fit(pattern, name), "{pattern} {name}");
        }
        assert!(fit("[", "[") && fit("[]]", "]"));
        assert!(!fit(&"*a".repeat(30), &"a".repeat(29)), "no time is lost on many stars");
    }

    #[tokio::test]
    async fn a_line_without_end_takes_no_memory() {
        let home = tempfile::tempdir().unwrap();
        let long = "x".repeat(3 << 20);
        std::fs::write(home.path().join("a"), format!("needle{long}needle\nsecond needle\n")).unwrap();
        let found = find_text(home.path().to_owned(), "needle".into()).await.unwrap();
        let lines: Vec<_> = found.lines.iter().map(|l| (l.line, l.text.len())).collect();
        assert_eq!(lines, [(1, LONGEST_LINE), (2, 13)], "one hit per line, and lines are counted as they are");
        let found = find_text(home.path().to_owned(), "xneedle".into()).await.unwrap();
        assert_eq!(found.lines.len(), 0, "what is beyond the limit is not looked at");
    }

    #[tokio::test]
    async fn text_is_found_and_replaced() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/a"), "one\nneedle (x.*)\n").unwrap();
        std::fs::write(at("b"), b"\0needle (x.*)").unwrap();
        std::os::unix::fs::symlink("d", at("link")).unwrap();
        let found = find_text(home.path().to_owned(), "needle (x.*)".into()).await.unwrap();
        let lines: Vec<_> = found.lines.iter().map(|l| (l.path.ends_with("d/a"), l.line, l.text.as_str())).collect();
        assert_eq!(lines, [(true, 2, "needle (x.*)")]);
        let names = find_names(home.path().to_owned(), "[ab]".into()).await.unwrap();
        assert_eq!(names.paths.len(), 2);
        let done = replace(vec![at("d/a"), at("none"), at("b")], "e".into(), "$1".into()).await.unwrap();
        let counts: Vec<_> = done.files.iter().map(|f| (f.count, f.problem.is_some())).collect();
        assert_eq!(counts, [(4, false), (0, true), (3, false)]);
        assert_eq!(std::fs::read_to_string(at("d/a")).unwrap(), "on$1\nn$1$1dl$1 (x.*)\n");
        assert!(find_text(at("none"), "x".into()).await.is_err());
    }
}
