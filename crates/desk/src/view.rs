//! The live view: an RFB (VNC) server of the desk's display.

mod auth;
mod encode;
mod handshake;
mod message;
mod pixel;
mod region;
mod wishes;
