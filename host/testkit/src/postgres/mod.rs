//! A real PostgreSQL server for tests, and a way to it that can be cut.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot have its server cannot go on")]
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    reason = "everything in here panics where it cannot go on"
)]

mod proxy;
mod server;

pub use proxy::{Cut, Proxy};
pub use server::{Server, client, give, sql};
