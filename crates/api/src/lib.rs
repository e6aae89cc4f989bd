//! The words of hotdesk as types: requests, replies, events, errors. No logic, no I/O.
//!
//! One module per noun. What a client sends or receives under `/v1` is defined here and nowhere
//! else; the OpenAPI document is generated from these types.

pub mod access;
pub mod action;
pub mod activity;
pub mod calls;
pub mod clipboard;
pub mod desk;
pub mod file;
pub mod fleet;
pub mod freeze;
pub mod git;
pub mod health;
pub mod json;
pub mod kernel;
pub mod lease;
pub mod port;
pub mod problem;
pub mod process;
pub mod recording;
pub mod screen;
pub mod shell;
pub mod terminal;
pub mod trace;
pub mod user;
pub mod view;
pub mod window;

pub use action::Action;
pub use problem::Problem;
