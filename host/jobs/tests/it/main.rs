//! The jobs over the ledger in memory, with a worker that does what a test says and time that a test moves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper of a test fails with the test"
)]

mod cancel;
mod check;
mod common;
mod flaky;
mod front;
mod leases;
mod machine;
mod reconciler;
mod simulated;
mod simulation;
mod stored;
