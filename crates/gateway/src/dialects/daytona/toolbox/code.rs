//! Code in a language, run to its end.

use super::super::Call;
use super::super::desk::Desk;
use super::super::reply::{Failure, Reply, ok};
use super::process::{exit_code, run_in};
use hotdesk_api::process::RunProcess;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CodeRun {
    code: String,
    language: Option<String>,
    argv: Option<Vec<String>>,
    envs: Option<BTreeMap<String, String>>,
    timeout: Option<f64>,
}

pub(crate) async fn run(mut call: Call, desk: &Desk) -> Reply {
    let wanted: CodeRun = call.json().await?;
    let language = wanted.language.as_deref().unwrap_or("python");
    // Read from the input: a command line holds little.
    let program: &[&str] = match language {
        "python" => &["python3", "-u", "-"],
        "javascript" => &["node", "-"],
        "typescript" => &["node", "--experimental-strip-types", "--input-type=module-typescript", "-"],
        other => return Err(Failure::bad_request(format!("bad request: the language {} is not known", other.escape_default()))),
    };
    let argv = program.iter().map(|word| (*word).to_owned()).chain(wanted.argv.unwrap_or_default()).collect();
    let run = RunProcess { argv: Some(argv), stdin: Some(wanted.code), ..RunProcess::default() };
    let result = run_in(desk, run, wanted.envs, wanted.timeout).await?;
    ok(json!({"exitCode": exit_code(&result), "result": result.stdout, "artifacts": {"charts": []}}))
}
