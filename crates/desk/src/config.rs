//! Settings, from flags, environment and a TOML file.

use crate::server::listen::Address;
use crate::server::token::Token;

/// The settings of one desk.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Where the server listens.
    pub listen: Vec<Address>,
    /// Whether everybody who reaches the server may use the desk.
    pub open: bool,
    /// What requests have to carry; made at first start if an address needs it.
    pub token: Option<Token>,
    /// Names besides `localhost` that the desk goes by on loopback.
    pub names: Vec<String>,
    /// Sites whose pages may use the desk on loopback: `https://board.example`.
    pub origins: Vec<String>,
}
