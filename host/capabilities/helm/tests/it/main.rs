//! Through the public interface: charts from an emulated registry, releases on an emulated cluster.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod again;
mod archive;
mod atomic;
mod drift;
mod faulty;
mod hooks;
mod pull;
mod real;
mod registry;
mod release;
mod support;
mod uninstall;
