//! `[containers]` of sutler.toml.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// The Docker daemon that plugins may be granted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ContainersConfig {
    /// The daemon's Unix socket.
    pub socket: PathBuf,
    /// The longest that one request to the daemon may take, in seconds. Pulls and log streams that follow are exempt.
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: u64,
    /// The longest that one pull of an image may take, in seconds.
    #[schemars(range(min = 1, max = 86400))]
    pub pull_seconds: u64,
}

impl Default for ContainersConfig {
    fn default() -> Self {
        Self { socket: "/var/run/docker.sock".into(), timeout_seconds: 60, pull_seconds: 1800 }
    }
}
