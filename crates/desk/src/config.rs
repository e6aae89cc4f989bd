//! Settings, from flags, environment and a TOML file.

/// The settings of one desk.
#[derive(Debug, Clone)]
pub struct Config {}
