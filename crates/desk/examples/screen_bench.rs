//! What the capture engine costs: medians for an unchanged screen, a small change and a whole one.
//!
//! `cargo run --release -p hotdesk-desk --example screen_bench -- :99` measures on a display that runs (its windows give the scene);
//! while it runs it draws over the lower left corner and, for the whole change, over everything.

use hotdesk_desk::screen::{Cursor, Format, Screen, ShotRequest};
use hotdesk_desk::{Display, Place};
use std::sync::Arc;
use std::time::{Duration, Instant};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ChangeGCAux, ConnectionExt, CreateGCAux, Gcontext, Pixmap, Rectangle, SubwindowMode};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

const ROUNDS: usize = 60;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).or_else(|| std::env::var("DISPLAY").ok()).ok_or("say which display, for example :99")?;
    let display = Display { number: name.trim_start_matches(':').parse()?, cookie: None };
    let mut painter = Painter::new(&display)?;
    let place =
        Place { display, home: "/".into(), runtime_dir: "/".into(), bus: String::new(), env: std::collections::BTreeMap::new() };
    let screen = Screen::new(Arc::new(place));
    let size = screen.size().await?;
    eprintln!("{}×{}, median and 90th percentile of {ROUNDS} in ms, CPU ms, KB, memory afterwards", size.width, size.height);

    let png = ShotRequest { cursor: Cursor::Osworld, ..Default::default() };
    measure(&screen, "unchanged", &png, || Ok(())).await?;
    measure(&screen, "pointer moved", &png, || painter.point()).await?;
    measure(&screen, "1 % changed", &png, || painter.corner(11)).await?;
    measure(&screen, "10 % changed", &png, || painter.corner(108)).await?;
    measure(&screen, "everything changed", &png, || painter.everything()).await?;
    for format in [Format::Jpeg, Format::Webp] {
        let request = ShotRequest { format, ..Default::default() };
        measure(&screen, &format!("everything, {format:?}"), &request, || painter.everything()).await?;
    }
    let scaled = ShotRequest { max_width: Some(1280), ..Default::default() };
    measure(&screen, "everything, 1280 wide", &scaled, || painter.everything()).await?;
    measure(&screen, "unchanged, 1280 wide", &scaled, || Ok(())).await?;
    parallel(&screen, &png).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    measure(&screen, "1 % changed, after a rest", &png, || painter.corner(11)).await
}

async fn measure(
    screen: &Screen,
    what: &str,
    request: &ShotRequest,
    mut change: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    let mut length = 0;
    let mut before = 0;
    for round in 0..ROUNDS + 3 {
        change()?;
        let start = Instant::now();
        let shot = screen.shot(request.clone()).await?;
        if round == 2 {
            before = cpu_ms()?;
        } else if round > 2 {
            times.push(start.elapsed());
        }
        length = shot.bytes.len();
    }
    times.sort();
    let ms = |t: Duration| t.as_secs_f64() * 1000.0;
    let cpu = (cpu_ms()? - before) as f64 / ROUNDS as f64;
    eprintln!(
        "{what:24} {:8.3} {:8.3} {cpu:8.2} {:8} {:>12}",
        ms(times[ROUNDS / 2]),
        ms(times[ROUNDS * 9 / 10]),
        length / 1024,
        memory()?
    );
    Ok(())
}

/// The share of memory that is this process's, in KB.
fn memory() -> Result<String, Box<dyn std::error::Error>> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    Ok(rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or_default().trim().to_owned())
}

/// Processor time of all threads of this process, in steps of 10 ms.
fn cpu_ms() -> Result<u64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    Ok((fields[11].parse::<u64>()? + fields[12].parse::<u64>()?) * 10)
}

/// Eight clients at once on an unchanged screen.
async fn parallel(screen: &Screen, request: &ShotRequest) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (screen, request) = (screen.clone(), request.clone());
            tokio::spawn(async move {
                for _ in 0..500 {
                    screen.shot(request.clone()).await?;
                }
                Ok::<_, hotdesk_desk::Error>(())
            })
        })
        .collect();
    for client in clients {
        client.await??;
    }
    eprintln!("8 clients: {:.0} pictures a second", 4000.0 / start.elapsed().as_secs_f64());
    Ok(())
}

/// Draws over the scene.
struct Painter {
    connection: RustConnection,
    root: u32,
    gc: Gcontext,
    /// The scene, and the same shifted: shown in turn, every row of a picture differs from the last.
    scenes: [Pixmap; 2],
    size: (u16, u16),
    n: u32,
}

impl Painter {
    fn new(display: &Display) -> Result<Self, Box<dyn std::error::Error>> {
        let (connection, number) = display.connect()?;
        let screen = &connection.setup().roots[number];
        let (root, depth, size) = (screen.root, screen.root_depth, (screen.width_in_pixels, screen.height_in_pixels));
        let gc = connection.generate_id()?;
        connection.create_gc(gc, root, &CreateGCAux::new().subwindow_mode(SubwindowMode::INCLUDE_INFERIORS))?;
        let scenes = [connection.generate_id()?, connection.generate_id()?];
        for (scene, shift) in scenes.into_iter().zip([0, 7]) {
            connection.create_pixmap(depth, scene, root, size.0, size.1)?;
            connection.copy_area(root, scene, gc, 0, 0, shift, shift, size.0, size.1)?;
        }
        connection.sync()?;
        Ok(Self { connection, root, gc, scenes, size, n: 0 })
    }

    fn point(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.n += 1;
        let at = (self.n % 500) as i16;
        self.connection.warp_pointer(x11rb::NONE, self.root, 0, 0, 0, 0, at, at)?;
        Ok(self.connection.sync()?)
    }

    /// Changes this many rows.
    fn corner(&mut self, rows: u16) -> Result<(), Box<dyn std::error::Error>> {
        self.n += 1;
        self.connection.change_gc(self.gc, &ChangeGCAux::new().foreground(self.n.wrapping_mul(0x9E_3779) & 0xff_ffff))?;
        let y = (self.size.1 - rows) as i16;
        self.connection.poly_fill_rectangle(self.root, self.gc, &[Rectangle { x: 0, y, width: 300, height: rows }])?;
        Ok(self.connection.sync()?)
    }

    fn everything(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.n += 1;
        let scene = self.scenes[self.n as usize % 2];
        self.connection.copy_area(scene, self.root, self.gc, 0, 0, 0, 0, self.size.0, self.size.1)?;
        Ok(self.connection.sync()?)
    }
}
