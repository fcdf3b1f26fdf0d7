//! The NBD server: volumes for any client of the NBD protocol, over unix sockets and TCP.
//!
//! Read from the outside in: [`server`] accepts connections; each goes through [`negotiate`] (which export, which
//! extensions) and then [`transmit`] (requests in, replies out, in any order). [`wire`] is every byte layout, as pure
//! functions.
//!
//! Fixed newstyle only, without TLS and without extended headers (clients fall back to structured replies).
//!
//! Invariants
//! 1. Whatever bytes a client sends, at any point, they lead to an answer, a protocol error or a closed connection.
//! 2. A connection never holds more than its share of memory ([`Config`]), and all of them together not more than there
//!    is room for ([`room`]); when that is used up, the socket is not read until replies have left.
//! 3. Every request that was read whole is answered, unless the connection is lost.

mod ahead;
mod guest;
mod listen;
pub mod negotiate;
mod parts;
mod replies;
pub mod room;
pub mod server;
mod sheet;
pub mod transmit;
pub mod wire;

pub use listen::Address;
pub use room::Room;
pub use server::{Config, Line, Server, converse};
