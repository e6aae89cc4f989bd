//! `hotdesk-template IMAGES NAME…`: builds templates into IMAGES, as `hotdesk template build` does.
//!
//! It needs a third of the crates that `hotdesk` needs, so the first `make up` builds a desk's root file system with it while the
//! rest is still being compiled (`scripts/prepare`).

use hotdesk_image::Library;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(images) = words.next() else {
        eprintln!("usage: hotdesk-template IMAGES NAME…");
        return ExitCode::from(2);
    };
    for name in words {
        let built = async { Library::open(&images)?.build(&name, |stage| eprintln!("{name}: {stage}")).await };
        if let Err(e) = built.await {
            eprintln!("error: {name} was not built: {e}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
