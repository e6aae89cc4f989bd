//! The live view: an RFB (VNC) server of the desk's display.

mod auth;
#[cfg(test)]
mod decode;
mod encode;
mod handshake;
mod message;
mod pixel;
mod region;
mod wishes;
