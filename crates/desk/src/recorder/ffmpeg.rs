//! One run of ffmpeg: its command, its progress and its end.

use super::Film;
use crate::error::{Error, Result};
use crate::place::{Display, Place};
use hotdesk_api::action::{Rect, Size};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::ConnectionExt;

/// The first frame is there after a quarter of a second; a machine under load needs longer.
const FIRST_FRAME_LIMIT: Duration = Duration::from_secs(45);
/// By the contract: who does not end within this time is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Copying a film into its final form runs at the speed of the disk.
const POLISH_LIMIT: Duration = Duration::from_secs(30);
/// A film that nobody ends must not fill the disk for ever.
const LONGEST: Duration = Duration::from_secs(12 * 3600);
/// Lines of ffmpeg's complaints that are kept.
const TAIL: usize = 20;

/// What is to be filmed.
pub(super) struct Take {
    pub(super) program: PathBuf,
    pub(super) region: Rect,
    pub(super) fps: u32,
    pub(super) cursor: bool,
    pub(super) folder: PathBuf,
}

impl Take {
    fn command(&self, display: &Display, file: &Path) -> Command {
        let Rect { x, y, width, height } = self.region;
        let mut command = Command::new(&self.program);
        command
            .args(["-nostdin", "-hide_banner", "-loglevel", "warning", "-nostats", "-y"])
            .args(["-progress", "pipe:1", "-stats_period", "0.1"])
            .args(["-f", "x11grab", "-draw_mouse", if self.cursor { "1" } else { "0" }])
            .args(["-framerate", &self.fps.to_string(), "-video_size", &format!("{width}x{height}")])
            .args(["-i", &format!("{}.0+{x},{y}", display.name())]);
        if width % 2 == 1 || height % 2 == 1 {
            // Colour is stored at half the size, so both sides must be even.
            command.args(["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]);
        }
        command
            .args(["-c:v", "libx264", "-preset", "ultrafast", "-crf", "23", "-pix_fmt", "yuv420p"])
            .args(["-r", &self.fps.to_string(), "-g", &(self.fps * 2).to_string(), "-threads", "2"])
            .args(["-t", &LONGEST.as_secs().to_string()])
            // Whole pieces at least every second: what was filmed before a crash can be played.
            .args(["-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-frag_duration", "1000000"])
            .args(["-f", "mp4"])
            .arg(file);
        command
    }
}

/// A film under way.
pub(super) struct Filming {
    child: Child,
    program: PathBuf,
    raw: PathBuf,
    file: PathBuf,
    begin: Instant,
    frames: watch::Receiver<u64>,
    complaints: Complaints,
    /// When and how ffmpeg ended by itself.
    broken: Arc<Mutex<Option<(Instant, String)>>>,
}

impl Filming {
    /// Starts ffmpeg and waits for the first frame.
    pub(super) async fn start(take: Take, place: &Place) -> Result<Self> {
        let name = format!("{:016x}", rand::random::<u64>());
        let raw = take.folder.join(format!("{name}.part"));
        let file = take.folder.join(format!("{name}.mp4"));
        let mut command = take.command(&place.display, &raw);
        let mut child = in_place(&mut command, place)
            .spawn()
            .map_err(|e| Error::Internal(format!("{} can't be started: {e}", take.program.display())))?;
        let complaints = Complaints::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(complaints.clone().drain(stderr));
        }
        let broken = Arc::new(Mutex::new(None));
        let (sender, frames) = watch::channel(0);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(follow(stdout, sender, complaints.clone(), broken.clone()));
        }
        let mut filming = Self { child, program: take.program, raw, file, begin: Instant::now(), frames, complaints, broken };
        let first = timeout(FIRST_FRAME_LIMIT, async { filming.frames.wait_for(|frames| *frames > 0).await.is_ok() }).await;
        match first {
            Ok(true) => {
                filming.begin = Instant::now();
                Ok(filming)
            }
            Ok(false) => {
                filming.kill().await;
                Err(Error::Internal(format!("ffmpeg ended before its first frame: {}", filming.complaints.text())))
            }
            Err(_) => {
                filming.kill().await;
                Err(Error::Timeout { what: "the first frame of the film".into(), limit: FIRST_FRAME_LIMIT })
            }
        }
    }

    pub(super) fn frames(&self) -> u64 {
        *self.frames.borrow()
    }

    pub(super) fn length(&self) -> Duration {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.as_ref().map_or_else(Instant::now, |(when, _)| *when).saturating_duration_since(self.begin)
    }

