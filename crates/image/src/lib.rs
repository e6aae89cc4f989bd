//! What desks are made of: templates and the root file systems built from them.

mod error;
mod library;

pub use error::{Error, Result};
pub use library::{Library, Rootfs};
