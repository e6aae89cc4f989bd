//! The native API of a fleet as a Rust SDK.
//!
//! ```no_run
//! # async fn example() -> hotdesk_client::Result<()> {
//! use hotdesk_api::desk::NewDesk;
//! use hotdesk_client::{Client, Settings};
//!
//! // The flags' values, else HOTDESK_URL and HOTDESK_KEY, else the fleet that runs on this machine.
//! let client = Client::connect(&Settings::default().find()?)?;
//! let desk = client.create(&NewDesk::default()).await?;
//! let desk = client.desk(&desk.id);
//! let picture = desk.screenshot(&Default::default()).await?;
//! desk.delete().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **What is sent again.** A request that never left this machine is. One that may have arrived is sent again only if
//! doing it twice is the same as doing it once: it reads, it says how things should be, or it carries an
//! `Idempotency-Key`. An action, a command or a reset is never sent twice. A fleet that has answered before is waited for
//! while it is restarted; one that never did is reported at once.

mod desk;
mod error;
mod events;
mod fleet;
mod settings;
mod socket;
mod transport;
mod wire;

pub use desk::Desk;
pub use desk::files::{Download, Upload};
pub use desk::process::{Output, Program, ProgramInput, ProgramOutput};
pub use desk::screen::Shot;
pub use desk::terminal::{Keyboard, Screen, Shown, Terminal, ViewInput, ViewOutput};
pub use error::{Error, Refusal, Result};
pub use events::Events;
pub use fleet::{Create, Filter};
pub use settings::{Found, Serve, Settings, Target, data_directories};
pub use socket::Tunnel;
pub use transport::{Builder, Call, Client};
pub use wire::Done;
