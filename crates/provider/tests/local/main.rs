//! Desks of the local provider, for real: they are made, looked at from inside and outside, and taken away.
//!
//! These tests need root, the template `bare` (built when it is missing) and the `hotdesk` binary.

mod crowd;
mod hostile;
mod isolation;
mod life;
mod live;
mod measure;
mod network;
mod place;
mod rootless;
mod volumes;
