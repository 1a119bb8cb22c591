//! Through the public interface: charts from an emulated registry, releases on an emulated cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod again;
mod archive;
mod atomic;
mod cosign;
mod credentials;
mod drift;
mod faulty;
mod hooks;
mod hostile;
mod liveness;
mod marks;
mod migrate;
mod preview;
mod proxies;
mod pull;
mod real;
mod real_preview;
mod real_registry;
mod registry;
mod release;
mod signed;
mod signing;
mod strangers;
mod support;
mod uninstall;
mod vanished;
