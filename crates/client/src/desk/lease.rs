//! Who drives the desk.

use super::Desk;
use crate::Result;
use hotdesk_api::lease::{Lease, TakeLease};
use reqwest::Method;

impl Desk {
    pub async fn lease(&self) -> Result<Lease> {
        self.call(Method::GET, &["lease"]).answer().await
    }

    /// A person takes over: what agents do is refused until the desk is given back.
    pub async fn take_lease(&self, how: &TakeLease) -> Result<Lease> {
        self.call(Method::PUT, &["lease"]).json(how)?.idempotent().answer().await
    }

    /// Gives the desk back to the agent, whoever drives.
    pub async fn give_lease(&self) -> Result<Lease> {
        self.call(Method::DELETE, &["lease"]).idempotent().answer().await
    }
}
