//! A trace as a film: ffmpeg puts the pictures together, and writes captions and marks on them.
//!
//! Captions and marks are subtitles (ASS), whose language has both text and shapes.

use super::source::all;
use super::words::{by, places, what};
use crate::failure::{Failure, Outcome};
use hotdesk_api::action::{Point, Size};
use hotdesk_api::trace::Step;
use hotdesk_desk::trace::Reader;
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Each step is shown before it happens …
const BEFORE: f64 = 0.6;
/// … and after it for as long as it took until the next one, within these bounds: nobody watches a model think.
const AFTER: std::ops::RangeInclusive<f64> = 0.6..=2.5;
/// The radius of a mark, for a screen of 1000 pixels.
const MARK: f64 = 18.0;

pub(super) fn make(reader: &Reader, output: &Path) -> Outcome<()> {
    let steps = all(reader)?;
    let failed = |e: std::io::Error| Failure::local(format!("the film can't be made: {e}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let info = reader.info();
    let scenes = scenes(&steps);
    if scenes.is_empty() {
        return Err(Failure::local("the trace has no pictures").hint("it was recorded without them; FILE.html shows its steps"));
    }
    let mut files: HashMap<&str, String> = HashMap::new();
    let mut list = String::from("ffconcat version 1.0\n");
    for scene in &scenes {
        if !files.contains_key(scene.frame) {
            let file = format!("{}.png", files.len());
            let png = reader.frame(scene.frame).map_err(|e| Failure::local(e.to_string()))?;
            std::fs::write(folder.path().join(&file), png).map_err(failed)?;
            files.insert(scene.frame, file);
        }
        let _ = write!(list, "file {}\nduration {:.3}\n", files[scene.frame], scene.length);
    }
    // The last picture's duration counts only if something follows.
    if let Some(last) = scenes.last() {
        let _ = writeln!(list, "file {}", files[last.frame]);
    }
    let size = Size { width: info.width.max(16), height: info.height.max(16) };
    std::fs::write(folder.path().join("list.ffconcat"), list).map_err(failed)?;
    std::fs::write(folder.path().join("marks.ass"), subtitles(&scenes, size)).map_err(failed)?;
    let output = std::path::absolute(output).map_err(failed)?;
    run_ffmpeg(folder.path(), size, &output)
}

fn run_ffmpeg(folder: &Path, size: Size, output: &Path) -> Outcome<()> {
    // Codecs want even sides; a screen that was resized meanwhile is fitted in.
    let (width, height) = (size.width.next_multiple_of(2), size.height.next_multiple_of(2));
    let filter = format!(
        "scale={width}:{height}:force_original_aspect_ratio=decrease,pad={width}:{height}:(ow-iw)/2:(oh-ih)/2,fps=10,ass=marks.ass"
    );
    let result = Command::new("ffmpeg")
        .current_dir(folder)
        .args(["-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-safe", "1", "-f", "concat", "-i", "list.ffconcat"])
        .args(["-vf", &filter, "-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-pix_fmt", "yuv420p"])
        .args(["-movflags", "+faststart", "-f", "mp4"])
        .arg(output)
        .stdin(Stdio::null())
        .output();
    match result {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            let words = String::from_utf8_lossy(&done.stderr);
            Err(Failure::local("ffmpeg could not make the film").because(words.lines().last().unwrap_or("it did not say why")))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::local("a film needs ffmpeg, which is not installed").hint("apt install ffmpeg, or render to FILE.html"))
        }
        Err(e) => Err(Failure::local(format!("ffmpeg can't be started: {e}"))),
    }
}

/// A picture that stands still for a while.
struct Scene<'a> {
    frame: &'a str,
    start: f64,
    length: f64,
    caption: String,
    marks: Vec<Point>,
}

fn scenes(steps: &[Step]) -> Vec<Scene<'_>> {
    let mut scenes: Vec<Scene> = Vec::new();
    let mut now = 0.0;
    let mut last = None;
    for (index, step) in steps.iter().enumerate() {
        let caption = format!("{}  {}: {}", step.number, by(step), what(step));
        let gap =
            steps.get(index + 1).map_or(*AFTER.end(), |next| (next.offset_ms.saturating_sub(step.offset_ms)) as f64 / 1000.0);
        let before = step.before.as_deref().or(last);
        let after = step.after.as_deref().or(before);
        let shots = [(before, BEFORE, places(step)), (after, gap.clamp(*AFTER.start(), *AFTER.end()), Vec::new())];
        for (frame, length, marks) in shots {
            if let Some(frame) = frame {
                scenes.push(Scene { frame, start: now, length, caption: caption.clone(), marks });
                now += length;
            }
        }
        last = after;
    }
    scenes
}

fn subtitles(scenes: &[Scene], size: Size) -> String {
    let Size { width, height } = size;
    let text = (height / 36).max(12);
    let mut file = format!(
        "[Script Info]\nScriptType: v4.00+\nPlayResX: {width}\nPlayResY: {height}\nWrapStyle: 2\n\n[V4+ Styles]\n\
         Format: Name, Fontname, Fontsize, PrimaryColour, OutlineColour, BackColour, Bold, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV\n\
         Style: Caption,DejaVu Sans,{text},&H00FFFFFF,&H60000000,&H60000000,0,3,6,0,2,20,20,16\n\
         Style: Mark,DejaVu Sans,20,&H6000A5FF,&H00FFFFFF,&H00000000,0,1,3,0,7,0,0,0\n\n[Events]\n\
         Format: Layer, Start, End, Style, Text\n"
    );
    let radius = MARK * f64::from(height) / 1000.0;
    for scene in scenes {
        let (start, end) = (moment(scene.start), moment(scene.start + scene.length));
        let _ = writeln!(file, "Dialogue: 0,{start},{end},Caption,{}", plain(&scene.caption));
        for Point { x, y } in &scene.marks {
            let _ = writeln!(file, "Dialogue: 1,{start},{end},Mark,{{\\an7\\pos({x},{y})\\p1}}{}{{\\p0}}", circle(radius));
        }
    }
    file
}

/// A circle around the origin, in the language of subtitles.
fn circle(r: f64) -> String {
    // How far the handles of four curves have to be.
    let k = r * 0.5523;
    format!(
        "m 0 {n:.0} b {k:.0} {n:.0} {r:.0} {nk:.0} {r:.0} 0 b {r:.0} {k:.0} {k:.0} {r:.0} 0 {r:.0} b {nk:.0} {r:.0} {n:.0} {k:.0} {n:.0} 0 b {n:.0} {nk:.0} {nk:.0} {n:.0} 0 {n:.0}",
        n = -r,
        nk = -k,
    )
}

fn moment(seconds: f64) -> String {
    let hundredths = (seconds * 100.0).round() as u64;
    format!("{}:{:02}:{:02}.{:02}", hundredths / 360_000, hundredths / 6000 % 60, hundredths / 100 % 60, hundredths % 100)
}

/// Text that means nothing to the language of subtitles.
fn plain(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '{' | '}' | '\\') || c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captions_can_not_speak_the_language_of_subtitles() {
        assert_eq!(plain("a{\\pos(1,1)}b\n"), "a  pos(1,1) b ");
        assert_eq!(moment(3723.456), "1:02:03.46");
    }
}
