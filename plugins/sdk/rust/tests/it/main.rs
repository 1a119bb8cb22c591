//! The SDK through its public face, in the world in memory.

mod naming;
mod schemas;
mod steps;
