//! What an operator says of plugins.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_model::Secret;
use sutler_runtime::Limits;

/// `[catalog]`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CatalogConfig {
    /// The folder of plugins: every `NAME.wasm` in it is one, with an optional `NAME.toml` beside it.
    pub dir: PathBuf,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self { dir: "plugins".into() }
    }
}

/// `[plugins.NAME]` in sutler.toml, or the whole of `NAME.toml` beside `NAME.wasm`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct PluginConfig {
    /// What the plugin may do. Nothing, unless written here.
    pub grants: CapabilityGrants,
    /// What one call may use.
    pub limits: Limits,
    /// The plugin's own settings; it reads them as JSON.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub config: toml::Table,
    /// Secrets that the plugin may read by name.
    pub secrets: BTreeMap<String, SecretSource>,
}

/// Grants by capability. An absent one grants nothing to a plugin, and limits nothing for an instance or a tenant.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CapabilityGrants {
    pub kubernetes: Option<sutler_kubernetes::Grants>,
    pub helm: Option<sutler_helm::Grants>,
    pub logs: Option<sutler_logs::Grants>,
}

/// `[tenants.NAME]` and `[instances.NAME]`: what holds there besides the plugin's own grants.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ScopeConfig {
    /// The most that any plugin may do for it.
    pub grants: CapabilityGrants,
}

/// Where a secret comes from. Exactly one key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SecretSource {
    /// A file; a line end at its end does not count.
    File(PathBuf),
    /// An environment variable of the host.
    Env(String),
}

impl SecretSource {
    /// # Errors
    /// Words that name the file or the variable, never its content.
    pub fn read(&self) -> Result<Secret, String> {
        match self {
            Self::File(path) => std::fs::read_to_string(path)
                .map(|s| Secret::new(s.trim_end_matches(['\n', '\r'])))
                .map_err(|e| format!("the secret file {} cannot be read: {e}", path.display())),
            Self::Env(name) => std::env::var(name)
                .map(Secret::new)
                .map_err(|_| format!("the environment variable {name} is not set or not UTF-8")),
        }
    }
}
