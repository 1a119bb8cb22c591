//! Charts from OCI registries (OCI distribution 1.1; media types as Helm 4).

mod auth;
mod cache;
mod client;
mod error;
mod pull;
mod range;
mod reference;
mod registries;

pub use error::RegistryError;
pub use range::{BadRange, Range};
pub use reference::{BadChartUrl, ChartUrl};

pub(crate) use client::Clock;
pub(crate) use pull::{Charts, Wanted};
