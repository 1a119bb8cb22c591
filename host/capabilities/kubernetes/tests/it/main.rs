//! The capability and its client against a small API server that records what it is asked.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod capability;
mod cluster;
mod forgotten;
mod grants;
mod ownership;
mod real;
mod repeat;
mod server;
mod watch;
