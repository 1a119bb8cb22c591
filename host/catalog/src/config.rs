//! What an operator says of plugins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_model::{Pattern, Secret};
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
    /// Further keys of `config`, each with the content of a file in YAML or JSON, read as Helm reads values:
    /// `values-file = "values.yaml"`. A path is relative to the file that this stands in.
    pub config_files: BTreeMap<String, PathBuf>,
    /// Secrets that the plugin may read by name.
    pub secrets: BTreeMap<String, SecretSource>,
}

/// A file of `config-files`, larger than which none is read.
const MAX_BYTES: u64 = 4 << 20;

impl PluginConfig {
    /// Makes the paths of `config-files` relative to the folder of the file that they stand in.
    pub fn beside(&mut self, folder: &Path) {
        for file in self.config_files.values_mut() {
            *file = folder.join(&*file);
        }
    }

    /// `config` as JSON, with the files' contents.
    ///
    /// # Errors
    /// Words that name the key and the file, never a piece of its content.
    pub fn whole(&self) -> Result<serde_json::Value, String> {
        let mut config =
            serde_json::to_value(&self.config).map_err(|e| format!("its config has no JSON form: {e}"))?;
        if let Some(place) = address_with_login(&config) {
            return Err(format!("config{place}: {LOGIN_IN_ADDRESS}"));
        }
        for (key, file) in &self.config_files {
            if self.config.contains_key(key) {
                return Err(format!("{key:?} stands in config and in config-files; keep one of them"));
            }
            let value = sutler_helm::values_of(&Self::text(key, file)?)
                .map_err(|e| format!("config-files.{key}: {}: {e}", file.display()))?;
            if let Some(config) = config.as_object_mut() {
                config.insert(key.clone(), value);
            }
        }
        Ok(config)
    }

    fn text(key: &str, file: &Path) -> Result<String, String> {
        let unreadable =
            |why: String| format!("config-files.{key}: {} cannot be read: {why}", file.display());
        let kind = std::fs::metadata(file).map_err(|e| unreadable(e.to_string()))?;
        if !kind.is_file() || kind.len() > MAX_BYTES {
            return Err(unreadable(format!("it is no regular file of at most {MAX_BYTES} bytes")));
        }
        std::fs::read_to_string(file).map_err(|e| unreadable(e.to_string()))
    }
}

/// What is told of an address with a login in it: never the address.
pub const LOGIN_IN_ADDRESS: &str = "this address has a user name or a password in it; write it without, and put them \
    under [registries.\"HOST\"] as username and password-file";

/// The place (`.config.chart`) of the first address of a chart or a registry that has a login in it: every `oci://…`, and
/// whatever address stands in `chart` or `charts`.
pub fn address_with_login(value: &serde_json::Value) -> Option<String> {
    fn find(key: &str, value: &serde_json::Value) -> Option<String> {
        match value {
            serde_json::Value::String(text) => has_login(key, text).then(String::new),
            serde_json::Value::Array(items) => {
                items.iter().enumerate().find_map(|(i, v)| Some(format!(".{i}{}", find(key, v)?)))
            }
            serde_json::Value::Object(fields) => {
                fields.iter().find_map(|(k, v)| Some(format!(".{k}{}", find(k, v)?)))
            }
            _ => None,
        }
    }
    find("", value)
}

fn has_login(key: &str, text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let address = match rest.rsplit_once('@') {
        Some((before, digest)) if digest.starts_with("sha256:") || digest.starts_with("sha512:") => before,
        _ => rest,
    };
    (scheme.eq_ignore_ascii_case("oci") || key == "chart" || key == "charts") && address.contains('@')
}

/// Grants by capability. An absent one grants nothing to a plugin, and limits nothing for an instance or a tenant.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CapabilityGrants {
    pub kubernetes: Option<sutler_kubernetes::Grants>,
    pub helm: Option<sutler_helm::Grants>,
    pub logs: Option<sutler_logs::Grants>,
    pub containers: Option<sutler_containers::Grants>,
}

/// `[tenants.NAME]`, and of `[instances.NAME]` the same: what holds there besides the plugin's own grants.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ScopeConfig {
    /// The most that any plugin may do for it.
    pub grants: CapabilityGrants,
    /// Patterns of the only namespaces in which any plugin may do anything for it, such as `emea-{tenant}`; all that
    /// are granted when left out.
    #[schemars(with = "Option<Vec<String>>")]
    pub namespaces: Option<Vec<Pattern>>,
}

/// What holds for one instance of the control plane.
#[derive(Debug, Clone, Default)]
pub struct InstanceScope {
    pub scope: ScopeConfig,
    /// By plugin, what lies over its own `config` in calls for the instance.
    pub config: BTreeMap<String, toml::Table>,
}

/// `over` laid over a plugin's whole config: tables key by key, all else replaced.
///
/// # Errors
/// Words where it has no JSON form.
pub(crate) fn laid_over(whole: &serde_json::Value, over: &toml::Table) -> Result<serde_json::Value, String> {
    fn lay(over: serde_json::Value, under: &mut serde_json::Value) {
        match (over, under) {
            (serde_json::Value::Object(over), serde_json::Value::Object(under)) => {
                for (k, v) in over {
                    lay(v, under.entry(k).or_insert(serde_json::Value::Null));
                }
            }
            (over, under) => *under = over,
        }
    }
    let over = serde_json::to_value(over).map_err(|e| format!("it has no JSON form: {e}"))?;
    let mut out = whole.clone();
    lay(over, &mut out);
    Ok(out)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(folder: &Path, toml: &str) -> Result<serde_json::Value, String> {
        let mut config: PluginConfig = toml::from_str(toml).unwrap();
        config.beside(folder);
        config.whole()
    }

    #[test]
    fn an_instance_lays_its_config_over_the_plugins() {
        let whole = json!({"chart": "a", "values": {"x": 1, "y": {"z": 2}}, "list": [1, 2]});
        let over = toml::from_str("chart = \"b\"\nlist = [3]\n[values.y]\nw = 4\n[new]\na = 1\n").unwrap();
        let laid =
            json!({"chart": "b", "values": {"x": 1, "y": {"z": 2, "w": 4}}, "list": [3], "new": {"a": 1}});
        assert_eq!(laid_over(&whole, &over), Ok(laid));
    }

    #[test]
    fn files_become_keys_of_the_config() {
        let folder = std::env::temp_dir().join(format!("sutler-config-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("values.yaml"), "service: {port: 80}\naffinity: null\nmode: 0644\n")
            .unwrap();
        std::fs::write(folder.join("broken.yaml"), "password: [hunter2\n").unwrap();
        let toml = "[config]\na = 1\n[config-files]\nvalues-file = \"values.yaml\"\n";
        let values = json!({"service": {"port": 80}, "affinity": null, "mode": 420});
        assert_eq!(config(&folder, toml), Ok(json!({"a": 1, "values-file": values})));
        for (toml, said) in [
            ("[config-files]\na = \"none.yaml\"\n", "config-files.a: "),
            ("[config-files]\na = \".\"\n", "no regular file"),
            ("[config]\nchart = \"oci://u:hunter2@r/x\"\n", "config.chart: this address has a user name"),
            ("[config-files]\na = \"broken.yaml\"\n", "broken.yaml: "),
            ("[config]\na = 1\n[config-files]\na = \"values.yaml\"\n", "keep one of them"),
        ] {
            let e = config(&folder, toml).unwrap_err();
            assert!(e.contains(said) && !e.contains("hunter2"), "{e}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
