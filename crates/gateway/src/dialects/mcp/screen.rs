//! Eyes and hands: the screen as a picture, mouse and keyboard, and the tools that models were trained with.

use super::Server;
use super::tools::Outcome;
use crate::dialects::computer::{self, Deed, Eyes, Seen, View};
use crate::dialects::native::problem;
use hotdesk_api::Problem;
use hotdesk_api::action::{Action, Button, Easing, Size};
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::Deserialize;

/// Bytes of base64 beyond which a picture comes as JPEG: clients refuse results of more than a megabyte.
pub(super) const LARGEST_PICTURE: usize = 700_000;
/// Steps of one call.
const MOST_STEPS: usize = 200;
const DRAG_MS: u32 = 300;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Look {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// A part to enlarge, in pixels of the whole picture: [left, top, right, bottom].
    #[serde(default)]
    region: Option<[f64; 4]>,
}

pub(super) async fn look(server: Server, what: Look) -> Outcome {
    let desk = server.meant(what.desk).await?;
    let view = view(&server, &desk).await?;
    let deed = match what.region {
        Some(region) => Deed::Zoom(view.part(region).map_err(wrong)?),
        None => Deed::Look,
    };
    let part = matches!(deed, Deed::Zoom(_));
    let seen = eyes(&server, &desk, view).perform(deed).await?;
    let Size { width, height } = view.shown;
    let mut text = match part {
        true => format!("a part of the screen, enlarged; coordinates still are those of the whole picture, {width}×{height}"),
        false => format!("the screen as a picture of {width}×{height}; coordinates are its pixels, (0, 0) is the top left"),
    };
    if let Some(real) = view.scaling().map(|_| view.real) {
        text.push_str(&format!(" (the screen itself has {}×{})", real.width, real.height));
    }
    Ok(shown(seen, Some(text)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Act {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// What to do, in this order. All steps are checked before the first is done.
    #[schemars(length(min = 1, max = 200))]
    steps: Vec<Step>,
}

/// One thing that hands do. Places are pixels of the picture; left out, it happens where the pointer is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Click {
        #[serde(default)]
        x: Option<f64>,
        #[serde(default)]
        y: Option<f64>,
        /// `left` if left out.
        #[serde(default)]
        button: Option<Which>,
        /// 2 is a double click.
        #[serde(default)]
        #[schemars(range(min = 1, max = 3))]
        times: Option<u32>,
        /// Keys that are held meanwhile: ["ctrl"].
        #[serde(default)]
        hold: Vec<String>,
    },
    /// Puts the pointer there.
    Move { x: f64, y: f64 },
    /// Drags along a path: [[x, y], [x, y]].
    Drag {
        #[schemars(length(min = 2, max = 100))]
        path: Vec<[f64; 2]>,
        #[serde(default)]
        button: Option<Which>,
        #[serde(default)]
        hold: Vec<String>,
    },
    /// Turns the wheel: dy notches down (negative: up), dx notches right.
    Scroll {
        #[serde(default)]
        x: Option<f64>,
        #[serde(default)]
        y: Option<f64>,
        #[serde(default)]
        dx: i32,
        #[serde(default)]
        dy: i32,
    },
    /// Types text; a line break presses Return.
    Type { text: String },
    /// Presses keys together: "ctrl+s", "Return", "Page_Down".
    Key {
        keys: String,
        #[serde(default)]
        #[schemars(range(min = 1, max = 100))]
        times: Option<u32>,
    },
    /// Waits so many milliseconds. The screen is waited for anyway after the last step.
    Wait {
        #[schemars(range(min = 0, max = 60000))]
        ms: u32,
    },
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Which {
    Left,
    Middle,
    Right,
}

pub(super) async fn act(server: Server, what: Act) -> Outcome {
    if what.steps.is_empty() || what.steps.len() > MOST_STEPS {
        return Err(wrong(format!("there are {} steps, but 1 to {MOST_STEPS} are taken at once", what.steps.len())));
    }
    let desk = server.meant(what.desk).await?;
    let view = view(&server, &desk).await?;
    let actions = what.steps.into_iter().enumerate().map(|(number, step)| {
        action(step, &view).map_err(|reason| wrong(format!("step {} can't be done: {reason}; nothing was done", number + 1)))
    });
    let actions = actions.collect::<Result<Vec<_>, _>>()?;
    let seen = eyes(&server, &desk, view).perform(Deed::Act(actions)).await?;
    Ok(shown(seen, None))
}

fn action(step: Step, view: &View) -> Result<Action, String> {
    let place = |x: Option<f64>, y: Option<f64>| match (x, y) {
        (Some(x), Some(y)) => view.to_screen(x, y).map(Some),
        (None, None) => Ok(None),
        _ => Err("`x` and `y` are given together, or neither".to_owned()),
    };
    let button = |which: Option<Which>| match which {
        None | Some(Which::Left) => Button::Left,
        Some(Which::Middle) => Button::Middle,
        Some(Which::Right) => Button::Right,
    };
    Ok(match step {
        Step::Click { x, y, button: which, times, hold } => {
            Action::Click { at: place(x, y)?, button: button(which), times: times.unwrap_or(1), hold }
        }
        Step::Move { x, y } => Action::Move { to: view.to_screen(x, y)?, ms: 0, easing: Easing::Linear },
        Step::Drag { path, button: which, hold } => {
            let path = path.into_iter().map(|[x, y]| view.to_screen(x, y)).collect::<Result<_, _>>()?;
            Action::Drag { path, button: button(which), ms: DRAG_MS, easing: Easing::Linear, hold }
        }
        Step::Scroll { x, y, dx, dy } => Action::Scroll { at: place(x, y)?, dx, dy, hold: Vec::new() },
        Step::Type { text } => Action::Type { text, interval_ms: 0, secret: false },
        Step::Key { keys, times } => Action::Key { keys: vec![keys], times: times.unwrap_or(1) },
        Step::Wait { ms } => Action::Wait { ms },
    })
}

/// Anthropic's tool, and which desk.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Anthropic {
    /// The desk, by id or name; can be left out while only one runs.
    desk: Option<String>,
    #[schemars(flatten)]
    input: computer::anthropic::Input,
}

/// By hand, because what stands beside flattened fields is lost otherwise.
impl<'de> Deserialize<'de> for Anthropic {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = serde_json::Map::<String, serde_json::Value>::deserialize(deserializer)?;
        let desk = fields
            .remove("desk")
            .map(serde_json::from_value::<Option<String>>)
            .transpose()
            .map_err(serde::de::Error::custom)?
            .flatten();
        let input = hotdesk_api::json::from_value(fields.into()).map_err(serde::de::Error::custom)?;
        Ok(Self { desk, input })
    }
}

