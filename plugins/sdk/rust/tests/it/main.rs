//! The SDK through its public face, in the world in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod naming;
mod schemas;
mod steps;
