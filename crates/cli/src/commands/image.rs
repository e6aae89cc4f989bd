//! `hotdesk image`: images that run a virtual machine, images on disk, images at a cloud.

mod publish;

use super::template::oci::{self, PackArgs, RegistryArgs};
use super::template::{Building, Own, told};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::reach;
use clap::{Args, Subcommand};
use hotdesk_image::oci::registry::Reference;
use hotdesk_image::oci::{Image, VM_TEMPLATE};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Make an image that runs a virtual machine, with its disk inside or beside it
    Vm(VmArgs),
    /// Push an image that is an OCI layout on disk
    Push(PushArgs),
    /// Make a template's golden disk the newest image of its family at Google
    ///
    /// Builds the disk, uploads it to a bucket, imports it, and removes old versions. Whatever is done already is not done
    /// again. Project and bucket are those of [gce] in the fleet's settings unless they are said here.
    Publish(publish::PublishArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VmArgs {
    /// The disk to put inside: a file, or a directory that `hotdesk disk split` made
    ///
    /// It is split so that each part fits into a layer. Without it the image waits for a disk at /vm/System.qcow2, or where
    /// HOTDESK_DISK says.
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,

    /// Where the image goes: NAME.tar for docker load, a directory for an OCI layout, `-` for a pipe
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,

    #[command(flatten)]
    pack: PackArgs,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    own: Own,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The layout's directory
    layout: PathBuf,

    /// Where to: HOST/NAME:TAG
    ///
    /// Who you are there is taken from where `docker login` writes it.
    #[arg(value_name = "IMAGE")]
    to: Reference,

    #[command(flatten)]
    registry: RegistryArgs,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: ImageCommand) -> Exit {
    reach::run(async move {
        match command {
            ImageCommand::Vm(args) => vm(args).await,
            ImageCommand::Publish(args) => publish::run(args).await,
            ImageCommand::Push(args) => {
                let image = Image::open(&args.layout).map_err(|e| told(&e))?;
                let pushed = oci::send(&image, &args.to, &args.registry, args.json).await?;
                oci::tell(&args.to, &pushed, args.json)
            }
        }
    })
}

async fn vm(args: VmArgs) -> Outcome {
    let library = args.own.library()?;
    let options = args.pack.options();
    oci::built(&library, VM_TEMPLATE, args.json).await?;
    let stages = Building::named("making the image", args.json);
    let image = library
        .oci_vm(&oci::binary()?, args.disk.as_deref(), &options, |stage| stages.stage(stage))
        .await
        .map_err(|e| told(&e).during("the image was not made"))?;
    drop(stages);
    oci::write(image, &args.output, VM_TEMPLATE, args.json).await
}
