//! `hotdesk template build --as disk|gce`: a template as a disk that boots by itself.

use super::{BuildArgs, Building, library_for, told, write_lock};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::out;
use clap::Args;
use hotdesk_image::{DiskFormat, DiskWish};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct DiskArgs {
    /// What to make of it: a root file system for desks on this machine, an OCI image for containers, a disk that boots by
    /// itself, or that disk as Google's clouds import it
    #[arg(long = "as", value_name = "KIND", default_value = "rootfs")]
    kind: Kind,

    /// The file of the disk; kernel, initrd and a description come beside it [default: among the built templates]
    ///
    /// Of an OCI image: NAME.tar for docker load, a directory for an OCI layout, `-` for a pipe.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// How large the disk is for the machine that it is in; it takes only what is used [default: 8GiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::text::parse_mebibytes)]
    size: Option<u64>,

    /// The format of the disk: `qcow2` or `raw`
    #[arg(long, value_name = "FORMAT", default_value = "qcow2")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Rootfs,
    Oci,
    Disk,
    Gce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Qcow2,
    Raw,
}

impl DiskArgs {
    /// Whether an OCI image shall be made: see [`super::oci`].
    pub(super) fn is_oci(&self) -> bool {
        self.kind == Kind::Oci
    }

    /// Whether a disk shall be made.
    pub(super) fn wanted(&self) -> Outcome<bool> {
        if self.kind == Kind::Rootfs && (self.output.is_some() || self.size.is_some()) {
            return Err(Failure::usage("--output and --size are for disks and images").hint("add --as disk or --as oci"));
        }
        Ok(self.kind != Kind::Rootfs)
    }

    fn format(&self) -> DiskFormat {
        match (self.kind, self.format) {
            (Kind::Gce, _) => DiskFormat::Gce,
            (_, Format::Raw) => DiskFormat::Raw,
            (_, Format::Qcow2) => DiskFormat::Qcow2,
        }
    }
}

/// A disk that boots by itself. Nobody else's machine can do that: the disk would lie there.
pub(super) async fn build(args: BuildArgs) -> Outcome {
    if args.reach.url.is_some() {
        return Err(Failure::usage("disks are made on this machine; leave --url out"));
    }
    if args.disk.output.is_some() && args.names.len() > 1 {
        return Err(Failure::usage("--output names one file, but there are several templates"));
    }
    let library = library_for(&args)?;
    let binary = std::env::current_exe().map_err(|e| Failure::local(format!("this program can't be found: {e}")))?;
    let wish = DiskWish { format: args.disk.format(), size: args.disk.size.map(|mebibytes| mebibytes << 20), binary };
    let mut made = Vec::new();
    for name in &args.names {
        let bar = Building::new(name, args.json);
        let failed = |e| told(&e).during(format!("the disk of {name} was not made"));
        let disk = library.disk(name, &wish, |stage| bar.stage(stage)).await.map_err(failed)?;
        let (path, info) = match &args.disk.output {
            None => (disk.path(), disk.info.clone()),
            Some(file) => {
                bar.stage("copying it");
                (file.clone(), disk.copy_to(file).map_err(failed)?)
            }
        };
        drop(bar);
        if !args.json {
            out::line(&path.display().to_string());
        }
        made.push(json!({"path": path, "disk": info}));
    }
    write_lock(&library, &args)?;
    if args.json { out::json(&made) } else { Ok(Exit::Success) }
}
