//! `hotdesk trace`: what was done on a desk, recorded, shown, made into films and done again.

mod film;
mod html;
mod replay;
mod source;
mod words;

use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out::{self, Rows};
use crate::reach::{self, Reach, title};
use crate::text::{ago, parse_mebibytes, safe, size};
use crate::waiting::{Waiting, say};
use clap::{Args, Subcommand, ValueEnum};
use hotdesk_api::calls::NewSnapshot;
use hotdesk_api::trace::{Frames, Mask, StartTrace, StepResult, TraceInfo};
use source::Source;
use std::path::PathBuf;
use std::time::Duration;

/// How often a recording is looked at for its next snapshot.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Begin to record what is done on a desk
    Start(StartArgs),
    /// End the recording
    Stop(DeskArgs),
    /// List the traces of a desk
    Ls(DeskArgs),
    /// Show the steps of a trace
    Show(ShowArgs),
    /// Fetch the file of a trace from its desk
    Export(ExportArgs),
    /// Make a film or a page of a trace
    #[command(after_help = "Example: hotdesk trace render mydesk -o run.html")]
    Render(RenderArgs),
    /// Do the steps of a trace again, on a fresh desk or on one that is there
    Replay(ReplayArgs),
    /// Make a desk as it was at a step of a trace
    ///
    /// Needs a snapshot that was taken while the trace was recorded, at that step or before it; the steps between the
    /// two are done again.
    Branch(BranchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DeskArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The desk, by id, name or the beginning of either
    desk: String,

    /// A name for the trace
    #[arg(long, short, value_name = "NAME")]
    name: Option<String>,

    /// Keep no pictures
    #[arg(long)]
    no_frames: bool,

    /// Keep the accessibility tree after each step
    #[arg(long)]
    tree: bool,

    /// Which texts become bullets
    #[arg(long, value_enum, value_name = "WHAT", default_value = "secrets")]
    mask: MaskChoice,

    /// End the recording at this size, such as 500m or 2g [default: 1g]
    #[arg(long, value_name = "SIZE", value_parser = parse_mebibytes)]
    max_size: Option<u64>,

    /// Take a snapshot every so many steps, until the recording ends; stays in the foreground
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_every: Option<u64>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MaskChoice {
    /// What is typed into password fields, or with `secret`
    Secrets,
    /// Everything that is typed
    Typed,
    /// Nothing
    Nothing,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    source: Source,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    source: Source,

    /// Where it goes [default: ID.hdtrace]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    source: Source,

    /// Where it goes: FILE.mp4 is a film, FILE.html a page that needs no network
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    source: Source,

    /// Do them on this desk instead of a new one
    #[arg(long, value_name = "DESK")]
    on: Option<String>,

    /// What a new desk is made from
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "on")]
    template: Option<String>,

    /// Do each step as soon as the screen is quiet, instead of when it was done
    #[arg(long)]
    fast: bool,

    /// Record it, too
    #[arg(long)]
    record: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    #[command(flatten)]
    source: Source,

    /// The step that the new desk is to be at
    #[arg(long, value_name = "NUMBER")]
    step: u64,

    /// A name for the new desk
    #[arg(long, short, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn run(command: TraceCommand) -> Exit {
    reach::run(async move {
        match command {
            TraceCommand::Start(args) => start(args).await,
            TraceCommand::Stop(args) => stop(args).await,
            TraceCommand::Ls(args) => list(args).await,
            TraceCommand::Show(args) => show(args).await,
            TraceCommand::Export(args) => export(args).await,
            TraceCommand::Render(args) => render(args).await,
            TraceCommand::Replay(args) => replay::replay(args).await,
            TraceCommand::Branch(args) => replay::branch(args).await,
        }
    })
}

