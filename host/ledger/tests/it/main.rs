//! Every ledger passes the same contract; what is particular to one is tested beside it.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails with the test")]

mod memory;
