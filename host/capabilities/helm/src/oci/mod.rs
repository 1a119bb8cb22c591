//! Charts from OCI registries (OCI distribution 1.1; media types as Helm 4).

mod auth;
mod cache;
mod client;
mod cosign;
mod credentials;
mod error;
mod login;
mod logins;
mod manifest;
mod network;
mod probe;
mod provenance;
mod pull;
mod range;
mod reference;
mod registries;
mod tags;

pub use error::RegistryError;
pub use logins::RegistryLogins;
pub use probe::{RegistryAccess, RegistryProbe};
pub use range::{BadRange, Range};
pub use reference::{BadChartUrl, ChartUrl};

pub(crate) use client::Clock;
pub(crate) use cosign::Signers;
pub(crate) use credentials::CredentialFiles;
pub(crate) use provenance::Keyring;
pub(crate) use pull::{Charts, Wanted};
