//! Builds a template into a directory: `cargo run -p hotdesk-image --example build -- DIRECTORY NAME`.

use hotdesk_image::Library;
use std::io::Write;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: build DIRECTORY NAME".into());
    };
    let library = Library::open(directory)?;
    let rootfs = library.build(&name, |stage| eprintln!("{stage}")).await?;
    let built = library.built(&name)?;
    writeln!(
        std::io::stdout(),
        "{}\n{} MB, {} packages, {} s",
        rootfs.path.display(),
        built.size_bytes / 1_000_000,
        built.packages,
        built.seconds
    )?;
    Ok(())
}
