//! The environment variables of the KSML Provisioner, sutler's predecessor in this role: they fill keys that neither
//! sutler.toml nor `SUTLER__…` set. They have common names (`NAMESPACE`), so they count only where REGISTRY_URL and
//! CHART_NAME are both set.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};
use serde_json::{Map, Value, json};
use sutler_helm::ChartUrl;
use sutler_model::Identifier;

/// What the variables say.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// As sutler.toml would have it.
    pub(crate) keys: Value,
    pub(crate) notices: Vec<Notice>,
}

/// A variable that is set, and what takes its place. Never its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) variable: &'static str,
    pub(crate) instead: String,
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the environment variable {} is the predecessor's; instead: {}",
            self.variable, self.instead
        )
    }
}

/// `get` reads a variable, `said` is what sutler.toml and `SUTLER__…` say; `None`: they are not meant.
///
/// # Errors
/// In words, where a variable has no equal here or cannot be used. Never with its value where that may be a secret.
pub(crate) fn read(get: impl Fn(&str) -> Option<String>, said: &Value) -> anyhow::Result<Option<Legacy>> {
    let set = |name: &str| get(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
    let (Some(url), Some(name)) = (set("REGISTRY_URL"), set("CHART_NAME")) else { return Ok(None) };
    let mut notes = Notes { said, told: Vec::new() };
    let (chart, host) = chart(&url, &name)?;
    let mut keys = Map::new();
    if said.pointer("/plugins/ksml/config/target") == Some(&json!("docker")) {
        // Neither cluster nor chart: what is left of the variables is the registry's login.
        for variable in CHARTS.into_iter().filter(|v| set(v).is_some()) {
            notes.tell(variable, "nothing: containers on Docker (target = \"docker\") come from no chart");
        }
    } else {
        keys.insert("kubernetes".into(), json!({}));
        keys.insert("plugins".into(), json!({"ksml": plugin(&set, &chart, &mut notes)?}));
    }
    let registry = registry(&set, &host, &mut notes)?;
    ensure!(
        !on(set("INSECURE_SKIP_TLS_VERIFY")),
        "INSECURE_SKIP_TLS_VERIFY is set: a registry whose certificate nobody checks may send any chart; name the \
         authority that signed it by ca in [registries.{host:?}], and unset the variable"
    );
    if on(set("DISTRIBUTED_TRACING_ENABLED")) {
        let instead = "nothing: traces of callers (traceparent) are always continued, in the log";
        notes.tell("DISTRIBUTED_TRACING_ENABLED", instead);
    }
    if on(set("BASIC_AUTH_ENABLED")) {
        let instead = "bearer tokens: `sutler token new`, then access.callers";
        notes.fill("BASIC_AUTH_ENABLED", instead, &["/access/callers"]);
    }
    if !registry.is_empty() {
        keys.insert("registries".into(), json!({host: registry}));
    }
    Ok(Some(Legacy { keys: Value::Object(keys), notices: notes.told }))
}

/// What says nothing where no chart is installed.
const CHARTS: [&str; 5] = ["REGISTRY_URL", "CHART_NAME", "CHART_VERSION", "NAMESPACE", "CUSTOM_VALUES_FILE"];

/// Notices of variables, but for those whose keys are all said already.
struct Notes<'a> {
    said: &'a Value,
    told: Vec<Notice>,
}

impl Notes<'_> {
    fn tell(&mut self, variable: &'static str, instead: &str) {
        self.told.push(Notice { variable, instead: instead.into() });
    }

    /// `keys`: JSON Pointers of what the variable fills.
    fn fill(&mut self, variable: &'static str, instead: &str, keys: &[&str]) {
        if keys.iter().any(|k| self.said.pointer(k).is_none()) {
            self.tell(variable, instead);
        }
    }
}

/// `[plugins.ksml]` as the variables have it.
fn plugin(
    set: &impl Fn(&str) -> Option<String>,
    chart: &str,
    notes: &mut Notes<'_>,
) -> anyhow::Result<Value> {
    let of_chart = ["/plugins/ksml/config/chart", "/plugins/ksml/grants/helm/charts"];
    for variable in ["REGISTRY_URL", "CHART_NAME"] {
        notes.fill(variable, "plugins.ksml.config.chart and plugins.ksml.grants.helm.charts", &of_chart);
    }
    let mut config = Map::from_iter([("chart".to_owned(), json!(chart))]);
    if let Some(version) = set("CHART_VERSION") {
        config.insert("version".into(), json!(version));
        notes.fill("CHART_VERSION", "plugins.ksml.config.version", &["/plugins/ksml/config/version"]);
    }
    let Some(namespace) = set("NAMESPACE") else {
        bail!(
            "REGISTRY_URL and CHART_NAME are set, but not NAMESPACE, the namespace that applications go to; set it, or \
             write plugins.ksml.config into sutler.toml and unset them"
        )
    };
    // In grants it would be a pattern.
    let name = Identifier::parse(&namespace).map_err(|e| {
        anyhow!("NAMESPACE has to be the name of one namespace: {}; for a pattern write plugins.ksml into sutler.toml", e.rule)
    })?;
    config.insert("namespace".into(), json!(name));
    let of_namespace = [
        "/plugins/ksml/config/namespace",
        "/plugins/ksml/grants/helm/namespaces",
        "/plugins/ksml/grants/kubernetes",
        "/plugins/ksml/grants/logs/namespaces",
    ];
    notes.fill("NAMESPACE", "plugins.ksml.config.namespace, and the grants in it", &of_namespace);
    let mut plugin = json!({"config": config, "grants": grants(chart, name.as_str())});
    if let (Some(file), Some(plugin)) = (set("CUSTOM_VALUES_FILE"), plugin.as_object_mut()) {
        // As the variable was read: from where the process was started.
        let file = std::path::absolute(Path::new(&file)).unwrap_or_else(|_| PathBuf::from(file));
        plugin.insert("config-files".into(), json!({"values-file": file}));
        let key = "plugins.ksml.config-files.values-file";
        notes.fill("CUSTOM_VALUES_FILE", key, &["/plugins/ksml/config-files/values-file"]);
    }
    Ok(plugin)
}

