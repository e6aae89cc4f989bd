//! Writes the tree of a desktop as OSWorld's XML to each file that is named on standard input, one a line,
//! and says how long it took. What is between two lines is a chance to change something on the desktop.
//!
//! `cargo run --example tree` with `DISPLAY` and `DBUS_SESSION_BUS_ADDRESS` set.

use hotdesk_desk::access::Access;
use hotdesk_desk::{Display, Place};
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = std::env::var("DISPLAY")?.trim_start_matches(':').split('.').next().unwrap_or("0").parse()?;
    let place = Place {
        display: Display { number, cookie: None },
        home: "/".into(),
        runtime_dir: "/tmp".into(),
        bus: std::env::var("DBUS_SESSION_BUS_ADDRESS")?,
        env: Default::default(),
    };
    let access = Access::new(Arc::new(place));
    for line in std::io::stdin().lines() {
        let file = line?;
        let begin = Instant::now();
        if file == "terminal" {
            let text = access.terminal_text().await?;
            writeln!(std::io::stdout(), "{:.1} ms, {text:?}", begin.elapsed().as_secs_f64() * 1e3)?;
            continue;
        }
        if file == "forget" {
            access.forget().await;
            continue;
        }
        let xml = access.osworld_xml().await?;
        let took = begin.elapsed().as_secs_f64() * 1e3;
        std::fs::write(file, &xml)?;
        writeln!(std::io::stdout(), "{took:.1} ms, {} bytes", xml.len())?;
    }
    Ok(())
}
