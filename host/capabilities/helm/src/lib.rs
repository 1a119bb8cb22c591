//! Helm for plugins: charts from OCI registries, releases in Helm's own record. It never renders templates itself
//! (an engine does, given from outside), never waits for objects, and never touches what another owner made.

mod archive;
mod asked;
mod capability;
mod chart;
mod config;
mod engine;
mod error;
mod grant;
mod jobs;
mod manifest;
mod oci;
mod order;
mod rbac;
mod releases;
mod types;
mod yaml;

pub use archive::{ArchiveError, MAX_FILES, MAX_UNPACKED};
pub use capability::Helm;
pub use chart::{Chart as ChartArchive, Dependency, Metadata};
pub use config::{ConfigError, HelmConfig, Login as RegistryLogin, RegistryConfig};
pub use engine::{EngineError, Lookup, RenderAnswer, RenderRequest, TemplateEngine};
pub use error::Error;
pub use grant::{BadChartPattern, ChartPattern, Grants};
pub use jobs::{Jobs, NoJobs};
pub use oci::{
    BadChartUrl, BadRange, ChartUrl, Range, RegistryAccess, RegistryError, RegistryLogins, RegistryProbe,
};
pub use order::{INSTALL, UNINSTALL, sort_by_kind};
pub use releases::{Health, Status, Unfinished, unfinished};
pub use types::{Chart, ChartReference, Options, Outcome, Release, ReleaseReference, Rendered};
pub use yaml::parse as values_of;
