//! What clients can read without a tool: a desk's screen, and what its programs wrote.

use super::screen::LARGEST_PICTURE;
use super::text::{LONGEST_TEXT, cut};
use crate::dialects::computer::{self, Deed, Eyes, View};
use crate::dialects::native::{Ask, Native, problem};
use hotdesk_api::Problem;
use hotdesk_api::calls::DeskList;
use hotdesk_api::health::Logs;
use percent_encoding::percent_decode_str;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use std::fmt::Write;

/// Desks whose resources are listed; the templates tell how the rest is read.
const MOST_DESKS: usize = 100;
/// Lines of the console that are worth reading.
const CONSOLE_LINES: usize = 500;

/// What there is of a desk: the last part of the address, its name, its type.
const KINDS: [(&str, &str, &str); 3] = [
    ("screenshot", "the screen as it is now", "image/png"),
    ("logs", "what the parts of its session wrote", "text/plain"),
    ("console", "what its server printed", "text/plain"),
];

pub(super) async fn list(native: &Native) -> Result<Vec<Resource>, Problem> {
    let list: DeskList = native.value(Ask::get(&["v1", "desks"]).query("state", "running")).await?;
    let all = list.desks.iter().take(MOST_DESKS).flat_map(|desk| {
        let name = desk.name.as_ref().unwrap_or(&desk.id);
        KINDS.iter().map(move |(kind, about, mime)| {
            Resource::new(format!("desk://{}/{kind}", desk.id), format!("{name}: {kind}"))
                .with_description(*about)
                .with_mime_type(*mime)
        })
    });
    Ok(all.collect())
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |(kind, about, mime): &(&str, &str, &str)| {
        ResourceTemplate::new(format!("desk://{{desk}}/{kind}"), format!("a desk's {kind}"))
            .with_description(*about)
            .with_mime_type(*mime)
    };
    KINDS.iter().map(template).collect()
}

pub(super) async fn read(native: &Native, uri: &str) -> Result<ReadResourceResult, Problem> {
    let nothing = || problem(404, "not_found", format!("there is no resource `{}`", uri.escape_default()));
    let (desk, kind) = uri.strip_prefix("desk://").and_then(|rest| rest.split_once('/')).ok_or_else(nothing)?;
    let desk = percent_decode_str(desk).decode_utf8().map_err(|_| nothing())?;
    let contents = match kind {
        "screenshot" => {
            let view = View::fitting(computer::screen(native, &desk).await?.size);
            let eyes = Eyes { native, desk: &desk, view, most: LARGEST_PICTURE };
            let seen = eyes.perform(Deed::Look).await?.picture.ok_or_else(nothing)?;
            ResourceContents::blob(seen.data, uri).with_mime_type(seen.kind)
        }
        "logs" => {
            let logs: Logs = native.value(Ask::get(&["v1", "desks", &desk, "logs"])).await?;
            let text = logs.lines.iter().fold(String::new(), |mut text, line| {
                let _ = writeln!(text, "{} ms {}: {}", line.at_ms, line.part, line.text);
                text
            });
            ResourceContents::text(cut(&text, LONGEST_TEXT), uri).with_mime_type("text/plain")
        }
        "console" => {
            let ask = Ask::get(&["v1", "desks", &desk, "console"]).query("lines", CONSOLE_LINES);
            let text = native.answer(ask).await?.body;
            ResourceContents::text(cut(&String::from_utf8_lossy(&text), LONGEST_TEXT), uri).with_mime_type("text/plain")
        }
        _ => return Err(nothing()),
    };
    Ok(ReadResourceResult::new(vec![contents]))
}
