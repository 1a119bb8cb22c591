//! Logs against a small API server that cuts connections, rotates files and restarts containers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod calls;
mod grants;
mod joins;
mod real;
mod releases;
mod server;
mod shared;
mod stream;
mod survive;
mod tail;
