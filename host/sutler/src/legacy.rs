//! The environment variables of the KSML Provisioner, sutler's predecessor in this role: they fill keys that neither
//! sutler.toml nor `SUTLER__…` set. They have common names (`NAMESPACE`), so they count only where REGISTRY_URL and
//! CHART_NAME are both set.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use serde_json::{Map, Value, json};

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
/// In words, where a variable has no equal here or cannot be used.
pub(crate) fn read(get: impl Fn(&str) -> Option<String>, said: &Value) -> anyhow::Result<Option<Legacy>> {
    let set = |name: &str| get(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
    let (Some(url), Some(name)) = (set("REGISTRY_URL"), set("CHART_NAME")) else { return Ok(None) };
    let mut out = Legacy::default();
    let mut note = |variable, instead: &str| out.notices.push(Notice { variable, instead: instead.into() });
    let (chart, host) = chart(&url, &name)?;
    note("REGISTRY_URL", "plugins.ksml.config.chart");
    note("CHART_NAME", "plugins.ksml.config.chart");
    let mut config = Map::from_iter([("chart".to_owned(), json!(chart))]);
    if let Some(version) = set("CHART_VERSION") {
        config.insert("version".into(), json!(version));
        note("CHART_VERSION", "plugins.ksml.config.version");
    }
    let Some(namespace) = set("NAMESPACE") else {
        bail!(
            "REGISTRY_URL and CHART_NAME are set, but not NAMESPACE, the namespace that applications go to; set it, or \
             write plugins.ksml.config into sutler.toml and unset them"
        )
    };
    config.insert("namespace".into(), json!(namespace));
    note("NAMESPACE", "plugins.ksml.config.namespace, and the grants in it");
    let mut plugin = json!({"config": config, "grants": grants(&chart, &namespace)});
    if let (Some(file), Some(plugin)) = (set("CUSTOM_VALUES_FILE"), plugin.as_object_mut()) {
        // As the variable was read: from where the process was started.
        let file = std::path::absolute(Path::new(&file)).unwrap_or_else(|_| PathBuf::from(file));
        plugin.insert("config-files".into(), json!({"values-file": file}));
        note("CUSTOM_VALUES_FILE", "plugins.ksml.config-files.values-file");
    }
    let said = said.get("registries").and_then(|all| all.get(&host)).unwrap_or(&Value::Null);
    let registry = registry(&set, &host, said, &mut note)?;
    ensure!(
        !on(set("INSECURE_SKIP_TLS_VERIFY")),
        "INSECURE_SKIP_TLS_VERIFY is set: a registry whose certificate nobody checks may send any chart; name the \
         authority that signed it by ca in [registries.{host:?}], and unset the variable"
    );
    if on(set("DISTRIBUTED_TRACING_ENABLED")) {
        note(
            "DISTRIBUTED_TRACING_ENABLED",
            "nothing: traces of callers (traceparent) are always continued, in the log",
        );
    }
    if on(set("BASIC_AUTH_ENABLED")) {
        note("BASIC_AUTH_ENABLED", "bearer tokens: `sutler token new`, then access.callers");
    }
    out.keys = json!({"kubernetes": {}, "plugins": {"ksml": plugin}});
    if let (false, Some(keys)) = (registry.is_empty(), out.keys.as_object_mut()) {
        keys.insert("registries".into(), json!({host: registry}));
    }
    Ok(Some(out))
}

/// What the variables say of the registry where `said`, its table, says nothing: of keys that say the same in two ways only
/// one may be set.
fn registry(
    set: &impl Fn(&str) -> Option<String>,
    host: &str,
    said: &Value,
    note: &mut impl FnMut(&'static str, &str),
) -> anyhow::Result<Map<String, Value>> {
    let open = |keys: &[&str]| keys.iter().all(|key| said.get(key).is_none());
    let mut out = Map::new();
    if on(set("REGISTRY_AUTH_ENABLED")) {
        let by_password = open(&["token", "token-file", "token-env", "docker-config"]);
        if by_password && open(&["username"]) {
            let Some(user) = set("REGISTRY_USERNAME") else {
                bail!(
                    "REGISTRY_AUTH_ENABLED is set, but not REGISTRY_USERNAME; set it, or username in [registries.{host:?}]"
                )
            };
            out.insert("username".into(), json!(user));
        }
        if by_password && open(&["password", "password-file", "password-env"]) {
            ensure!(
                set("REGISTRY_PASSWORD").is_some(),
                "REGISTRY_AUTH_ENABLED is set, but not REGISTRY_PASSWORD; set it, or password-file in [registries.{host:?}]"
            );
            out.insert("password-env".into(), json!("REGISTRY_PASSWORD"));
        }
        for (variable, key) in [("REGISTRY_USERNAME", "username"), ("REGISTRY_PASSWORD", "password-file")] {
            if set(variable).is_some() {
                note(variable, &format!("registries.{host:?}.{key}"));
            }
        }
    }
    if set("CLIENT_CA_FILE").is_some() {
        if open(&["ca"]) {
            out.insert("ca-env".into(), json!("CLIENT_CA_FILE"));
        }
        note("CLIENT_CA_FILE", &format!("registries.{host:?}.ca"));
    }
    Ok(out)
}

/// The chart's address, and the registry's host.
fn chart(url: &str, name: &str) -> anyhow::Result<(String, String)> {
    ensure!(
        !url.starts_with("http://") && !url.starts_with("https://"),
        "REGISTRY_URL names a web address: charts come from OCI registries only; write oci://HOST[:PORT][/PATH], and push \
         the chart there with `helm push`"
    );
    let path = url.trim_start_matches("oci://").trim_matches('/');
    let host = path.split('/').next().unwrap_or_default().to_owned();
    ensure!(!host.is_empty(), "REGISTRY_URL names no registry; write oci://HOST[:PORT][/PATH]");
    Ok((format!("oci://{path}/{}", name.trim_matches('/')), host))
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
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn beside(said: &Value, pairs: &[(&str, &str)]) -> Result<Option<Legacy>, String> {
        let all: HashMap<&str, &str> = pairs.iter().copied().collect();
        read(|name| all.get(name).map(|v| (*v).to_owned()), said).map_err(|e| e.to_string())
    }

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Legacy>, String> {
        beside(&json!({}), pairs)
    }

    const BASE: [(&str, &str); 3] =
        [("REGISTRY_URL", "oci://r.example:5000/charts/"), ("CHART_NAME", "ksml"), ("NAMESPACE", "apps")];

    #[test]
    fn common_names_alone_mean_nothing() {
        assert!(of(&[]).unwrap().is_none());
        assert!(of(&[("NAMESPACE", "kube-system"), ("REGISTRY_URL", "r")]).unwrap().is_none());
        assert!(of(&[("CHART_NAME", "ksml"), ("REGISTRY_URL", " ")]).unwrap().is_none());
    }

    #[test]
    fn every_variable_has_its_key() {
        let more = [
            ("CHART_VERSION", "1.2.3"),
            ("REGISTRY_AUTH_ENABLED", "True"),
            ("REGISTRY_USERNAME", "robot"),
            ("REGISTRY_PASSWORD", "hunter2"),
            ("CUSTOM_VALUES_FILE", "/etc/values.yaml"),
            ("CLIENT_CA_FILE", "LS0tLS1C"),
            ("INSECURE_SKIP_TLS_VERIFY", "false"),
            ("DISTRIBUTED_TRACING_ENABLED", "true"),
            ("BASIC_AUTH_ENABLED", "true"),
        ];
        let got = of(&[&BASE[..], &more[..]].concat()).unwrap().unwrap();
        let ksml = &got.keys["plugins"]["ksml"];
        let config =
            json!({"chart": "oci://r.example:5000/charts/ksml", "version": "1.2.3", "namespace": "apps"});
        assert_eq!(ksml["config"], config);
        assert_eq!(ksml["config-files"], json!({"values-file": "/etc/values.yaml"}));
        assert_eq!(ksml["grants"]["helm"]["charts"], json!(["oci://r.example:5000/charts/ksml"]));
        assert_eq!(ksml["grants"]["logs"], json!({"namespaces": ["apps"]}));
        let registry =
            json!({"username": "robot", "password-env": "REGISTRY_PASSWORD", "ca-env": "CLIENT_CA_FILE"});
        assert_eq!(got.keys["registries"], json!({"r.example:5000": registry}));
        let names: Vec<_> = got.notices.iter().map(|n| n.variable).collect();
        let all = [
            "REGISTRY_URL",
            "CHART_NAME",
            "CHART_VERSION",
            "NAMESPACE",
            "CUSTOM_VALUES_FILE",
            "REGISTRY_USERNAME",
            "REGISTRY_PASSWORD",
            "CLIENT_CA_FILE",
            "DISTRIBUTED_TRACING_ENABLED",
            "BASIC_AUTH_ENABLED",
        ];
        assert_eq!(names, all);
        let told = format!("{:?} {}", got, got.notices.iter().map(Notice::to_string).collect::<String>());
        assert!(!told.contains("hunter2") && !told.contains("LS0tLS1C"), "{told}");
        // Without the switch nobody signs in.
        assert_eq!(of(&BASE).unwrap().unwrap().keys.get("registries"), None);
    }

    #[test]
    fn what_the_file_says_in_another_way_stays_its_own() {
        let variables = [
            ("REGISTRY_AUTH_ENABLED", "true"),
            ("REGISTRY_USERNAME", "robot"),
            ("REGISTRY_PASSWORD", "hunter2"),
            ("CLIENT_CA_FILE", "LS0tLS1C"),
        ];
        let (user, password, ca) =
            (json!("robot"), json!("REGISTRY_PASSWORD"), json!({"ca-env": "CLIENT_CA_FILE"}));
        let login = json!({"username": user, "password-env": password});
        let both = json!({"username": user, "password-env": password, "ca-env": "CLIENT_CA_FILE"});
        for (said, filled) in [
            (json!({"ca": "ca.pem"}), &login),
            (json!({"password-file": "pw"}), &json!({"username": user, "ca-env": "CLIENT_CA_FILE"})),
            (json!({"password": "x", "username": "me"}), &ca),
            (json!({"username": "me"}), &json!({"password-env": password, "ca-env": "CLIENT_CA_FILE"})),
            (json!({"token-file": "t"}), &ca),
            (json!({"docker-config": "c.json"}), &ca),
            (json!({"cosign-key": "k"}), &both),
        ] {
            let file = json!({"registries": {"r.example:5000": said, "other.example": {"ca": "x"}}});
            let got = beside(&file, &[&BASE[..], &variables[..]].concat()).unwrap().unwrap();
            assert_eq!(&got.keys["registries"]["r.example:5000"], filled, "{said}");
            // Each is told of as long as it is set.
            assert_eq!(got.notices.len(), 6, "{said}");
        }
        // As the errors advise.
        let file = json!({"registries": {"r.example:5000": {"username": "me", "password-file": "pw"}}});
        assert!(beside(&file, &[&BASE[..], &variables[..1]].concat()).is_ok());
    }

    #[test]
    fn what_has_no_equal_is_refused() {
        let with = |more: &[(&str, &str)]| of(&[&BASE[..], more].concat()).map(drop).unwrap_err();
        assert!(
            with(&[("INSECURE_SKIP_TLS_VERIFY", "true")]).contains("ca in [registries.\"r.example:5000\"]")
        );
        assert!(
            with(&[("REGISTRY_URL", "https://nexus.example/repository/charts")])
                .contains("OCI registries only")
        );
        assert!(with(&[("REGISTRY_URL", "oci://")]).contains("names no registry"));
        assert!(with(&[("NAMESPACE", "")]).contains("not NAMESPACE"));
        assert!(with(&[("REGISTRY_AUTH_ENABLED", "1")]).contains("REGISTRY_USERNAME"));
        let user = [("REGISTRY_AUTH_ENABLED", "1"), ("REGISTRY_USERNAME", "u")];
        assert!(with(&user).contains("REGISTRY_PASSWORD"));
    }
}