pub(super) async fn anthropic(server: Server, what: Anthropic) -> Outcome {
    let desk = server.meant(what.desk).await?;
    let view = view(&server, &desk).await?;
    let deed = computer::anthropic::translate(&what.input, &view).map_err(wrong)?;
    Ok(shown(eyes(&server, &desk, view).perform(deed).await?, None))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenAi {
    /// The desk, by id or name; can be left out while only one runs.
    #[serde(default)]
    desk: Option<String>,
    /// What to do, in this order. All actions are checked before the first is done.
    #[schemars(length(min = 1, max = 100))]
    actions: Vec<computer::openai::Step>,
}

pub(super) async fn openai(server: Server, what: OpenAi) -> Outcome {
    let desk = server.meant(what.desk).await?;
    let view = view(&server, &desk).await?;
    let actions = computer::openai::translate(&what.actions, &view).map_err(wrong)?;
    let deed = if actions.is_empty() { Deed::Look } else { Deed::Act(actions) };
    Ok(shown(eyes(&server, &desk, view).perform(deed).await?, None))
}

pub(super) async fn view(server: &Server, desk: &str) -> Result<View, Problem> {
    computer::screen(&server.native, desk).await.map(|screen| View::fitting(screen.size))
}

fn eyes<'a>(server: &'a Server, desk: &'a str, view: View) -> Eyes<'a> {
    Eyes { native: &server.native, desk, view, most: LARGEST_PICTURE }
}

fn shown(seen: Seen, text: Option<String>) -> Vec<ContentBlock> {
    let texts = text.into_iter().chain(seen.text).map(ContentBlock::text);
    texts.chain(seen.picture.map(|picture| ContentBlock::image(picture.data, picture.kind))).collect()
}

fn wrong(reason: String) -> Problem {
    problem(400, "invalid", reason)
}
