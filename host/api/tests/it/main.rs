//! The HTTP side through its routers and sockets, with a host behind it that does what a test says.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper of a test fails with the test"
)]

mod answers;
mod audit;
mod bodies;
mod client;
mod fake;
mod fake_operation;
mod logs;
mod openapi;
mod operations;
mod registration;
mod serving;
mod shares;
mod telemetry;