/// What the variables say of the registry where its table says nothing: of keys that say the same in two ways only one may
/// be set.
fn registry(
    set: &impl Fn(&str) -> Option<String>,
    host: &str,
    notes: &mut Notes<'_>,
) -> anyhow::Result<Map<String, Value>> {
    let said = notes.said.get("registries").and_then(|all| all.get(host)).unwrap_or(&Value::Null);
    let open = |keys: &[&str]| keys.iter().all(|key| said.get(key).is_none());
    let mut out = Map::new();
    let by_password = open(&["token", "token-file", "token-env", "docker-config"]);
    if on(set("REGISTRY_AUTH_ENABLED")) && by_password {
        if open(&["username"]) {
            let Some(user) = set("REGISTRY_USERNAME") else {
                bail!(
                    "REGISTRY_AUTH_ENABLED is set, but not REGISTRY_USERNAME; set it, or username in [registries.{host:?}]"
                )
            };
            out.insert("username".into(), json!(user));
            notes.tell("REGISTRY_USERNAME", &format!("registries.{host:?}.username"));
        }
        if open(&["password", "password-file", "password-env"]) {
            ensure!(
                set("REGISTRY_PASSWORD").is_some(),
                "REGISTRY_AUTH_ENABLED is set, but not REGISTRY_PASSWORD; set it, or password-file in [registries.{host:?}]"
            );
            out.insert("password-env".into(), json!("REGISTRY_PASSWORD"));
            notes.tell("REGISTRY_PASSWORD", &format!("registries.{host:?}.password-file"));
        }
    }
    if set("CLIENT_CA_FILE").is_some() && open(&["ca"]) {
        out.insert("ca-env".into(), json!("CLIENT_CA_FILE"));
        notes.tell("CLIENT_CA_FILE", &format!("registries.{host:?}.ca"));
    }
    Ok(out)
}

/// The chart's address, and the registry's host. What is wrong is told without the values: one may hold a password.
fn chart(url: &str, name: &str) -> anyhow::Result<(String, String)> {
    ensure!(
        !url.contains('@'),
        "REGISTRY_URL has a user name or a password in it; write oci://HOST[:PORT][/PATH], and set REGISTRY_USERNAME and \
         REGISTRY_PASSWORD with REGISTRY_AUTH_ENABLED=true"
    );
    let path = match url.split_once("://") {
        None => url,
        Some((scheme, path)) if scheme.eq_ignore_ascii_case("oci") => path,
        Some(_) => bail!(
            "REGISTRY_URL is not the address of an OCI registry: charts come from OCI registries only; write \
             oci://HOST[:PORT][/PATH], and push the chart there with `helm push`"
        ),
    };
    let path = path.trim_matches('/');
    let host = path.split('/').next().unwrap_or_default();
    ensure!(!host.is_empty(), "REGISTRY_URL names no registry; write oci://HOST[:PORT][/PATH]");
    let name = name.trim_matches('/');
    let plain = !name.contains('/') && format!("oci://registry/{name}").parse::<ChartUrl>().is_ok();
    ensure!(
        plain,
        "CHART_NAME is not the name of a chart: use lower-case letters, digits, '.', '_' and '-'; the path goes into \
         REGISTRY_URL and the version into CHART_VERSION"
    );
    let chart = format!("oci://{path}/{name}");
    if let Err(e) = chart.parse::<ChartUrl>() {
        bail!("REGISTRY_URL with CHART_NAME: {e}");
    }
    Ok((chart, host.to_owned()))
}

fn on(value: Option<String>) -> bool {
    value.is_some_and(|v| ["true", "1", "yes", "on"].contains(&v.to_ascii_lowercase().as_str()))
}

/// What the plugin needs in its one namespace.
fn grants(chart: &str, namespace: &str) -> Value {
    let rule =
        |verbs: &[&str], kind: &str| json!({"verbs": verbs, "kinds": [kind], "namespaces": [namespace]});
    let mut claims = rule(&["list", "delete"], "PersistentVolumeClaim");
    if let Some(claims) = claims.as_object_mut() {
        // A StatefulSet's controller makes them.
        claims.insert("unowned".into(), json!(true));
    }
    json!({
        "helm": {"charts": [chart], "namespaces": [namespace]},
        "kubernetes": [rule(&["get", "apply", "delete"], "Secret"), rule(&["list"], "Pod"), claims],
        "logs": {"namespaces": [namespace]},
    })
}

#[cfg(test)]
mod tests;