async fn start(args: StartArgs) -> Outcome {
    let client = args.reach.client()?;
    let desk = reach::desk(&client, &args.desk).await?;
    let how = StartTrace {
        name: args.name,
        frames: if args.no_frames { Frames::None } else { Frames::Changed },
        tree: args.tree,
        mask: match args.mask {
            MaskChoice::Secrets => Mask::Secrets,
            MaskChoice::Typed => Mask::Typed,
            MaskChoice::Nothing => Mask::Nothing,
        },
        max_bytes: args.max_size.map(|mebibytes| mebibytes << 20),
    };
    let inside = client.desk(&desk.id);
    let info = inside.start_trace(&how).await?;
    let exit = if args.json { out::json(&info)? } else { out::line(&info.id) };
    let Some(every) = args.snapshot_every else { return Ok(exit) };
    say(&format!("{} is recorded, with a snapshot every {every} steps; Ctrl-C ends the snapshots alone", title(&desk)));
    let mut last = 0;
    loop {
        let now = match inside.trace(&info.id).await? {
            TraceInfo { ended: Some(_), .. } => return Ok(exit),
            TraceInfo { steps, .. } => steps,
        };
        if now >= last + every {
            let name = format!("{}-{now}", info.id);
            let made = inside.snapshot(&NewSnapshot { name: Some(name), memory: None }).await?;
            say(&format!("step {now}: {}", made.id));
            // The snapshot is a step as well.
            last = now + 1;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn stop(args: DeskArgs) -> Outcome {
    let client = args.reach.client()?;
    let desk = reach::desk(&client, &args.desk).await?;
    let info = client.desk(&desk.id).stop_trace().await?;
    if args.json { out::json(&info) } else { Ok(out::line(&info.id)) }
}

async fn list(args: DeskArgs) -> Outcome {
    let client = args.reach.client()?;
    let desk = reach::desk(&client, &args.desk).await?;
    let traces = client.desk(&desk.id).traces().await?;
    if args.json {
        return out::json(&traces);
    }
    let mut rows = Rows::new(&["ID", "NAME", ">STEPS", ">SIZE", "SCREEN", "AGE", "STATE", "?NOTE"]);
    for trace in traces {
        let state = match (trace.complete, &trace.ended) {
            (true, _) => "complete",
            (false, None) => "recording",
            (false, Some(_)) => "broken off",
        };
        rows.push([
            trace.id,
            trace.name.unwrap_or_default(),
            trace.steps.to_string(),
            size(trace.bytes),
            format!("{}x{}", trace.width, trace.height),
            ago(&trace.started),
            state.into(),
            trace.note.unwrap_or_default(),
        ]);
    }
    Ok(rows.print())
}

async fn show(args: ShowArgs) -> Outcome {
    let steps = args.source.steps().await?;
    if args.json {
        return out::json(&steps);
    }
    let mut rows = Rows::new(&[">STEP", ">TIME", "BY", "WHAT", "?SNAPSHOT", "?NOTE"]);
    for step in steps {
        let note = match step.result {
            StepResult::Done => String::new(),
            StepResult::Refused => "refused".into(),
            StepResult::Failed => format!("failed: {}", step.message.as_deref().map(safe).unwrap_or_default()),
        };
        rows.push([
            step.number.to_string(),
            format!("{:.1} s", step.offset_ms as f64 / 1000.0),
            words::by(&step),
            safe(&words::what(&step)).into_owned(),
            step.snapshot.clone().unwrap_or_default(),
            note,
        ]);
    }
    Ok(rows.print())
}

async fn export(args: ExportArgs) -> Outcome {
    let (client, desk, info) = args.source.on_desk().await?;
    let path = args.output.unwrap_or_else(|| format!("{}.{}", info.id, hotdesk_desk::trace::EXTENSION).into());
    source::fetch(&client.desk(&desk.id), &info, &path).await?;
    Ok(out::line(&path.display().to_string()))
}

async fn render(args: RenderArgs) -> Outcome {
    let ending = args.output.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    let make = match ending.as_deref() {
        Some("mp4") => film::make,
        Some("html" | "htm") => html::make,
        _ => {
            return Err(Failure::usage("the file has to end with .mp4 or .html").hint("for example: -o run.mp4"));
        }
    };
    let (_folder, reader) = args.source.reader().await?;
    let waiting = Waiting::new(&format!("making {}", args.output.display()), false);
    make(&reader, &args.output)?;
    drop(waiting);
    Ok(out::line(&args.output.display().to_string()))
}
