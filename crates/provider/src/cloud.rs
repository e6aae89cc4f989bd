//! What providers that rent from a vendor share: how an API is asked, how long, how often, and what its answers mean.
//!
//! - **[`Api`]** asks by HTTP: with time-outs, at a pace, again where that can't do harm, and reads what was refused and why.
//! - **[`Fault`]** is a refusal with its [`Kind`]: a used-up quota is not a failure of ours, a wrong key is not a vendor that is away.
//! - **[`Patience`]** asks again: pauses that grow, with jitter, at least as long as the vendor says (`Retry-After`).
//! - **[`Pace`]** keeps a fleet below a vendor's limit of requests, so that it is not told to wait in the first place.
//! - **[`credential`]** takes a key from a variable or a file; it is never logged, stored or printed.
//! - **[`token`]** names a request, so that a vendor who knows such names does it once, however often it arrives.
//!
//! A reply that got lost after the vendor did what was asked is the case that everything here is written for: the thing has a
//! name or a label by which it is found, a client token where the vendor takes one, and the fleet's sweep for the rest.

mod credential;
mod fault;
mod http;
mod pace;
mod patience;
mod price;
mod token;

pub use credential::credential;
pub use fault::{Fault, Kind};
pub(crate) use fault::{gone_is_good, gone_is_none};
pub(crate) use hotdesk_desk_client::encoded as escaped;
pub use http::{Api, Call, Reply, Vendor};
pub use pace::Pace;
pub use patience::{Patience, Tries};
pub use price::Price;
pub use token::{fresh_token, token};
