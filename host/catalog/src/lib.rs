//! The plugins of a folder: found, compiled, described, checked, indexed by pair. It never runs a plan or an apply,
//! and a file that is broken never replaces one that works.

mod catalog;
mod config;
mod entry;
mod faults;
mod folder;
mod index;
mod marks;
mod schema;
mod takes;
mod violation;

pub use catalog::Catalog;
pub use config::{
    CapabilityGrants, CatalogConfig, InstanceScope, LOGIN_IN_ADDRESS, PluginConfig, ScopeConfig,
    SecretSource, address_with_login,
};
pub use entry::{Entry, PairEntry};
pub use faults::FaultLog;
pub use folder::{component, config_of};
pub use index::{FileState, Snapshot};
pub use schema::{Schema, SchemaError};
pub use violation::Violation;