    /// Why the film broke off, if it did.
    pub(super) fn broken(&self) -> Option<String> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, why)| why.clone())
    }

    /// Ends the film and puts it into its final form.
    pub(super) async fn finish(mut self, place: &Place) -> Result<Film> {
        let length = self.length();
        let broken = self.broken();
        if broken.is_none() {
            self.signal(Signal::SIGINT);
        }
        if timeout(STOP_LIMIT, self.child.wait()).await.is_err() {
            self.kill().await;
            return Err(Error::Timeout { what: "ending the film".into(), limit: STOP_LIMIT });
        }
        let unusable = || {
            let why = broken.clone().unwrap_or_else(|| format!("ffmpeg wrote nothing: {}", self.complaints.text()));
            Error::Internal(format!("there is no film: {why}"))
        };
        if tokio::fs::metadata(&self.raw).await.map_or(0, |meta| meta.len()) == 0 {
            let _ = tokio::fs::remove_file(&self.raw).await;
            return Err(unusable());
        }
        if let Err(why) = self.polish(place).await {
            // The raw film plays as well; only seeking in it is slower.
            tracing::warn!(why, "the film stays in fragments");
            tokio::fs::rename(&self.raw, &self.file).await.map_err(|_| unusable())?;
        }
        let bytes = tokio::fs::metadata(&self.file).await.map_err(|_| unusable())?.len();
        Ok(Film { file: self.file, length, frames: *self.frames.borrow(), bytes, broken })
    }

    /// From fragments to one piece with its index in front.
    async fn polish(&self, place: &Place) -> std::result::Result<(), String> {
        let mut command = Command::new(&self.program);
        command
            .args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-i"])
            .arg(&self.raw)
            .args(["-c", "copy", "-movflags", "+faststart", "-f", "mp4"])
            .arg(&self.file);
        let run = in_place(&mut command, place).kill_on_drop(true).output();
        let outcome = match timeout(POLISH_LIMIT, run).await {
            Ok(Ok(output)) if output.status.success() => {
                let _ = tokio::fs::remove_file(&self.raw).await;
                return Ok(());
            }
            Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().chars().take(500).collect(),
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("it took longer than {} s", POLISH_LIMIT.as_secs()),
        };
        let _ = tokio::fs::remove_file(&self.file).await;
        Err(outcome)
    }

    pub(super) async fn kill(&mut self) {
        let _ = self.child.kill().await;
        for file in [&self.raw, &self.file] {
            let _ = tokio::fs::remove_file(file).await;
        }
    }

    fn signal(&self, signal: Signal) {
        // No id means that it ended, so the number can't belong to anybody else yet.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

fn in_place<'a>(command: &'a mut Command, place: &Place) -> &'a mut Command {
    command
        .env_clear()
        .envs(&place.env)
        .current_dir(&place.home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that no signal for ours reaches it and cuts the film.
        .process_group(0)
        .kill_on_drop(true)
}

/// Reads the progress: lines like `frame=12`. Its end is the end of ffmpeg.
async fn follow(
    from: impl AsyncRead + Unpin,
    frames: watch::Sender<u64>,
    complaints: Complaints,
    broken: Arc<Mutex<Option<(Instant, String)>>>,
) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(number) = line.strip_prefix("frame=").and_then(|number| number.trim().parse().ok()) {
            frames.send_replace(number);
        }
    }
    // Complaints come through another pipe; let them arrive.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let why = format!("ffmpeg ended by itself: {}", complaints.text());
    *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), why));
}

/// The last lines of ffmpeg's error output. It is always read: a full pipe would stop the film.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<VecDeque<String>>>);

impl Complaints {
    async fn drain(self, from: impl AsyncRead + Unpin) {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            // ffmpeg's lines are short; a runaway one is cut into pieces.
            match tokio::io::AsyncReadExt::take(&mut reader, 4096).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if text.is_empty() {
                continue;
            }
            tracing::debug!(target: "hotdesk::parts", part = "recorder", "{text}");
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() >= TAIL {
                lines.pop_front();
            }
            lines.push_back(text);
        }
    }

    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() { "it gave no reason".into() } else { lines.iter().cloned().collect::<Vec<_>>().join("; ") }
    }
}

/// The size of the display now.
pub(super) fn screen_size(display: &Display) -> Result<Size> {
    let (connection, screen) = display.connect()?;
    let root =
        connection.setup().roots.get(screen).map(|screen| screen.root).ok_or_else(|| Error::display_down("it has no screen"))?;
    let geometry = connection.get_geometry(root)?.reply()?;
    Ok(Size { width: geometry.width.into(), height: geometry.height.into() })
}
