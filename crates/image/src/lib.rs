//! What desks are made of: templates and the root file systems built from them.
//!
//! A [`Template`] is one declarative file. A [`Library`] knows the shipped templates and those of the user, and
//! keeps what was built from them, named by content:
//!
//! ```text
//!   IMAGES/rootfs/DIGEST/        the tree: the lower layer of desks. It appears complete, by one rename, or not at all.
//!   IMAGES/rootfs/DIGEST.json    what it is: template, inputs, size (see `Built`)
//!   IMAGES/rootfs/DIGEST.lock    the exact versions of its packages
//!   IMAGES/inputs/INPUTS         the DIGEST that was built from these inputs: how a look-up is cheap
//!   IMAGES/disks/DIGEST/         a tree as a bootable disk, with its kernel (see `DiskInfo`)
//!   IMAGES/debs/                 downloaded packages, for the next build
//!   IMAGES/oci/                  layers of OCI images (see [`oci`])
//!   IMAGES/users/                who builds on trees and disks: links to directories of fleets
//!   IMAGES/work/                 builds under way; what a dead one left there is removed at the next open
//! ```
//!
//! Every built tree has the user of the template with a home, the programs' settings, and the desk's own settings in
//! [`DESK_SETTINGS`]: whoever starts a desk on it passes `--config` with that path.

// A fuzz target names the crate, as one does from outside.
#[cfg(any(test, fuzzing))]
extern crate self as hotdesk_image;

mod builder;
mod digest;
pub mod disk;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod golden;
mod library;
pub mod oci;
mod packages;
mod settings;
mod template;

pub use builder::share;
pub use error::{Error, Result};
pub use golden::{Boot, DEFAULT_SIZE as DEFAULT_DISK_SIZE, Disk, DiskFormat, DiskInfo, DiskWish, KernelInfo};
pub use library::{Built, Library, Outdated, OutdatedKind, Rootfs};
pub use packages::PackageLock;
pub use settings::DeskSettings;
pub use template::{Check, File, Owner, Screen, Template, User};

/// The settings file of `hotdesk desk` inside every built tree: start commands, environment, screen of the template.
pub const DESK_SETTINGS: &str = "/etc/hotdesk/desk.toml";
