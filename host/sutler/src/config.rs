//! sutler.toml: one file, every key overridable by the environment, unknown keys refused with a suggestion.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use figment::error::{Actual, Kind};
use figment::providers::{Env, Format, Serialized, Toml};
use figment::{Figment, Source};
use schemars::JsonSchema;
use serde::Deserialize;
use sutler_access::AccessConfig;
use sutler_api::{ApiConfig, RegisterConfig, TlsConfig};
use sutler_catalog::{CatalogConfig, LOGIN_IN_ADDRESS, PluginConfig, ScopeConfig, address_with_login};
use sutler_containers::ContainersConfig;
use sutler_helm::{HelmConfig, RegistryConfig};
use sutler_jobs::OperationsConfig;
use sutler_kubernetes::ClustersConfig;
use sutler_runtime::{EngineConfig, WasiPolicy};

use crate::instances::{self, InstanceConfig};
use crate::ledger::LedgerConfig;
use crate::legacy::{self, Notice};

/// Environment variables that override keys: `SUTLER__SERVER__LISTEN` is `server.listen`.
pub(crate) const ENV_PREFIX: &str = "SUTLER__";

/// Everything in sutler.toml.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Where the host listens.
    pub(crate) server: ServerConfig,
    /// Limits of requests.
    pub(crate) api: ApiConfig,
    /// Who may call.
    pub(crate) access: AccessConfig,
    /// Registration with a control plane; off when left out.
    pub(crate) register: Option<RegisterConfig>,
    /// The folder of plugins.
    pub(crate) catalog: CatalogConfig,
    /// One table a plugin, by the stem of its file: `[plugins.ksml]`.
    pub(crate) plugins: BTreeMap<String, PluginConfig>,
    /// Which plugin owns a pair, where more than one claims it: `"deployment/ksml" = "ksml"`.
    pub(crate) pairs: BTreeMap<String, String>,
    /// The most that plugins may do for one tenant.
    pub(crate) tenants: BTreeMap<String, ScopeConfig>,
    /// One table an instance of the control plane: routes and a token of its own, and what holds there.
    pub(crate) instances: BTreeMap<String, InstanceConfig>,
    /// How applies are carried out: time within the call, leases, attempts, limits.
    pub(crate) operations: OperationsConfig,
    /// Where jobs are kept.
    pub(crate) ledger: LedgerConfig,
    /// The sandboxes' engine.
    pub(crate) runtime: EngineConfig,
    /// What plugins may be like at all.
    pub(crate) policy: Policy,
    /// Clusters; without this table, the host has none to offer to plugins.
    pub(crate) kubernetes: Option<ClustersConfig>,
    /// The local Docker daemon; without this table, the host has none to offer to plugins.
    pub(crate) containers: Option<ContainersConfig>,
    /// Charts: caches and limits.
    pub(crate) helm: HelmConfig,
    /// One table a registry of charts and images, by host and port: `[registries."registry.example:5000"]`.
    pub(crate) registries: BTreeMap<String, RegistryConfig>,
    /// Compiled plugins and the host's own key.
    pub(crate) cache: CacheConfig,
    /// What is written to stderr.
    pub(crate) log: LogConfig,
    /// Variables of the predecessor that are set.
    #[serde(skip)]
    pub(crate) legacy: Vec<Notice>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ServerConfig {
    /// Address of the provisioner API. Without any caller token it has to be a loopback address.
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// Address of the operators' API: plugins, faults, reload, metrics, the audit.
    #[schemars(with = "String")]
    pub(crate) admin_listen: SocketAddr,
    /// Certificate and key; without them the provisioner API speaks plain HTTP.
    pub(crate) tls: Option<TlsConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            tls: None,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Policy {
    /// `empty`: components may import WASI 0.2, which has nothing in it; `none`: such components are refused.
    pub(crate) wasi: WasiPolicy,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct CacheConfig {
    /// A folder that only the host may write: compiled plugins, charts, the host's key (mode 0600). Left out:
    /// `$XDG_CACHE_HOME/sutler/host`, else `$HOME/.cache/sutler/host`, else `/var/cache/sutler/host`.
    pub(crate) dir: Option<PathBuf>,
}

impl CacheConfig {
    pub(crate) fn folder(&self) -> PathBuf {
        let base = || {
            std::env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache")))
                .unwrap_or_else(|| "/var/cache".into())
        };
        self.dir.clone().unwrap_or_else(|| base().join("sutler/host"))
    }
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// `text` for people, `json` for machines.
    pub(crate) format: LogFormat,
    /// A level (`info`) or directives (`info,sutler_api=debug`).
    pub(crate) level: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Config {
    /// Reads the file (none is an empty one) and the environment over it.
    pub(crate) fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let mut figment = Figment::new();
        if let Some(f) = file {
            anyhow::ensure!(
                f.is_file(),
                "the configuration file {} does not exist or is not a file",
                f.display()
            );
            figment = figment.merge(Toml::file_exact(f));
        }
        figment = figment.merge(
            Env::prefixed(ENV_PREFIX).split("__").map(|k| k.as_str().to_lowercase().replace('_', "-").into()),
        );
        let wrong = |e| anyhow::anyhow!("{}", explain(e));
        let said = figment.extract().map_err(wrong)?;
        no_logins(&said)?;
        let legacy = legacy::read(|name| std::env::var(name).ok(), &said)?.unwrap_or_default();
        if !legacy.keys.is_null() {
            // Under what is there already.
            figment = figment.join(Serialized::defaults(&legacy.keys));
        }
        let mut config: Self = figment.extract().map_err(wrong)?;
        config.legacy = legacy.notices;
        config.api.instances = instances::base_paths(&config.instances);
        (config.api.instance_shares, config.api.caller_shares) = instances::shares(&config);
        if let Some(folder) = file.and_then(Path::parent) {
            config.plugins.values_mut().for_each(|plugin| plugin.beside(folder));
        }
        Ok(config)
    }
}

/// A login in an address would be shown wherever the address is: in errors, plans and events.
fn no_logins(said: &serde_json::Value) -> anyhow::Result<()> {
    for table in ["plugins", "instances", "tenants"] {
        if let Some(place) = said.get(table).and_then(address_with_login) {
            anyhow::bail!("{table}{place}: {LOGIN_IN_ADDRESS}");
        }
    }
    let registries = said.get("registries").and_then(serde_json::Value::as_object);
    anyhow::ensure!(
        registries.is_none_or(|r| r.keys().all(|host| !host.contains('@'))),
        "registries: the host of a table has a user name or a password in it; write [registries.\"HOST\"], and put them into \
         username and password-file there"
    );
    Ok(())
}

/// Each mistake with its place, its source and, for an unknown key, what was probably meant.
fn explain(errors: figment::Error) -> String {
    errors.into_iter().map(|e| one(&e)).collect::<Vec<_>>().join("\n")
}

fn one(e: &figment::Error) -> String {
    let source = e.metadata.as_ref().map_or_else(String::new, |m| match &m.source {
        // The predecessor's variables are the one layer that is made here.
        Some(Source::Code(_)) => "what REGISTRY_URL and its like say: ".to_owned(),
        Some(source) => format!("{source}: "),
        None => format!("{}: ", m.name),
    });
    let at = if e.path.is_empty() { String::new() } else { format!("{}: ", e.path.join(".")) };
    let text = match &e.kind {
        Kind::UnknownField(found, known) => {
            let near = known
                .iter()
                .map(|k| (strsim::damerau_levenshtein(found, k), *k))
                .filter(|(d, k)| *d <= k.len().div_ceil(2))
                .min();
            match near {
                Some((_, k)) => format!("unknown key {found:?}; did you mean {k:?}?"),
                None => format!("unknown key {found:?}; known here: {}", known.join(", ")),
            }
        }
        // What was found is not repeated: it may be a secret.
        Kind::UnknownVariant(_, known) => format!("unknown value or key; known here: {}", known.join(", ")),
        Kind::InvalidType(found, wanted) => format!("this has to be {wanted}, not {}", shape(found)),
        Kind::InvalidValue(found, wanted) => {
            format!("this has to be {wanted}, which the given {} is not", shape(found))
        }
        kind => without_lines(&kind.to_string()),
    };
    format!("{source}{at}{text}")
}

/// A TOML parser's message without the lines of the file that it shows: they may hold a secret.
fn without_lines(message: &str) -> String {
    let shown = |l: &&str| {
        l.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|') || l.trim().is_empty()
    };
    message.lines().filter(|l| !shown(l)).collect::<Vec<_>>().join(": ")
}

/// What a value is, without the value.
const fn shape(found: &Actual) -> &'static str {
    match found {
        Actual::Bool(_) => "truth value",
        Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_) => "number",
        Actual::Char(_) | Actual::Str(_) => "text",
        Actual::Seq => "list",
        Actual::Map => "table",
        _ => "value",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(toml: &str) -> Result<Config, String> {
        let f = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(f.path(), toml).unwrap();
        Config::load(Some(f.path()))
            .map_err(|e| e.to_string().replace(&f.path().display().to_string(), "FILE"))
    }

    #[test]
    fn mistakes_name_their_place() {
        let e = load("[server]\nlisen = \"127.0.0.1:1\"\n").unwrap_err();
        assert!(e.contains("FILE") && e.contains("did you mean \"listen\"?"), "{e}");
        let e = load("[plugins.ksml.limits]\nmemory-mib = \"big\"\n").unwrap_err();
        assert!(e.contains("memory-mib") && e.contains("plugins.ksml.limits"), "{e}");
        let e = load("[serve]\n").unwrap_err();
        assert!(e.contains("did you mean \"server\"?"), "{e}");
        assert!(load("this is no toml").unwrap_err().contains("FILE"));
        assert!(Config::load(Some(Path::new("/no/such/file"))).is_err());
    }

    #[test]
    fn mistakes_do_not_repeat_what_may_be_a_secret() {
        for toml in [
            "[register]\ncontrol-plane = \"http://x\"\npublic-url = \"http://y\"\ntoken = 12345678\n",
            "[plugins.ksml.secrets]\npassword = \"12345678\"\n",
            "[registries.\"r:1\"]\npassword = 12345678\n",
        ] {
            let e = load(toml).unwrap_err();
            assert!(!e.contains("12345678"), "{e}");
        }
        let e = load("[registries.\"r:1\"]\npassword = \"hunter2\n").unwrap_err();
        assert!(e.contains("FILE") && e.contains("line 2") && !e.contains("hunter2"), "{e}");
    }

    #[test]
    fn an_address_with_a_login_is_refused() {
        for (toml, place) in [
            (
                "[plugins.ksml.config]\nchart = \"oci://u:hunter2@r.example/x\"\n",
                "plugins.ksml.config.chart: ",
            ),
            (
                "[plugins.ksml.config]\nchart = \"https://u:hunter2@r.example/x\"\n",
                "plugins.ksml.config.chart: ",
            ),
            (
                "[plugins.a.config.b]\nc = [\"OCI://u:hun/ter2@r.example/x@sha256:00\"]\n",
                "plugins.a.config.b.c.0: ",
            ),
            (
                "[plugins.a.grants.helm]\ncharts = [\"oci://u:hunter2@r/x\"]\n",
                "plugins.a.grants.helm.charts.0: ",
            ),
            (
                "[instances.a.config.ksml]\nchart = \"oci://u:hunter2@r/x\"\n",
                "instances.a.config.ksml.chart: ",
            ),
            ("[registries.\"u:hunter2@r.example\"]\nplain-http = true\n", "registries: the host of a table"),
        ] {
            let e = load(toml).unwrap_err();
            assert!(e.contains(place) && !e.contains("hunter2") && !e.contains("ter2"), "{e}");
        }
        load("[plugins.a.config]\nchart = \"oci://r/x@sha256:00\"\nmail = \"a@b.example\"\n").unwrap();
    }

    #[test]
    fn a_mistake_beside_the_variables_names_no_place_of_the_code() {
        let mistake = "x".parse::<u8>().unwrap_err().to_string();
        let figment =
            Figment::new().join(Serialized::defaults(serde_json::json!({"server": {"listen": mistake}})));
        let e = explain(figment.extract::<Config>().unwrap_err());
        assert!(e.starts_with("what REGISTRY_URL and its like say: server.listen: "), "{e}");
    }

    #[test]
    fn files_of_plugins_lie_beside_the_configuration() {
        let toml = "[plugins.ksml.config-files]\na = \"a.yaml\"\nb = \"/etc/b.yaml\"\n";
        let files = load(toml).unwrap().plugins.remove("ksml").unwrap().config_files;
        let folder = std::env::temp_dir();
        assert_eq!((files["a"].clone(), files["b"].clone()), (folder.join("a.yaml"), "/etc/b.yaml".into()));
    }

    #[test]
    fn an_empty_file_is_loopback() {
        let c = load("").unwrap();
        assert!(c.server.listen.ip().is_loopback() && c.server.admin_listen.ip().is_loopback());
        assert!(c.kubernetes.is_none());
    }

    #[test]
    fn every_configuration_that_is_shown_is_one() {
        let root = sutler_testkit::checkout();
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        let blocks: Vec<&str> =
            readme.split("```toml\n").skip(1).map(|b| b.split("```").next().unwrap_or_default()).collect();
        assert!(!blocks.is_empty());
        for b in blocks {
            load(b).unwrap();
        }
        let mut seen = 0;
        for case in std::fs::read_dir(root.join("examples")).unwrap() {
            let file = case.unwrap().path().join("sutler.toml");
            if file.is_file() {
                Config::load(Some(&file)).unwrap();
                seen += 1;
            }
        }
        assert!(seen >= 3, "{seen} examples");
    }
}
