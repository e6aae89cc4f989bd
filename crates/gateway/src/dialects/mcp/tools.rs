//! The tools: one table for both ways in.

use super::arguments::schema;
use super::text::sentence;
use super::{Server, files, life, programs, screen, tree};
use crate::dialects::native::{Ask, problem};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hotdesk_api::Problem;
use hotdesk_api::calls::DeskList;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::LazyLock;

/// What a tool answers with, or why it could not.
pub(super) type Outcome = Result<Vec<ContentBlock>, Problem>;

/// A tool and what it does.
pub(super) struct Entry {
    pub(super) tool: Tool,
    pub(super) run: Box<dyn Fn(Server, JsonObject) -> BoxFuture<'static, Outcome> + Send + Sync>,
}

/// What clients may assume about a tool, to decide whether somebody has to be asked.
#[derive(Clone, Copy)]
pub(super) enum Nature {
    /// Changes nothing.
    Looks,
    /// Changes something, and nothing is lost by it.
    Adds,
    /// May lose something.
    Changes,
}

pub(super) fn all() -> &'static [Entry] {
    static ALL: LazyLock<Vec<Entry>> = LazyLock::new(table);
    &ALL
}

pub(super) fn named(name: &str) -> Option<&'static Entry> {
    all().iter().find(|entry| entry.tool.name == name)
}

fn table() -> Vec<Entry> {
    use Nature::{Adds, Changes, Looks};
    vec![
        tool("create_desk", Adds, "Makes a desk and waits until it can be used. Answers with its id.", life::create),
        tool("list_desks", Looks, "Lists desks with their state, and what new ones can be made of.", life::list),
        tool(
            "look",
            Looks,
            "Shows the screen of a desk once it is settled, or enlarges a part of it. \
             Coordinates for every tool are pixels of the whole picture.",
            screen::look,
        ),
        tool(
            "act",
            Changes,
            "Does things with mouse and keyboard, one after another, waits until the screen is settled, and shows it. \
             Give several steps at once where nothing has to be seen between them.",
            screen::act,
        ),
        tool(
            "tree",
            Looks,
            "Tells what is on the screen as text: programs, windows, buttons, fields, with their place in the picture, from the \
             accessibility tree. Surer than a picture for finding what to click and for reading text.",
            tree::tree,
        ),
        tool(
            "run",
            Changes,
            "Runs a shell command on a desk and answers with its output, or starts a program that stays.",
            programs::run,
        ),
        tool("read_file", Looks, "Reads a file of a desk: text in parts, or a picture.", files::read),
        tool("write_file", Changes, "Writes a file on a desk as a whole, in place of one that is there.", files::write),
        tool(
            "hand_over",
            Adds,
            "Lets a person see a desk live and use it: answers with an address and a key that opens this desk alone.",
            life::hand_over,
        ),
        tool("start_desk", Adds, "Starts a stopped or archived desk.", life::start),
        tool("stop_desk", Changes, "Stops a desk: its programs end, its files stay.", life::stop),
        tool("reset_desk", Changes, "Takes a desk back to what it was made from. All that was done on it is lost.", life::reset),
        tool(
            "fork_desk",
            Adds,
            "Makes a desk that is like another one right now, with its files and, where possible, its programs.",
            life::fork,
        ),
        tool("delete_desk", Changes, "Deletes a desk with all that is on it.", life::delete),
        tool(
            "computer",
            Changes,
            "Anthropic's `computer` tool with all of its actions, for models that know it: one action, then a picture.",
            screen::anthropic,
        ),
        tool(
            "computer_openai",
            Changes,
            "OpenAI's computer actions, for models that know them: one or several, then a picture.",
            screen::openai,
        ),
    ]
}

fn tool<A, F>(name: &'static str, nature: Nature, about: &'static str, run: fn(Server, A) -> F) -> Entry
where
    A: JsonSchema + DeserializeOwned + Send + 'static,
    F: Future<Output = Outcome> + Send + 'static,
{
    let hints = ToolAnnotations::new().open_world(true);
    let hints = match nature {
        Nature::Looks => hints.read_only(true),
        Nature::Adds => hints.read_only(false).destructive(false),
        Nature::Changes => hints.read_only(false).destructive(true),
    };
    Entry {
        tool: Tool::new(name, about, schema::<A>()).with_annotations(hints),
        run: Box::new(move |server, arguments| match hotdesk_api::json::from_value::<A>(Value::Object(arguments)) {
            Ok(arguments) => run(server, arguments).boxed(),
            Err(e) => {
                let detail = format!("{name} can't be called like that: {e}");
                std::future::ready(Err(problem(400, "invalid", detail))).boxed()
            }
        }),
    }
}

/// The answer as the protocol has it. What went wrong is for the model to read.
pub(super) fn result(outcome: Outcome) -> CallToolResult {
    match outcome {
        Ok(content) => CallToolResult::success(content),
        Err(problem) => CallToolResult::error(vec![ContentBlock::text(sentence(&problem))]),
    }
}

pub(super) fn says(text: impl Into<String>) -> Outcome {
    Ok(vec![ContentBlock::text(text)])
}

impl Server {
    /// The desk that is meant: the one that is named, or the only one that runs.
    pub(super) async fn meant(&self, named: Option<String>) -> Result<String, Problem> {
        if let Some(name) = named.or_else(|| self.desk.clone()) {
            return Ok(name);
        }
        let list: DeskList = self.native.value(Ask::get(&["v1", "desks"]).query("state", "running")).await?;
        match list.desks.as_slice() {
            [only] => Ok(only.id.clone()),
            [] => Err(problem(404, "no_desk", "no desk runs; create_desk makes one")),
            many => {
                let names: Vec<_> = many.iter().take(10).map(|desk| desk.name.as_ref().unwrap_or(&desk.id).as_str()).collect();
                Err(problem(400, "which", format!("{} desks run, so say which in `desk`: {}", many.len(), names.join(", "))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_described_and_closed() {
        for entry in all() {
            let tool = &entry.tool;
            let schema = &tool.input_schema;
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}: unknown arguments are refused", tool.name);
            for (name, argument) in schema["properties"].as_object().unwrap() {
                let described = argument.get("description").is_some_and(|text| !text.as_str().unwrap_or_default().is_empty());
                assert!(described, "{}.{name} is not described", tool.name);
            }
            let text = serde_json::to_string(schema).unwrap();
            assert!(!text.contains("$ref"), "{}: {text}", tool.name);
            assert!(tool.description.as_ref().is_some_and(|d| d.len() > 20), "{}", tool.name);
        }
        // All of it is read by the model before its first word.
        let all: Vec<_> = all().iter().map(|entry| &entry.tool).collect();
        let size = serde_json::to_string(&all).unwrap().len();
        assert!(size < 16_000, "the tools take {size} bytes");
    }
}
