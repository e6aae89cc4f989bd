//! Data on stdout: JSON for programs, tables for people.

use crate::exit::{Exit, print};
use crate::failure::{Failure, Outcome};
use crate::text::safe;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt::Write;

/// One value as JSON, on lines of its own.
pub(crate) fn json(value: &impl Serialize) -> Outcome {
    Ok(print(json_text(value, true)?.as_bytes()))
}

/// One value as JSON on one line, for streams of values.
pub(crate) fn json_line(value: &impl Serialize) -> Outcome {
    Ok(print(json_text(value, false)?.as_bytes()))
}

fn json_text(value: &impl Serialize, pretty: bool) -> Outcome<String> {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    let text = text.map_err(|e| Failure::local(format!("the answer can't be written as JSON: {e}")))?;
    Ok(harmless(text) + "\n")
}

/// JSON leaves some control characters as they are, but terminals act on them.
fn harmless(text: String) -> String {
    let harmful = |c: char| ('\u{7f}'..='\u{9f}').contains(&c);
    if !text.contains(harmful) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if harmful(letter) {
            let _ = write!(escaped, "\\u{:04x}", letter as u32);
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// A line of data.
pub(crate) fn line(text: &str) -> Exit {
    print(format!("{}\n", safe(text)).as_bytes())
}

/// A table without lines. Columns whose name begins with `>` are numbers, and stand to the right; columns that are
/// empty in every row are left out, if their name begins with `?`.
pub(crate) struct Rows {
    names: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    pub(crate) fn new(names: &[&'static str]) -> Self {
        Self { names: names.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().map(|cell| safe(&cell).into_owned()).collect());
    }

    pub(crate) fn print(&self) -> Exit {
        print(self.text().as_bytes())
    }

    pub(crate) fn text(&self) -> String {
        let shown: Vec<usize> = (0..self.names.len())
            .filter(|column| !self.names[*column].starts_with('?') || self.rows.iter().any(|row| !row[*column].is_empty()))
            .collect();
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(shown.iter().map(|column| self.names[*column].trim_start_matches(['>', '?'])));
        for row in &self.rows {
            table.add_row(shown.iter().map(|column| row[*column].as_str()));
        }
        for (place, column) in shown.iter().enumerate() {
            let Some(made) = table.column_mut(place) else { continue };
            made.set_padding((0, 2));
            if self.names[*column].starts_with('>') {
                made.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().flat_map(|line| [line.trim_end().to_owned(), "\n".to_owned()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_plain() {
        let mut rows = Rows::new(&["NAME", ">SIZE", "?NOTE"]);
        rows.push(["a".into(), "1".into(), String::new()]);
        rows.push(["日本\x1b".into(), "1000".into(), String::new()]);
        assert_eq!(rows.text(), "NAME        SIZE\na              1\n日本\\u{1b}  1000\n");
        rows.push(["b".into(), "2".into(), "x".into()]);
        assert!(rows.text().contains("NOTE"));
    }

    #[test]
    fn json_is_harmless_and_stays_the_same() {
        let text = json_text(&"a\u{9b}\x1b\u{7f}ä", false).unwrap();
        assert_eq!(text, "\"a\\u009b\\u001b\\u007fä\"\n");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), "a\u{9b}\x1b\u{7f}ä");
    }
}
