//! Every ledger passes the same contract; what is particular to one is tested beside it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of a test fails with the test"
)]

mod crash;
mod damage;
mod keys;
mod lines;
mod memory;
mod places;
mod real_postgres;
mod scale;
mod sqlite;
