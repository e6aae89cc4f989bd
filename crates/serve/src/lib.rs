//! What the desk's server and the gateway do alike with whoever connects, before they know anything about him: where they listen,
//! how long they wait for a body and for a reader, how they say that they are full;
//! and how they read JSON.

mod address;
mod json;
mod paced;
mod patient;
mod socket;

pub use address::{Address, NoAddress};
pub use json::{Json, JsonRejection};
pub use paced::{Fate, paced};
pub use patient::{Brake, Break, Patient, refuse};
pub use socket::bind_unix;
