//! `hotdesk template build --as oci` and `hotdesk template push`: templates as OCI images.

use super::{BuildArgs, Building, Own, library_for, told, write_lock};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::text::size;
use crate::waiting::say;
use clap::{Args, ValueEnum};
use hotdesk_image::oci::registry::{Push, Pushed, Reference};
use hotdesk_image::oci::{Compression, Image, Options};
use hotdesk_image::{Library, Rootfs};
use serde_json::json;
use std::path::{Path, PathBuf};

/// How an image is packed.
#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// No layer of an OCI image is larger, compressed [default: 500MiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::text::parse_mebibytes, help_heading = "OCI images")]
    layer_max: Option<u64>,

    /// How layers are compressed: `gzip`, which everybody takes, or `zstd` [default: gzip]
    #[arg(long, value_name = "KIND", hide_possible_values = true, help_heading = "OCI images")]
    compression: Option<PackWith>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PackWith {
    Gzip,
    Zstd,
}

impl PackArgs {
    pub(crate) fn is_said(&self) -> bool {
        self.layer_max.is_some() || self.compression.is_some()
    }

    pub(crate) fn options(&self) -> Options {
        let usual = Options::default();
        Options {
            layer_max: self.layer_max.map_or(usual.layer_max, |mebibytes| mebibytes << 20),
            compression: match self.compression {
                Some(PackWith::Zstd) => Compression::Zstd,
                Some(PackWith::Gzip) | None => Compression::Gzip,
            },
        }
    }
}

/// How an image gets into a registry.
#[derive(Debug, Args)]
pub(crate) struct RegistryArgs {
    /// Speak plain HTTP to the registry, also over a network; to this machine it is spoken anyway
    #[arg(long, help_heading = "Registry")]
    insecure: bool,

    /// A repository of the same registry that may have some of the layers; can be given several times
    #[arg(long, value_name = "REPOSITORY", help_heading = "Registry")]
    mount_from: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The template; it is built first if it is not built yet
    name: String,

    /// Where to: HOST/NAME:TAG
    ///
    /// Who you are there is taken from where `docker login` writes it.
    #[arg(value_name = "IMAGE")]
    to: Reference,

    #[command(flatten)]
    pack: PackArgs,

    #[command(flatten)]
    registry: RegistryArgs,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    own: Own,
}

/// Images of templates, written to where they are wanted.
pub(super) async fn build(args: BuildArgs) -> Outcome {
    if args.reach.url.is_some() {
        return Err(Failure::usage("images are made on this machine; leave --url out"));
    }
    let Some(output) = &args.disk.output else {
        return Err(Failure::usage("where should the image go?")
            .hint("add -o NAME.tar for docker load, -o DIRECTORY for an OCI layout, -o - for a pipe"));
    };
    let [name] = &args.names[..] else {
        return Err(Failure::usage("--output names one image, but there are several templates"));
    };
    let library = library_for(&args)?;
    let image = make(&library, name, &args.oci.options(), args.json).await?;
    write_lock(&library, &args)?;
    write(image, output, name, args.json).await
}

pub(super) async fn push(args: PushArgs) -> Outcome {
    let library = args.own.library()?;
    let image = make(&library, &args.name, &args.pack.options(), args.json).await?;
    let pushed = send(&image, &args.to, &args.registry, args.json).await?;
    tell(&args.to, &pushed, args.json)
}

async fn make(library: &Library, name: &str, options: &Options, quiet: bool) -> Outcome<Image> {
    built(library, name, quiet).await?;
    let bar = Building::new(name, quiet);
    let failed = |e| told(&e).during(format!("the image of {name} was not made"));
    library.oci(name, &binary()?, options, |stage| bar.stage(stage)).await.map_err(failed)
}

pub(crate) async fn built(library: &Library, name: &str, quiet: bool) -> Outcome<Rootfs> {
    let bar = Building::new(name, quiet);
    library.build(name, |stage| bar.stage(stage)).await.map_err(|e| told(&e).during(format!("{name} was not built")))
}

/// What goes into images.
pub(crate) fn binary() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|e| Failure::local(format!("this program can't be found: {e}")))
}

/// Writes an image and tells what it is; on stderr where stdout is the image.
pub(crate) async fn write(image: Image, output: &Path, name: &str, as_json: bool) -> Outcome {
    let called = format!("hotdesk/{name}:latest");
    let (digest, layers, bytes) = (image.digest().to_owned(), image.layers(), image.size());
    let bar = Building::named(&format!("writing {name}"), as_json);
    image.write(output, &called, |stage| bar.stage(stage)).await.map_err(|e| told(&e))?;
    drop(bar);
    let text = format!("{called}  {digest}  {} in {} layers", size(bytes), layers.len());
    if output == Path::new("-") {
        say(&text);
        return Ok(Exit::Success);
    }
    if as_json {
        return out::json(&json!({"name": called, "digest": digest, "size_bytes": bytes, "layers": layers, "path": output}));
    }
    Ok(out::line(&text))
}

pub(crate) async fn send(image: &Image, to: &Reference, how: &RegistryArgs, quiet: bool) -> Outcome<Pushed> {
    let bar = Building::named(&format!("pushing to {to}"), quiet);
    let push = Push { insecure: how.insecure, mount_from: how.mount_from.clone(), ..Push::default() };
    image.push(to, &push, |stage| bar.stage(stage)).await.map_err(|e| told(&e).during("the image was not pushed"))
}

pub(crate) fn tell(to: &Reference, pushed: &Pushed, as_json: bool) -> Outcome {
    if as_json {
        return out::json(&json!({"image": to.to_string(), "pushed": pushed}));
    }
    Ok(out::line(&format!("{to}  {}  {} sent", pushed.digest, size(pushed.sent_bytes))))
}
