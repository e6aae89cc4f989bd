//! Prints the tree of a desktop as OSWorld's XML, and on stderr how long each of several tries took.
//!
//! `cargo run --example tree [TRIES [PAUSE_MS]]` with `DISPLAY` and `DBUS_SESSION_BUS_ADDRESS` set.

use hotdesk_desk::access::Access;
use hotdesk_desk::{Display, Place};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let tries: usize = arguments.next().map_or(Ok(1), |n| n.parse())?;
    let pause: u64 = arguments.next().map_or(Ok(0), |n| n.parse())?;
    let number = std::env::var("DISPLAY")?.trim_start_matches(':').split('.').next().unwrap_or("0").parse()?;
    let place = Place {
        display: Display { number, cookie: None },
        home: "/".into(),
        runtime_dir: "/tmp".into(),
        bus: std::env::var("DBUS_SESSION_BUS_ADDRESS")?,
        env: Default::default(),
    };
    let access = Access::new(Arc::new(place));
    let mut xml = String::new();
    for _ in 0..tries {
        let begin = Instant::now();
        xml = access.osworld_xml().await?;
        eprintln!("{:.1} ms, {} bytes", begin.elapsed().as_secs_f64() * 1e3, xml.len());
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let begin = Instant::now();
    let terminal = access.terminal_text().await?;
    eprintln!("terminal {:?} in {:.1} ms", terminal, begin.elapsed().as_secs_f64() * 1e3);
    std::io::stdout().write_all(xml.as_bytes())?;
    Ok(())
}
