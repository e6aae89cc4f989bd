//! `hotdesk shot`: a picture of a desk, in a file, down a pipe, or right in the terminal.

use crate::exit::{Exit, print};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::picture::{self, Terminal};
use crate::reach::{self, Reach, handle};
use clap::{Args, ValueEnum};
use hotdesk_api::desk::Desk;
use hotdesk_api::screen::{PictureFormat, PictureWait, ScreenshotQuery};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ShotArgs {
    /// The desk, by id, name or the beginning of either [default: the only one that runs]
    desk: Option<String>,

    /// The file to write; - is stdout [default: the terminal, where it shows pictures, else DESK-TIME.png]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The picture's format [default: that of the file's name, else png]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// Only a part of the screen
    #[arg(long, value_name = "X,Y,WIDTH,HEIGHT")]
    region: Option<String>,

    /// Scaled down to this width
    #[arg(long, value_name = "PIXELS")]
    max_width: Option<u32>,

    /// Wait until nothing changes on the screen
    #[arg(long)]
    settled: bool,

    /// Print where the picture is and how large as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Png,
    Jpeg,
    Webp,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "png" => Some(Self::Png),
            "jpg" | "jpeg" => Some(Self::Jpeg),
            "webp" => Some(Self::Webp),
            _ => None,
        }
    }
}

impl From<Format> for PictureFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Png => Self::Png,
            Format::Jpeg => Self::Jpeg,
            Format::Webp => Self::Webp,
        }
    }
}

/// Where the picture goes.
enum Goal {
    Stdout,
    Terminal(Terminal),
    File(PathBuf),
}

pub(crate) fn run(args: ShotArgs) -> Exit {
    reach::run(async move { shoot(args).await })
}

async fn shoot(args: ShotArgs) -> Outcome {
    let client = args.reach.client()?;
    let desk = reach::desk_or_only(&client, args.desk.as_deref()).await?;
    let format = args.format.or_else(|| Format::of(args.output.as_deref()?)).unwrap_or(Format::Png);
    let goal = goal(&args, &desk, format);
    let query = ScreenshotQuery {
        format: format.into(),
        region: args.region.clone(),
        max_width: args.max_width,
        wait: args.settled.then_some(PictureWait::Settled),
        ..ScreenshotQuery::default()
    };
    let shot = client.desk(&desk.id).screenshot(&query).await?;
    match goal {
        Goal::Stdout => Ok(print(&shot.bytes)),
        Goal::Terminal(terminal) => Ok(print(picture::inline(terminal, &shot.bytes).as_bytes())),
        Goal::File(path) => {
            let failed = |e| Failure::local(format!("{} can't be written: {e}", path.display()));
            std::fs::write(&path, &shot.bytes).map_err(failed)?;
            if args.json {
                return out::json(&serde_json::json!({
                    "desk": desk.id, "file": path, "type": shot.content_type, "bytes": shot.bytes.len()
                }));
            }
            Ok(out::line(&path.display().to_string()))
        }
    }
}

fn goal(args: &ShotArgs, desk: &Desk, format: Format) -> Goal {
    match &args.output {
        Some(path) if path.as_os_str() == "-" => return Goal::Stdout,
        Some(path) => return Goal::File(path.clone()),
        None => {}
    }
    if !args.json {
        if !std::io::stdout().is_terminal() {
            return Goal::Stdout;
        }
        // Terminals read PNG.
        if let Some(terminal) = Terminal::here().filter(|_| format == Format::Png) {
            return Goal::Terminal(terminal);
        }
    }
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let ending = match format {
        Format::Png => "png",
        Format::Jpeg => "jpg",
        Format::Webp => "webp",
    };
    // A name is chosen by people and may hold anything.
    let name: String = handle(desk).chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    Goal::File(format!("{}-{time}.{ending}", name.trim_start_matches(['.', '-'])).into())
}
