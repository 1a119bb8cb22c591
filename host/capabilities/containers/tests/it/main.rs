//! Containers against a socket that answers to order, and against a real Docker daemon.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod grants;
mod real;
mod real_run;
mod socket;
mod support;
