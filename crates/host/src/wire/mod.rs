//! The control API on its socket: HTTP + JSON, made from the list of operations.

pub mod client;
mod document;
pub mod server;
