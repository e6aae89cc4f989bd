//! A trace as one page that needs no network: steps, pictures, a bar to scrub with, keys.
//!
//! Pictures are put in as the strips that the trace keeps, each once, and put together by the page, so
//! that it is hardly larger than the trace.

use super::source::all;
use super::words::{by, places, what};
use crate::failure::{Failure, Outcome};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hotdesk_api::trace::{Step, StepResult};
use hotdesk_desk::trace::Reader;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufWriter, Write};
use std::path::Path;

/// The page around the data, which stands where the mark is.
const PAGE: &str = include_str!("page.html");
const MARK: &str = "/*data*/";

pub(super) fn make(reader: &Reader, output: &Path) -> Outcome<()> {
    let steps = all(reader)?;
    let broken = |e: hotdesk_desk::Error| Failure::local(e.to_string());
    let mut strips: HashMap<String, usize> = HashMap::new();
    let mut order = Vec::new();
    let mut frames = BTreeMap::new();
    for name in steps.iter().flat_map(|step| [&step.before, &step.after]).flatten() {
        if frames.contains_key(name) {
            continue;
        }
        let (size, names) = reader.picture(name).map_err(broken)?;
        let numbers: Vec<usize> = names
            .into_iter()
            .map(|strip| {
                *strips.entry(strip).or_insert_with_key(|strip| {
                    order.push(strip.clone());
                    order.len() - 1
                })
            })
            .collect();
        frames.insert(name.clone(), json!({"w": size.width, "h": size.height, "s": numbers}));
    }
    let failed = |e: std::io::Error| Failure::local(format!("{} can't be written: {e}", output.display()));
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    let mut out = BufWriter::new(file);
    let (head, tail) = PAGE.split_once(MARK).unwrap_or((PAGE, ""));
    let info = reader.info();
    let shown: Vec<_> = steps.iter().map(step).collect();
    let write = |out: &mut BufWriter<tempfile::NamedTempFile>| -> std::io::Result<()> {
        out.write_all(head.as_bytes())?;
        write!(out, "const INFO={};\nconst STEPS={};\n", script(&json!(info)), script(&json!(shown)))?;
        write!(out, "const FRAMES={};\nconst STRIPS=[\n", script(&json!(frames)))
    };
    write(&mut out).map_err(failed)?;
    for name in &order {
        let strip = reader.strip(name).map_err(broken)?;
        let line = json!([strip.adler, strip.length, BASE64_STANDARD.encode(&strip.idat)]);
        writeln!(out, "{line},").map_err(failed)?;
    }
    out.write_all(b"];\n").and_then(|()| out.write_all(tail.as_bytes())).map_err(failed)?;
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.persist(output).map_err(|e| failed(e.error))?;
    Ok(())
}

/// What the page shows of a step.
fn step(step: &Step) -> serde_json::Value {
    let note = match step.result {
        StepResult::Done => None,
        StepResult::Refused => Some("refused".to_owned()),
        StepResult::Failed => Some(format!("failed: {}", step.message.as_deref().unwrap_or_default())),
    };
    json!({
        "n": step.number, "t": step.offset_ms, "at": step.at, "took": step.took_ms, "by": by(step), "what": what(step),
        "marks": places(step), "before": step.before, "after": step.after, "note": note, "snapshot": step.snapshot,
    })
}

/// JSON inside of a script: nothing in it ends the script.
fn script(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_end_the_script() {
        assert_eq!(script(&json!("</script><!--")), "\"\\u003c/script>\\u003c!--\"");
        assert!(PAGE.contains(MARK) && !PAGE.contains("://"));
    }
}
