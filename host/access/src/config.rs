//! `[access]` of sutler.toml.

use schemars::JsonSchema;
use serde::Deserialize;

/// Who may call. Without any entry, the host listens on loopback only and refuses browsers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Who may plan, apply, inspect and read logs: control planes.
    pub callers: Vec<CallerConfig>,
    /// Who may use the admin listener: plugins, faults, reload, metrics, the audit.
    pub operators: Vec<OperatorConfig>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CallerConfig {
    /// How logs and the audit call this caller.
    pub name: String,
    /// Hashes of the tokens that are valid now, each `sha256:<64 hex>`; several while a token is being replaced.
    pub token_hash: Vec<String>,
    /// Tenants that this caller may act for; `"*"` is every tenant, and none at all. Left out: only calls without a tenant.
    #[serde(default)]
    pub tenants: Vec<String>,
    /// Instances of the control plane that this caller may act for; `"*"` is every one, and none at all. Left out:
    /// only calls without an instance. Where there are `[instances.NAME]`, no other is taken from anybody.
    #[serde(default)]
    pub instances: Vec<String>,
    /// The most of its requests that are worked on at once. Left out: half of `api.max-concurrent-requests` where others
    /// have tokens too.
    #[serde(default)]
    pub max_requests: Option<usize>,
    /// The most of its streams of logs that are open at once. Left out: half of `api.max-log-streams` where others have tokens too.
    #[serde(default)]
    pub max_log_streams: Option<usize>,
    /// Whether it may read the audit: which changes were asked for, by whom, of its tenants and instances.
    #[serde(default)]
    pub audit: bool,
}

/// What `[instances.NAME]` says of callers.
#[derive(Debug, Clone, Default)]
pub struct InstanceAccess {
    pub name: String,
    /// Of the tokens that may call the instance's own routes and nothing else.
    pub token_hash: Vec<String>,
    /// The only tenants for which anybody may act there; `"*"` and `None` are every one, and none at all.
    pub tenants: Option<Vec<String>>,
    /// Whether its own tokens may read its audit.
    pub audit: bool,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OperatorConfig {
    /// How logs and the audit call this operator.
    pub name: String,
    /// Hashes of the tokens that are valid now, each `sha256:<64 hex>`; several while a token is being replaced.
    pub token_hash: Vec<String>,
    /// Whether it may read the audit, of all tenants and instances.
    #[serde(default)]
    pub audit: bool,
}
