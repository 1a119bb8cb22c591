//! Kubernetes for plugins: one client a cluster, behind grants. It answers what the API server answers and never
//! writes for a call that only reads, never touches what another owner made, never shows credentials.

mod capability;
mod cluster;
mod clusters;
mod config;
mod discovery;
mod error;
mod events;
mod grant;
mod kind_pattern;
mod manifest;
mod owned;
mod path;
mod pod;
mod rate;
mod rbac;
mod reference;
mod remembered;
mod request;
mod review;
mod status;
mod watch;

pub use capability::Kubernetes;
pub use cluster::{ApplyOptions, Cluster};
pub use clusters::Clusters;
pub use config::{ClusterConfig, ClustersConfig};
pub use error::{Error, FieldConflict, FixedField};
pub use grant::{Ask, Grants, Labels, Rule, Scope, Verb, covers_cluster};
pub use kind_pattern::{InvalidKind, KindPattern};
pub use manifest::MAX_MANIFEST_BYTES;
pub use owned::{LABEL_PREFIX, RELEASE_SECRET};
pub use pod::{Container, Controller, LogQuery, Pod};
pub use rbac::{PolicyRule, policy_rules, resource_name};
pub use reference::{Page, Propagation, Reference, Selector};
pub use review::Right;
pub use status::error_of;
pub use watch::{PodWatch, Watched};
