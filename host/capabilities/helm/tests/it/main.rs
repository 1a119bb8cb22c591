//! Through the public interface: charts from an emulated registry, releases on an emulated cluster.

mod archive;
mod drift;
mod pull;
mod registry;
mod release;
mod support;
