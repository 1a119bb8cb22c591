//! `[kubernetes]` of sutler.toml.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// The clusters that plugins may be granted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ClustersConfig {
    /// The cluster that is meant where a plugin names none.
    pub default: String,
    /// One table a cluster. Without any there is one, with the default's name and every key at its default.
    pub clusters: BTreeMap<String, ClusterConfig>,
}

impl Default for ClustersConfig {
    fn default() -> Self {
        Self { default: "default".into(), clusters: BTreeMap::new() }
    }
}

/// How one cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ClusterConfig {
    /// Path of a kubeconfig file. Without it: the file that the environment variable KUBECONFIG names, else the
    /// service account of the pod that the host runs in.
    pub kubeconfig: Option<PathBuf>,
    /// The context of that file; without it, its current one.
    pub context: Option<String>,
    /// The longest that one request to the API server may take, in seconds. Log streams that follow are exempt.
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: u64,
    /// Requests a second that this host sends to the API server, shared fairly between plugins; 0 for no limit.
    pub requests_per_second: u32,
    /// Requests that may be sent at once after a pause.
    #[schemars(range(min = 1))]
    pub burst: u32,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self { kubeconfig: None, context: None, timeout_seconds: 30, requests_per_second: 200, burst: 400 }
    }
}
